"""Which items of a list are among those that a user was to be recommended."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql.ranking import NO_ITEM

__all__ = ["find_hits"]


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
