"""Hits among the ranked items, and one model's metrics, added up as slices of users are ranked."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql.metrics import Metric
from deql.ranking.rank import NO_ITEM

__all__ = ["MetricAccumulator", "find_hits"]


class MetricAccumulator:
    """One model's metrics so far.

    Parameters
    ----------
    wanted : dict of str to (Metric, int)
        The metrics, as :func:`~deql.metrics.parse_metrics` gives them.
    held_out : ndarray of int64
        How many items of each user are held out.
    item_counts : ndarray of int64
        How many training users have each item.
    n_users : int
        How many training users there are.

    Examples
    --------
    >>> from deql.metrics import parse_metrics
    >>> metrics = MetricAccumulator(parse_metrics("recall@2"), np.array([2, 1]), np.array([3, 1, 1]), 3)
    >>> metrics.add(slice(0, 1), np.array([[2, 0]]), np.array([[True, False]]))
    >>> metrics.add(slice(1, 2), np.array([[1, 2]]), np.array([[True, False]]))
    >>> metrics.result(seen=4)
    ({'recall@2': 0.75}, {'recall@2': array([0.5, 1. ])})
    """

    def __init__(
        self,
        wanted: Mapping[str, tuple[Metric, int]],
        held_out: NDArray[np.int64],
        item_counts: NDArray[np.int64],
        n_users: int,
    ) -> None:
        self._wanted, self._held_out, self._item_counts, self._n_users = wanted, held_out, item_counts, n_users
        self._per_user = {text: np.empty(len(held_out)) for text, (metric, _) in wanted.items() if metric.of_users}
        self._times = {
            text: np.zeros(len(item_counts), np.int64) for text, (metric, _) in wanted.items() if not metric.of_users
        }

    def add(
        self,
        rows: slice,
        columns: NDArray[np.int32],
        hits: NDArray[np.bool_],
        errors: NDArray[np.float64] | None = None,
    ) -> None:
        """The lists of the users in ``rows``, which of their items were held out, and squared errors if wanted."""
        for text, (metric, k) in self._wanted.items():
            if metric.of == "hits":
                self._per_user[text][rows] = metric.function(hits, self._held_out[rows], k)
            elif metric.of == "lists":
                self._per_user[text][rows] = metric.function(columns, self._item_counts, self._n_users, k)
            elif metric.of == "catalogue":
                near = columns[:, :k]
                self._times[text] += np.bincount(near[near != NO_ITEM], minlength=len(self._item_counts))
            else:
                self._per_user[text][rows] = errors

    def result(self, seen: int) -> tuple[dict[str, float], dict[str, NDArray[np.float64]]]:
        """Means and users' values; ``seen`` is the number of seen interactions."""
        means = {}
        for text, (metric, _) in self._wanted.items():
            if metric.of == "errors":
                self._per_user[text] = metric.function(self._per_user[text], seen)
            means[text] = float(self._per_user[text].mean()) if metric.of_users else metric.function(self._times[text])
        return means, self._per_user


def find_hits(columns: NDArray[np.int32], truth: csr_array) -> NDArray[np.bool_]:
    """Whether each ranked column is in the user's row of ``truth``: models × users × k, as the lists are.

    Examples
    --------
    >>> find_hits(np.array([[[1, 0], [2, NO_ITEM]]], np.int32), csr_array([[0, 1, 0], [1, 0, 1]])).tolist()
    [[[True, False], [True, False]]]
    """
    hits = np.empty(columns.shape, bool)
    _look_up(columns, truth.indptr, truth.indices, np.zeros(truth.shape[1], bool), hits)
    return hits


@njit(cache=True, nogil=True)
def _look_up(columns, indptr, indices, held_out, hits):  # type: ignore[no-untyped-def]
    # held_out is all False between users: one such array serves them all, and no list needs a search.
    models, users, k = columns.shape
    for u in range(users):
        for p in range(indptr[u], indptr[u + 1]):
            held_out[indices[p]] = True
        for m in range(models):
            for t in range(k):
                column = columns[m, u, t]
                hits[m, u, t] = column != NO_ITEM and held_out[column]
        for p in range(indptr[u], indptr[u + 1]):
            held_out[indices[p]] = False
