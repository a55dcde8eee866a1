"""``deql.plan``: which engine a fit would use, what it takes, and whether that is free, before any of the work."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import Any

from deql._system import html
from deql._system.checks import check_whole
from deql._system.formatting import show_bytes, show_seconds
from deql._system.tables import Cell, Grid
from deql.errors import ParameterError
from deql.linalg.engines.engine import Engine
from deql.linalg.engines.resources import PlannedData, Requirement, Resources, find_resources, problem_size
from deql.linalg.planner.calibration import measure_rates, predict
from deql.linalg.planner.choose import Auto, as_engine, candidate_engines, choose

__all__ = ["Plan", "plan", "prior_bytes"]


@dataclass(frozen=True)
class Plan:
    """What a fit takes, and with which engine.

    Attributes
    ----------
    engine : str
        The one to use.
    n : int
        Number of items.
    dtype : str
    tile : int
        Width of the block columns of the packed matrix.
    resources : Resources
        Free memory and disk, and the devices.
    needs : tuple of Requirement
        What each engine takes, and why it cannot be used if so.

    Examples
    --------
    >>> import deql
    >>> found = deql.plan(1000, calibrate=False)
    >>> found.engine, found.n, found.seconds
    ('memory', 1000, None)
    """

    engine: str
    n: int
    dtype: str
    tile: int
    resources: Resources
    needs: tuple[Requirement, ...]

    @property
    def chosen(self) -> Requirement:
        """What the engine to use needs."""
        return next(one for one in self.needs if one.engine == self.engine)

    @property
    def memory(self) -> int:
        """Peak of the process in bytes."""
        return self.chosen.memory

    @property
    def disk(self) -> int:
        """Bytes of disk."""
        return self.chosen.disk

    @property
    def seconds(self) -> float | None:
        """Predicted time; None without calibration."""
        return self.chosen.seconds

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        facts = {name: getattr(self, name) for name in ("engine", "n", "dtype", "tile", "memory", "disk", "seconds")}
        free = dataclasses.asdict(self.resources) | {"folder": str(self.resources.folder)}
        return facts | {"free": free, "engines": [dataclasses.asdict(one) for one in self.needs]}

    def __repr__(self) -> str:
        return f"Plan({self._verdict()})"

    def __str__(self) -> str:
        rows = [("engine", "memory", "disk", "device", "time", ""), *self._rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([f"{self._verdict()}.", "", *lines, "", self._free()])

    def _repr_html_(self) -> str:
        rows = [([engine], [Cell(text) for text in texts]) for engine, *texts in self._rows()]
        grid = Grid("Engines", ["engine", "memory", "disk", "device", "time", ""], rows)
        said = [html.paragraph(f"{self._verdict()}."), html.table(grid), html.paragraph(self._free(), quiet=True)]
        return html.block(html.heading("Plan"), *said)

    def _verdict(self) -> str:
        chosen = self.chosen
        parts = [f"{show_bytes(chosen.memory)} of memory"]
        parts += [f"{show_bytes(chosen.disk)} of disk"] if chosen.disk else []
        parts += [f"{show_bytes(chosen.device_memory)} on the device"] if chosen.device_memory else []
        parts += [show_seconds(chosen.seconds)] if chosen.seconds is not None else []
        return f"{self.n:,} items in {self.dtype} would be fitted by the {self.engine} engine: {', '.join(parts)}"

    def _free(self) -> str:
        free = self.resources
        said = [f"Free: {show_bytes(free.memory)} of memory", f"{show_bytes(free.disk)} of disk in {free.folder}"]
        said += [f"{show_bytes(one.free)} on {one.name} ({one.model})" for one in free.devices]
        return ", ".join(said) + "."

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                one.engine,
                *(show_bytes(size) if size else "–" for size in (one.memory, one.disk, one.device_memory)),
                "–" if one.seconds is None else show_seconds(one.seconds),
                one.why_not or ("streams from memory" if one.engine == "torch" and one.passes else ""),
            )
            for one in self.needs
        ]


def prior_bytes(n: int, rank: int) -> int:
    """What a prior of n items takes: U, V and P·U in float32; without V, the identity, where U is as wide as P.

    Examples
    --------
    >>> prior_bytes(1000, 64), prior_bytes(1000, 1000)
    (768000, 8000000)
    """
    return 4 * n * rank * (2 if rank >= n else 3)


def plan(
    data: PlannedData,
    *,
    dtype: str = "float32",
    engine: str | Engine = "auto",
    memory: int | str | None = None,
    folder: str | os.PathLike[str] | None = None,
    device: str | None = None,
    calibrate: bool = True,
    prior_rank: int = 0,
) -> Plan:
    """What fitting would take: engine, memory, disk and time, without fitting.

    Parameters
    ----------
    data : Interactions, sparse matrix, Split or int
        What would be fitted on: of a split its training part; or only the number of items.
    dtype : {"float32", "float64"}, default "float32"
    engine : {"auto", "memory", "disk", "torch"} or an object of :mod:`deql.engines`, default "auto"
    memory : int or str, optional
        Bytes that may be taken, such as ``"4GiB"``: the disk engine's budget.
    folder : path, optional
        Where the disk engine would keep its tiles.
    device : str, optional
        The torch engine's, such as ``"cuda:1"``. An engine that is an object has these three itself.
    calibrate : bool, default True
        Take about a second to measure how fast this machine is, and predict the time.
    prior_rank : int, default 0
        Columns of a prior's thin factors, twice its rank if it knows items that nobody has; the number of items for a
        prior that is an n × n matrix. They count in the memory; the time is that of the inverse alone.

    Returns
    -------
    Plan
        Printed, a small table.

    Raises
    ------
    TooLargeError
        If no engine, or not the one requested, can do it; the message says what would fit.

    Examples
    --------
    >>> import deql
    >>> print(deql.plan(deql.datasets.debian(), calibrate=False))  # doctest: +ELLIPSIS
    5,834 items in float32 would be fitted by the ... engine: ... of memory...
    """
    requested = as_engine(engine)
    requested.check(dtype)
    for name, value in (("memory", memory), ("folder", folder), ("device", device)):
        if value is not None and isinstance(engine, Engine):
            raise ParameterError(f"{name} is said twice: give it to the engine alone, got {engine!r}", parameter=name)
    candidates = candidate_engines(requested if isinstance(engine, Engine) else Auto(memory, folder, device))
    folder, device = getattr(candidates["disk"], "folder", None), getattr(candidates["torch"], "device", None)
    size, resources = problem_size(data, dtype), find_resources(folder, device=device)
    size = dataclasses.replace(size, beside=prior_bytes(size.n, check_whole("prior_rank", prior_rank, least=0)))
    chosen = choose(requested, candidates, size, resources)
    # Under the engine's own name, also where it left the counting to another.
    needs = [dataclasses.replace(one.requirement(size, resources), engine=name) for name, one in candidates.items()]
    if calibrate:
        rates = measure_rates(needs, size, resources, device or "cuda")
        needs = [one if one.why_not else dataclasses.replace(one, seconds=predict(one, size, rates)) for one in needs]
    return Plan(chosen.name, size.n, dtype, size.tile, resources, tuple(needs))
