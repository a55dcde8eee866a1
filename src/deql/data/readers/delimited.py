"""Fields between delimiters: CSV, TSV, MovieLens' ``::``, RecBole's .inter, Million Song triplets."""

from __future__ import annotations

import csv
from itertools import islice

import numpy as np

from deql._system.lazy import pl
from deql.data.readers.blocks import Block, refuse_other_encodings
from deql.data.readers.columns import ColumnRoles
from deql.data.readers.numeric_csv import ITEM, SKIP, TIME, USER, WEIGHT, parse_numbers
from deql.data.readers.parsed_rows import ParsedRows, parse_rows
from deql.data.readers.sniff import STAND_IN, Layout, csv_records
from deql.errors import DataError, Setting

__all__ = ["DelimitedParser", "read_text"]

_KERNEL_ROLES = {"user": USER, "item": ITEM, "weight": WEIGHT, "time": TIME}


class DelimitedParser:
    """Parses blocks of one layout: plain numbers by our kernel, everything else by polars."""

    def __init__(self, layout: Layout, roles: ColumnRoles) -> None:
        self.layout = layout
        self.roles = roles
        self.fields = np.full(len(layout.names), SKIP, np.int8)
        for role, place in roles.places.items():
            self.fields[place] = _KERNEL_ROLES[role]

    def __call__(self, block: Block) -> ParsedRows:
        """Rows of a block."""

        def row_error(row: int, *problem: str | Setting) -> DataError:
            lines = (line for line, record in _records(block, self.layout.delimiter) if not _is_blank(record))
            return block.error(next(islice(lines, row, None), 0), *problem)

        numbers = parse_numbers(block.text, self.layout.delimiter.encode(), self.fields, block.lines)
        if numbers is not None:
            users, items, weights, times = numbers
            weighted, timed = self.roles.weight is not None, self.roles.time is not None
            return ParsedRows(users, items, weights if weighted else None, times if timed else None, row_error)
        refuse_other_encodings(block)
        frame, names = read_text(block, self.layout), self.layout.names
        return parse_rows(lambda place: frame[str(place)].alias(names[place]), self.roles, row_error, untyped=True)


def read_text(block: Block, layout: Layout) -> pl.DataFrame:
    """All fields of a block as text, in columns "0", "1", …; blank lines are no rows."""
    text, separator = bytes(block), layout.delimiter
    if len(separator) > 1:
        text, separator = text.replace(separator.encode(), STAND_IN.encode()), STAND_IN
    header = separator.join(map(str, range(len(layout.names)))).encode() + b"\n"
    mark = None if separator == STAND_IN else '"'  # between :: a quotation mark is a letter like any other
    try:
        frame = pl.read_csv(header + text, separator=separator, quote_char=mark, infer_schema=False)
    except (pl.exceptions.PolarsError, UnicodeDecodeError):
        raise _explain(block, layout) from None
    empty = pl.all_horizontal(pl.all().is_null() | (pl.all().str.strip_chars() == ""))
    # A blank line, which is no row, or one of delimiters only, which is one with everything missing; where some column
    # but the first has all its values there is none.
    if all(column.null_count() for column in frame.get_columns()[1:]) and frame.select(empty).to_series().any():
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
