"""Frames that people bring, through narwhals, and Parquet: rows in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from numbers import Number
from pathlib import Path
from typing import Any

from deql._system.lazy import nw, pl
from deql._system.progress import ProgressCallback
from deql.data.readers.blocks import check_unpacked, error_at
from deql.data.readers.columns import ColumnRoles
from deql.data.readers.parsed_rows import ParsedRows, parse_rows
from deql.errors import DataError, Setting

__all__ = ["as_polars", "frame_names", "frame_rows", "scan_parquet", "unreadable"]

_BATCH = 2**20
_ROW_BYTES = 16
"""Two ids as numbers: the least that a row unpacks to, whatever its encoding."""


def as_polars(frame: Any) -> pl.LazyFrame:
    """A frame of any library that narwhals knows, as a lazy polars frame.

    Examples
    --------
    >>> import pandas as pd
    >>> as_polars(pd.DataFrame({"user": [1, 2]})).collect().to_dict(as_series=False)
    {'user': [1, 2]}
    """
    if isinstance(frame, pl.LazyFrame):
        return frame
    if isinstance(frame, pl.DataFrame):
        return frame.lazy()
    if hasattr(frame, "set_axis") and hasattr(frame, "columns"):
        # Pandas and its kin allow any object as a column's name.
        labels = [str(label) for label in frame.columns]
        repeated = [label for label in labels if labels.count(label) > 1]
        if repeated:
            raise DataError(f"the frame has several columns {repeated[0]!r}: rename all but one")
        frame = frame.set_axis(labels, axis=1)
    try:
        known = nw.from_native(frame)
        names = known.collect_schema().names()
    except nw.exceptions.NarwhalsError as error:
        raise DataError(f"the frame cannot be read: {' '.join(str(error).split())}; rename its columns") from None
    except TypeError:
        if hasattr(frame, "__arrow_c_stream__") and hasattr(frame, "columns"):  # an Arrow record batch, for one
            return pl.LazyFrame(pl.DataFrame(frame))
        raise DataError(
            "expected a file's path, a sparse matrix or a frame (pandas, polars, Arrow or another that narwhals "
            f"knows), got {type(frame).__name__}"
        ) from None
    if isinstance(known, nw.LazyFrame):
        known = known.collect(backend="polars")
    return pl.LazyFrame({name: _series(known[name]) for name in names})


def _series(column: Any) -> pl.Series:
    """One column; pandas' columns of Python objects must hold one kind of them."""
    if not column.implementation.is_pandas_like():
        series: pl.Series = column.to_polars()
        return series
    missing = column.is_null().to_numpy()
    if column.dtype.is_numeric() and not missing.any():
        return pl.Series(column.name, column.to_numpy())
    if column.dtype in (nw.Categorical, nw.Enum):
        column = column.cast(nw.String)
    values = [None if gap else value for value, gap in zip(column.to_list(), missing.tolist(), strict=True)]
    if column.dtype == nw.Object:
        _refuse_mixture(column.name, values)
    return pl.Series(column.name, values, strict=False)


def _refuse_mixture(name: str, values: list[Any]) -> None:
    first: dict[str, int] = {}
    for row, value in enumerate(values):
        if value is not None:
            first.setdefault("a number" if isinstance(value, Number) else type(value).__name__, row)
    if len(first) > 1:
        (before, _), (here, row) = list(first.items())[:2]
        raise DataError(
            f"the frame, row {row + 1:,}: column {name!r} holds {here} here and {before} before: "
            "make them all alike, with astype(str) for instance"
        )


def frame_names(frame: pl.LazyFrame, source: str) -> tuple[str, ...]:
    """Names of the columns."""
    try:
        names = tuple(frame.collect_schema().names())
    except unreadable() as error:
        raise DataError(f"{source} cannot be read ({str(error).strip().splitlines()[0]}): is it there?") from None
    if not names:
        raise DataError(f"{source} has no columns: it needs one of users and one of items")
    return names


def scan_parquet(paths: Sequence[Path], max_unpacked: int | None = None) -> pl.LazyFrame:
    """One or more Parquet files as a lazy frame; refused if they say that they have too many rows for their size."""
    try:
        frame = pl.scan_parquet(list(paths), glob=False)  # a file's name may have a star in it
        frame.collect_schema()
        rows = int(frame.select(pl.len()).collect().item())
    except unreadable() as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(
            f"{paths[0]} cannot be read as Parquet ({reason}): is it whole, and its ending right?"
        ) from None
    check_unpacked(paths[0], sum(path.stat().st_size for path in paths), _ROW_BYTES * rows, max_unpacked)
    return frame


def frame_rows(
    frame: pl.LazyFrame,
    source: str,
    counted: bool,
    roles: ColumnRoles,
    text_ids: bool,
    report: ProgressCallback | None = None,
) -> Iterator[ParsedRows]:
    """Rows of the chosen columns, about a million at a time; with ``text_ids`` 1.0 stays 1.0.

    ``counted`` says that the source knows how many rows it has, as Parquet files do.
    """
    before = 0
    try:
        if text_ids:
            floats = pl.selectors.by_index(roles.user, roles.item) & pl.selectors.float()
            frame = frame.with_columns(floats.fill_nan(None).cast(pl.String))
        places = list(roles.places.values())
        for batch in frame.select(pl.selectors.by_index(places)).collect_batches(
            chunk_size=_BATCH, maintain_order=True
        ):
            columns = dict(zip(places, batch.get_columns(), strict=True))
            yield parse_rows(columns.__getitem__, roles, partial(_row_error, source, before))
            before += len(batch)
        total = frame.select(pl.len()).collect().item() if counted else before
        if before != total:  # where polars stumbles over damage in a thread of its own, batches merely end
            raise DataError(f"{source} is damaged: of its {total:,} rows {before:,} can be read")
    except unreadable() as error:
        reason = str(error).strip().splitlines()[0]
        raise DataError(f"{source} cannot be read beyond row {before:,} ({reason}): is it whole?") from None


def unreadable() -> tuple[type[BaseException], ...]:
    """What polars raises for a file that it cannot read: also where damage is more than its authors thought of."""
    return pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError


def _row_error(source: str, before: int, row: int, *problem: str | Setting) -> DataError:
    return error_at(f"{source}, row {before + row + 1:,}", problem)
