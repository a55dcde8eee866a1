"""Titles of items from a second table, so that people read names rather than numbers."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from deql._system.lazy import pl
from deql.data.interactions import Interactions, ItemId
from deql.data.readers.columns import find_known
from deql.data.readers.encoding import UTF8
from deql.data.readers.side_tables import id_texts, read_side_table
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
    frame = read_side_table(source, "titles", max_unpacked, encoding)
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
    both = frame.select(
        id_texts(frame[names[ids]]).alias("id"), frame[names[titles]].cast(str).alias("title")
    ).drop_nulls()
    return dict(zip(both["id"].to_list(), both["title"].to_list(), strict=True))


def _source_name(source: Any) -> str:
    return str(source) if isinstance(source, str | os.PathLike) else "the table of titles"
