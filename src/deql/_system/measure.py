"""What a piece of work takes: its seconds, and the memory of the process that does it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, TypeVar

from deql.errors import DeqlError

__all__ = ["Measurement", "measure"]

Made = TypeVar("Made")


@dataclass(frozen=True)
class Measurement:
    """Seconds of the work on the clock and of all cores, peak RSS, and RSS right before the work began.

    Attributes
    ----------
    seconds, cpu_seconds : float
    peak_mib, before_mib : float
    facts : dict
        Whatever else there is to say of the work.
    """

    seconds: float
    cpu_seconds: float
    peak_mib: float
    before_mib: float
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def cores(self) -> float:
        """Cores that the work had on average: on a busy machine fewer than it could use."""
        return self.cpu_seconds / self.seconds

    @property
    def beyond_mib(self) -> float:
        """Peak RSS beyond imports and data."""
        return self.peak_mib - self.before_mib


def measure(work: Callable[[], Made]) -> tuple[Made, Measurement]:
    """Do some work, and read time and memory before and after it.

    Memory is the whole process's, so that work is best measured in a process of its own.

    Examples
    --------
    >>> made, sample = measure(lambda: bytes(2**20))
    >>> len(made), sample.seconds < 1
    (1048576, True)
    """
    with suppress(OSError):  # forgets the peak of imports and of reading the data
        Path("/proc/self/clear_refs").write_text("5")
    before = _memory("VmRSS")
    start, cpu_start = perf_counter(), process_time()
    made = work()
    seconds, cpu_seconds = perf_counter() - start, process_time() - cpu_start
    return made, Measurement(seconds, cpu_seconds, _memory("VmHWM"), before)


def _memory(gauge: str) -> float:
    """MiB by a gauge of /proc; elsewhere the peak so far, which is the nearest that the standard library has."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{gauge}:"):
                return int(line.split()[1]) / 1024
    if sys.platform == "win32":
        raise DeqlError("this system does not tell how much memory a process takes: weigh it on Linux or macOS")
    import resource

    # Not on Linux: there a process inherits this number from the one that started it. macOS counts in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 1024)
