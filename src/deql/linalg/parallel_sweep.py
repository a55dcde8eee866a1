"""The cubic step in memory: the block sweep as tasks for threads, each with products of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from deql._system.progress import ProgressCallback
from deql._system.threads import blas_limited, thread_count
from deql.linalg.blas import MOST_CALLERS, cholesky_inverse, gemm

__all__ = ["TASK_FLOPS", "parallel_sweep"]

TASK_FLOPS = 2**30
"""Of one task at most, unless one tile has more: some milliseconds, short to wait for."""

_GROUPS = 4
"""Of rows, at least: tasks for many threads."""

Chunk = tuple[int, int]
"""A block column and a group of rows: what one task updates."""


class Awaited(Protocol):
    """What a task waits for."""

    def result(self) -> Any:
        """Wait until it is done; raise its error if it failed."""


class AllOf:
    """Several tasks as one, which many tasks wait for: the first of them looks at each."""

    def __init__(self, tasks: Sequence[Awaited]) -> None:
        self.tasks, self.done = tasks, False

    def result(self) -> None:
        if not self.done:
            _wait(self.tasks)
            self.done = True


def parallel_sweep(blocks: Sequence[NDArray[Any]], report: ProgressCallback | None = None) -> None:
    """Replace a symmetric positive definite matrix by its inverse, with all threads.

    The algebra is that of :func:`deql.linalg.sweep.sweep`; here the work is cut into tasks that wait for one another
    and for nothing else. A pivot's tasks are: its inverse Q; for each group of rows, N_i = A_ik·Q, written where A_ik
    was; and for each chunk A_ij of the rest, its update by N_i·A_jkᵀ. The next pivot's row and column are updated
    first, and its inverse and N made beside the other updates. A thread that loses its core holds up what needs its
    own result, rather than every thread at every product.

    Threads take tasks in the order in which they are handed out, and a task waits for earlier ones alone, so that
    the oldest that runs never waits.

    Parameters
    ----------
    blocks : sequence of ndarray
        The lower block columns, all but the last of one width: block J holds rows J·width … n − 1 of its columns.
        Overwritten by those of the inverse; of the tiles on the diagonal the lower half counts. After an error their
        content is undefined.
    report : callable, optional
        Called as ``report(done, total)`` after each pivot.

    Raises
    ------
    NotPositiveDefiniteError
        At the first pivot that is not positive; it names the column.

    Examples
    --------
    >>> from deql.linalg.packed import PackedSymmetric
    >>> a = PackedSymmetric.from_dense(np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 4.0]]), tile=2)
    >>> parallel_sweep([block for _, block in a.blocks()])
    >>> a.to_dense().round(4)
    array([[ 0.6111, -0.2222,  0.0556],
           [-0.2222,  0.4444, -0.1111],
           [ 0.0556, -0.1111,  0.2778]])
    """
    with blas_limited(1):
        if len(blocks) == 1:  # a few items: threads would take longer to start
            blocks[0][:] = cholesky_inverse(blocks[0])
        else:
            _sweep_in_threads(blocks, report)
    if report is not None:
        report(len(blocks), len(blocks))


def _sweep_in_threads(blocks: Sequence[NDArray[Any]], report: ProgressCallback | None) -> None:
    with ThreadPoolExecutor(min(thread_count(), MOST_CALLERS)) as pool:
        try:
            work = _Sweep(blocks, pool)
            before = AllOf([])
            for pivot in range(len(blocks)):
                now = work.hand_out(pivot)
                before.result()  # never more than two pivots are under way
                if report is not None and pivot:
                    report(pivot, len(blocks))
                before = now
            before.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


class _Sweep:
    """What is under way: the latest task of each kind, for those that need its result."""

    def __init__(self, blocks: Sequence[NDArray[Any]], pool: ThreadPoolExecutor) -> None:
        self.blocks, self.pool = blocks, pool
        self.n: int = blocks[0].shape[0]
        self.tile: int = blocks[0].shape[1]
        tiles: int = max(1, min(TASK_FLOPS // (2 * self.tile**3), -(-len(blocks) // _GROUPS)))
        self.tiles_in_group = tiles
        self.groups = [(row, min(row + tiles * self.tile, self.n)) for row in range(0, self.n, tiles * self.tile)]
        # A_k of this pivot and of the next; N needs no room of its own, it is where it belongs.
        self.rooms = [np.empty(self.n * self.tile, blocks[0].dtype) for _ in range(2)]
        self.inverses: dict[int, NDArray[Any]] = {}
        self.updated: dict[Chunk, Future[None]] = {}
        self.last_pivot = AllOf([])
        self.solved = self._solve_tasks(0, self._submit(self._invert, 0))

    def hand_out(self, pivot: int) -> AllOf:
        """Hand out a pivot's updates, and the inverse and N of the next one, in the order in which they are to begin.

        Returned are the tasks that the pivot is done with.
        """
        before, solved = self.last_pivot, self.solved
        updates: list[Awaited] = []
        following = pivot + 1
        chunks = [
            (block, group)
            for block in range(len(self.blocks))
            if block != pivot
            for group in range(self._group(block), len(self.groups))
        ]
        # Where the last pivot's N lies, which its own updates may still be reading: at the end, after all of them.
        chunks.sort(key=lambda chunk: self._touches(chunk, pivot - 1))
        urgent = [chunk for chunk in chunks if self._touches(chunk, following)]
        others = [chunk for chunk in chunks if not self._touches(chunk, following)]

        def submit(several: Iterable[Chunk]) -> None:
            for chunk in several:
                waits: list[Awaited] = [solved[self._group(chunk[0])], solved[chunk[1]]]
                if self._touches(chunk, pivot - 1):
                    waits.append(before)
                elif chunk in self.updated:
                    waits.append(self.updated[chunk])
                self.updated[chunk] = self._submit(self._update, pivot, chunk, after=waits)
                updates.append(self.updated[chunk])

        self.last_pivot = AllOf(updates)
        submit(urgent)
        if following == len(self.blocks):
            submit(others)
            return self.last_pivot
        inverse = self._submit(self._invert, following, after=[*updates])
        # What waits for the inverse is begun when that is likely to be there, and long before it is needed.
        submit(others[: len(others) // 2])
        # Its panel's room is the last pivot's.
        self.solved = self._solve_tasks(following, inverse, before)
        submit(others[len(others) // 2 :])
        return self.last_pivot

    def _solve_tasks(self, pivot: int, *after: Awaited) -> list[Future[None]]:
        return [self._submit(self._solve, pivot, group, after=after) for group in range(len(self.groups))]

    def _submit(self, task: Callable[..., None], *arguments: Any, after: Iterable[Awaited] = ()) -> Future[None]:
        def run() -> None:
            _wait(after)
            task(*arguments)

        return self.pool.submit(run)

    def _invert(self, pivot: int) -> None:
        block = self.blocks[pivot]
        own = block[: block.shape[1]]
        own[:] = self.inverses[pivot % 2] = cholesky_inverse(own, pivot * self.tile)

    def _solve(self, pivot: int, group: int) -> None:
        """Copy rows of A_k to the panel, and put N where they were: above the pivot with the opposite sign."""
        start, stop = self._rows(pivot)
        first, last = self.groups[group]
        panel, inverse, own = self._panel(pivot), self.inverses[pivot % 2], self.blocks[pivot]
        for above in range(first // self.tile, min(last, start) // self.tile):
            left, right = self._rows(above)
            mirrored = self._mirrored(above, pivot)
            panel[left:right] = mirrored.T
            gemm(-1.0, inverse, panel[left:right].T, 0.0, mirrored)
        first = max(first, stop)
        if first < last:
            below = own[first - start : last - start]
            panel[first:last] = below
            gemm(1.0, panel[first:last], inverse, 0.0, below)

    def _update(self, pivot: int, chunk: Chunk) -> None:
        """Subtract N_i·A_jkᵀ, or add it between rows and columns that are both swept.

        N_i is the store's own for rows below the pivot. Above it, where −N_jᵀ is stored, Q's symmetry makes
        N_i·A_jkᵀ = A_ik·N_jᵀ: rows of the panel times what is stored.
        """
        start, stop = self._rows(pivot)
        left, right = self._rows(chunk[0])
        first, last = self.groups[chunk[1]]
        values, panel = self.blocks[chunk[0]], self._panel(pivot)
        top, bottom = max(first, left), min(last, start)
        if top < bottom:
            gemm(-1.0, panel[top:bottom], self._mirrored(chunk[0], pivot), 1.0, values[top - left : bottom - left])
        top = max(first, left, stop)
        if top < last:
            rows = self.blocks[pivot][top - start : last - start]
            gemm(-1.0, rows, panel[left:right].T, 1.0, values[top - left : last - left])

    def _rows(self, tile: int) -> tuple[int, int]:
        return tile * self.tile, min((tile + 1) * self.tile, self.n)

    def _panel(self, pivot: int) -> NDArray[Any]:
        width = self.blocks[pivot].shape[1]
        return self.rooms[pivot % 2][: self.n * width].reshape(self.n, width)

    def _mirrored(self, above: int, pivot: int) -> NDArray[Any]:
        """The mirror image of A_ik for a tile i above the pivot: its rows of block column i."""
        start, stop = self._rows(pivot)
        return self.blocks[above][start - above * self.tile : stop - above * self.tile]

    def _group(self, tile: int) -> int:
        """The group of rows that a tile's are in."""
        return tile // self.tiles_in_group

    def _touches(self, chunk: Chunk, pivot: int) -> bool:
        """Whether a chunk holds some of a pivot's row or column."""
        return pivot >= 0 and (chunk[0] == pivot or (chunk[0] < pivot and chunk[1] == self._group(pivot)))


def _wait(tasks: Iterable[Awaited]) -> None:
    for task in tasks:
        task.result()
