"""Every call that can fail, failed once: the first write of an operation, then the second, and so on to the last."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from numpy._core import _multiarray_umath

from deql.errors import DeqlError

SOURCE = Path(__file__).with_name("shim.c")

KINDS = ("write", "short write", "sync", "rename", "map", "truncate", "open", "read", "allocation")
"""In the order of ``shim.c``. After a short write, which is no error, the operation must go on."""

WRITING = ("write", "short write", "sync", "rename", "map", "truncate", "open", "allocation")
READING = ("open", "read", "map", "allocation")

_NUMBA = ("_nrt_python", "_helperlib")
"""The run time of compiled kernels, which allocates their arrays."""

_DEFAULT_HANDLER = 306
"""The place of NumPy's ``PyDataMem_DefaultHandler`` in the table of its C API, where it has been since 1.22."""

_NUMBA_LEAKS = "Allocation failed (probably too large)"
"""What a kernel says that could not allocate: numba does not give back the arrays that it was handed, then.

Nor where it could not allocate its own note of an array, of which it says nothing: the kernel runs, and is right.
"""

_HANG_SECONDS = 30
_QUICK_STEPS = {"allocation": 20, "open": 8}
_MOST = 5000
"""Faults of one kind in one operation: more would be an operation too large to be tried like this."""


def build(folder: Path) -> Path:
    """Compile the shim; FileNotFoundError where there is no compiler."""
    library = folder / "shim.so"
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise FileNotFoundError("there is no C compiler")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    return library


@dataclass(frozen=True)
class Operation:
    """Something that is done in a folder, and must be done whole or not at all.

    Attributes
    ----------
    name : str
    prepare : callable
        Brings a folder to the state before.
    act : callable
        Does it in the folder; what it returns goes to ``holds``.
    holds : callable
        Asserts that it is done, and right.
    kinds : tuple of str
        What may fail.
    survived : callable or None
        Asserts, of the files before and of the folder after a fault, that nothing is lost. By default the files are
        as they were, or as they are once it is done: a fault may come after the rename.
    again : callable
        What is done before each try, beside putting the files back.
    end : callable
        What is done after the last try.
    """

    name: str
    prepare: Callable[[Path], object]
    act: Callable[[Path], Any]
    holds: Callable[[Path, Any], None]
    kinds: tuple[str, ...] = WRITING
    survived: Callable[[dict[str, bytes], Path], None] | None = None
    again: Callable[[Path], object] = lambda folder: None
    end: Callable[[], object] = lambda: None


