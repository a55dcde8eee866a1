"""Kernels are compiled when they are first used: where the result is kept, and a word to whoever waits for it."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["announce_compiling", "keep_compiled", "part_of", "sentence", "time_compiling"]

_PARTS = {
    "deql.data.readers": ("what reads tables", 1),
    "deql.linalg.gram": ("the Gram matrix", 1),
    "deql.ranking.kernels": ("the ranking", 7),
    "deql.ranking.finish": ("the ranking", 7),
    "deql.ranking.shortlist": ("the ranking", 3),
    "deql.ranking.quantised": ("the ranking of single histories", 7),
    "deql.models.slim": ("SLIM", 3),
}
"""What waits for which modules' kernels, and seconds of one core; what takes less than a second is not told."""

_listeners: list[Any] = []
_temporary: list[str] = []


def keep_compiled(package: str | None = None) -> None:
    """Let numba keep what it compiles in a folder of this process where it could write nowhere else.

    It keeps it beside the package's files, or else in the user's cache; where neither can be written, as in a container
    whose files are read-only, numba would refuse to compile at all.

    Parameters
    ----------
    package : str, optional
        Where the package's files are.

    Examples
    --------
    >>> keep_compiled()
    """
    package = package or os.path.dirname(os.path.dirname(__file__))
    if "NUMBA_CACHE_DIR" in os.environ or os.access(package, os.W_OK) or _has_user_cache():
        return
    import shutil
    import tempfile

    folder, owner = tempfile.mkdtemp(prefix="deql-compiled-"), os.getpid()
    _temporary.append(folder)

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    os.environ["NUMBA_CACHE_DIR"] = folder  # for the processes that are started here, too


def _has_user_cache() -> bool:
    """Whether numba can keep what it compiles in the user's cache."""
    if sys.platform == "win32":  # where a user's folders are the user's
        return True
    caches = "~/Library/Caches" if sys.platform == "darwin" else os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = os.path.join(os.path.expanduser(caches), "numba")
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def announce_compiling(tell: Callable[[str], None]) -> None:
    """Call ``tell`` with a sentence when a part of the kernels begins to be compiled: once for each, and only then.

    What was compiled before is loaded in milliseconds, and nothing is told. The first ``tell`` of a process stays.

    Examples
    --------
    >>> announce_compiling(print)
    """
    if _listeners or "numba" not in sys.modules:  # the torch engine runs without it
        return
    from numba.core import event

    class Announcer(event.Listener):
        def __init__(self) -> None:
            self.told: set[str] = set()

        def on_start(self, event: Any) -> None:
            part = part_of(event.data["dispatcher"].py_func.__module__)
            if part is not None and part[0] not in self.told:
                self.told.add(part[0])
                tell(sentence(*part))

        def on_end(self, event: Any) -> None:
            pass

    _listeners.append(Announcer())
    event.register("numba:compile", _listeners[0])  # type: ignore[no-untyped-call]


@contextmanager
def time_compiling() -> Iterator[list[float]]:
    """Measure the seconds that are spent on compiling: a list that has them in the end, and is empty if none were.

    Examples
    --------
    >>> with time_compiling() as compiled:
    ...     pass
    >>> sum(compiled)
    0
    """
    seconds: list[float] = []
    if "numba" not in sys.modules:
        yield seconds
        return
    from numba.core import event

    with event.install_timer("numba:compile", seconds.append):
        yield seconds


def part_of(module: str) -> tuple[str, int] | None:
    """What waits for the kernels of a module, and for how many seconds.

    Examples
    --------
    >>> part_of("deql.data.readers.ids"), part_of("deql.metrics")
    (('what reads tables', 1), None)
    """
    return next((part for start, part in _PARTS.items() if module.startswith(start)), None)


def sentence(what: str, seconds: int) -> str:
    """What is told.

    Examples
    --------
    >>> sentence("the ranking", 7)
    'compiling the ranking, once on this machine: about 7 s'
    """
    if _temporary:
        return (
            f"compiling {what}, as every time, for the result can be kept nowhere: about {seconds} s "
            "(NUMBA_CACHE_DIR may name a folder for it)"
        )
    return f"compiling {what}, once on this machine: about {seconds} s"
