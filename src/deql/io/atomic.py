"""Files that are written whole or not at all."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from deql.errors import DataError, reason

__all__ = ["write_text", "write_whole"]


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a file beside ``path``, and rename it there once it is complete.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder) / "a.txt", lambda path: path.write_text("tea"))
    ...     [path.name for path in Path(folder).iterdir()]
    ['a.txt']
    """
    path = path.resolve()  # what a link points to is written, not the link
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        write(temporary)
        temporary.replace(path)
    except OSError as error:
        raise DataError(f"{path} could not be written: {reason(error)}") from None
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8, whole or not at all."""
    write_whole(path, lambda place: place.write_text(text, encoding="utf-8", errors="replace"))
