"""Pairs of items that share users, summed from parts of the users that memory need not hold at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from deql._system.machine import free_memory
from deql._system.progress import ProgressCallback
from deql.linalg.engines.engine import Problem, RowPart
from deql.linalg.engines.stored_rows import StoredRows
from deql.linalg.sparse_triangle import SparseTriangle, sum_triangle

__all__ = ["item_counts", "least_room", "sum_parts"]

_AT_ONCE = 2**20
"""Interactions that are summed at once, however little memory is free."""

_EACH = 40
"""Bytes of an interaction while it is summed: in R, in its transpose, and two numbers beside."""


def item_counts(problem: Problem) -> NDArray[np.int64]:
    """How many users have each item: as a folder of partitions says, or counted.

    Examples
    --------
    >>> item_counts(Problem(csr_array([[1.0, 1.0], [0.0, 2.0]]), np.ones(2)))
    array([1, 2])
    """
    if isinstance(problem.rows, StoredRows):
        return problem.rows.data.item_counts[: problem.n]
    return np.bincount(problem.matrix.indices, minlength=problem.n)


def least_room(parts: Sequence[RowPart]) -> int:
    """Bytes that summing takes at least, however little memory is free.

    Examples
    --------
    >>> least_room([]) // 2**20
    40
    """
    return _EACH * max([_AT_ONCE, *(part.n_interactions for part in parts)])


def sum_parts(
    parts: Sequence[RowPart],
    places: NDArray[np.int32],
    dtype: np.dtype[Any],
    report: ProgressCallback | None = None,
    memory: int | None = None,
) -> SparseTriangle:
    """S of all users, from as many parts at a time as a share of memory holds.

    Parameters
    ----------
    parts : sequence of RowPart
    places : ndarray of int32
        Of each item in order of popularity.
    dtype : dtype
        Of the sums.
    report : callable, optional
        Called as ``report(done, total)``, in users.
    memory : int, optional
        Bytes, of which an eighth may be taken for interactions; what the machine has free if not given.
    """
    total, done, n = None, 0, len(places)
    for rows, weights in _gathered(parts, places, free_memory() if memory is None else memory):

        def tell(seen: NDArray[np.int64], done: int = done, share: int = rows.shape[0]) -> None:
            if report is not None:
                report(done + int(share * seen.sum() / (2 * n)), sum(part.n_users for part in parts))

        added = sum_triangle(rows, weights, dtype, poll=None if report is None else tell)
        done += rows.shape[0]
        total = added if total is None else total.merged(added)
    assert total is not None
    return total


def _gathered(
    parts: Sequence[RowPart], places: NDArray[np.int32], memory: int
) -> Iterator[tuple[csr_array, NDArray[np.float64] | None]]:
    """Rows of several parts joined, with their columns in order of popularity."""
    most = max(_AT_ONCE, memory // 8 // _EACH)
    waiting: list[csr_array] = []
    weighing: list[NDArray[np.float64]] = []
    held = 0
    for at, part in enumerate(parts):
        rows, weights = part.load()
        ordered = csr_array((rows.data.copy(), places[rows.indices], rows.indptr), shape=rows.shape)
        ordered.sort_indices()
        waiting.append(ordered)
        if weights is not None:
            weighing.append(weights)
        held += ordered.nnz
        if at + 1 == len(parts) or held + parts[at + 1].n_interactions > most:
            yield (
                csr_array(vstack(waiting, format="csr")) if len(waiting) > 1 else waiting[0],
                np.concatenate(weighing) if weighing else None,
            )
            waiting, weighing, held = [], [], 0
