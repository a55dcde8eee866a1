"""Durable writes and locks: files that are there whole or not at all, and that survive a crash once they are there."""

from __future__ import annotations

import os
import re
import secrets
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from deql._system.lazy import pl
from deql.errors import DataError, reason

__all__ = ["remove_stale", "replace_file", "sync", "try_lock", "write_text", "write_whole"]

_LONG_AGO = 24 * 3600
"""Seconds after which a file that is still being written elsewhere would have grown."""


def replace_file(path: Path, write: Callable[[Path], object], beside: str = "") -> None:
    """Let ``write`` fill a file beside ``path``, bring it to disk, and rename it there.

    Whenever the process or the machine stops, ``path`` is what it was before or what ``write`` made. Errors pass
    through; nothing is left behind then. The file beside it has a name of its own each time, which is locked while it
    is written, and what killed processes left of theirs is removed. Where only one process writes, ``beside`` may
    give the name: what a killed one left is then found and written over.
    """
    path = Path(os.path.realpath(path))  # what a link points to is written, not the link
    lock = -1
    if beside:
        temporary = path.with_name(beside)
        temporary.touch()
    else:
        remove_stale(path)
        temporary, lock = _make_beside(path)
    try:
        mode = temporary.stat().st_mode  # as the umask wants it; some libraries make files for their owner only
        write(temporary)
        if temporary.stat().st_mode != mode:  # some file systems refuse to be asked
            temporary.chmod(mode)
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
        if lock >= 0:
            os.close(lock)


def _make_beside(path: Path) -> tuple[Path, int]:
    """A new file beside ``path``, and the descriptor that holds its lock; −1 where open files cannot be renamed."""
    while True:
        temporary = path.with_name(f".{path.name}.{_kernel()}{secrets.token_hex(4)}.tmp")
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        if os.name != "posix":
            os.close(descriptor)
            return temporary, -1
        try:
            ours = try_lock(descriptor)
        except OSError:  # a file system without locks: nobody can take it for stale by them either
            ours = True
        if ours and os.fstat(descriptor).st_nlink:  # else somebody was faster, and took it for stale
            return temporary, descriptor
        os.close(descriptor)


def remove_stale(path: Path) -> None:
    """Remove what killed processes left beside ``path``: what nobody has locked, and nobody elsewhere can be writing.

    Locks are sure between processes of one kernel, whose mark the names bear. Some file systems that machines share
    keep them apart on each, so that a file from elsewhere must also be old.
    """
    path = Path(os.path.realpath(path))
    ours = re.compile(rf"\.{re.escape(path.name)}\.([0-9a-f]{{8}})?[0-9a-f]{{8}}\.tmp")
    try:
        found = [(one.path, match) for one in os.scandir(path.parent) if (match := ours.fullmatch(one.name))]
    except OSError:
        return
    for place, match in found:
        with suppress(OSError):  # somebody else's, or gone meanwhile
            here = match[1] == _kernel() and os.name == "posix"
            if not here and time.time() - os.stat(place).st_mtime < _LONG_AGO:
                continue
            descriptor = os.open(place, os.O_RDWR)
            try:
                if try_lock(descriptor):
                    os.unlink(place)
            finally:
                os.close(descriptor)


@cache
def _kernel() -> str:
    """A mark of the running system: two processes that have the same see each other's locks."""
    try:
        mark = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        mark = os.uname().nodename.encode() if hasattr(os, "uname") else b""
    return f"{zlib.crc32(mark):08x}"


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """The same for what people asked to have written: what goes wrong is a DataError.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder) / "a.txt", lambda path: path.write_text("tea"))
    ...     [path.name for path in Path(folder).iterdir()]
    ['a.txt']
    """
    try:
        replace_file(path, write)
    except OSError as error:
        raise DataError(f"{os.path.realpath(path)} could not be written: {_why(error)}") from None
    except pl.exceptions.PolarsError as error:  # what Parquet makes of a full disk
        raise DataError(f"{os.path.realpath(path)} could not be written: {_why(error)}") from None


def _why(error: Exception) -> str:
    """What the system said, which polars wraps in words and a number.

    Examples
    --------
    >>> _why(ValueError("parquet: underlying IO error: No space left on device (os error 28)"))
    'no space left on device'
    """
    number = re.search(r"\(os error (\d+)\)", str(error))
    if number:
        return os.strerror(int(number[1])).lower()
    return reason(error) if isinstance(error, OSError) else " ".join(str(error).split())


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8, whole or not at all."""
    write_whole(path, lambda place: place.write_text(text, encoding="utf-8", errors="replace"))


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to disk."""
    is_folder = path.is_dir()
    if is_folder and os.name != "posix":  # elsewhere a folder cannot be opened, and renaming is durable by itself
        return
    descriptor = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Lock an open file for this process, until it is closed; False if another process has it locked."""
    try:
        import fcntl
    except ImportError:  # not on this system
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
