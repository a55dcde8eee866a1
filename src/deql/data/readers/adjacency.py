"""Texts that group rows: LightGCN's lists of items, Netflix's lists of users under a film."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deql.data.readers.blocks import Block, refuse_other_encodings
from deql.data.readers.columns import Roles
from deql.data.readers.values import Rows, Where, rows_of
from deql.errors import DataError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Netflix", "parse_adjacency"]


def parse_adjacency(block: Block, text_ids: bool = False) -> Rows:
    """A user, then its items, on each line."""
    import polars as pl

    cells = pl.col("line").str.strip_chars().str.split(" ")
    frame = (
        _lines(block)
        .select("number", cells.list.first().alias("user"), cells.list.slice(1).alias("item"))
        .explode("item")
        .filter(pl.col("item").is_not_null() & (pl.col("item") != ""))
    )
    where = _where(block, frame["number"])
    return rows_of(frame["user"], frame["item"], None, None, where, untyped=True, text_ids=text_ids)


class Netflix:
    """``film:`` on a line, then ``user,rating,date`` for each who rated it; a film may go on in the next block."""

    def __init__(self, roles: Roles, text_ids: bool) -> None:
        self.roles = roles
        self.text_ids = text_ids
        self.film: str | None = None

    def __call__(self, block: Block) -> Rows:
        """Rows of a block, which must follow the one before."""
        import polars as pl

        title = pl.col("line").str.ends_with(":")
        film = pl.when(title).then(pl.col("line").str.strip_suffix(":")).forward_fill().fill_null(self.film or "")
        cells = pl.col("line").str.split_exact(",", 2)
        lines = _lines(block).with_columns(film.alias("movie"))
        self.film = str(lines["movie"][-1]) if len(lines) else self.film
        frame = lines.filter(~title).select(
            "number", "movie",
            cells.struct.field("field_0").alias("user"),
            cells.struct.field("field_1").alias("rating"),
            cells.struct.field("field_2").alias("date"),
        )  # fmt: skip
        where = _where(block, frame["number"])
        if len(frame) and frame["movie"][0] == "":
            raise where(0, "a rating stands before any film: the file must begin with a line such as 1:")
        names = ("user", "movie", "rating", "date")
        user, item, weight, time = (
            None if place is None else frame[names[place]]
            for place in (self.roles.user, self.roles.item, self.roles.weight, self.roles.time)
        )
        assert user is not None
        assert item is not None
        return rows_of(user, item, weight, time, where, untyped=True, text_ids=self.text_ids)


def _lines(block: Block) -> pl.DataFrame:
    """Lines that are not blank, and their numbers in the block."""
    import polars as pl

    refuse_other_encodings(block)
    lines = bytes(block).decode("utf-8").split("\n")
    frame = pl.DataFrame({"line": lines}).with_row_index("number")
    return frame.with_columns(pl.col("line").str.strip_chars()).filter(pl.col("line") != "")


def _where(block: Block, numbers: pl.Series) -> Where:
    def where(row: int, problem: str) -> DataError:
        return block.error(int(numbers[row]) if len(numbers) else 0, problem)

    return where