@dataclass
class Outcome:
    """How an operation took its faults: how many of each kind, and what went wrong."""

    name: str
    points: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Shim:
    """The preloaded library, in the process that it was preloaded into."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        for line in Path("/proc/self/maps").read_text().splitlines():
            if " r-xp " in line and any(name in line for name in _NUMBA):
                begin, end = (int(place, 16) for place in line.split()[0].split("-"))
                self._library.fault_allocator(ctypes.c_size_t(begin), ctypes.c_size_t(end))
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        table = ctypes.cast(
            pointer(_multiarray_umath._ARRAY_API, None), ctypes.POINTER(ctypes.POINTER(ctypes.py_object))
        )
        self._library.fault_data_memory(ctypes.c_void_p(pointer(table[_DEFAULT_HANDLER][0], b"mem_handler")))

    @contextmanager
    def failing(self, kind: str, n: int, stays: bool) -> Iterator[list[int]]:
        """Let the n-th call of a kind fail; what is yielded gets the number of calls at the end."""
        seen: list[int] = []
        self._library.fault_arm(KINDS.index(kind) + 1, ctypes.c_long(n), int(stays))
        try:
            yield seen
        finally:
            seen.append(self._library.fault_disarm())


def try_every_fault(operation: Operation, folder: Path, shim: Shim, quick: bool = False) -> Outcome:
    """Fail each call of each kind in turn, alone and with all that follow, and look at what is left.

    Quick, only some of the allocations and opens are tried, of which there are hundreds: the first ones, then a few.
    """
    before = _fresh(operation, folder)
    try:
        return _try_all(operation, folder, shim, quick, before)
    finally:
        operation.end()


def _try_all(operation: Operation, folder: Path, shim: Shim, quick: bool, before: dict[str, bytes]) -> Outcome:
    outcome = Outcome(operation.name)
    for _ in range(2):  # what is imported, compiled and cached the first time is not the operation's
        _set(folder, before)
        operation.again(folder)
        operation.holds(folder, operation.act(folder))
    after = _files(folder)
    gc.collect()
    gc.freeze()
    for kind in operation.kinds:
        for stays in (False, True):
            thinned = quick and kind in _QUICK_STEPS
            if stays and (thinned or kind == "short write"):
                continue
            for n in [*range(1, 6), *range(6, _MOST, _QUICK_STEPS[kind])] if thinned else range(1, _MOST):
                what = f"{operation.name}: {kind} {n}{' and all that follow' if stays else ''}"
                hit, wrong = _try(operation, folder, shim, (kind, n, stays), (before, after))
                if not hit:
                    break
                outcome.points[kind] += 1
                outcome.wrong += [f"{what}: {one}" for one in wrong]
            else:
                outcome.wrong.append(f"{what}: there is no end to it")
    return outcome


def _try(
    operation: Operation,
    folder: Path,
    shim: Shim,
    fault: tuple[str, int, bool],
    states: tuple[dict[str, bytes], dict[str, bytes]],
) -> tuple[bool, list[str]]:
    """Whether the fault was met, and what was wrong then."""
    before, after = states
    _set(folder, before)
    operation.again(folder)
    held, threads, wrong = _descriptors(), threading.active_count(), []
    error = result = None
    leaks = fault[0] == "allocation"
    with shim.failing(*fault) as seen, _hang_noticed():
        try:
            result = operation.act(folder)
        except BaseException as raised:
            error = raised
    hit = seen[0] >= fault[1]
    if error is not None:
        if not hit:
            wrong.append(f"failed without a fault: {error!r}")
        wrong += _unclear(error)
        leaks = _NUMBA_LEAKS in str(error)
        left = _files(folder)
        if operation.survived is not None:
            wrong += _asserted(lambda: operation.survived(before, folder))  # type: ignore[misc]
        elif left not in (before, after):
            changed = sorted(name for name in left.keys() | before.keys() if left.get(name) != before.get(name))
            wrong.append(f"left {', '.join(changed)} behind")
    else:
        wrong += _asserted(lambda: operation.holds(folder, result))
    error = result = None
    if not _becomes(lambda: threading.active_count() <= threads or (gc.collect() and False)):
        wrong.append(f"threads are still there: {threading.enumerate()}")
    if not leaks and not _becomes(lambda: _descriptors() <= held or (gc.collect() and False)):
        wrong.append(f"{_descriptors() - held} files are still open")
    wrong += _asserted(lambda: operation.holds(folder, operation.act(folder)), "tried again: ")
    return hit, wrong


def _unclear(error: BaseException) -> list[str]:
    if not isinstance(error, DeqlError | OSError | MemoryError):
        return [f"raised {error!r}"]
    said = str(error)
    if isinstance(error, DeqlError) and (not said.strip() or "\n" in said or "Traceback" in said):
        return [f"said {said!r}"]
    return []


def _asserted(check: Callable[[], object], where: str = "") -> list[str]:
    try:
        with _hang_noticed():
            check()
    except BaseException as error:
        return [f"{where}{type(error).__name__}: {str(error)[:300]}"]
    return []


def _becomes(true: Callable[[], bool]) -> bool:
    """Whether something is so soon: a thread may be about to end."""
    for _ in range(200):
        if true():
            return True
        time.sleep(0.01)
    return False


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _fresh(operation: Operation, folder: Path) -> dict[str, bytes]:
    _set(folder, {})
    operation.prepare(folder)
    return _files(folder)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _set(folder: Path, files: dict[str, bytes]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


class HangError(BaseException):
    """Something takes far too long."""


@contextmanager
def _hang_noticed() -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise HangError

    usual = signal.signal(signal.SIGALRM, ring)
    signal.alarm(_HANG_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, usual)
