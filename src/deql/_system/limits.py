"""Limits on a process's addresses and data (``ulimit -v``, ``-d``): what they leave, and how to live within them.

Libraries reserve far more addresses than they use: a buffer and a stack for each thread of two BLAS libraries, 64 MiB
for each thread that allocates. Where a limit leaves none, OpenBLAS asks for a buffer again and again, for ever, with
the interpreter's lock in its hand, and others end the process. So this is looked at before they are loaded.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

from deql.errors import TooLargeError

__all__ = [
    "MOST_CALLERS",
    "Limit",
    "adapt_to_limits",
    "addresses_left",
    "check_room_for_blas",
    "limits_set",
    "usable_processors",
]

MOST_CALLERS = 64
"""Threads that may be inside BLAS at once: it has buffers for so many."""

# Measured with the bundled data on Linux: what the libraries take of each kind at one thread, and for one more.
_LEAST = {"v": 900 * 2**20, "d": 400 * 2**20}
_EACH_THREAD = {"v": 150 * 2**20, "d": 100 * 2**20}
_AT_EASE = {"v": 2**30, "d": 2**29}
"""For each processor, and twice that beside: with so much nothing is held back."""

_BLAS, _BLAS_THREAD = 64 * 2**20, 48 * 2**20
_ARENAS = -8
"""M_ARENA_MAX, as mallopt calls it."""


class Limit(NamedTuple):
    """A limit that is set: the letter of its ``ulimit``, its bytes, and those that are left of it."""

    letter: str
    bytes: int
    left: int

    @property
    def words(self) -> str:
        """What it is, as a person would look it up."""
        kind = "addresses" if self.letter == "v" else "data"
        return f"the limit on this process's {kind} (ulimit -{self.letter} {self.bytes // 1024})"


def limits_set(root: Path = Path("/")) -> list[Limit]:
    """The limits that are set."""
    if sys.platform == "win32":
        return []
    import resource

    try:
        pages = list(map(int, (root / "proc/self/statm").read_text().split()))
    except (OSError, ValueError):
        pages = []
    taken = {"v": pages[0], "d": pages[5]} if len(pages) > 5 else {"v": 0, "d": 0}
    found = {"v": resource.getrlimit(resource.RLIMIT_AS)[0], "d": resource.getrlimit(resource.RLIMIT_DATA)[0]}
    return [
        Limit(letter, limit, limit - taken[letter] * resource.getpagesize())
        for letter, limit in found.items()
        if limit != resource.RLIM_INFINITY
    ]


def addresses_left(root: Path = Path("/")) -> int | None:
    """Bytes that the limits on addresses and data leave to this process; None without a limit.

    Examples
    --------
    >>> left = addresses_left()
    >>> left is None or left > 0
    True
    """
    return min((limit.left for limit in limits_set(root)), default=None)


def usable_processors() -> int:
    """Processors that this process may run on.

    Examples
    --------
    >>> usable_processors() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def adapt_to_limits() -> None:
    """Before any library is loaded: use fewer threads where a limit would not do for all; refuse one that is too small.

    Only for a process of our own: it sets environment variables, and how the C library allocates.

    Raises
    ------
    TooLargeError
        If the libraries themselves would not fit.
    """
    if "numpy" in sys.modules:  # who has loaded them is not told that they cannot be
        return
    processors = usable_processors()
    for limit in (limits := limits_set()):
        least = _LEAST[limit.letter]
        if limit.left < least:
            raise TooLargeError(
                f"{limit.words} is too small to load the libraries: it takes at least "
                f"{-(-(limit.bytes - limit.left + least) // 2**20) * 1024}; raise it, or limit the memory by a control "
                "group, which counts what is used"
            )
    if all(limit.left >= _AT_EASE[limit.letter] * (2 + processors) for limit in limits):
        return
    threads = min(1 + (limit.left // 4 - _LEAST[limit.letter]) // _EACH_THREAD[limit.letter] for limit in limits)
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "POLARS_MAX_THREADS", "DEQL_THREADS"):
        os.environ.setdefault(name, str(max(1, min(threads, processors))))
    _share_one_arena()


def check_room_for_blas() -> None:
    """Before SciPy's BLAS is loaded: raise TooLargeError if it could not get its buffers, and would ask for ever.

    Examples
    --------
    >>> check_room_for_blas()
    """
    if "scipy.linalg" in sys.modules:
        return
    wanted = os.environ.get("OPENBLAS_NUM_THREADS", "")
    threads = int(wanted) if re.fullmatch("[0-9]{1,4}", wanted) else os.cpu_count() or 1
    for limit in limits_set():
        needed = _BLAS + _BLAS_THREAD * threads
        if limit.left < needed:
            raise TooLargeError(
                f"{limit.words} leaves {max(0, limit.left) // 2**20:,} MiB, and BLAS needs "
                f"{needed // 2**20:,} MiB for {threads} thread{'s' * (threads != 1)}: raise it"
            )


def _share_one_arena() -> None:
    """Let all threads allocate from one place, where each would reserve 64 MiB of its own."""
    import ctypes

    try:
        ctypes.CDLL(None).mallopt(_ARENAS, 1)
    except (OSError, AttributeError):  # not glibc
        return
