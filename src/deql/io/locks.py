"""Lock files that go with the work that they are for."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from deql.io.atomic import try_lock

__all__ = ["lock_file"]


def lock_file(path: Path) -> int | None:
    """Make and lock a file that is removed when the work is done: its descriptor; None if another process has it.

    Its holder removes it while others may have it open. Who then locks what they opened has locked a file without a
    name, and somebody else the next one of that name: so it is looked at once more after it was locked.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     descriptor = lock_file(Path(folder) / "lock")
    ...     lock_file(Path(folder) / "lock") is None
    ...     os.close(descriptor)
    True
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            locked = try_lock(descriptor)
        except OSError:  # a file system without locks
            return descriptor
        with suppress(FileNotFoundError):
            if locked and os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        os.close(descriptor)
        if not locked:
            return None
