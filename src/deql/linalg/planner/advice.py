"""What would fit, when something does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from deql._system.units import show_bytes
from deql.errors import DeqlError, ParameterError, Setting, TooLargeError
from deql.linalg.engines.engine import Engine
from deql.linalg.engines.requirements import ProblemSize, Requirement
from deql.linalg.engines.resources import Device, Resources
from deql.linalg.engines.torch_engine import Torch

__all__ = ["engine_error"]

_WORTH_NAMING = 100
"""Fewer items than these are no advice."""


def engine_error(requested: str, engines: Mapping[str, Engine], size: ProblemSize, resources: Resources) -> DeqlError:
    """The error for an engine that cannot fit so much, or for all: what is needed, what is free, and what would fit.

    Parameters
    ----------
    requested : str
        Name of the engine requested, or "auto".
    engines : dict
        All that could be taken, by name.
    size : ProblemSize
    resources : Resources

    Examples
    --------
    >>> from pathlib import Path
    >>> from deql.linalg.engines.disk import Disk
    >>> from deql.linalg.engines.memory import Memory
    >>> resources = Resources(memory=2**30, disk=2**30, folder=Path("/data"), on_disk=True)
    >>> engines = {"torch": Torch(), "memory": Memory(), "disk": Disk()}
    >>> print(engine_error("memory", engines, ProblemSize(30_000, "float32"), resources))  # doctest: +ELLIPSIS
    30,000 items in float32 are too many for the memory engine: it needs ... of memory, and 1.0 GiB are free. ...
    """
    needs = {name: engine.requirement(size, resources) for name, engine in engines.items()}
    requirement = needs["memory" if requested == "auto" else requested]
    if not requirement.too_large:
        return ParameterError(
            Setting("engine", requested), f" cannot be used: {requirement.why_not}", parameter="engine"
        )
    what = f"{size.n:,} items in {size.dtype} are too many"
    if requested == "auto":
        why = f"{what}: in memory {requirement.why_not}; on disk {needs['disk'].why_not}"
    else:
        why = f"{what} for the {requested} engine: {requirement.why_not}"

    def would_fit(other: ProblemSize) -> bool:
        usable = engines.values() if requested == "auto" else (engines[requested],)
        return any(engine.requirement(other, resources).why_not is None for engine in usable)

    parts: list[Any] = []
    for alternative in _alternatives(size, resources, needs, would_fit):
        parts += [", or " if parts else f"{why}. What would fit: ", *alternative]
    return TooLargeError(*parts)


def _alternatives(
    size: ProblemSize, resources: Resources, needs: Mapping[str, Requirement], would_fit: Callable[[ProblemSize], bool]
) -> list[tuple[Any, ...]]:
    """Each as parts of a message."""
    found: list[tuple[Any, ...]] = []
    if size.dtype == "float64" and would_fit(replace(size, dtype="float32")):
        found.append((Setting("dtype", "float32"),))
    for name, one in needs.items():
        if one.why_not is None:
            found.append((Setting("engine", name), f" with {show_bytes(one.disk)} of disk" if one.disk else ""))
    if needs["disk"].too_large and needs["disk"].disk > resources.disk:
        free = show_bytes(needs["disk"].disk)
        found.append((Setting("engine", "disk"), f" with a folder that has {free} free"))
    if needs["torch"].why_not and (least := _device_that_would_do(size, resources)):
        found.append((Setting("engine", "torch"), f" on a device with {show_bytes(least)} free"))
    found.append((f"a machine with {show_bytes(needs['memory'].memory)} of memory",))
    return [*found, *_fewer_items(size, would_fit)]


def _device_that_would_do(size: ProblemSize, resources: Resources) -> int:
    """Bytes of a device, or 0 if memory would be short even with it: P is kept there in the end."""
    vast = Device("cuda:0", "", 2**60, 2**60)
    requirement = Torch().requirement(size, replace(resources, torch=True, devices=(vast,)))
    return 0 if requirement.why_not else requirement.device_memory


def _fewer_items(size: ProblemSize, would_fit: Callable[[ProblemSize], bool]) -> list[tuple[Any, ...]]:
    """How many items would fit, and which minimum of users leaves no more than that."""
    low, high = 1, size.n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if would_fit(replace(size, n=middle)) else (low, middle)
    if size.matrix is None:
        return [(f"{low:,} items",)] if low >= _WORTH_NAMING else []
    users = np.bincount(size.matrix.indices, minlength=size.n)
    # Of the items with as many users as the first that is one too many, none can stay.
    least = int(np.sort(users)[::-1][low]) + 1
    kept = int((users >= least).sum())
    if kept < _WORTH_NAMING:
        return []
    return [(f"the {kept:,} items that ", Setting("min_users_per_item", least), " leaves")]
