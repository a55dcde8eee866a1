"""The Dask engine: P on the workers of a cluster, whose memory holds it together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from deql._system.formatting import show_bytes
from deql._system.progress import Stage
from deql.linalg.engines.dask_cluster import CLIENT, Cluster
from deql.linalg.engines.dask_connection import check_connection, connect, missing_dask, own_address
from deql.linalg.engines.dask_layout import choose_layout
from deql.linalg.engines.dask_needs import FitNeeds, needs_of
from deql.linalg.engines.engine import Engine, Problem, Solved
from deql.linalg.engines.resources import INTERPRETER, ProblemSize, Requirement, Resources, lacking
from deql.linalg.engines.tile_folder import as_path

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["ClusterPlan", "Dask"]


class ClusterPlan(NamedTuple):
    """What a cluster has, and what a fit needs of it.

    Attributes
    ----------
    workers, threads : int
        How many.
    memory : int
        Bytes that all workers together may take.
    tiles : int
        Bytes of P on all of them.
    for_each : int
        Bytes that each needs beside its tiles and interactions.
    in_folder : int
        Bytes that are written to the shared folder at most; 0 without one.
    room : int
        Bytes that are free there.

    Examples
    --------
    >>> print(ClusterPlan(4, 8, 64 * 2**30, 20 * 2**30, 2**29))
    The cluster has 4 workers with 8 threads and 64 GiB of memory; P takes 20 GiB, and each worker 512 MiB beside.
    """

    workers: int
    threads: int
    memory: int
    tiles: int
    for_each: int
    in_folder: int = 0
    room: int = 0

    def __str__(self) -> str:
        of_memory = (
            f"The cluster has {self.workers:,} workers with {self.threads:,} threads and {show_bytes(self.memory)} of "
            f"memory; P takes {show_bytes(self.tiles)}, and each worker {show_bytes(self.for_each)} beside."
        )
        if not self.in_folder:
            return of_memory
        room = show_bytes(self.room)
        return f"{of_memory} The folder needs {show_bytes(self.in_folder)} for P and a checkpoint, and has {room} free."


@dataclass(frozen=True, repr=False)
class Dask(Engine):
    """Compute P on a Dask cluster, in the memory of all its workers: where one machine's does not suffice.

    Parameters
    ----------
    client : distributed.Client, optional
        Of the cluster, however that was started.
    scheduler : str or path, optional
        Address of its scheduler instead, such as ``"tcp://10.0.0.5:8786"``, or the scheduler's file. If neither is
        given, the process's current client is taken.
    folder : path, optional
        Storage that this process and all workers share. Workers write checkpoints there, so that a lost one costs a
        few pivots, and P itself, which is then mapped from there and never gathered here. If not given, P is gathered
        into memory, or a file without a name, and a lost worker means that the fit begins again.

    Examples
    --------
    >>> Dask(scheduler="tcp://10.0.0.5:8786", folder="/shared/shop")
    Dask(scheduler='tcp://10.0.0.5:8786', folder='/shared/shop')
    """

    client: Client | None = None
    scheduler: str | os.PathLike[str] | None = None
    folder: str | os.PathLike[str] | None = None

    name = "dask"

    def __post_init__(self) -> None:
        check_connection(self.client, self.scheduler)
        if self.folder is not None:
            as_path(self.folder)

    def __deepcopy__(self, memo: dict[int, Any]) -> Dask:
        return self  # a connection is not copied

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (None, own_address(self.client, self.scheduler), self.folder)

    def requirement(self, size: ProblemSize, resources: Resources) -> Requirement:
        """What it takes here; what it takes on the workers is told by :meth:`solve`, before the cubic work."""
        more = size.beside + CLIENT
        if missing := missing_dask():
            return Requirement(self.name, more + INTERPRETER, why_not=missing, too_large=False)
        if size.matrices > 1:
            why = "it keeps one matrix, and here a Gram matrix is inverted more than once"
            return Requirement(self.name, more + INTERPRETER, why_not=why, too_large=False)
        # Without a folder P comes here: to memory, or to a file where that is short.
        gathered = 0 if self.folder is not None or size.packed > resources.memory else size.packed
        peak = more + gathered + size.stored + INTERPRETER
        return Requirement(self.name, peak, why_not=lacking("memory", more, resources.memory))

    def check_reachable(self, n: int, dtype: str) -> None:
        self.examine(n, dtype)

    def solve(self, problem: Problem, stage: Stage) -> Solved:
        from deql.linalg.engines.dask_sweep import invert_on_cluster

        with self._cluster() as cluster:
            needs = needs_of(problem, cluster.workers)
            _check(cluster, needs)
            return Solved(*invert_on_cluster(problem, cluster, needs, stage), self.name)

    def examine(self, n: int, dtype: str = "float32") -> ClusterPlan:
        """What the cluster has, and what it needs for so many items: nothing is computed there.

        Parameters
        ----------
        n : int
            Number of items.
        dtype : {"float32", "float64"}

        Raises
        ------
        ClusterError, TooLargeError
            As a fit would, before its work.
        """
        with self._cluster() as cluster:
            workers = list(cluster.workers.values())
            threads = sum(worker.threads for worker in workers)
            needs = FitNeeds(choose_layout(n, threads), dtype)
            room = _check(cluster, needs)
            memory = sum(worker.memory for worker in workers)
            in_folder = 0 if cluster.folder is None else needs.in_folder
            return ClusterPlan(len(workers), threads, memory, needs.tiles, needs.for_each, in_folder, room)

    @contextmanager
    def _cluster(self) -> Iterator[Cluster]:
        folder = None if self.folder is None else Path(self.folder).absolute()
        with connect(self.client, self.scheduler) as client, Cluster(client, folder) as cluster:
            cluster.look()
            yield cluster

    def without_folder(self) -> Dask:
        return replace(self, folder=None)


def _check(cluster: Cluster, needs: FitNeeds) -> int:
    """Refuse what the workers or the folder have no room for; gives the bytes that are free in the folder."""
    needs.check_memory(cluster.workers)
    return 0 if cluster.folder is None else needs.check_room(cluster.folder)
