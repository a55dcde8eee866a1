"""A private copy of the model file, so that whatever happens to the file does not happen to the server.

P is memory-mapped. Were it mapped from the file itself, who writes into that file (``cp new.deql shop.deql`` cuts it to
nothing first) would change the answers, or end the processes that read beyond its end. So it is mapped from a copy that
has no name: nobody else can open it, and it is gone with the last process that has it. In memory it is sealed, too.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import mmap
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from deql._system.machine import free_memory, resident_file_system
from deql.errors import DeqlError, ModelFileError, ParameterError, reason
from deql.io.model_file import checksum as file_checksum
from deql.io.model_file import is_model_folder, model_bytes, write_as_file
from deql.models import load
from deql.models.base import Recommender
from deql.models.linear import LinearAutoencoder
from deql.ranking.quantised import QuantisedRows
from deql.serve.monitoring import log

__all__ = ["ReloadError", "Snapshot", "attach_rows", "path_of", "share_rows", "take"]

_FICLONE = 0x40049409
"""Linux's request to let two files share their blocks until one is written to."""

_PIECE = 2**26


class ReloadError(DeqlError):
    """The model file could not take the place of the model that is served."""


@dataclass(frozen=True)
class Snapshot:
    """A verified copy.

    Attributes
    ----------
    files : dict of int
        What workers are handed, open: ``model``, the copy, and ``rows``, if they could be made and are not in it.
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
    """Copy a model file, check the copy, checksum and all, and make the quantised rows of P if it has none.

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
    copy = _copy_folder(path) if is_model_folder(path) else _copy_file(path)
    place = path_of(copy)
    try:
        with _about(path, place):
            model, checksum = load(place), file_checksum(place)
        made = None if checksum == known else share_rows(model)
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


def _copy_file(path: Path) -> int:
    """An open nameless file with what a file holds now: the same blocks, or in memory, or else on disk."""
    source = _open_source(path)
    try:
        size = os.fstat(source).st_size
        with contextlib.suppress(OSError):  # most file systems cannot
            return _filled(_nameless(path.resolve().parent), lambda copy: _share_blocks(source, copy))
        return _copy(path, size, lambda copy: _copy_bytes(source, copy, size))
    finally:
        os.close(source)


def _copy_folder(path: Path) -> int:
    """The same of a model in shards, as the one file that it could have been saved as."""
    return _copy(path, model_bytes(path), lambda copy: write_as_file(path, path_of(copy)))


def _copy(path: Path, size: int, write: Callable[[int], None]) -> int:
    """An open nameless file of about so many bytes, in memory, or else on disk."""
    if may_take(size):  # a disk may take a minute for what memory does in two seconds

        def fill_memory(copy: int) -> None:
            write(copy)
            seal(copy)

        return _filled(in_memory("model", 0), fill_memory)
    refused = []
    for folder in _folders(path):

        def fill(copy: int, folder: Path = folder) -> None:
            _check_room(size, folder, copy)
            write(copy)

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


def share_rows(model: Recommender) -> int | None:
    """An open file in memory with the quantised rows of a model's P, once for all workers.

    None if the model has them from its own file, has no P, or they cannot be made: for lack of memory, say.

    Examples
    --------
    >>> import deql
    >>> model = deql.EASE(l2=1.0).fit(deql.Interactions.from_pairs(list("aab"), list("xyx")))
    >>> file = share_rows(model)
    >>> attach_rows(model, file)
    >>> os.close(file)  # what is mapped stays
    >>> model.recommend([["y"]], k=1).ids.tolist()
    [['x']]
    """
    if not isinstance(model, LinearAutoencoder) or not model.precision_.whole:  # rows of a sparse P are short
        return None
    right = model._right_factor
    if model.quantized_rows_ is not None and model.quantized_rows_.hold(right):
        return None
    if model.prior_ is not None and right is None:
        log("rows_left_out", logging.WARNING, reason="the prior is a dense matrix: lists take longer")
        return None
    size = QuantisedRows.size(model.precision_.n, 0 if right is None else right.shape[1])
    if not may_take(size):
        log("rows_left_out", logging.WARNING, reason="too little memory: lists take longer", bytes=size)
        return None
    file = in_memory("rows", size)
    try:
        QuantisedRows.fill(model.precision_, mmap.mmap(file, size), right)
        seal(file)
    except ParameterError as error:  # numbers that 8 bits cannot stand for
        os.close(file)
        log("rows_left_out", logging.WARNING, reason=f"{error}; lists take longer")
        return None
    except BaseException:
        os.close(file)
        raise
    return file


def attach_rows(model: Recommender, file: int) -> None:
    """Let a model, loaded from the same file, rank with rows that another process made."""
    assert isinstance(model, LinearAutoencoder)
    # Private, as before Linux 6.7 a sealed file cannot be mapped otherwise; what nobody writes is shared all the same.
    mapped = mmap.mmap(file, 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
    model.quantized_rows_ = QuantisedRows.from_buffer(model.precision_, mapped, model._right_factor)


def may_take(size: int) -> bool:
    """Whether so many bytes may be taken: at most half of what is free, so that the next model fits beside this one."""
    return size <= free_memory() // 2


def in_memory(name: str, size: int) -> int:
    """An open file of so many zeros; in a folder for temporary files where the system has none in memory.

    Examples
    --------
    >>> file = in_memory("rows", 100)
    >>> os.fstat(file).st_size
    100
    >>> os.close(file)
    """
    if hasattr(os, "memfd_create"):
        file = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        with tempfile.TemporaryFile() as nameless:
            file = os.dup(nameless.fileno())
    try:
        os.truncate(file, size)
    except BaseException:
        os.close(file)
        raise
    return file


def seal(file: int) -> None:
    """Let nobody change a file in memory any more, whoever has it open.

    Files that cannot be sealed stay as they are: those elsewhere, and those that are still mapped for writing.
    """
    import fcntl  # not on Windows, where the server says so itself

    if hasattr(fcntl, "F_ADD_SEALS"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
