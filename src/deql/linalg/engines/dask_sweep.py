"""P on a cluster: the Gram matrix summed into tiles on the workers, the sweep as tasks on them, checkpoints, losses."""

from __future__ import annotations

import os
import shutil
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql._system.progress import ProgressCallback, Stage
from deql.errors import ClusterError, reason
from deql.io.shards import Shard, map_shards
from deql.linalg.blas import not_positive
from deql.linalg.engines import dask_tiles
from deql.linalg.engines.dask_cluster import Cluster, WorkerLostError
from deql.linalg.engines.dask_gram import add_products, assemble, gram_products, load_rows, round_products
from deql.linalg.engines.dask_layout import Group, Strip, place_groups, place_parts
from deql.linalg.engines.dask_needs import ADDED_AT_ONCE, AHEAD, FitNeeds
from deql.linalg.engines.engine import Problem, RowSlice
from deql.linalg.engines.stores import new_store
from deql.linalg.invert import check_diagonal, check_inverse, probe
from deql.linalg.packed import PackedSymmetric

__all__ = ["invert_on_cluster"]

_PRECISION = ".deql-precision-"
"""What a folder of shards of P within the shared one begins with: hidden, so that a model can be saved beside it."""

_CHECKPOINTS_COST = 0.1
"""Share of the time that checkpoints may take."""

_WRITTEN = 200e6
"""Bytes in a second that a folder takes before that has been measured."""

_LAST_WRITES = 30.0
"""Seconds until a folder is left to which workers still write when the fit has ended."""

_MOST_LOSSES = 3
"""Times that a fit goes back to the same checkpoint before it gives up."""


def invert_on_cluster(
    problem: Problem, cluster: Cluster, needs: FitNeeds, stage: Stage
) -> tuple[PackedSymmetric, float]:
    """P = (RᵀΛR + diag(added))⁻¹, and how far P·A is from the identity.

    The layout stays the same when a worker is lost: the groups of the last checkpoint, or the sums from the beginning
    where there is no folder, go to those that are left.

    Parameters
    ----------
    problem : Problem
    cluster : Cluster
        Its workers are known and suffice.
    needs : FitNeeds
        With how the matrix is cut.
    stage : callable
        See :func:`deql._system.progress.stages`.

    Raises
    ------
    NotPositiveDefiniteError, InaccurateInverseError
        As :func:`deql.linalg.invert` raises them.
    ClusterError
        If workers are lost again and again.
    """
    reports: dict[str, ProgressCallback | None] = {}

    def report(label: str, done: int, total: int) -> None:
        if label not in reports:
            reports[label] = stage(label)
        if (told := reports[label]) is not None:
            told(done, total)

    with _checkpoints(cluster) as folder:
        fit = _Fit(problem, cluster, needs, folder, report)
        losses, best = 0, -1
        while True:
            try:
                return fit.run()
            except WorkerLostError as error:
                losses = 1 if fit.saved > best else losses + 1
                best = fit.saved
                if losses > _MOST_LOSSES:
                    raise ClusterError(
                        f"workers were lost {losses} times without a checkpoint in between, the last time {error}: "
                        "look at their logs for too little memory"
                    ) from None
                fit.let_go()
                cluster.recover(needs.check_memory)


@contextmanager
def _checkpoints(cluster: Cluster) -> Iterator[Path | None]:
    """A folder of this fit within the shared one, which goes with it: for checkpoints, and for shards until all are."""
    if cluster.folder is None:
        yield None
        return
    own = cluster.folder / f".deql-fit-{cluster.token}"
    own.mkdir()
    try:
        yield own
    finally:
        cluster.forget()  # before what tasks write to
        until = monotonic() + _LAST_WRITES
        shutil.rmtree(own, ignore_errors=True)
        while own.exists() and monotonic() < until:  # tasks that had begun may write to it until it is gone
            sleep(0.1)
            shutil.rmtree(own, ignore_errors=True)


