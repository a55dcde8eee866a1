"""Small tables about items, whole in memory: titles, features."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from deql._system.lazy import pl
from deql.data.readers.blocks import Block, blocks
from deql.data.readers.delimited import read_text
from deql.data.readers.encoding import UTF8
from deql.data.readers.frames import as_polars, scan_parquet, unreadable
from deql.data.readers.sniff import layout_of
from deql.errors import DataError

__all__ = ["id_texts", "read_side_table"]


def read_side_table(source: Any, what: str, max_unpacked: int | None = None, encoding: str = UTF8) -> pl.DataFrame:
    """A file or a frame as a polars frame; the columns of delimited text are text.

    Parameters
    ----------
    source : path or frame
    what : str
        What it holds, for messages: "titles".
    max_unpacked : int, optional
        Bytes that a packed file may unpack to.
    encoding : str, default "utf-8"
        That of a text file; one that is not UTF-8 after all is taken for Latin-1.

    Examples
    --------
    >>> read_side_table(pl.LazyFrame({"id": [7], "title": ["Tea"]}), "titles").rows()
    [(7, 'Tea')]
    """
    if isinstance(source, str | os.PathLike):
        return _read_file(Path(source), what, max_unpacked, encoding)
    try:
        return as_polars(source).collect()
    except unreadable() as error:
        raise DataError(f"the table of {what} cannot be read ({str(error).strip().splitlines()[0]})") from None


def id_texts(ids: pl.Series) -> pl.Series:
    """Ids as text, by which those of two tables are matched.

    Examples
    --------
    >>> id_texts(pl.Series([7.0, None])).to_list()
    ['7', None]
    """
    texts = ids.cast(str)
    # Whole numbers that a gap turned into floats.
    return texts.str.strip_suffix(".0") if ids.dtype.is_float() else texts


def _read_file(path: Path, what: str, max_unpacked: int | None, encoding: str) -> pl.DataFrame:
    if not path.is_file():
        raise DataError(f"there is no file {path} with the {what}")
    layout = layout_of(path, encoding=encoding)
    if layout.format == "parquet":
        try:
            return scan_parquet([path], max_unpacked).collect()
        except unreadable() as error:
            raise DataError(f"{path} cannot be read as Parquet: {str(error).splitlines()[0]}") from None
    if layout.format == "ndjson":
        try:
            read = blocks(path, max_unpacked=max_unpacked, encoding=encoding)
            parts = [pl.read_ndjson(bytes(part)) for part in read]
            return pl.concat(parts, how="diagonal_relaxed")
        except pl.exceptions.PolarsError as error:
            raise DataError(f"{path} cannot be read as JSON lines: {str(error).splitlines()[0]}") from None
    if layout.format not in ("csv", "recbole"):
        raise DataError(f"{path} is a {layout.format} file: {what} need a table of ids and {what}")
    read = blocks(path, layout.header, layout.delimiter, max_unpacked, encoding)
    parts = [read_text(_in_utf8(part), layout) for part in read]
    if not parts:
        raise DataError(f"{path} has no rows")
    return pl.concat(parts).rename({str(place): name for place, name in enumerate(_unique(layout.names))})


def _in_utf8(part: Block) -> Block:
    """Titles of the older MovieLens files are in Latin-1, where every byte is a letter."""
    try:
        bytes(part).decode("utf-8")
        return part
    except UnicodeDecodeError:
        text = bytes(part).decode("latin-1").encode("utf-8")
        return replace(part, text=np.frombuffer(text, np.uint8))


def _unique(names: tuple[str, ...]) -> list[str]:
    return [name if names.index(name) == place else f"{name} {place + 1}" for place, name in enumerate(names)]
