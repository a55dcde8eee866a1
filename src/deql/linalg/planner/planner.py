"""``deql.plan``: which engine a fit would use, what it takes, and whether that is there, before any of the work."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import Any

from deql._system.formatting import show_bytes, show_seconds
from deql.errors import ParameterError
from deql.linalg.engines.engine import Engine
from deql.linalg.engines.resources import Need, Resources, find_resources, task_of
from deql.linalg.planner.calibration import measure, predict
from deql.linalg.planner.choose import Auto, as_engine, candidates, choose

__all__ = ["Plan", "plan"]


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
    there : Resources
        Free memory and disk, and the devices.
    needs : tuple of Need
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
    there: Resources
    needs: tuple[Need, ...]

    @property
    def chosen(self) -> Need:
        """What the engine to use needs."""
        return next(need for need in self.needs if need.engine == self.engine)

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
        free = dataclasses.asdict(self.there) | {"folder": str(self.there.folder)}
        return facts | {"free": free, "engines": [dataclasses.asdict(need) for need in self.needs]}

    def __str__(self) -> str:
        chosen = self.chosen
        parts = [f"{show_bytes(chosen.memory)} of memory"]
        parts += [f"{show_bytes(chosen.disk)} of disk"] if chosen.disk else []
        parts += [f"{show_bytes(chosen.device_memory)} on the device"] if chosen.device_memory else []
        parts += [show_seconds(chosen.seconds)] if chosen.seconds is not None else []
        verdict = f"{self.n:,} items in {self.dtype} would be fitted by the {self.engine} engine: {', '.join(parts)}."
        there = self.there
        free = [f"Free: {show_bytes(there.memory)} of memory", f"{show_bytes(there.disk)} of disk in {there.folder}"]
        free += [f"{show_bytes(one.free)} on {one.name} ({one.model})" for one in there.devices]
        rows: list[tuple[str, ...]] = [("engine", "memory", "disk", "device", "time", "")]
        rows += [
            (
                need.engine,
                *(show_bytes(size) if size else "–" for size in (need.memory, need.disk, need.device_memory)),
                "–" if need.seconds is None else show_seconds(need.seconds),
                need.why_not or ("streams from memory" if need.engine == "torch" and need.passes else ""),
            )
            for need in self.needs
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([verdict, "", *lines, "", ", ".join(free) + "."])


def plan(
    data: Any,
    *,
    dtype: str = "float32",
    engine: str | Engine = "auto",
    memory: int | str | None = None,
    folder: str | os.PathLike[str] | None = None,
    device: str | None = None,
    calibrate: bool = True,
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

    Returns
    -------
    Plan
        Printed, a small table.

    Raises
    ------
    TooLargeError
        If no engine, or not the one asked for, can do it; the message says what would fit.

    Examples
    --------
    >>> import deql
    >>> print(deql.plan(deql.datasets.debian(), calibrate=False))  # doctest: +ELLIPSIS
    5,834 items in float32 would be fitted by the ... engine: ... of memory...
    """
    asked = as_engine(engine)
    asked.check(dtype)
    for name, value in (("memory", memory), ("folder", folder), ("device", device)):
        if value is not None and isinstance(engine, Engine):
            raise ParameterError(f"{name} is said twice: give it to the engine alone, got {engine!r}", parameter=name)
    among = candidates(asked if isinstance(engine, Engine) else Auto(memory, folder, device))
    folder, device = getattr(among["disk"], "folder", None), getattr(among["torch"], "device", None)
    task, there = task_of(data, dtype), find_resources(folder, device=device)
    chosen = choose(asked, among, task, there)
    needs = [one.need(task, there) for one in among.values()]
    if calibrate:
        rates = measure(needs, task, there, device or "cuda")
        needs = [
            need if need.why_not else dataclasses.replace(need, seconds=predict(need, task, rates)) for need in needs
        ]
    return Plan(chosen.name, task.n, dtype, task.tile, there, tuple(needs))
