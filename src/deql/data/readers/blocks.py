"""Text files as blocks of whole lines, decompressed on the way: memory does not grow with the file."""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from deql._system.formatting import show_bytes
from deql._system.lazy import pl
from deql.data.readers.encoding import UTF8, as_utf8
from deql.data.readers.quotes import ESCAPED, last_line_end, misplaced_marks, undo_escapes
from deql.errors import DataError, Setting, printable, reason

__all__ = [
    "COMPRESSED",
    "Block",
    "blocks",
    "check_unpacked",
    "error_at",
    "numbered_lines",
    "refuse_other_encodings",
    "uncompressed_suffix",
]

COMPRESSED = (".gz", ".zst")
LONGEST_LINE = 4 * 2**20
"""In bytes. Longer ones are refused: they are no rows of a table."""

_MOST_UNPACKED, _MOST_RATIO = 2**30, 100
"""Up to so many bytes, or so many times what is packed, a file may unpack to unless more is allowed."""

_BLOCK = 2**21
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, eq=False)
class Block:
    """Whole lines of a file, each with its line end.

    Attributes
    ----------
    path : Path
    text : ndarray of uint8
    first_line, lines : int
        Number of the first line in the file, from 1, and how many there are.
    position : int
        Bytes of the file as it lies on disk that were read so far.
    """

    path: Path
    text: NDArray[np.uint8]
    first_line: int
    lines: int
    position: int

    def __bytes__(self) -> bytes:
        return self.text.tobytes()

    def error(self, line: int, *problem: str | Setting) -> DataError:
        """What is wrong with a line of the block, counted from 0, as an error that says where it stands."""
        return error_at(f"{self.path}, line {self.first_line + line:,}", problem)


def error_at(place: str, problem: Sequence[str | Setting]) -> DataError:
    """What is wrong at a place of a table, as an error; what stood there is shown in letters that do no harm.

    Examples
    --------
    >>> print(error_at("a.csv, line 2", ["'x\\t' is not a number: name another ", Setting("weight")]))
    a.csv, line 2: 'x�' is not a number: name another weight=…
    """
    return DataError(f"{place}: ", *(part if isinstance(part, Setting) else printable(part) for part in problem))


def uncompressed_suffix(path: Path) -> str:
    """The ending of a file's name without that of its compression.

    Examples
    --------
    >>> uncompressed_suffix(Path("ratings.CSV.gz"))
    '.csv'
    """
    return Path(path.stem if path.suffix.lower() in COMPRESSED else path.name).suffix.lower()


def check_unpacked(path: Path | str, packed: int, unpacked: int, most: int | None) -> None:
    """Raise DataError if a file unpacks to more bytes than ``most``, or than tables ever do: a few MB may be terabytes.

    Examples
    --------
    >>> check_unpacked("a.csv.gz", 2**20, 2**33, None)
    Traceback (most recent call last):
    ...
    deql.errors.DataError: a.csv.gz has 1 MiB and unpacks to more than 1.0 GiB, as no table does: if it is to be \
trusted, unpack it first or allow more with max_unpacked=…
    """
    limit = max(_MOST_UNPACKED, _MOST_RATIO * packed) if most is None else most
    if unpacked > limit:
        why = ", as no table does: if it is to be trusted," if most is None else ", as allowed:"
        raise DataError(
            f"{path} has {show_bytes(packed)} and unpacks to more than {show_bytes(limit)}{why} "
            "unpack it first or allow more with ",
            Setting("max_unpacked"),
        )


