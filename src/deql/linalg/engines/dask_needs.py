"""What a fit takes of a cluster, and whether it is there: the memory of each worker, room in the shared folder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from deql._system.formatting import show_bytes
from deql.errors import TooLargeError
from deql.io.shards import ALIGNMENT
from deql.linalg.engines.dask_cluster import WorkerFacts
from deql.linalg.engines.dask_layout import Layout, choose_layout, place_groups, place_parts
from deql.linalg.engines.engine import Problem
from deql.linalg.engines.stored_rows import StoredRows

__all__ = ["ADDED_AT_ONCE", "AHEAD", "FitNeeds", "needs_of"]

AHEAD = 2
"""Strips of the Gram matrix, and pivots, that are under way while the next is handed out."""

ADDED_AT_ONCE = 2
"""Partial sums that one task adds up."""

_WORKER = 256 * 2**20
"""Bytes of a worker's interpreter with the packages that a fit loads."""

_MOST_PLACED = 400_000
"""Groups of tiles, times workers, that are placed to name a number of workers that suffices: a second of work."""


@dataclass(frozen=True)
class FitNeeds:
    """What a fit takes of a cluster.

    Attributes
    ----------
    layout : Layout
    dtype : str
        Of P.
    parts : tuple of int
        Bytes that each part of the interactions takes where it is summed; none where only the items are known.

    Examples
    --------
    >>> from deql.linalg.engines.dask_layout import choose_layout
    >>> needs = FitNeeds(choose_layout(12_000, 4), "float32")
    >>> needs.tiles // 2**20, needs.for_each // 2**20, needs.in_folder // 2**20
    (297, 352, 598)
    """

    layout: Layout
    dtype: str
    parts: tuple[int, ...] = ()

    @property
    def tiles(self) -> int:
        """Bytes of the tiles on all workers together."""
        return self.layout.stored * self._itemsize

    @property
    def for_each(self) -> int:
        """Bytes that every worker needs beside its tiles and interactions: panels of pivots, or sums of strips."""
        layout = self.layout
        strip = max(strip.shape[0] * strip.shape[1] for group in layout.groups for strip in layout.strips(group))
        return _WORKER + max(self._panels, (AHEAD + 1) * ADDED_AT_ONCE * 8 * strip)

    @property
    def in_folder(self) -> int:
        """Bytes of the shared folder at most: a new checkpoint, or P, beside the last checkpoint."""
        headers = ALIGNMENT * sum(len(self.layout.strips(group)) for group in self.layout.groups)
        return 2 * self.tiles + headers

    @property
    def _panels(self) -> int:
        return (AHEAD + 1) * self.layout.n * self.layout.width * self._itemsize

    @property
    def _itemsize(self) -> int:
        return np.dtype(self.dtype).itemsize

    @property
    def _what(self) -> str:
        return f"{self.layout.n:,} items in {self.dtype}"

    def of_workers(self, threads: Mapping[str, int]) -> dict[str, int]:
        """Bytes that each worker takes, by its address: of tiles and of interactions its own share.

        Examples
        --------
        >>> from deql.linalg.engines.dask_layout import choose_layout
        >>> needs = FitNeeds(choose_layout(12_000, 4), "float32", parts=(2**30, 2**28))
        >>> {address: size // 2**20 for address, size in needs.of_workers({"a": 3, "b": 1}).items()}
        {'a': 1593, 'b': 688}
        """
        taken = dict.fromkeys(threads, self.for_each)
        for group, address in place_groups(self.layout, threads).items():
            taken[address] += self.layout.numbers(group) * self._itemsize
        for address, own in place_parts(self.parts, threads).items():
            taken[address] += sum(self.parts[part] for part in own)
        return taken

    def check_memory(self, workers: Mapping[str, WorkerFacts]) -> None:
        """Raise TooLargeError unless each worker may take what its share needs."""
        taken = self.of_workers({address: worker.threads for address, worker in workers.items()})
        needed, free = sum(taken.values()), sum(worker.memory for worker in workers.values())
        if needed > free:
            raise TooLargeError(
                f"{self._what} need {show_bytes(needed)} of memory on the cluster, and its {len(workers)} workers may "
                f"take {show_bytes(free)}: use {self._enough(workers)}, or the disk engine"
            )
        tightest = max(workers.values(), key=lambda worker: taken[worker.address] - worker.memory)
        if taken[tightest.address] > tightest.memory:
            raise TooLargeError(
                f"{self._what} need {show_bytes(taken[tightest.address])} of memory on the worker "
                f"{tightest.address}, whose share goes by its threads, and it may take "
                f"{show_bytes(tightest.memory)}: use {self._enough(workers)}, or the disk engine"
            )

    def _enough(self, workers: Mapping[str, WorkerFacts]) -> str:
        """How many workers like the smallest do, if that is soon found."""
        least = min(workers.values(), key=lambda worker: worker.memory)
        beside = _WORKER + self._panels  # however many there are
        if least.memory < 2 * beside:
            return "larger workers"
        count = max(len(workers) + 1, -(-(self.tiles + sum(self.parts)) // (least.memory - beside)))
        while True:
            layout = choose_layout(self.layout.n, count * least.threads)
            if len(layout.groups) * count > _MOST_PLACED:
                return "more or larger workers"
            taken = replace(self, layout=layout).of_workers(dict.fromkeys(map(str, range(count)), least.threads))
            if max(taken.values()) <= least.memory:
                return f"{count:,} such workers"
            count += max(1, count // 10)

    def check_room(self, folder: Path) -> int:
        """Bytes that are free in the shared folder; raises TooLargeError unless they suffice."""
        free = shutil.disk_usage(folder).free
        if free < self.in_folder:
            raise TooLargeError(
                f"{self._what} take {show_bytes(self.in_folder)} of the folder {folder}, for P and a checkpoint, and "
                f"{show_bytes(free)} are free there: make room, or name another folder"
            )
        return free


def needs_of(problem: Problem, workers: Mapping[str, WorkerFacts]) -> FitNeeds:
    """What a fit on these workers takes."""
    layout = choose_layout(problem.n, sum(worker.threads for worker in workers.values()))
    return FitNeeds(layout, problem.dtype, tuple(_bytes_of_parts(problem, max(2, len(workers)))))


def _bytes_of_parts(problem: Problem, count: int) -> list[int]:
    # Twice the interactions, by user and by item; with weights, two numbers more for each while they are multiplied.
    if isinstance(problem.rows, StoredRows):
        data = problem.rows.data
        each = 2 * 8 + 16 * (data.weighted or problem.rows.user_power > 0)
        return [each * part.n_interactions for part in data.parts]
    matrix = problem.rows
    weighted = problem.weights is not None or not bool((matrix.data == 1).all())
    each = 2 * (matrix.data.itemsize + matrix.indices.itemsize) + 16 * weighted
    return [each * int(matrix.nnz) // count] * count
