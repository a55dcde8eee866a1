"""What would fit, when something does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from deql.errors import DeqlError, ParameterError, TooLargeError
from deql.linalg.planner.requirements import ENGINES, Need, Task, needs_of
from deql.linalg.planner.resources import Device, Resources
from deql.linalg.planner.units import show_bytes

__all__ = ["refusal"]

_WORTH_NAMING = 100
"""Fewer items than these are no advice."""


def refusal(engine: str, task: Task, there: Resources, need_of: Callable[[str, Task], Need]) -> DeqlError:
    """The error for an engine that cannot do a task, or for all: what is needed, what is there, and what would fit.

    Parameters
    ----------
    engine : str
        As asked for.
    task : Task
    there : Resources
    need_of : callable
        What an engine needs for a task.

    Examples
    --------
    >>> from functools import partial
    >>> from pathlib import Path
    >>> there = Resources(memory=2**30, disk=2**30, folder=Path("/data"), on_disk=True)
    >>> print(refusal("memory", Task(30_000, "float32"), there, partial(needs_of, there=there)))  # doctest: +ELLIPSIS
    30,000 items in float32 are too many for the memory engine: it needs ... of memory, and 1.0 GiB are free. ...
    """
    needs = {name: need_of(name, task) for name in ENGINES}
    asked = needs["memory" if engine == "auto" else engine]
    if not asked.too_large:
        return ParameterError(f"engine='{engine}' cannot be used: {asked.why_not}")
    what = f"{task.n:,} items in {task.dtype} are too many"
    if engine == "auto":
        why = f"{what}: in memory {asked.why_not}; on disk {needs['disk'].why_not}"
    else:
        why = f"{what} for the {engine} engine: {asked.why_not}"
    return TooLargeError(f"{why}. What would fit: {', or '.join(_alternatives(engine, task, there, needs, need_of))}")


def _alternatives(
    engine: str, task: Task, there: Resources, needs: dict[str, Need], need_of: Callable[[str, Task], Need]
) -> list[str]:
    def fits(other: Task) -> bool:
        return any(need_of(name, other).why_not is None for name in (ENGINES if engine == "auto" else (engine,)))

    found = []
    if task.dtype == "float64" and fits(replace(task, dtype="float32")):
        found.append("dtype='float32'")
    for name, need in needs.items():
        if need.why_not is None:
            found.append(f"engine='{name}'" + (f" with {show_bytes(need.disk)} of disk" if need.disk else ""))
    if needs["disk"].too_large and needs["disk"].disk > there.disk:
        found.append(f"engine='disk' with a folder that has {show_bytes(needs['disk'].disk)} free")
    if needs["torch"].why_not and (size := _device_that_would_do(task, there)):
        found.append(f"engine='torch' on a device with {show_bytes(size)} free")
    found.append(f"a machine with {show_bytes(needs['memory'].memory)} of memory")
    return [*found, *_fewer_items(task, fits)]


def _device_that_would_do(task: Task, there: Resources) -> int:
    """Bytes of a device, or 0 if memory would be short even with it: P is kept there in the end."""
    vast = Device("cuda:0", "", 2**60, 2**60)
    need = needs_of("torch", task, replace(there, torch=True, devices=(vast,)))
    return 0 if need.why_not else need.device_memory


def _fewer_items(task: Task, fits: Callable[[Task], bool]) -> list[str]:
    """How many items would fit, and which minimum of users leaves no more than that."""
    low, high = 1, task.n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(replace(task, n=middle)) else (low, middle)
    if task.matrix is None:
        return [f"{low:,} items"] if low >= _WORTH_NAMING else []
    users = np.bincount(task.matrix.indices, minlength=task.n)
    # Of the items with as many users as the first that is one too many, none can stay.
    least = int(np.sort(users)[::-1][low]) + 1
    kept = int((users >= least).sum())
    return [f"the {kept:,} items that min_users_per_item={least} leaves"] if kept >= _WORTH_NAMING else []
