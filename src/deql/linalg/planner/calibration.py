"""How fast this machine is, found out in at most about a second."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from deql._system.threads import blas_limited, run_slices, thread_count
from deql.linalg.blas import MOST_CALLERS, gemm
from deql.linalg.engines.resources import ProblemSize, Requirement, Resources
from deql.linalg.parallel_sweep import TASK_FLOPS
from deql.linalg.sweep import Piece

__all__ = [
    "Rates",
    "device_rates",
    "disk_rates",
    "measure_rates",
    "memory_rate",
    "predict",
    "product_rate",
    "quick_rates",
]

_SECONDS = 0.25
"""For each thing that is measured."""

_BRIEF = 0.04
"""Where a decision depends on it that itself saves little more than the time of the measurement."""

_OVERHEAD = 1.15
"""Of a whole fit over n³ flops at the rate of large products: panels, pivots and passes over memory."""

_PAIR_SECONDS = 1e-9
"""One thread's time to add one pair of items to the Gram matrix."""

Rates = dict[str, float]
"""Flops or bytes in a second by what was measured."""


def product_rate(dtype: str, tile: int, seconds: float = _SECONDS) -> float:
    """Flops in a second of products as the sweep makes them, by as many threads as it would use.

    What all of them did over all of the time counts, not the quickest product: on a busy machine a fit gets no more.
    They are measured for ``seconds``, after as long a time in which processors come to speed.

    Examples
    --------
    >>> product_rate("float32", 64) > 1e6
    True
    """
    width = min(tile, 1024)
    rows = max(width, TASK_FLOPS // (2 * width * width))
    threads = min(thread_count(), MOST_CALLERS)
    done = np.zeros(threads)
    panel, inverse = np.ones((rows, width), dtype), np.ones((width, width), dtype)

    def work(first: int, _last: int) -> None:
        values = np.zeros((rows, width), dtype)

        def products_in(least: float) -> float:
            begin, count = perf_counter(), 0
            while not count or perf_counter() - begin < least:
                gemm(0.5, panel, inverse, 0.5, values)
                count += 1
            return count / (perf_counter() - begin)

        products_in(seconds)
        done[first] = products_in(seconds)

    with blas_limited(1):
        run_slices(work, range(threads + 1))
    return float(2 * rows * width * width * done.sum())


def memory_rate(size: int = 2**24) -> float:
    """Bytes in a second of copies into memory that was not in use, by all threads: what a second store of P takes.

    Examples
    --------
    >>> memory_rate(2**20) > 1e6
    True
    """
    source = np.ones(size, np.uint8)
    bounds = np.linspace(0, size, thread_count() + 1).astype(int).tolist()

    def copy() -> float:
        begin = perf_counter()
        into = np.frombuffer(mmap.mmap(-1, size), np.uint8)  # an allocator may hand out memory that was in use
        run_slices(lambda first, last: np.copyto(into[first:last], source[first:last]), bounds)
        return perf_counter() - begin

    return size / min(copy() for _ in range(3))


def disk_rates(folder: Path, size: int = 2**26) -> tuple[float, float]:
    """Bytes written and read in a second in a folder.

    Examples
    --------
    >>> write, read = disk_rates(Path(tempfile.gettempdir()), size=2**20)
    >>> write > 0 < read
    True
    """
    piece = memoryview(os.urandom(2**20) * 8)[: min(size, 2**23)]
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        begin = perf_counter()
        written = 0
        while written < size and (not written or perf_counter() - begin < _SECONDS):
            written += file.write(piece)
            os.fsync(file.fileno())
        write = written / (perf_counter() - begin)
        if hasattr(os, "posix_fadvise"):  # else what is read would be what memory still has
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(0)
        begin = perf_counter()
        while file.read(len(piece)):
            pass
        return write, written / (perf_counter() - begin)


def device_rates(device: str, dtype: str) -> tuple[float, float]:
    """Flops of the sweep's products in a second on a device, in the arithmetic that it uses, and bytes copied to it."""
    import torch

    from deql.linalg.engines.torch_invert import default_arithmetic
    from deql.linalg.engines.torch_products import Products, arithmetic_set

    def finished(work: Callable[[], Any]) -> None:
        work()
        if cuda:
            torch.cuda.synchronize(device)

    kind, cuda = getattr(torch, dtype), device.startswith("cuda")
    rows, width = (16_384, 1024) if cuda else (512, 256)
    arithmetic = default_arithmetic(dtype, torch.device(device))
    products = Products(arithmetic, kind, torch.device(device))
    products.solve(products.panel(rows, width).uniform_(), torch.eye(width, dtype=kind, device=device))
    on_device = torch.zeros(rows, width, dtype=kind, device=device)
    here = torch.ones(rows, width, dtype=kind, pin_memory=cuda)
    with arithmetic_set(arithmetic):
        flops = 2 * rows * width**2 * _per_second(lambda: finished(lambda: products.update(Piece(0, 0, on_device), 1)))
    copied = here.nbytes * _per_second(lambda: finished(lambda: on_device.copy_(here, non_blocking=True)))
    return flops, copied


def predict(requirement: Requirement, size: ProblemSize, rates: Rates) -> float | None:
    """Seconds that a fit takes, or None where nothing was measured for it.

    n³ flops, and the Gram matrix before them. Where tiles come from a disk or from the host, their passes go on
    beside the products: the slower of the two counts.

    Examples
    --------
    >>> predict(Requirement("memory", 0), ProblemSize(38_048, "float32"), {"products": 2e11}) // 60
    5.0
    """
    flops = rates.get("device" if requirement.engine == "torch" else "products")
    if flops is None:
        return None
    work = _OVERHEAD * size.n**3 / flops
    moved = requirement.passes * size.packed
    if requirement.engine == "torch":  # the Gram matrix is summed there in less time than the result takes to come back
        return max(work, moved / rates["copy"]) + size.packed / rates["copy"]
    if moved:
        work = max(work, moved / rates["write"] + moved / rates["read"])
    # Every number of the matrix is written once, whether or not anyone has the pair.
    return work + (size.pairs + size.n**2 / 2) * _PAIR_SECONDS / thread_count()


def measure_rates(needs: list[Requirement], size: ProblemSize, resources: Resources, device: str) -> Rates:
    """The rates of what fits."""
    usable = {one.engine for one in needs if one.why_not is None}
    rates: Rates = {}
    if usable & {"memory", "disk"}:
        rates["products"] = product_rate(size.dtype, size.tile)
    if "disk" in usable:
        rates["write"], rates["read"] = disk_rates(resources.folder)
    if "torch" in usable:
        rates["device"], rates["copy"] = device_rates(device, size.dtype)
    return rates


@lru_cache(maxsize=16)
def quick_rates(engine: str, dtype: str, tile: int, folder: Path, device: str) -> Rates:
    """The rates of one engine, and of memory, measured in about a tenth of a second, once in a process.

    Examples
    --------
    >>> sorted(quick_rates("memory", "float32", 64, Path(tempfile.gettempdir()), "cpu"))
    ['memory', 'products']
    """
    rates: Rates = {"memory": memory_rate(), "products": product_rate(dtype, tile, _BRIEF)}
    if engine == "disk":
        rates["write"], rates["read"] = disk_rates(folder, 2**24)
    if engine == "torch":
        rates["device"], rates["copy"] = device_rates(device, dtype)
    return rates


def _per_second(work: Callable[[], Any]) -> float:
    """How often work can be done in a second: by the quickest of a few times, the first of which does not count."""
    work()
    quickest, begin = float("inf"), perf_counter()
    while quickest == float("inf") or perf_counter() - begin < _SECONDS:
        before = perf_counter()
        work()
        quickest = min(quickest, perf_counter() - before)
    return 1 / quickest