class _Fit:
    """How far a fit is, and where its tiles are."""

    def __init__(self, problem: Problem, cluster: Cluster, needs: FitNeeds, folder: Path | None, report: Any) -> None:
        self.problem, self.cluster, self.needs, self.folder, self.report = problem, cluster, needs, folder, report
        self.layout = needs.layout
        self.saved = -1  # pivots done at the last checkpoint
        self.images: NDArray[np.float64] | None = None
        self.placed: dict[Group, str] = {}
        self.groups: dict[Group, Any] = {}

    def run(self) -> tuple[PackedSymmetric, float]:
        """All of it, or what is left of it after the last checkpoint."""
        self.placed = place_groups(self.layout, self._threads())
        if self.saved < 0:
            self.sum_gram()
            matrix = _OnCluster(self)
            check_diagonal(matrix)
            self.images = probe(matrix)
        else:
            self.read_checkpoint()
        self.sweep(max(0, self.saved))
        self.groups = {
            group: self.cluster.submit("mirror", dask_tiles.finish, tiles, worker=self.placed[group])
            for group, tiles in self.groups.items()
        }
        assert self.images is not None
        residual = check_inverse(_OnCluster(self), self.images)
        return self.collect(), residual

    def _threads(self) -> dict[str, int]:
        return {worker.address: worker.threads for worker in self.cluster.workers.values()}

    def let_go(self) -> None:
        """Of tiles, which are worth nothing once some of them are lost, and of a checkpoint that was not finished."""
        self.groups = {}
        if self.folder is not None:
            for file in self.folder.glob("tiles-*"):
                if not file.name.startswith(f"tiles-{self.saved}-"):
                    file.unlink(missing_ok=True)

    def sum_gram(self) -> None:
        """A, strip by strip: each worker sums over its own users, and the sums are added up in a tree."""
        layout, cluster, problem = self.layout, self.cluster, self.problem
        rows = self._load_rows()
        total = sum(len(layout.strips(group)) for group in layout.groups)
        under_way: deque[Any] = deque()
        done = 0
        for group in layout.groups:
            worker, made = self.placed[group], []
            for strip in layout.strips(group):
                parts = [(at, self._sum_products(at, own, strip)) for at, own in rows]
                while len(parts) > ADDED_AT_ONCE:
                    parts = [self._add(parts[at : at + ADDED_AT_ONCE]) for at in range(0, len(parts), ADDED_AT_ONCE)]
                added = problem.added[strip.left : strip.right]
                arguments = (strip, added, problem.dtype, *(part for _, part in parts))
                made.append(cluster.submit("gram-round", round_products, *arguments, worker=worker, priority=1))
                under_way.append(made[-1])
                del parts, arguments
                if len(under_way) > AHEAD:
                    cluster.wait([under_way.popleft()])
                    done += 1
                    self.report("Gram matrix", done, total)
            strips = layout.strips(group)
            self.groups[group] = cluster.submit("gram-assemble", assemble, strips, *made, worker=worker, priority=1)
        under_way.clear()
        del made
        cluster.wait(self.groups.values())
        self.report("Gram matrix", total, total)

    def _sum_products(self, at: str, own: Any, strip: Strip) -> Any:
        # All strips under way together use a worker's threads. A strip for each thread, or its users in as many
        # pieces, would be as many partial sums at once.
        threads = -(-self.cluster.workers[at].threads // (AHEAD + 1))
        return self.cluster.submit("gram", gram_products, own, strip, threads, worker=at)

    def _add(self, several: Sequence[tuple[str, Any]]) -> tuple[str, Any]:
        if len(several) == 1:
            return several[0]
        at = several[0][0]
        parts = [part for _, part in several]
        return at, self.cluster.submit("gram-add", add_products, *parts, worker=at, priority=1)

    def _load_rows(self) -> list[tuple[str, Any]]:
        """Each worker's users, about as many entries for each thread; what is in memory here is sent, the rest read."""
        parts = self.problem.parts(len(self.needs.parts))
        placed = place_parts([part.n_interactions for part in parts], self._threads())
        rows = []
        for address, own in placed.items():
            if own:
                several = [parts[number] for number in own]
                in_memory = any(isinstance(part, RowSlice) for part in several)
                given = self.cluster.scatter(several, address) if in_memory else several
                rows.append((address, self.cluster.submit("rows", load_rows, given, worker=address)))
                del given
        return rows

    def sweep(self, done: int) -> None:
        """Hand out pivot after pivot, a few at once; now and then wait for all tiles and write a checkpoint."""
        pivots = self.layout.pivots
        under_way: deque[_Pivot] = deque()
        since, cost = monotonic(), self.needs.tiles / _WRITTEN
        for pivot in range(done, len(pivots)):
            flag = self._hand_out(pivot)
            under_way.append(_Pivot(pivot, flag, list(self.groups.values())))
            while len(under_way) > AHEAD:
                self._end_oldest(under_way)
            if self.folder is not None and monotonic() - since > cost / _CHECKPOINTS_COST and pivot + 1 < len(pivots):
                while under_way:
                    self._end_oldest(under_way)
                begin = monotonic()
                self.write_checkpoint(pivot + 1)
                since, cost = monotonic(), monotonic() - begin
        while under_way:
            self._end_oldest(under_way)

    def _end_oldest(self, under_way: deque[_Pivot]) -> None:
        """Wait for every update of the oldest pivot, as workers keep its panel until then.

        Its inverse does not tell: the chain from one inverse to the next runs ahead of the other updates. Of the later
        pivots what is done is let go of meanwhile, or Dask would count tiles that are changed in place once for each.
        """
        oldest = under_way.popleft()
        self._positive(oldest.number, oldest.flag)
        while oldest.updates:
            oldest.updates = self.cluster.still_pending(oldest.updates)
            for later in under_way:
                later.updates = [update for update in later.updates if update.status != "finished"]

    def _positive(self, pivot: int, flag: Any) -> None:
        """Wait for a pivot's inverse."""
        (failed,) = self.cluster.results([flag])
        if failed is not None:
            raise not_positive(failed)
        self.report("Inverse", pivot + 1, len(self.layout.pivots))

    def _hand_out(self, pivot: int) -> Any:
        """Tasks of a pivot: its factor, X of each segment where A_k is, and the update of each group where that is."""
        layout, cluster, placed = self.layout, self.cluster, self.placed
        start, stop = layout.pivots[pivot]
        own = layout.segment(start)
        at = placed[own, own]
        found = cluster.submit("factor", dask_tiles.factor, self.groups[own, own], start, stop, worker=at, priority=4)
        flag = cluster.submit("positive", dask_tiles.failed_column, found, worker=at, priority=4)
        panels = []
        for segment in range(layout.segments):
            group = max(segment, own), min(segment, own)
            arguments = (self.groups[group], pivot, layout, segment, found)
            panels.append(cluster.submit("panel", dask_tiles.panel, *arguments, worker=placed[group], priority=3))
        following = layout.segment(min(stop, layout.n - 1))
        # What the next pivot is made of comes first, so that its factor and X are made beside the other updates.
        for group in sorted(layout.groups, key=lambda group: (following not in group, group)):
            urgent = 2 if group == (following, following) else 1 if following in group else 0
            pair = panels[group[0]], panels[group[1]]
            self.groups[group] = cluster.submit(
                "update",
                dask_tiles.update,
                self.groups[group],
                pivot,
                layout,
                *pair,
                found,
                worker=placed[group],
                priority=urgent,
            )
        return flag

    def write_checkpoint(self, done: int) -> None:
        """Write all tiles, and go on from what was written: Dask forgets by which tasks it was made."""
        assert self.folder is not None
        written = [
            self.cluster.submit("checkpoint", dask_tiles.save_group, tiles, self._file(group, done), worker=at)
            for group, tiles, at in ((group, self.groups[group], self.placed[group]) for group in self.layout.groups)
        ]
        try:
            self.cluster.results(written)
        except OSError as error:
            raise ClusterError(
                f"a checkpoint cannot be written to {self.cluster.folder}: {reason(error)}; make room there, or name "
                "another folder"
            ) from None
        before, self.saved = self.saved, done
        self.groups = {}
        self.read_checkpoint()
        self.cluster.wait(self.groups.values())
        for group in self.layout.groups if before > 0 else ():
            Path(self._file(group, before)).unlink(missing_ok=True)

    def read_checkpoint(self) -> None:
        """The tiles of the last checkpoint."""
        self.groups = {
            group: self.cluster.submit(
                "restore",
                dask_tiles.read_group,
                self._file(group, self.saved),
                self.layout,
                group,
                self.saved,
                worker=at,
            )
            for group, at in self.placed.items()
        }

    def _file(self, group: Group, done: int) -> str:
        assert self.folder is not None
        return str(self.folder / f"tiles-{done}-{group[0]}-{group[1]}.npy")

    def collect(self) -> PackedSymmetric:
        """P: mapped from shards that the workers write, or gathered here, group by group."""
        layout, dtype = self.layout, self.problem.dtype
        if self.folder is not None:
            return PackedSymmetric(layout.n, layout.tile, self._write_shards(self.folder))
        store = new_store(layout.n, layout.tile, dtype)
        total = len(layout.groups)
        for number, group in enumerate(layout.groups, 1):
            (tiles,) = self.cluster.results([self.groups.pop(group)])
            for strip, values in tiles.items():
                begin = layout.offset(strip)
                store[begin : begin + values.size] = values.reshape(-1)
            self.report("Gathering P", number, total)
        return PackedSymmetric(layout.n, layout.tile, store)

    def _write_shards(self, folder: Path) -> NDArray[Any]:
        assert self.cluster.folder is not None
        written: list[Shard] = []
        place = folder / "precision"
        shutil.rmtree(place, ignore_errors=True)  # of an attempt in which a worker was lost
        place.mkdir()
        tasks = [
            self.cluster.submit("shards", dask_tiles.write_shards, tiles, str(place), self.layout, worker=at)
            for tiles, at in ((self.groups[group], self.placed[group]) for group in self.layout.groups)
        ]
        for number, task in enumerate(tasks, 1):
            written += self.cluster.results([task])[0]
            self.report("Writing P", number, len(tasks))
        self.groups = {}
        for left in self.cluster.folder.glob(f"{_PRECISION}*"):
            with suppress(OSError):  # NFS keeps mapped files until they are unmapped: an empty folder is left then
                left.rmdir()
        kept = self.cluster.folder / f"{_PRECISION}{self.cluster.token}"
        try:
            place.rename(kept)  # all or none of them
            numbers = map_shards(kept, written, verify=False)
            weakref.finalize(numbers.base, _remove_shards, kept, os.getpid())
        except BaseException:
            shutil.rmtree(kept, ignore_errors=True)
            raise
        return numbers


def _remove_shards(folder: Path, process: int) -> None:
    """Remove what P was mapped from; a process that was forked from this one has the mapping too, and leaves it."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(eq=False)
class _Pivot:
    """A pivot that is under way: its number, whether it is positive, and updates that were not seen to be done."""

    number: int
    flag: Any
    updates: list[Any]


class _OnCluster:
    """The matrix on the workers as the checks of an inverse see it."""

    def __init__(self, fit: _Fit) -> None:
        self._fit = fit
        self.n = fit.layout.n
        self.dtype = np.dtype(fit.problem.dtype)

    def diagonal(self) -> NDArray[np.float64]:
        fit = self._fit
        own = [(segment, segment) for segment in range(fit.layout.segments)]
        tasks = [fit.cluster.submit("diagonal", dask_tiles.diagonal, fit.groups[g], worker=fit.placed[g]) for g in own]
        return np.concatenate(fit.cluster.results(tasks))

    def matvec(self, x: NDArray[Any]) -> NDArray[np.float64]:
        fit, total = self._fit, np.zeros(x.shape)
        places = [(slice(*fit.layout.rows(a)), slice(*fit.layout.rows(b))) for a, b in fit.layout.groups]
        tasks = [
            fit.cluster.submit(
                "product", dask_tiles.product, fit.groups[group], x[rows], x[columns], worker=fit.placed[group]
            )
            for group, (rows, columns) in zip(fit.layout.groups, places, strict=True)
        ]
        for (rows, columns), (own, turned) in zip(places, fit.cluster.results(tasks), strict=True):
            total[rows] += own
            total[columns] += turned
        return total
