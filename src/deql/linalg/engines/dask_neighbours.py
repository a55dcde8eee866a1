"""Neighbourhoods on a cluster: pairs of items summed from parts of the users, then spans of columns as pure tasks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql._system.formatting import show_bytes
from deql._system.progress import ProgressCallback, Stage
from deql.errors import TooLargeError
from deql.linalg.engines.dask_cluster import Cluster
from deql.linalg.engines.dask_tasks import (
    first_done,
    handed_over,
    release_all,
    result_of,
    run_tasks,
    send,
    use_one_thread,
)
from deql.linalg.engines.engine import Problem, RowPart
from deql.linalg.engines.pair_sums import sum_parts
from deql.linalg.engines.resources import INTERPRETER
from deql.linalg.neighbourhoods import NeighbourColumns, bytes_of_thread, solve_columns
from deql.linalg.sparse_triangle import SparseTriangle
from deql.linalg.strongest_pairs import StrongestPairs, strongest_pairs

__all__ = ["columns_on_cluster"]

_SUMS_PER_THREAD = 2
"""Tasks for each thread that sum pairs: so that no thread waits long for the last."""

_SPANS_PER_THREAD = 8
_LONGEST_SPAN = 2048
"""Columns that are solved by one task: some MB of results."""

Factors = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float64], NDArray[np.float64]]


def columns_on_cluster(
    problem: Problem,
    k: int,
    items: NDArray[np.int32],
    places: NDArray[np.int32],
    prior: Factors | None,
    cluster: Cluster,
    stage: Stage,
) -> NeighbourColumns:
    """Columns of all neighbourhoods, in order of popularity, as :func:`~deql.linalg.neighbourhoods.solve_columns` has.

    Every task is pure and knows how its arguments are made, so that Dask makes again what a lost worker had.

    Parameters
    ----------
    problem : Problem
    k : int
        Less than there are items.
    items, places : ndarray of int32
        See :func:`~deql.linalg.sparse_triangle.popularity_order`.
    prior : tuple, optional
        As :func:`~deql.linalg.neighbourhoods.solve_columns` takes it.
    cluster : Cluster
        Its workers are known.
    stage : callable
        See :func:`deql._system.progress.stages`.

    Raises
    ------
    TooLargeError
        If a worker has too little memory for the sums, which each of them holds once.
    """
    client, asker = cluster.client, os.getpid()
    threads = sum(worker.threads for worker in cluster.workers.values())
    n, dtype = problem.n, np.dtype(problem.dtype)
    added = problem.added[items]
    memory = min(worker.memory // worker.threads for worker in cluster.workers.values())  # of a task
    with (
        handed_over(client, "places", places) as shared_places,
        handed_over(client, "diagonal-and-prior", (added, prior)) as rest,
    ):
        tasks = _assigned(problem.parts(_SUMS_PER_THREAD * threads), _SUMS_PER_THREAD * threads)
        S = _summed(client, tasks, shared_places, dtype, memory, asker, stage("Pairs of items"))
        lists = send(client, "strongest-pairs", _strongest, S, added, k, asker)
        try:
            size = _result(client, send(client, "size", _size, S, lists, rest))
            _check_memory(cluster, n, k, dtype, size)
            step = max(1, min(_LONGEST_SPAN, -(-n // (_SPANS_PER_THREAD * threads))))
            spans = [(first, min(first + step, n)) for first in range(0, n, step)]
            columns = _room(n, k, dtype, prior is not None)
            arrays: tuple[NDArray[Any], ...] = columns
            arguments = [(S, lists, rest, k, span, asker) for span in spans]
            for number, found in run_tasks(client, "columns", _solve_span, arguments, stage("Neighbourhoods")):
                for whole, part in zip(arrays, found, strict=True):
                    if len(whole):
                        whole[slice(*spans[number])] = part
            return columns
        finally:
            S.release()
            lists.release()


def _assigned(parts: Sequence[RowPart], tasks: int) -> list[list[RowPart]]:
    """Parts that follow each other, about as many entries for each task."""
    ends = np.cumsum([part.n_interactions for part in parts])
    which = np.minimum((ends - 1) * tasks // max(1, int(ends[-1])), tasks - 1)
    return [[part for part, at in zip(parts, which, strict=True) if at == task] for task in np.unique(which)]


def _summed(
    client: Any,
    tasks: list[list[RowPart]],
    places: Any,
    dtype: np.dtype[Any],
    memory: int,
    asker: int,
    report: ProgressCallback | None,
) -> Any:
    """S as the result of a task, once that is done: sums of some users each, added up in a tree."""
    waiting: list[Any] = []
    sums: list[Any] = []
    try:
        for parts in tasks:
            waiting.append(send(client, "pairs", _sum_pairs, parts, places, dtype, memory, asker))
        sums = list(waiting)
        while len(sums) > 1:
            pairs = [sums[at : at + 2] for at in range(0, len(sums), 2)]
            sums = []
            for pair in pairs:
                if len(pair) == 2:
                    waiting.append(send(client, "pairs-add", _add, *pair, asker))
                sums.append(pair[0] if len(pair) == 1 else waiting[-1])
        total, (whole,) = len(waiting), sums
        while waiting:
            for future in first_done(client, waiting):
                if future.status != "finished":
                    result_of(client, future)  # raises what the task raised
                waiting.remove(future)
                if future is not whole:  # of the others nobody but Dask, for those to come, has the result
                    future.release()
            if report is not None:
                report(total - len(waiting), total)
        return whole
    except BaseException:
        release_all([*waiting, *sums])  # an error whose frames hold them may be kept for long
        raise


def _check_memory(cluster: Cluster, n: int, k: int, dtype: np.dtype[Any], size: int) -> None:
    of_thread = bytes_of_thread(n, k, dtype.itemsize)
    for worker in cluster.workers.values():
        needed = INTERPRETER + size + of_thread * worker.threads
        if needed > worker.memory:
            raise TooLargeError(
                f"the pairs of {n:,} items and what is solved from them take {show_bytes(needed)} on each worker, and "
                f"{worker.address} may take {show_bytes(worker.memory)}: use workers with more memory, or keep fewer "
                "items"
            )


def _result(client: Any, future: Any) -> Any:
    try:
        first_done(client, [future])
        return result_of(client, future)
    finally:
        release_all([future])


def _room(n: int, k: int, dtype: np.dtype[Any], has_prior: bool) -> NeighbourColumns:
    shape = n, k + 1
    images = np.empty(shape if has_prior else (0, k + 1), dtype)
    return NeighbourColumns(
        np.zeros(n, np.int32), np.empty(shape, np.int32), np.empty(shape, dtype), images, np.zeros(n)
    )


def _sum_pairs(
    parts: list[RowPart], places: NDArray[np.int32], dtype: np.dtype[Any], memory: int, asker: int
) -> SparseTriangle:
    use_one_thread(asker)
    return sum_parts(parts, places, dtype, memory=memory)


def _add(one: SparseTriangle, other: SparseTriangle, asker: int) -> SparseTriangle:
    use_one_thread(asker)
    return one.merged(other)


def _strongest(S: SparseTriangle, added: NDArray[np.float64], k: int, asker: int) -> StrongestPairs:
    use_one_thread(asker)
    return strongest_pairs(S, S.diagonal + added, k)


def _size(S: SparseTriangle, lists: StrongestPairs, rest: tuple[NDArray[np.float64], Factors | None]) -> int:
    arrays = [S.indptr, S.columns, S.values, S.diagonal, *lists, rest[0], *(rest[1] or ())]
    return sum(array.nbytes for array in arrays)


def _solve_span(
    S: SparseTriangle,
    lists: StrongestPairs,
    rest: tuple[NDArray[np.float64], Factors | None],
    k: int,
    span: tuple[int, int],
    asker: int,
) -> NeighbourColumns:
    use_one_thread(asker)
    added, prior = rest
    return solve_columns(S, added, k, lists, span=span, prior=prior)
