"""Files that lie in memory and have no name: what one process writes there, others can map."""

from __future__ import annotations

import contextlib
import os
import tempfile

from deql._system.machine import free_memory

__all__ = ["fits", "in_memory", "seal"]


def fits(size: int) -> bool:
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
    os.truncate(file, size)
    return file


def seal(file: int) -> None:
    """Let nobody change a file in memory any more, whoever has it open.

    Files that cannot be sealed stay as they are: those elsewhere, and those that are still mapped for writing.
    """
    import fcntl  # not on Windows, where the server says so itself

    if hasattr(fcntl, "F_ADD_SEALS"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
