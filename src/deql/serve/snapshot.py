"""A private copy of the model file, so that whatever happens to the file does not happen to the server.

P is memory-mapped. Were it mapped from the file itself, who writes into that file (``cp new.deql shop.deql`` cuts it to
nothing first) would change the answers, or end the processes that read beyond its end. So it is mapped from a copy that
has no name: nobody else can open it, and it is gone with the last process that has it. In memory it is sealed, too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from deql._system.machine import free_memory, resident_file_system
from deql.errors import ModelFileError, reason
from deql.io.model_file import checksum as file_checksum
from deql.models import load
from deql.serve.memory import fits, in_memory, seal
from deql.serve.rows import share

__all__ = ["Snapshot", "path_of", "take"]

_FICLONE = 0x40049409
"""Linux's request to let two files share their blocks until one is written to."""

_PIECE = 2**26


@dataclass(frozen=True)
class Snapshot:
    """A verified copy.

    Attributes
    ----------
    files : dict of int
        What workers are handed, open: ``model``, the copy, and perhaps ``rows`` (see :mod:`deql.serve.rows`).
    checksum : str
        The model's, from its file.
    """

    files: dict[str, int]
    checksum: str

    def close(self) -> None:
        """Let go of the files; what has them mapped keeps them alive."""
        for file in self.files.values():
            os.close(file)


def take(path: Path, known: str = "") -> Snapshot:
    """Copy a model file, check the copy, checksum and all, and make the rows of P.

    Parameters
    ----------
    path : Path
    known : str, optional
        A checksum; for a copy that has it no rows are made, as nobody wants another one.

    Raises
    ------
    ModelFileError
        If there is no such file, no room for a copy, or it is no model; also if it changed while it was copied.
    """
    source = _open_source(path)
    try:
        copy = _copy(source, path)
    finally:
        os.close(source)
    place = path_of(copy)
    try:
        with _about(path, place):
            model, checksum = load(place), file_checksum(place)
        made = None if checksum == known else share(model)
        return Snapshot({"model": copy} | ({} if made is None else {"rows": made}), checksum)
    except BaseException:
        os.close(copy)
        raise


def path_of(file: int) -> Path:
    """A path under which this process can open an open file again.

    Examples
    --------
    >>> with tempfile.TemporaryFile() as nameless:
    ...     path_of(nameless.fileno()).is_file()
    True
    """
    return Path(f"/proc/self/fd/{file}" if sys.platform == "linux" else f"/dev/fd/{file}")


def _open_source(path: Path) -> int:
    try:
        # Without O_NONBLOCK a named pipe would be waited for.
        source = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise ModelFileError(f"there is no model file {path}") from None
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {reason(error)}") from None
    if not stat.S_ISREG(os.fstat(source).st_mode):
        os.close(source)
        raise ModelFileError(f"there is no model file {path}")
    return source


def _copy(source: int, path: Path) -> int:
    """An open nameless file with what the source holds now: the same blocks, or in memory, or else on disk."""
    size = os.fstat(source).st_size
    with contextlib.suppress(OSError):  # most file systems cannot
        return _filled(_nameless(path.resolve().parent), lambda copy: _share_blocks(source, copy))
    if fits(size):  # a disk may take a minute for what memory does in two seconds

        def fill_memory(copy: int) -> None:
            _copy_bytes(source, copy, size)
            seal(copy)

        return _filled(in_memory("model", 0), fill_memory)
    refused = []
    for folder in _folders(path):

        def fill(copy: int, folder: Path = folder) -> None:
            _check_room(size, folder, copy)
            _copy_bytes(source, copy, size)

        try:
            return _filled(_nameless(folder), fill)
        except OSError as error:  # read-only, not ours, not there, full
            refused.append(f"{folder}: {reason(error)}")
    raise ModelFileError(
        f"the server answers from a copy of {path} of its own, for which there is no place ({'; '.join(refused)}): "
        "make room or set TMPDIR"
    )


def _filled(copy: int, fill: Callable[[int], None]) -> int:
    try:
        fill(copy)
    except BaseException:
        os.close(copy)
        raise
    return copy


def _folders(path: Path) -> list[Path]:
    """Where a copy may lie on disk: beside the file, else among temporary files; those that are in memory last."""
    beside = path.resolve().parent
    folders = dict.fromkeys([beside, Path(tempfile.gettempdir()), Path("/var/tmp")])
    return sorted(folders, key=resident_file_system)


def _nameless(folder: Path) -> int:
    """An open file for its owner alone that is in no folder."""
    if hasattr(os, "O_TMPFILE"):
        with contextlib.suppress(OSError):  # not every file system has it, and those that lack it say so variously
            return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    file, name = tempfile.mkstemp(prefix=".deql-serve-", dir=folder)
    os.unlink(name)
    return file


def _share_blocks(source: int, copy: int) -> None:
    """Copy without copying; OSError where the file system cannot."""
    import fcntl  # not on Windows, where the server says so itself

    fcntl.ioctl(copy, _FICLONE, source)


def _check_room(size: int, folder: Path, copy: int) -> None:
    about = os.fstatvfs(copy)
    free = about.f_bavail * about.f_frsize
    if resident_file_system(folder):
        free = min(free, free_memory())
    if size > free:
        raise OSError(errno.ENOSPC, f"{size:,} bytes are needed and {free:,} are free")


def _copy_bytes(source: int, copy: int, size: int) -> None:
    done = 0
    try:
        while done < size and (count := os.copy_file_range(source, copy, _PIECE, done, done)):
            done += count
    except (OSError, AttributeError):  # between file systems, or not Linux: through memory, from where it stopped
        while done < size and (piece := os.pread(source, _PIECE, done)):
            done += os.pwrite(copy, piece, done)
    # A file that was cut short meanwhile is found out by its checksum.


@contextlib.contextmanager
def _about(path: Path, place: Path) -> Iterator[None]:
    """Errors about the copy name the file that people know."""
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(str(error).replace(str(place), str(path))) from None
