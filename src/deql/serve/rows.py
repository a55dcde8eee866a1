"""The rows of P (see :mod:`deql.resident`), in memory once for all workers."""

from __future__ import annotations

import logging
import mmap
import os

from deql.models.base import Recommender
from deql.models.linear import LinearAutoencoder
from deql.resident import ResidentRows
from deql.serve.logs import log
from deql.serve.memory import fits, in_memory

__all__ = ["attach", "share"]


def share(model: Recommender) -> int | None:
    """An open file in memory with the rows of a model's P; None if it has no P, or there is too little memory.

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
    except BaseException:
        os.close(file)
        raise
    return file


def attach(model: Recommender, file: int) -> None:
    """Let a model, loaded from the same file, rank with rows that another process made."""
    assert isinstance(model, LinearAutoencoder)
    # All pages at once, where the system can: else each would be met by some request.
    how = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
    model.resident_ = ResidentRows(model.precision_, mmap.mmap(file, 0, how, mmap.PROT_READ))
