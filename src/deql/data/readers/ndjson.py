"""One JSON object a line: NDJSON, Amazon's reviews."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn

from deql._system.formatting import parse_json
from deql._system.lazy import pl
from deql.data.readers.blocks import Block, refuse_other_encodings
from deql.data.readers.columns import ColumnRoles
from deql.data.readers.ids import MISSING, RowError
from deql.data.readers.parsed_rows import ParsedRows, is_missing, parse_rows
from deql.errors import DataError, Setting

__all__ = ["NdjsonParser", "ndjson_names"]

_EXAMPLE = '{"user": 1, "item": 2}'


class NdjsonParser:
    """Parses blocks; whether ids are numbers or text is settled by the file's first lines."""

    def __init__(self, names: tuple[str, ...], roles: ColumnRoles, first: Block) -> None:
        self.names = names
        self.roles = roles
        self.numeric = _numeric(first, [names[roles.user], names[roles.item]], roles.skip_missing)

    def __call__(self, block: Block) -> ParsedRows:
        """Rows of a block."""
        try:
            # As text, which keeps whole numbers of any length as they are.
            schema = {self.names[place]: pl.String for place in self.roles.places.values()}
            frame = pl.read_ndjson(bytes(block), schema=schema)
        except (pl.exceptions.PolarsError, UnicodeDecodeError, ValueError):
            refuse_other_encodings(block)
            for _ in _objects(block):
                pass
            raise block.error(0, "near here the JSON cannot be read: is it one object a line?") from None

        def row_error(row: int, *problem: str | Setting) -> DataError:
            filled = [number for number, line in enumerate(bytes(block).split(b"\n")) if line.strip()]
            return block.error(filled[row], *problem)

        def column(place: int) -> pl.Series:
            series = frame[self.names[place]]
            return self._as_numbers(series, row_error) if place in (self.roles.user, self.roles.item) else series

        return parse_rows(column, self.roles, row_error)

    def _as_numbers(self, column: pl.Series, row_error: RowError) -> pl.Series:
        """Ids that are numbers: all must be, and 1.0 is 1."""
        if column.name not in self.numeric:
            return column
        if self.roles.skip_missing:
            column = column.set(is_missing(column), None)
        words = column.is_not_null() & column.cast(pl.Float64, strict=False).is_null()
        if words.any():
            row = int(words.arg_max() or 0)
            raise row_error(row, f"{column.name} is text here and a number in the lines before: write all alike")
        return column.str.strip_suffix(".0")


def ndjson_names(first: Block) -> tuple[str, ...]:
    """Keys of the objects in the first lines of a file, in the order first seen."""
    refuse_other_encodings(first)
    names: dict[str, None] = {}
    for _, record in _objects(first, limit=1000):
        names |= dict.fromkeys(record)
    return tuple(names)


def _objects(block: Block, limit: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Python's reading of the lines, for names and for errors."""
    for number, line in enumerate(bytes(block).split(b"\n")[:limit]):
        if not line.strip():
            continue
        try:
            record = parse_json(line, parse_constant=_refuse_constant)
        except ValueError as error:
            problem = f"this is not JSON ({error}): each line must be one object like {_EXAMPLE}"
            raise block.error(number, problem) from None
        if not isinstance(record, dict):
            raise block.error(number, f"this is JSON but no object: each line must be one like {_EXAMPLE}")
        yield number, record


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON, remove the row or write another value")


def _numeric(block: Block, names: list[str], skip_missing: bool) -> set[str]:
    """Keys whose values are numbers; an error where the kind changes from one line to another."""
    kinds: dict[str, str] = {}
    for number, record in _objects(block):
        for name in names:
            value = record.get(name)
            if value is None or (skip_missing and value in MISSING):
                continue
            kind = {str: "text", int: "a number", float: "a number"}.get(type(value))
            if kind is None:
                raise block.error(number, f"{name} is {json.dumps(value)[:40]} here: it must be a number or text")
            if kinds.setdefault(name, kind) != kind:
                problem = f"{name} is {kind} here and {kinds[name]} in the lines before: write all alike"
                raise block.error(number, problem)
    return {name for name, kind in kinds.items() if kind == "a number"}
