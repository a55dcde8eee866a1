"""Ranks the evaluated users slice by slice, for all models that share a fit at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.progress import ProgressCallback
from deql.models.base import Recommender

__all__ = ["RankedSlice", "group_models", "ranked_slices"]

_LIST_ENTRIES = 2**24
_LEAST_USERS, _MOST_USERS = 2**10, 2**16
"""Users of a slice: as many as their lists, of all models, take entries; each slice reads all of P."""


@dataclass(frozen=True)
class RankedSlice:
    """The lists of some users: models × users × k columns, and squared scores, models × users, if asked for."""

    rows: slice
    columns: NDArray[np.int32]
    squares: NDArray[np.float64] | None


def group_models(models: Sequence[Recommender]) -> list[list[int]]:
    """Positions of the models that share a fit, together; every other model alone.

    Examples
    --------
    >>> import deql
    >>> first = deql.EASE(l2=1.0).fit(deql.Interactions.from_pairs(list("aab"), list("xyx")))
    >>> group_models([first, deql.Popularity(), first.with_rule(b=2.0)])
    [[0, 2], [1]]
    """
    groups: dict[tuple[str, int], list[int]] = {}
    for position, model in enumerate(models):
        shared = model._shared_fit
        groups.setdefault(("alone", position) if shared is None else ("shared", id(shared)), []).append(position)
    return list(groups.values())


def ranked_slices(
    models: Sequence[Recommender], matrix: csr_array, k: int, squares: bool, report: ProgressCallback | None
) -> Iterator[RankedSlice]:
    """Best unseen columns of every user under every model of a group, in slices of users.

    Parameters
    ----------
    models : sequence of fitted models
        A group of :func:`group_models`.
    matrix : csr_array
        Histories in the models' columns. A user without any, a cold start, gets the popularity fallback.
    k : int
        Length of the lists.
    squares : bool
        Whether Σ score² over the items a user does not have is wanted too; it is 0 for users without
        a history.
    report : callable, optional
        Called as ``report(done, total)``.
    """
    model, users = models[0], matrix.shape[0]
    k = min(k, len(model.items_))
    per_slice = max(_LEAST_USERS, min(_MOST_USERS, _LIST_ENTRIES // (k * len(models))))
    slices = -(-users // per_slice)
    bounds = np.linspace(0, users, slices + 1).astype(int).tolist()
    for number, (first, last) in enumerate(pairwise(bounds)):
        part = matrix if slices == 1 else matrix[first:last]

        def tell(done: int, total: int, before: int = number) -> None:
            if report is not None:
                report(before * total + done, slices * total)

        sums = np.zeros((len(models), last - first)) if squares else None
        columns = model._rank_group(models, part, k, sums, None if report is None else tell)
        cold = np.diff(part.indptr) == 0
        if cold.any():
            columns[:, cold] = model._popular(k, np.ones(len(model.items_), bool))[0]
        yield RankedSlice(slice(first, last), columns, sums)
