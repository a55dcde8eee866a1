"""Durable writes and locks: files that are there whole or not at all, and that survive a crash once they are there."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from deql.errors import DataError, reason

__all__ = ["replace_file", "sync", "try_lock", "write_text", "write_whole"]


def replace_file(path: Path, write: Callable[[Path], object], beside: str = "") -> None:
    """Let ``write`` fill a file beside ``path``, bring it to disk, and rename it there.

    Whenever the process or the machine stops, ``path`` is what it was before or what ``write`` made. Errors pass
    through; nothing is left behind then. The file beside it has a name of its own each time, unless ``beside``
    gives one: where only one process writes, what a killed one left is then found and written over.
    """
    path = Path(os.path.realpath(path))  # what a link points to is written, not the link
    temporary = path.with_name(beside or f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode  # as the umask wants it; some libraries make files for their owner only
        write(temporary)
        if temporary.stat().st_mode != mode:  # some file systems refuse to be asked
            temporary.chmod(mode)
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


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
        raise DataError(f"{os.path.realpath(path)} could not be written: {reason(error)}") from None


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
