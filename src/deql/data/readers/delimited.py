"""Fields between delimiters: CSV, TSV, MovieLens' ``::``, RecBole's .inter, Million Song triplets."""

from __future__ import annotations

import csv
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deql.data.readers.blocks import Block, refuse_other_encodings
from deql.data.readers.columns import Roles
from deql.data.readers.digits import ITEM, SKIP, TIME, USER, WEIGHT, parse_numbers
from deql.data.readers.plain import Field, parse_plain
from deql.data.readers.sniff import STAND_IN, Layout, csv_records
from deql.data.readers.values import Ids, Mixture, Rows, Where, refuse_header, rows_of
from deql.errors import DataError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Delimited", "read_text"]

Floats = NDArray[np.float64]


class Delimited:
    """Parses blocks of one layout: plain numbers by our kernel, everything else by polars."""

    def __init__(self, layout: Layout, roles: Roles, text_ids: bool) -> None:
        self.layout = layout
        self.text_ids = text_ids
        self.places = {USER: roles.user, ITEM: roles.item, WEIGHT: roles.weight, TIME: roles.time}
        self.roles = np.full(len(layout.names), SKIP, np.int8)
        for role, place in self.places.items():
            if place is not None:
                self.roles[place] = role
        user, item = (layout.names[place].encode() if layout.header else b"" for place in (roles.user, roles.item))
        self.headers = (user, item)

    def __call__(self, block: Block) -> Rows:
        """Rows of a block."""
        where = self._where(block)
        delimiter = self.layout.delimiter.encode()
        numbers = None if self.text_ids else parse_numbers(block.text, delimiter, self.roles, block.lines)
        if numbers is not None:
            return self._rows(*numbers, where)
        refuse_other_encodings(block)
        plain = parse_plain(block.text, delimiter, self.roles, self.headers, block.lines)
        if plain is not None:
            users, items, weights, times = plain
            sides = [self._ids(field, role, where) for field, role in ((users, USER), (items, ITEM))]
            rows = self._rows(sides[0][0], sides[1][0], weights, times, where)
            return replace(rows, mixtures=(sides[0][1], sides[1][1]))
        frame = read_text(block, self.layout)
        names = self.layout.names
        user, item, weight, time = (
            None if place is None else frame[str(place)].alias(names[place]) for place in self.places.values()
        )
        assert user is not None
        assert item is not None
        return rows_of(user, item, weight, time, where, untyped=True, text_ids=self.text_ids)

    def _rows(self, users: Ids, items: Ids, weights: Floats, times: Floats, where: Where) -> Rows:
        has_weights, has_times = self.places[WEIGHT] is not None, self.places[TIME] is not None
        return Rows(users, items, weights if has_weights else None, times if has_times else None, where)

    def _ids(self, field: Field, role: int, where: Where) -> tuple[Ids, Mixture | None]:
        """Whole numbers if all are, else text; what :func:`rows_of` looks for, the kernel has found."""
        place = self.places[role]
        assert place is not None
        name = self.layout.names[place]
        if field.header >= 0:
            raise refuse_header(field.header, name, where)
        if self.text_ids:
            return field.text, None
        if field.whole == len(field.text):
            return field.numbers, None
        return field.text, Mixture(field.whole, field.word, field.text[field.word], name)

    def _where(self, block: Block) -> Where:
        def where(row: int, problem: str) -> DataError:
            lines = (line for line, record in _records(block, self.layout.delimiter) if not _is_blank(record))
            return block.error(next(islice(lines, row, None), 0), problem)

        return where


def read_text(block: Block, layout: Layout) -> pl.DataFrame:
    """All fields of a block as text, in columns "0", "1", …; blank lines are no rows."""
    import polars as pl

    text, separator = bytes(block), layout.delimiter
    if len(separator) > 1:
        text, separator = text.replace(separator.encode(), STAND_IN.encode()), STAND_IN
    header = separator.join(map(str, range(len(layout.names)))).encode() + b"\n"
    mark = None if separator == STAND_IN else '"'  # between :: a quotation mark is a letter like any other
    try:
        frame = pl.read_csv(header + text, separator=separator, quote_char=mark, infer_schema=False)
    except (pl.exceptions.PolarsError, UnicodeDecodeError):
        raise _explain(block, layout) from None
    empty = frame.select(pl.all_horizontal(pl.all().is_null() | (pl.all().str.strip_chars() == ""))).to_series()
    if empty.any():  # a blank line, which is no row, or one of delimiters only, which is one with everything missing
        rows = [not _is_blank(record) for _, record in _records(block, layout.delimiter)]
        if len(rows) != len(frame):  # the two parsers see the quotation marks differently
            raise _explain(block, layout)
        frame = frame.filter(pl.Series(rows))
    return frame.with_columns(pl.all().str.strip_chars(" ")) if b" " in text else frame


def _is_blank(record: list[str]) -> bool:
    return not record or (len(record) == 1 and not record[0].strip())


def _records(block: Block, delimiter: str) -> list[tuple[int, list[str]]]:
    """The lines of a block, each with the place it begins at: slow, for the odd cases."""
    return csv_records(bytes(block).decode("utf-8", "replace"), delimiter)


def _explain(block: Block, layout: Layout) -> DataError:
    """Why polars gave up."""
    width = len(layout.names)
    quotes = "a field that holds a quotation mark must be quoted as a whole, with the mark doubled"
    odd = next((n for n, line in enumerate(bytes(block).split(b"\n")) if line.count(b'"') % 2), 0)
    try:
        for line, record in _records(block, layout.delimiter):
            if len(record) > width:
                return block.error(
                    line,
                    f"{len(record)} fields where the table has {width}: quote a field that holds the delimiter, "
                    "or remove the line",
                )
            if record and record[-1].endswith("\n"):
                return block.error(line, f"a quotation mark is opened and never closed: {quotes}")
    except csv.Error as error:
        return block.error(odd, f"near here the table cannot be read: {error}")
    return block.error(odd, f"the quotation marks are wrong here or soon after: {quotes}")
