"""LightGCN's text: a user, then its items, on each line."""

from __future__ import annotations

from deql._system.lazy import pl
from deql.data.readers.blocks import Block, numbered_lines
from deql.data.readers.columns import ColumnRoles
from deql.data.readers.parsed_rows import ParsedRows, parse_rows
from deql.errors import DataError, Setting

__all__ = ["parse_lightgcn"]


def parse_lightgcn(block: Block, roles: ColumnRoles) -> ParsedRows:
    """Rows of a block."""
    cells = pl.col("line").str.split(" ")
    frame = (
        numbered_lines(block)
        .select(cells.list.first().alias("user"), cells.list.slice(1).alias("item"), "number")
        .explode("item")
        .filter(pl.col("item").is_not_null() & (pl.col("item") != ""))
    )

    def row_error(row: int, *problem: str | Setting) -> DataError:
        return block.error(frame["number"][row], *problem)

    return parse_rows(frame.to_series, roles, row_error, untyped=True)
