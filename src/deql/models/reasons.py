"""Why each item of many lists: the items of the history that add most to its score."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql.ranking import NO_ITEM

if TYPE_CHECKING:
    from deql.models.fitted import FittedModel

__all__ = ["name_reasons"]

_PARTS = 2**20
"""Parts of scores in memory at once, though at least those of one user."""


def name_reasons(model: FittedModel, matrix: csr_array, columns: NDArray[np.int32], most: int) -> NDArray[Any]:
    """The items of each history that add most to the scores of its list, as text.

    Parameters
    ----------
    model : fitted model
    matrix : csr_array
        Histories in the model's columns.
    columns : ndarray of int32, users × k
        Their lists.
    most : int
        How many items to name; only those that add something above 0 are.

    Returns
    -------
    ndarray of str or None, users × k
        Titles, or ids where there are none, with semicolons between them, the largest part first.

    Examples
    --------
    >>> import deql
    >>> data = deql.Interactions.from_pairs(list("aabbcccd"), ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"])
    >>> deql.EASE(l2=1.0).fit(data).recommend([["tea", "egg"]], k=1, reasons=2).reasons.tolist()
    [['tea; egg']]
    """
    matrix = csr_array(matrix[:, : len(model.items_)])  # a user's own vector names no item
    names = model.items_ if model.titles_ is None else model.titles_
    named = np.full(columns.shape, None, object)
    lengths = np.diff(matrix.indptr).astype(np.int64)
    ends = np.cumsum(lengths * (columns != NO_ITEM).sum(axis=1))
    first = 0
    while first < len(columns):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + _PARTS, "right")))
        rows, ranks = np.nonzero((columns[first:last] != NO_ITEM) & (lengths[first:last, None] > 0))
        rows += first
        entries, places = _spread(matrix.indptr[rows], lengths[rows])
        sources = matrix.indices[places]
        parts = matrix.data[places] * model._weights_at(sources, columns[rows, ranks][entries])
        order = np.lexsort((sources, -parts, entries))
        # Sorted by entry, those of an entry begin where the parts of it do.
        within = np.arange(len(order)) - np.repeat(np.cumsum(lengths[rows]) - lengths[rows], lengths[rows])
        kept = order[(within < most) & (parts[order] > 0)]
        told = names[sources[kept]].tolist()
        bounds = np.searchsorted(entries[kept], np.arange(len(rows) + 1)).tolist()
        for row, rank, (start, stop) in zip(rows.tolist(), ranks.tolist(), pairwise(bounds), strict=True):
            if stop > start:
                named[row, rank] = "; ".join(map(str, told[start:stop]))
        first = last
    return named


def _spread(starts: NDArray[Any], lengths: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For runs of places that begin at ``starts``: the run of each place, and the places.

    Examples
    --------
    >>> _spread(np.array([5, 0]), np.array([2, 1]))
    (array([0, 0, 1]), array([5, 6, 0]))
    """
    runs = np.repeat(np.arange(len(starts)), lengths)
    places = np.arange(len(runs)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + np.repeat(starts, lengths)
    return runs, places
