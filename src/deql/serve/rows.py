"""The rows of P (see :mod:`deql.ranking.quantised`), in memory once for all workers."""

from __future__ import annotations

import logging
import mmap
import os

from deql.errors import ParameterError
from deql.models.base import Recommender
from deql.models.linear import LinearAutoencoder
from deql.ranking.quantised import ResidentRows
from deql.serve.logs import log
from deql.serve.memory import fits, in_memory, seal

__all__ = ["attach", "share"]


def share(model: Recommender) -> int | None:
    """An open file in memory with the rows of a model's P; None if it has no P, too little memory, or no rows can be.

    Examples
    --------
    >>> import deql
    >>> model = deql.EASE(l2=1.0).fit(deql.Interactions.from_pairs(list("aab"), list("xyx")))
    >>> file = share(model)
    >>> attach(model, file)
    >>> os.close(file)  # what is mapped stays
    >>> model.recommend([["y"]], k=1).ids.tolist()
    [['x']]
    """
    if not isinstance(model, LinearAutoencoder):
        return None
    size = ResidentRows.size(model.precision_.n)
    if not fits(size):
        log("rows_left_out", logging.WARNING, reason="too little memory: lists take longer", bytes=size)
        return None
    file = in_memory("rows", size)
    try:
        ResidentRows.fill(model.precision_, mmap.mmap(file, size))
        seal(file)
    except ParameterError as error:  # numbers that 8 bits cannot stand for
        os.close(file)
        log("rows_left_out", logging.WARNING, reason=f"{error}; lists take longer")
        return None
    except BaseException:
        os.close(file)
        raise
    return file


def attach(model: Recommender, file: int) -> None:
    """Let a model, loaded from the same file, rank with rows that another process made."""
    assert isinstance(model, LinearAutoencoder)
    # Private, as before Linux 6.7 a sealed file cannot be mapped otherwise; what nobody writes is shared all the same.
    model.resident_ = ResidentRows(model.precision_, mmap.mmap(file, 0, mmap.MAP_PRIVATE, mmap.PROT_READ))
