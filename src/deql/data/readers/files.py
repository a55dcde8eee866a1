"""What people point at, a file, a folder or a frame, as a table of named columns whose rows come in parts."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from deql._system.progress import ProgressCallback
from deql._system.threads import map_ahead
from deql.data.readers.blocks import COMPRESSED, Block, blocks, uncompressed_suffix
from deql.data.readers.columns import ColumnRoles
from deql.data.readers.delimited import DelimitedParser
from deql.data.readers.encoding import UTF8
from deql.data.readers.frames import as_polars, frame_names, frame_rows, scan_parquet
from deql.data.readers.lightgcn import parse_lightgcn
from deql.data.readers.ndjson import NdjsonParser, ndjson_names
from deql.data.readers.netflix import NetflixParser
from deql.data.readers.parsed_rows import ParsedRows
from deql.data.readers.sniff import Layout, layout_of
from deql.data.readers.split_folder import is_published_split, split_files, split_part
from deql.errors import DataError, name_some

__all__ = ["TableSource", "find_files", "first_block", "open_table", "would_be_read"]

_WELL_KNOWN = ("combined_data_*.txt", "mv_*.txt", "ratings.csv", "ratings.dat", "u.data")
"""Files that hold the interactions in the folders of public data sets, whatever else is there."""


@dataclass(frozen=True, eq=False)
class TableSource:
    """A table before its rows are read.

    Attributes
    ----------
    name, kind : str
        What it is called in messages, and how it is laid out.
    names : tuple of str
        Its columns.
    has_header : bool
        Whether the columns have names of their own, rather than numbers.
    rows : callable
        ``rows(roles, text_ids, report)`` gives the rows in parts; with ``text_ids`` a float stays as it is written.
    is_ordered : bool
        Whether the order of the rows may say when things happened: lines that list a user's items.
    """

    name: str
    kind: str
    names: tuple[str, ...]
    has_header: bool
    rows: Callable[[ColumnRoles, bool, ProgressCallback | None], Iterator[ParsedRows]]
    is_ordered: bool = False


def open_table(
    source: Any,
    wanted: tuple[str, ...],
    format: str | None,
    header: bool | None,
    max_unpacked: int | None = None,
    encoding: str = UTF8,
) -> TableSource:
    """Find out how a source is laid out.

    Parameters
    ----------
    source : path or frame
    wanted : tuple of str
        Columns the caller named.
    format, header : optional
        What the caller knows of the layout.
    max_unpacked : int, optional
        Bytes that a packed file may unpack to.
    encoding : str, default "utf-8"
        Of text, as :func:`~deql.data.readers.encoding.check_encoding` gives it.
    """
    if not isinstance(source, str | os.PathLike):
        return _frame_table(as_polars(source), "the frame", "")
    path = Path(source)
    paths = find_files(path)
    layouts = [layout_of(one, wanted, format, header, encoding) for one in paths]
    first = layouts[0]
    if first.format == "npz":
        raise DataError(f"{path} is a folder with sparse matrices: name the .npz file itself")
    name = str(paths[0]) if len(paths) == 1 else f"{path} ({len(paths)} files)"
    if first.format == "parquet":
        return _frame_table(scan_parquet(paths, max_unpacked), name, "parquet")
    if first.format == "ndjson":
        layouts = [Layout("ndjson", ndjson_names(first_block(one, encoding))) for one in paths]
        first = layouts[0]
    elif any(layout.names != first.names for layout in layouts):
        other = next(one for one, layout in zip(paths, layouts, strict=True) if layout.names != first.names)
        raise DataError(f"{other} has other columns than {paths[0]}: read them one by one")
    has_header = first.header or first.format not in ("csv", "recbole")
    rows = partial(_text_rows, paths, layouts, max_unpacked, encoding)
    return TableSource(name, first.describe(), first.names, has_header, rows, first.format == "lightgcn")


def _frame_table(frame: Any, name: str, kind: str) -> TableSource:
    return TableSource(name, kind, frame_names(frame, name), True, partial(frame_rows, frame, name, kind == "parquet"))


def find_files(source: Path) -> list[Path]:
    """The file itself, or the files of a folder: those of a public data set, or all if they are of one kind.

    A path that is not there may be a pattern, of whose files the same is asked as of a folder's.

    Names that begin with a point or an underscore are not looked at.
    """
    try:
        if not source.exists() and glob.has_magic(str(source)):
            found = sorted(Path(name) for name in glob.iglob(str(source), recursive=True) if os.path.isfile(name))
            if not found:
                raise DataError(f"no file is like {source}: is the pattern right?")
            return _of_one_kind(source, found)
        if not source.exists():
            raise DataError(f"there is no file {source}")
        if not source.is_dir():
            if not os.access(source, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
                raise PermissionError
            if not source.is_file():
                raise DataError(f"{source} is not a plain file: save what it gives as one first")
            return [source]
        if known := _well_known_files(source):
            return known
        if parts := split_files(source):
            kind = "published split" if is_published_split(source) else "split"
            raise DataError(
                f"{source} holds a {kind}, {' and '.join(parts[name].name for name in parts if name != 'validation')}: "
                "give the folder to deql evaluate or deql.load_split, or read one of them"
            )
        paths = sorted(
            path
            for folder, _, names in os.walk(source, onerror=_raise)
            for path in (Path(folder, name) for name in names)
            if not _is_hidden(path.relative_to(source))
        )
    except PermissionError as error:
        raise DataError(f"{error.filename or source} may not be read: ask for the permission to read it") from None
    if not paths:
        raise DataError(f"{source} is a folder without files: name a table, or a folder with its parts")
    return _of_one_kind(source, paths)


def _of_one_kind(source: Path, paths: list[Path]) -> list[Path]:
    kinds = sorted({uncompressed_suffix(path) for path in paths})
    if len(kinds) > 1:
        raise DataError(f"{source} holds files of several kinds ({name_some(kinds)}): name the one to read")
    return paths


def would_be_read(folder: Path, path: Path) -> bool:
    """Whether a new file at this path would be read with a folder, or in place of what is read from it now.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [would_be_read(Path(folder), Path(folder, name)) for name in ("b.csv", "sub/b.csv", "_notes", "../b.csv")]
    [True, True, False, False]
    """
    place, folder = Path(os.path.realpath(path)), Path(os.path.realpath(folder))
    if not place.is_relative_to(folder) or _is_hidden(inside := place.relative_to(folder)):
        return False
    if len(inside.parts) == 1 and any(place.match(name + end) for name, end in product(_WELL_KNOWN, ("", *COMPRESSED))):
        return True
    if split_files(folder):
        return len(inside.parts) == 1 and split_part(place.name) is not None
    return not _well_known_files(folder)


def _well_known_files(folder: Path) -> list[Path]:
    """The files of a public data set that a folder has."""
    for pattern, ending in product(_WELL_KNOWN, ("", *COMPRESSED)):
        found = sorted(path for path in folder.glob(pattern + ending) if path.is_file())
        if found:
            return found
    return []


def _is_hidden(inside: Path) -> bool:
    return any(part.startswith((".", "_")) for part in inside.parts)


def _raise(error: OSError) -> None:
    raise error


def first_block(path: Path, encoding: str) -> Block:
    """The start of a file that has any text."""
    block = next(blocks(path, encoding=encoding), None)
    if block is None:
        raise DataError(f"{path} is empty: it has no rows")
    return block


def _text_rows(
    paths: list[Path],
    layouts: list[Layout],
    max_unpacked: int | None,
    encoding: str,
    roles: ColumnRoles,
    text_ids: bool,
    report: ProgressCallback | None,
) -> Iterator[ParsedRows]:
    """Rows of text files, parsed in threads a few blocks ahead."""
    total = sum(path.stat().st_size for path in paths)
    done = 0
    for path, layout in zip(paths, layouts, strict=True):
        read = blocks(path, layout.header, layout.delimiter, max_unpacked, encoding)
        parts = _with_progress(read, report, done, total)
        match layout.format:
            case "lightgcn":
                yield from map_ahead(partial(parse_lightgcn, roles=roles), parts)
            case "netflix":  # a film may go on in the next block
                yield from map(NetflixParser(roles), parts)
            case "ndjson":
                yield from map_ahead(NdjsonParser(layouts[0].names, roles, first_block(path, encoding)), parts)
            case _:
                yield from map_ahead(DelimitedParser(layout, roles), parts)
        done += path.stat().st_size


def _with_progress(parts: Iterator[Block], report: ProgressCallback | None, before: int, total: int) -> Iterator[Block]:
    for part in parts:
        if report is not None:
            report(min(before + part.position, total), total)
        yield part