def blocks(
    path: Path, header: bool = False, delimiter: str = "", max_unpacked: int | None = None, encoding: str = UTF8
) -> Iterator[Block]:
    """Blocks of about two megabytes in UTF-8, cut at line ends.

    Parameters
    ----------
    path : Path
        A plain, .gz or .zst file.
    header : bool, default False
        Leave out the first line that is not blank.
    delimiter : str, default ""
        Of one byte, where fields between it may be quoted: line ends between quotation marks do not count, and marks
        that a backslash escapes are doubled instead.
    max_unpacked : int, optional
        See :func:`check_unpacked`.
    encoding : str, default "utf-8"
        That of the file, as :func:`~deql.data.readers.encoding.check_encoding` gives it.

    Raises
    ------
    DataError
        If the file cannot be opened, decompressed or decoded to its end, is packed too well, or has a line too long for
        a table.
    """
    rest = b""
    line = 1
    packed = path.suffix.lower() in COMPRESSED
    separator = delimiter.encode() if len(delimiter) == 1 else b""
    escaped = False
    with _opened(path) as (unpacked, raw):
        stream = as_utf8(unpacked, path, encoding)
        last = False
        while not last:
            buffer = bytearray(len(rest) + _BLOCK + 1)
            buffer[: len(rest)] = rest
            room = memoryview(buffer)[len(rest) : -1]
            filled = _fill(stream, room, path, line)
            if packed:
                check_unpacked(path, os.fstat(raw.fileno()).st_size, unpacked.tell(), max_unpacked)
            size = len(rest) + filled
            last = filled < len(room)
            if last and size and buffer[size - 1] != ord("\n"):
                buffer[size] = ord("\n")
                size += 1
            # A search for one byte is ten times as fast as one for two, and few tables have a backslash.
            if separator and b"\\" in buffer and buffer.find(ESCAPED, 0, size) >= 0:
                doubled = undo_escapes(bytes(memoryview(buffer)[:size]), separator, last, escaped)
                escaped = doubled is not None
                if doubled is not None:
                    buffer[:size] = doubled
            end = size if last else last_line_end(buffer, size, bool(separator))
            if not end and size > LONGEST_LINE:
                raise _too_long(path, line, bytes(memoryview(buffer)[:size]), separator)
            rest = bytes(memoryview(buffer)[end:size])
            begin = len(_BYTE_ORDER_MARK) if line == 1 and buffer.startswith(_BYTE_ORDER_MARK) else 0
            while header and begin < end:
                after = buffer.index(b"\n", begin) + 1
                header = not buffer[begin:after].strip()
                begin = after
                line += 1
            if begin < end:
                text = np.frombuffer(buffer, np.uint8)[begin:end]
                lines = int(np.count_nonzero(text == ord("\n")))
                yield Block(path, text, line, lines, raw.tell())
                line += lines


def refuse_other_encodings(block: Block) -> None:
    """Raise an error that names the first line that is not UTF-8."""
    if block.text.size and block.text.max() < 128:
        return
    raw = bytes(block)
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start)
        place = error.start - raw.rfind(b"\n", 0, error.start)
        raise block.error(
            line,
            f"byte {place} is not UTF-8: say ",
            Setting("encoding", "latin-1"),
            ", or the encoding that the file was written in",
        ) from None


def numbered_lines(block: Block) -> pl.DataFrame:
    """Columns "number" and "line": the stripped lines that are not blank, and their places in the block."""
    refuse_other_encodings(block)
    lines = bytes(block).decode("utf-8").split("\n")
    frame = pl.DataFrame({"line": lines}).with_row_index("number")
    return frame.with_columns(pl.col("line").str.strip_chars()).filter(pl.col("line") != "")


def _too_long(path: Path, line: int, text: bytes, delimiter: bytes) -> DataError:
    """Why text in which no line ends is none of a table."""
    if delimiter and b"\n" in text:  # line ends there are, but between quotation marks
        misplaced = misplaced_marks(text, delimiter)
        line += text.count(b"\n", 0, int(misplaced[0]) if misplaced.size else 0)
        return DataError(
            f"{path}, line {line:,} or soon after: a quotation mark is opened and never closed; "
            "close it, or double it where it is part of a name"
        )
    return DataError(
        f"{path}, line {line:,} is longer than {LONGEST_LINE // 2**20} MiB: a table has one interaction a line; "
        "is this the right file?"
    )


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, IO[bytes]]]:
    """The decompressed stream, and the file itself, whose position says how far the work is."""
    try:
        raw = open(path, "rb", buffering=0)  # noqa: SIM115  closed below
    except OSError as error:
        raise DataError(f"{path} cannot be opened: {reason(error)}") from None
    with raw:
        match path.suffix.lower():
            case ".gz":
                yield gzip.GzipFile(fileobj=raw), raw
            case ".zst":
                yield _zstd().ZstdFile(raw), raw
            case _:
                yield raw, raw


def _fill(stream: Any, room: memoryview, path: Path, line: int) -> int:
    """Fill the room as far as the file reaches."""
    filled = 0
    compressed = path.suffix.lower() in COMPRESSED
    # What a compressed stream had decompressed before it broke is lost with the call, so that these are short.
    most = 2**16 if compressed else len(room)
    try:
        while filled < len(room) and (count := stream.readinto(room[filled : filled + most])):
            filled += count
    except EOFError:
        whole = line - 1 + bytes(room[:filled]).count(b"\n")
        raise DataError(
            f"{path} is cut short: what it packs breaks off after some {whole:,} lines; copy or download it again"
        ) from None
    except _damage(compressed) as error:
        raise DataError(
            f"{path} cannot be read beyond line {line:,} ({' '.join(str(error).split())}): "
            "copy or download it again, and see whether its ending says what it is"
        ) from None
    return filled


def _damage(compressed: bool) -> tuple[type[Exception], ...]:
    """What reading a file may raise."""
    return (OSError, zlib.error, _zstd().ZstdError) if compressed else (OSError,)


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd
