"""Titles of items from a second table, so that people read names rather than numbers."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from deql._system.lazy import pl
from deql.data.interactions import Interactions, ItemId
from deql.data.readers.blocks import Block, blocks
from deql.data.readers.columns import find_known
from deql.data.readers.delimited import read_text
from deql.data.readers.encoding import UTF8
from deql.data.readers.frames import as_polars, scan_parquet, unreadable
from deql.data.readers.sniff import layout_of
from deql.errors import DataError, name_some, printable

if TYPE_CHECKING:
    from narwhals.typing import IntoFrame

__all__ = ["TitlesLike", "with_titles"]

TitlesLike: TypeAlias = "str | os.PathLike[str] | IntoFrame | Mapping[ItemId, str]"
"""Where titles are read from: a file or a frame with ids and titles, or a mapping from id to title."""


def with_titles(
    data: Interactions, source: TitlesLike | None, max_unpacked: int | None = None, encoding: str = UTF8
) -> Interactions:
    """The same interactions with a title for each item; its id where the table has none.

    Parameters
    ----------
    data : Interactions
    source : path, frame, mapping or None
        A table with a column of item ids and one of titles, found by common names or else the first
        two; or a mapping from id to title. None changes nothing.
    max_unpacked : int, optional
        Bytes that a packed file may unpack to.
    encoding : str, default "utf-8"
        That of a text file; one that is not UTF-8 after all is taken for Latin-1.

    Examples
    --------
    >>> data = Interactions.from_pairs(["ann", "bob"], [7, 9])
    >>> with_titles(data, {7: "Tea"}).titles.tolist()
    ['Tea', '9']
    """
    if source is None:
        return data
    titles = _as_mapping(source) if isinstance(source, Mapping) else _read(source, max_unpacked, encoding)
    found = [titles.get(str(item)) or None for item in data.items.tolist()]  # an empty title is none
    if data.n_items and not any(title is not None for title in found):
        raise DataError(
            f"no item has a title in {_source_name(source)}: its ids are like {name_some(list(titles), 3)}, "
            f"those of the interactions like {name_some(data.items, 3)}; is it the right table?"
        )
    shown = np.empty(data.n_items, object)
    shown[:] = [str(item) if title is None else title for item, title in zip(data.items.tolist(), found, strict=True)]
    return replace(data, titles=shown)


def _as_mapping(given: Mapping[Any, Any]) -> dict[str, str]:
    return {str(item): str(title) for item, title in given.items()}


def _read(source: Any, max_unpacked: int | None, encoding: str) -> dict[str, str]:
    is_file = isinstance(source, str | os.PathLike)
    frame = _read_file(Path(source), max_unpacked, encoding) if is_file else _collected(source)
    names = frame.columns
    if len(names) < 2:
        raise DataError(f"{_source_name(source)} has one column: titles need one of ids and one of titles")
    ids = find_known(names, "item")
    ids = names.index("id") if ids is None and "id" in names else ids or 0
    titles = find_known(names, "title")
    if titles is None:
        if len(names) > 2 and not all(name.isdigit() for name in names):  # numbers stand for columns without a name
            raise DataError(
                f"{_source_name(source)} has no column that looks like titles: leave two columns, ids and titles, or "
                f"name one title; it has {name_some(names, 12)}"
            )
        titles = int(ids == 0)
    print(
        f"deql: {_source_name(source)}: item = {printable(names[ids])}, title = {printable(names[titles])}",
        file=sys.stderr,
    )
    for place in (ids, titles):
        kind = frame.dtypes[place]
        if kind.is_nested() or kind in (pl.Binary, pl.Object):
            raise DataError(f"{_source_name(source)}: column {printable(names[place])} holds {kind} values, not text")
    texts = frame[names[ids]].cast(str)
    if frame[names[ids]].dtype.is_float():  # whole numbers that a gap turned into floats
        texts = texts.str.strip_suffix(".0")
    both = frame.select(texts.alias("id"), frame[names[titles]].cast(str).alias("title")).drop_nulls()
    return dict(zip(both["id"].to_list(), both["title"].to_list(), strict=True))


def _collected(frame: Any) -> pl.DataFrame:
    try:
        return as_polars(frame).collect()
    except unreadable() as error:
        raise DataError(f"the table of titles cannot be read ({str(error).strip().splitlines()[0]})") from None


def _read_file(path: Path, max_unpacked: int | None, encoding: str) -> pl.DataFrame:
    if not path.is_file():
        raise DataError(f"there is no file {path} with the titles")
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
        raise DataError(f"{path} is a {layout.format} file: titles need a table of ids and titles")
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


def _source_name(source: Any) -> str:
    return str(source) if isinstance(source, str | os.PathLike) else "the table of titles"
