"""What would fit, when something does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from deql._system.units import show_bytes
from deql.errors import DeqlError, ParameterError, Setting, TooLargeError
from deql.linalg.engines.engine import Engine
from deql.linalg.engines.requirements import Need, Task
from deql.linalg.engines.resources import Device, Resources
from deql.linalg.engines.torch_engine import Torch

__all__ = ["refusal"]

_WORTH_NAMING = 100
"""Fewer items than these are no advice."""


def refusal(asked: str, engines: Mapping[str, Engine], task: Task, there: Resources) -> DeqlError:
    """The error for an engine that cannot do a task, or for all: what is needed, what is there, and what would fit.

    Parameters
    ----------
    asked : str
        Name of the engine asked for, or "auto".
    engines : dict
        All that could be taken, by name.
    task : Task
    there : Resources

    Examples
    --------
    >>> from pathlib import Path
    >>> from deql.linalg.engines.disk import Disk
    >>> from deql.linalg.engines.memory import Memory
    >>> there = Resources(memory=2**30, disk=2**30, folder=Path("/data"), on_disk=True)
    >>> engines = {"torch": Torch(), "memory": Memory(), "disk": Disk()}
    >>> print(refusal("memory", engines, Task(30_000, "float32"), there))  # doctest: +ELLIPSIS
    30,000 items in float32 are too many for the memory engine: it needs ... of memory, and 1.0 GiB are free. ...
    """
    needs = {name: engine.need(task, there) for name, engine in engines.items()}
    need = needs["memory" if asked == "auto" else asked]
    if not need.too_large:
        return ParameterError(Setting("engine", asked), f" cannot be used: {need.why_not}", parameter="engine")
    what = f"{task.n:,} items in {task.dtype} are too many"
    if asked == "auto":
        why = f"{what}: in memory {need.why_not}; on disk {needs['disk'].why_not}"
    else:
        why = f"{what} for the {asked} engine: {need.why_not}"

    def fits(other: Task) -> bool:
        usable = engines.values() if asked == "auto" else (engines[asked],)
        return any(engine.need(other, there).why_not is None for engine in usable)

    parts: list[Any] = []
    for alternative in _alternatives(task, there, needs, fits):
        parts += [", or " if parts else f"{why}. What would fit: ", *alternative]
    return TooLargeError(*parts)


def _alternatives(
    task: Task, there: Resources, needs: Mapping[str, Need], fits: Callable[[Task], bool]
) -> list[tuple[Any, ...]]:
    """Each as parts of a message."""
    found: list[tuple[Any, ...]] = []
    if task.dtype == "float64" and fits(replace(task, dtype="float32")):
        found.append((Setting("dtype", "float32"),))
    for name, need in needs.items():
        if need.why_not is None:
            found.append((Setting("engine", name), f" with {show_bytes(need.disk)} of disk" if need.disk else ""))
    if needs["disk"].too_large and needs["disk"].disk > there.disk:
        free = show_bytes(needs["disk"].disk)
        found.append((Setting("engine", "disk"), f" with a folder that has {free} free"))
    if needs["torch"].why_not and (size := _device_that_would_do(task, there)):
        found.append((Setting("engine", "torch"), f" on a device with {show_bytes(size)} free"))
    found.append((f"a machine with {show_bytes(needs['memory'].memory)} of memory",))
    return [*found, *_fewer_items(task, fits)]


def _device_that_would_do(task: Task, there: Resources) -> int:
    """Bytes of a device, or 0 if memory would be short even with it: P is kept there in the end."""
    vast = Device("cuda:0", "", 2**60, 2**60)
    need = Torch().need(task, replace(there, torch=True, devices=(vast,)))
    return 0 if need.why_not else need.device_memory


def _fewer_items(task: Task, fits: Callable[[Task], bool]) -> list[tuple[Any, ...]]:
    """How many items would fit, and which minimum of users leaves no more than that."""
    low, high = 1, task.n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(replace(task, n=middle)) else (low, middle)
    if task.matrix is None:
        return [(f"{low:,} items",)] if low >= _WORTH_NAMING else []
    users = np.bincount(task.matrix.indices, minlength=task.n)
    # Of the items with as many users as the first that is one too many, none can stay.
    least = int(np.sort(users)[::-1][low]) + 1
    kept = int((users >= least).sum())
    if kept < _WORTH_NAMING:
        return []
    return [(f"the {kept:,} items that ", Setting("min_users_per_item", least), " leaves")]
