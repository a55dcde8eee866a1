"""What each engine needs for a fit, and whether that is there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from deql.errors import DataError
from deql.linalg.packed import PackedSymmetric
from deql.linalg.planner.resources import Resources
from deql.linalg.planner.units import parse_bytes, show_bytes
from deql.linalg.tiling import DEVICE_SLICE, WIDEST_PIVOT, choose_tile, device_memory, device_panels

__all__ = ["ENGINES", "Need", "Task", "needs_of", "task_of"]

ENGINES = ("torch", "memory", "disk")
"""As ``engine="auto"`` prefers them, torch only with a CUDA device."""

_INTERPRETER = 192 * 2**20
"""Python and the packages that a fit loads, before any data."""

_BUFFERS = 64 * 2**20
"""What BLAS, the threads and the inverse of a pivot take beside the panels."""

_TORCH = 2**30
"""Host memory of torch with a CUDA device open."""


@dataclass(frozen=True)
class Task:
    """What is to be fitted, as far as time and memory go.

    Attributes
    ----------
    n : int
        Number of items.
    dtype : str
        float32 or float64.
    matrix : csr_array, optional
        Users × items; None if only the number of items is known.
    matrices : int, default 1
        How many of n × n there are at once: 2 where a Gram matrix is kept, to be inverted with other ridges.
    """

    n: int
    dtype: str
    matrix: Any = None
    matrices: int = 1

    @property
    def stored(self) -> int:
        """Bytes of the interactions, which are in memory already."""
        parts = () if self.matrix is None else (self.matrix.data, self.matrix.indices, self.matrix.indptr)
        return sum(part.nbytes for part in parts)

    @property
    def work(self) -> int:
        """Bytes that the Gram matrix takes for a while: interactions by item, and two numbers for each."""
        return 0 if self.matrix is None else self.stored + 16 * int(self.matrix.nnz)

    @property
    def pairs(self) -> int:
        """Σ_u |u|²: how often two items have a user in common."""
        return 0 if self.matrix is None else int((np.diff(self.matrix.indptr).astype(np.int64) ** 2).sum())

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return 4 if self.dtype == "float32" else 8

    @property
    def tile(self) -> int:
        """Width of the block columns in memory and on disk."""
        return choose_tile(self.n)

    @property
    def packed(self) -> int:
        """Bytes of the packed matrix."""
        return PackedSymmetric.stored_numbers(self.n, self.tile) * self.itemsize


@dataclass(frozen=True)
class Need:
    """What one engine needs, and why it cannot have it.

    Attributes
    ----------
    engine : str
    memory : int
        Peak of the process in bytes, with Python and the interactions.
    disk, device_memory : int
        Bytes.
    passes : int
        How often all of the matrix is read from a disk, or copied through a device that cannot hold it, and back.
    why_not : str or None
        None if it fits.
    too_large : bool
        Whether size is the reason, rather than something that is missing.
    seconds : float or None
        Predicted.
    """

    engine: str
    memory: int
    disk: int = 0
    device_memory: int = 0
    passes: int = 0
    why_not: str | None = None
    too_large: bool = True
    seconds: float | None = None


def task_of(data: Any, dtype: str) -> Task:
    """What is known of the data: interactions, a matrix, a split (its training part), or a number of items.

    Examples
    --------
    >>> task_of(38_048, "float32").packed / 2**30 < 2.8
    True
    """
    if isinstance(data, int | np.integer) and not isinstance(data, bool):
        if data < 1:
            raise DataError(f"the number of items must be at least 1, got {data}")
        return Task(int(data), dtype)
    from scipy.sparse import csr_array

    data = getattr(data, "train", data)
    try:
        matrix = csr_array(getattr(data, "matrix", data))
    except (TypeError, ValueError):
        matrix = None
    if matrix is None or matrix.ndim != 2:
        kind = type(data).__name__
        raise DataError(
            f"a plan needs interactions, a split, a matrix of users × items or a number of items, got {kind}"
        )
    if not matrix.shape[1]:
        raise DataError("there are no items to plan for")
    return Task(matrix.shape[1], dtype, matrix)


def needs_of(engine: str, task: Task, there: Resources, memory: Any = None, device: str | None = None) -> Need:
    """What an engine needs for a task, and whether it is there.

    Parameters
    ----------
    engine : {"memory", "disk", "torch"}
    task : Task
    there : Resources
    memory : int or str, optional
        What may be taken: the budget of the disk engine, and a bound for the memory engine.
    device : str, optional
        The device of the torch engine.

    Examples
    --------
    >>> from deql.linalg.planner.resources import find_resources
    >>> needs_of("memory", Task(100, "float32"), find_resources(devices=False)).why_not is None
    True
    """
    if engine == "memory":
        return _in_memory(task, there, memory)
    return _on_disk(task, there, memory) if engine == "disk" else _on_device(task, there, device)


def _in_memory(task: Task, there: Resources, memory: Any) -> Need:
    # The Gram matrix's work arrays are gone before the sweep's panels come.
    more = task.matrices * task.packed + max(2 * task.n * task.tile * task.itemsize, task.work) + _BUFFERS
    why = _lacking("memory", more, there.memory)
    if memory is not None and more > (allowed := parse_bytes(memory)):
        why = why or f"it needs {show_bytes(more)} of memory, and was given {show_bytes(allowed)}"
    return Need("memory", more + task.stored + _INTERPRETER, why_not=why)


def _on_disk(task: Task, there: Resources, memory: Any) -> Need:
    from deql.linalg.engines.disk import disk_needed, least_budget, widest_pivot, working_memory

    n, dtype, why = task.n, task.dtype, None
    least = least_budget(n, dtype)
    budget = there.memory // 2 if memory is None else parse_bytes(memory)
    pivot = widest_pivot(n, task.tile, dtype, max(budget, least))
    more, disk = working_memory(n, task.tile, dtype, pivot) + task.work, disk_needed(n, dtype)
    if os.name != "posix":
        why = "it needs Linux or macOS"
    elif there.unreachable:
        why = there.unreachable
    elif not there.writable:
        why = f"{there.folder} may not be written to: name another folder"
    elif not there.on_disk and more + disk > there.memory:
        why = f"{there.folder} lies in memory itself: name a folder on a disk"
    elif task.matrices > 1:
        why = "it keeps one matrix, and here a Gram matrix is inverted more than once"
    elif budget < least:
        half = "half of what is free is" if memory is None else "was given"
        why = f"it needs memory of at least {-(-least // 2**20):,} MiB, and {half} {show_bytes(budget)}"
    too_large = why is None
    why = why or _lacking("memory", more, there.memory) or _lacking(f"disk in {there.folder}", disk, there.disk)
    peak = more + task.stored + _INTERPRETER
    return Need("disk", peak, disk, passes=-(-n // pivot), why_not=why, too_large=too_large)


def _on_device(task: Task, there: Resources, device: str | None) -> Need:
    if not there.torch:
        return Need("torch", 0, why_not='torch is not installed: pip install "deql[gpu]"', too_large=False)
    held = task.stored + _INTERPRETER
    whole = device_memory(task.n, task.dtype, task.matrices)
    if device == "cpu":
        return Need("torch", whole + held, why_not=_lacking("memory", whole, there.memory))
    more = task.packed + _TORCH  # P is kept in memory in the end
    chosen = next(iter(there.devices), None)
    if chosen is None:
        missing = "there is no CUDA device" if device is None else f"there is no device {device}"
        return Need("torch", more + held, device_memory=whole, why_not=missing, too_large=False)
    on_device = f"memory on {chosen.name}"
    if whole <= chosen.free or task.matrices > 1:  # a Gram matrix that is kept does not stream
        why = _lacking(on_device, whole, chosen.free) or _lacking("memory", more, there.memory)
        return Need("torch", more + held, device_memory=whole, why_not=why)
    more += task.work  # what streams is summed in memory
    least = device_panels(task.n, task.tile)
    wide = max(1, min(WIDEST_PIVOT // task.tile, (chosen.free - DEVICE_SLICE) // least))
    needed = DEVICE_SLICE + wide * least
    why = _lacking(on_device, needed, chosen.free) or _lacking("memory", more, there.memory)
    return Need("torch", more + held, device_memory=needed, passes=-(-task.n // (wide * task.tile)), why_not=why)


def _lacking(what: str, needed: int, free: int) -> str | None:
    return f"it needs {show_bytes(needed)} of {what}, and {show_bytes(free)} are free" if needed > free else None
