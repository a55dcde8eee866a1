"""Text in other encodings as UTF-8, a chunk at a time."""

from __future__ import annotations

import codecs
from contextlib import suppress
from typing import Any

from deql.errors import DataError, ParameterError, Setting, name_some

__all__ = ["UTF8", "Utf8Stream", "as_utf8", "check_encoding", "likely_wide_encoding"]

UTF8 = "utf-8"
_CHUNK = 2**16

# That of UTF-32 begins as that of UTF-16 does.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip


def check_encoding(name: Any) -> str:
    """Python's own name of an encoding; UTF-8 with a byte order mark is UTF-8.

    Examples
    --------
    >>> check_encoding("Latin-1"), check_encoding("utf-8-sig")
    ('iso8859-1', 'utf-8')
    >>> check_encoding("hex")
    Traceback (most recent call last):
    ...
    deql.errors.ParameterError: encoding must be one that Python knows, such as utf-8, latin-1 or utf-16, got 'hex'
    """
    try:
        known = codecs.lookup(name).name
        codecs.getincrementaldecoder(known)
        with suppress(UnicodeError):
            b"text".decode(known)
    except (LookupError, TypeError, ValueError):  # unknown, or no encoding of text
        raise ParameterError(
            f"encoding must be one that Python knows, such as utf-8, latin-1 or utf-16, got {name_some([name])}",
            parameter="encoding",
        ) from None
    return UTF8 if known == "utf-8-sig" else known


def likely_wide_encoding(start: bytes) -> str | None:
    """The encoding of two or four bytes a letter that a text seems to have, by its first bytes.

    Examples
    --------
    >>> likely_wide_encoding("user,item".encode("utf-16")), likely_wide_encoding("user,item".encode("utf-16-be"))
    ('utf-16', 'utf-16-be')
    >>> likely_wide_encoding(b"user,item") is None
    True
    """
    for mark, name in _MARKS.items():
        if start.startswith(mark):
            return name
    start = start[:200]
    first, second = start[0::2].count(0), start[1::2].count(0)
    if 4 * max(first, second) < len(start) or min(first, second):
        return None
    return "utf-16-be" if first else "utf-16-le"


def as_utf8(stream: Any, path: Any, encoding: str) -> Any:
    """A binary stream as it is, or what gives its text in UTF-8."""
    return stream if encoding == UTF8 else Utf8Stream(stream, path, encoding)


class Utf8Stream:
    """Reads text of some encoding and gives it in UTF-8; only one chunk is in memory.

    Parameters
    ----------
    stream : binary stream
    path : Path
        What it is called in errors.
    encoding : str
        As :func:`check_encoding` gives it.

    Examples
    --------
    >>> import io
    >>> stream = Utf8Stream(io.BytesIO("né".encode("utf-16")), "a.csv", "utf-16")
    >>> room = bytearray(8)
    >>> stream.readinto(memoryview(room)), bytes(room[:3]).decode()
    (3, 'né')
    """

    def __init__(self, stream: Any, path: Any, encoding: str) -> None:
        self._stream, self._path, self._encoding = stream, path, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()  # which keeps the first half of a letter that is cut
        self._ready = b""
        self._ended = False
        self._lines = 0

    def readinto(self, room: memoryview) -> int:
        """Fill some of the room; 0 at the end of the file."""
        while not self._ready and not self._ended:
            raw = self._stream.read(_CHUNK)
            self._ended = not raw
            self._ready = self._decode(raw)
            self._lines += self._ready.count(b"\n")
        count = min(len(room), len(self._ready))
        room[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def tell(self) -> int:
        """Bytes that were read, as they are before they are decoded."""
        return int(self._stream.tell())

    def _decode(self, raw: bytes) -> bytes:
        before = self._decoder.getstate()
        try:
            return self._decoder.decode(raw, final=self._ended).encode()
        except (UnicodeDecodeError, UnicodeEncodeError) as error:
            line = self._lines + 1 + self._lines_before(error, raw, before)
        except UnicodeError:
            if self._encoding in ("utf-16", "utf-32"):
                likely = likely_wide_encoding(raw) or f"{self._encoding}-le"
                raise DataError(
                    f"{self._path} has no byte order mark: say ", Setting("encoding", likely), " or another"
                ) from None
            line = self._lines + 1
        raise DataError(
            f"{self._path}, line {line:,}: this is not {self._encoding}: name the encoding that the file was written "
            "in with ",
            Setting("encoding"),
            "; latin-1 takes every byte for a letter",
        )

    def _lines_before(self, error: UnicodeDecodeError | UnicodeEncodeError, raw: bytes, before: Any) -> int:
        """Line ends in the part of a chunk that can be decoded."""
        if isinstance(error, UnicodeEncodeError):  # half a surrogate pair, which UTF-8 has no bytes for
            return error.object.count("\n", 0, error.start)
        self._decoder.setstate(before)
        good = len(raw) - (len(error.object) - error.start)
        with suppress(UnicodeError):
            return self._decoder.decode(raw[: max(good, 0)]).count("\n")
        return 0
