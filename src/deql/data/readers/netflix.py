"""The Netflix Prize's text: ``film:`` on a line, then ``user,rating,date`` for each who rated it."""

from __future__ import annotations

from deql._system.lazy import pl
from deql.data.readers.blocks import Block, numbered_lines
from deql.data.readers.columns import ColumnRoles
from deql.data.readers.parsed_rows import ParsedRows, parse_rows
from deql.errors import DataError, Setting

__all__ = ["NETFLIX_COLUMNS", "NetflixParser"]

NETFLIX_COLUMNS = ("user", "movie", "rating", "date")


class NetflixParser:
    """Parses the blocks of a file in their order, because a film may go on in the next one."""

    def __init__(self, roles: ColumnRoles) -> None:
        self.roles = roles
        self.film: str | None = None

    def __call__(self, block: Block) -> ParsedRows:
        """Rows of a block, which must follow the one before."""
        title = pl.col("line").str.ends_with(":")
        film = pl.when(title).then(pl.col("line").str.strip_suffix(":")).forward_fill().fill_null(self.film or "")
        cells = pl.col("line").str.split_exact(",", 2)
        lines = numbered_lines(block).with_columns(film.alias("movie"))
        self.film = str(lines["movie"][-1]) if len(lines) else self.film
        frame = lines.filter(~title).select(
            "number", "movie",
            cells.struct.field("field_0").alias("user"),
            cells.struct.field("field_1").alias("rating"),
            cells.struct.field("field_2").alias("date"),
        )  # fmt: skip

        def row_error(row: int, *problem: str | Setting) -> DataError:
            return block.error(frame["number"][row], *problem)

        if len(frame) and frame["movie"][0] == "":
            raise row_error(0, "a rating stands before any film: the file must begin with a line such as 1:")
        return parse_rows(lambda place: frame[NETFLIX_COLUMNS[place]], self.roles, row_error, untyped=True)
