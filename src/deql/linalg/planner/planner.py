"""``deql.plan``: which engine a fit would use, what it takes, and whether that is there, before any of the work."""

from __future__ import annotations

import dataclasses
import os
import sys
from dataclasses import dataclass
from functools import partial
from typing import Any

from deql.linalg.planner.advice import refusal
from deql.linalg.planner.requirements import ENGINES, Need, Task, needs_of, task_of
from deql.linalg.planner.resources import Resources, find_resources
from deql.linalg.planner.units import parse_bytes, show_bytes, show_seconds
from deql.linalg.tiling import check_engine

__all__ = ["Plan", "choose_engine", "memory_budget", "plan"]

_SMALL = 2048
"""Up to so many items, the matrix is a few MiB: nobody needs to look whether that is there."""

_FOR_DEVICES, _FOR_LOADING_TORCH = 4000, 12_000
"""Items from which on a device pays: where torch is loaded already, and where that takes some seconds first."""


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
    engine: str = "auto",
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
    engine : {"auto", "memory", "disk", "torch"}, default "auto"
    memory : int or str, optional
        Bytes that may be taken, such as ``"4GiB"``: the disk engine's budget.
    folder : path, optional
        Where the disk engine would keep its tiles.
    device : str, optional
        The torch engine's, such as ``"cuda:1"``.
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
    check_engine(engine, dtype)
    task = task_of(data, dtype)
    there = find_resources(folder, device=device)
    chosen, needs = _choose(engine, task, there, memory, device)
    if calibrate:
        from deql.linalg.planner.calibration import measure, predict

        rates = measure(needs, task, there, device or "cuda")
        needs = [
            need if need.why_not else dataclasses.replace(need, seconds=predict(need, task, rates)) for need in needs
        ]
    return Plan(chosen, task.n, dtype, task.tile, there, tuple(needs))


def choose_engine(
    data: Any,
    *,
    dtype: str = "float32",
    engine: str = "auto",
    memory: int | str | None = None,
    folder: str | os.PathLike[str] | None = None,
    device: str | None = None,
    matrices: int = 1,
) -> str:
    """The engine that a fit uses, after a look at what is free: nothing is measured, and little is read.

    Parameters
    ----------
    data, dtype, engine, memory, folder, device
        As in :func:`plan`.
    matrices : int, default 1
        2 for a Gram matrix that is kept while copies of it are inverted, as tuning does.

    Returns
    -------
    str
        ``engine`` itself unless it is ``"auto"``.

    Raises
    ------
    TooLargeError
        If there is too little memory or disk.

    Examples
    --------
    >>> choose_engine(1000)
    'memory'
    """
    check_engine(engine, dtype)
    task = dataclasses.replace(task_of(data, dtype), matrices=matrices)
    if task.n <= _SMALL and engine in ("auto", "memory") and memory is None:
        return "memory"
    wants_device = engine == "torch" or (engine == "auto" and _worth_a_device(task.n, device))
    there = find_resources(folder, devices=wants_device, device=device)
    return _choose(engine, task, there, memory, device)[0]


def memory_budget(memory: int | str | None = None, folder: str | os.PathLike[str] | None = None) -> int:
    """Bytes that the disk engine may take: what was said, or half of what is free.

    A fit that goes on needs what it was begun with: where there is one in the folder, all that is free counts.

    Examples
    --------
    >>> memory_budget("4GiB") == 4 * 2**30
    True
    """
    from deql._system.machine import free_memory
    from deql.linalg.engines.tile_folder import has_checkpoint

    if memory is not None:
        return parse_bytes(memory)
    begun = folder is not None and has_checkpoint(folder)
    return free_memory() if begun else free_memory() // 2


def _worth_a_device(n: int, device: str | None) -> bool:
    """Whether so many items take longer than it takes to load torch and open a device."""
    return device != "cpu" and n >= (_FOR_DEVICES if "torch" in sys.modules else _FOR_LOADING_TORCH)


def _choose(
    engine: str, task: Task, there: Resources, memory: int | str | None, device: str | None
) -> tuple[str, list[Need]]:
    """The engine asked for, or the first that fits, and what each needs; else an error that says what would do."""
    need_of = partial(needs_of, there=there, memory=memory, device=device)
    needs = [need_of(name, task) for name in ENGINES]
    for need in needs:
        worth = need.engine != "torch" or _worth_a_device(task.n, device)
        eligible = need.engine == engine or (engine == "auto" and worth)
        if eligible and need.why_not is None:
            return need.engine, needs
    raise refusal(engine, task, there, need_of)
