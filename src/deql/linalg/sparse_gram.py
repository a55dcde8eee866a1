"""The Gram matrix RᵀΛR as a sparse matrix, for models that need its entries and not its inverse."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.machine import free_memory
from deql._system.threads import run_slices
from deql.errors import TooLargeError

__all__ = ["sparse_gram"]


def sparse_gram(matrix: csr_array, weights: NDArray[np.float64]) -> csr_array:
    """S = RᵀΛR with Λ = diag(weights), in float64 and twelve bytes for each pair of items that share a user.

    Its entries are counted first, so that nothing is allocated that would not fit. The columns of a row are in the
    order in which they were met.

    Parameters
    ----------
    matrix : csr_array
        Users × items R.
    weights : ndarray
        Of the users, see :func:`deql.linalg.gram.user_weights`.

    Raises
    ------
    TooLargeError
        If S is larger than the free memory.

    Examples
    --------
    >>> sparse_gram(csr_array([[1.0, 1.0, 0.0], [0.0, 2.0, 1.0]]), np.ones(2)).toarray()
    array([[1., 1., 0.],
           [1., 5., 2.],
           [0., 2., 1.]])
    """
    n = matrix.shape[1]
    by_item = matrix.tocsc()
    operands = (
        by_item.indptr, by_item.indices, by_item.data * weights[by_item.indices],
        matrix.indptr, matrix.indices, matrix.data,
    )  # fmt: skip
    # Handed out in slices of about equal work: an item costs the histories of its users.
    work = np.concatenate([[0], np.cumsum(np.diff(matrix.indptr)[by_item.indices])])[by_item.indptr]
    bounds = sorted({0, *np.searchsorted(work, np.linspace(0, work[-1], 100)).tolist(), n})
    begins, stop = np.zeros(n + 1, np.int64), np.zeros(1, bool)
    run_slices(_sum_rows, bounds, *operands, True, begins, np.empty(0, np.int32), np.empty(0), stop, stop=stop)
    np.cumsum(begins, out=begins)
    needed, free = 12 * int(begins[-1]), free_memory()
    if needed > free:
        raise TooLargeError(
            f"{begins[-1]:,} pairs of items share a user: their Gram matrix needs {needed / 2**30:.1f} GiB of memory, "
            f"and {free / 2**30:.1f} GiB are free; leave out rare items or users with very many"
        )
    columns, values = np.empty(begins[-1], np.int32), np.empty(begins[-1])
    run_slices(_sum_rows, bounds, *operands, False, begins, columns, values, stop, stop=stop)
    return csr_array((values, columns, begins), shape=(n, n))


@njit(cache=True, nogil=True)
def _sum_rows(  # type: ignore[no-untyped-def]
    first, last, item_ptr, users, weighted, user_ptr, items, values, counting, begins, out_columns, out_values, stop
):
    """Count the entries of row i into ``begins[i + 1]``, or write them from ``begins[i]`` on."""
    n = len(begins) - 1
    sums, met = np.empty(n), np.full(n, -1, np.int32)
    for i in range(first, last):
        if stop[0]:
            return
        end = 0 if counting else begins[i]
        for p in range(item_ptr[i], item_ptr[i + 1]):
            u = users[p]
            for q in range(user_ptr[u], user_ptr[u + 1]):
                j = items[q]
                if met[j] != i:
                    met[j] = i
                    sums[j] = 0.0
                    if not counting:
                        out_columns[end] = j
                    end += 1
                sums[j] += weighted[p] * values[q]
        if counting:
            begins[i + 1] = end
        else:
            for p in range(begins[i], end):
                out_values[p] = sums[out_columns[p]]
