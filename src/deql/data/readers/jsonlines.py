"""One JSON object a line: NDJSON, Amazon's reviews."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from deql.data.readers.blocks import Block, refuse_other_encodings
from deql.data.readers.columns import Roles
from deql.data.readers.values import Rows, Where, rows_of
from deql.errors import DataError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["JsonLines", "json_names"]

_EXAMPLE = '{"user": 1, "item": 2}'


class JsonLines:
    """Parses blocks; whether ids are numbers or text is settled by the file's first lines."""

    def __init__(self, names: tuple[str, ...], roles: Roles, text_ids: bool, first: Block) -> None:
        places = (roles.user, roles.item, roles.weight, roles.time)
        self.wanted = tuple(None if place is None else names[place] for place in places)
        self.text_ids = text_ids
        self.numeric = _numeric(first, [name for name in self.wanted[:2] if name is not None])

    def __call__(self, block: Block) -> Rows:
        """Rows of a block."""
        import polars as pl

        try:
            # As text, which keeps whole numbers of any length as they are.
            frame = pl.read_ndjson(bytes(block), schema={name: pl.String for name in self.wanted if name is not None})
        except (pl.exceptions.PolarsError, UnicodeDecodeError, ValueError):
            refuse_other_encodings(block)
            for _ in _objects(block):
                pass
            raise block.error(0, "near here the JSON cannot be read: is it one object a line?") from None

        def where(row: int, problem: str) -> DataError:
            filled = [number for number, line in enumerate(bytes(block).split(b"\n")) if line.strip()]
            return block.error(filled[row], problem)

        user, item, weight, time = (None if name is None else frame[name] for name in self.wanted)
        assert user is not None
        assert item is not None
        users, items = self._number_like(user, where), self._number_like(item, where)
        return rows_of(users, items, weight, time, where, text_ids=self.text_ids)

    def _number_like(self, column: pl.Series, where: Where) -> pl.Series:
        """Ids that are numbers: all must be, and 1.0 is 1."""
        import polars as pl

        if column.name not in self.numeric:
            return column
        words = column.is_not_null() & column.cast(pl.Float64, strict=False).is_null()
        if words.any():
            row = int(words.arg_max() or 0)
            raise where(row, f"{column.name} is text here and a number in the lines before: write all alike")
        return column.str.strip_suffix(".0")


def json_names(first: Block) -> tuple[str, ...]:
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
            record = json.loads(line, parse_constant=_refuse_constant)
        except ValueError as error:
            problem = f"this is not JSON ({error}): each line must be one object like {_EXAMPLE}"
            raise block.error(number, problem) from None
        if not isinstance(record, dict):
            raise block.error(number, f"this is JSON but no object: each line must be one like {_EXAMPLE}")
        yield number, record


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON, remove the row or write another value")


def _numeric(block: Block, names: list[str]) -> set[str]:
    """Keys whose values are numbers; an error where the kind changes from one line to another."""
    kinds: dict[str, str] = {}
    for number, record in _objects(block):
        for name in names:
            value = record.get(name)
            if value is None:
                continue
            kind = {str: "text", int: "a number", float: "a number"}.get(type(value))
            if kind is None:
                raise block.error(number, f"{name} is {json.dumps(value)[:40]} here: it must be a number or text")
            if kinds.setdefault(name, kind) != kind:
                problem = f"{name} is {kind} here and {kinds[name]} in the lines before: write all alike"
                raise block.error(number, problem)
    return {name for name, kind in kinds.items() if kind == "a number"}
