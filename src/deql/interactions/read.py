"""Tables of who did what: files and frames."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deql.errors import DataError, name_some
from deql.interactions.table import Interactions

if TYPE_CHECKING:
    import polars as pl

__all__ = ["read_interactions"]

_USER_NAMES = ("user", "user_id", "userid", "uid", "customer", "customer_id", "visitor", "visitor_id", "account")
_ITEM_NAMES = (
    "item", "item_id", "itemid", "iid", "product", "product_id", "movie", "movie_id", "movieid",
    "article_id", "track_id", "book_id", "isbn", "asin",
)  # fmt: skip


def read_interactions(
    source: Any, user: str | None = None, item: str | None = None, weight: str | None = None
) -> Interactions:
    """Read a table with a row for each interaction.

    Parameters
    ----------
    source : path or frame
        A CSV, TSV, NDJSON or Parquet file, or a polars, pandas or Arrow frame.
    user, item : str, optional
        Columns with the ids; found by common names if not given, or taken as the first and second
        column of a table of two columns.
    weight : str, optional
        Column with a number for each interaction. Without it every interaction counts 1; repeated
        pairs count once, and with it their weights add up.

    Returns
    -------
    Interactions
        Ids sorted: integers if all of them are, else text.

    Examples
    --------
    >>> import polars as pl, deql
    >>> frame = pl.DataFrame({"user_id": [1, 1, 2], "item_id": ["tea", "jam", "tea"]})
    >>> deql.read_interactions(frame)
    Interactions(2 users × 2 items, 3 interactions)
    """
    import polars as pl

    name = str(source) if isinstance(source, str | os.PathLike) else "the frame"
    frame = _read_file(Path(source)) if isinstance(source, str | os.PathLike) else _as_polars(source)
    user_column, item_column = _find_columns(frame, user, item, name)
    if weight is not None and weight not in frame.columns:
        raise DataError(f"{name} has no column {weight!r}: its columns are {name_some(frame.columns)}")
    if weight in (user_column, item_column):
        raise DataError(f"the weight of {name} cannot be the column of ids {weight!r}")
    if not len(frame):
        raise DataError(f"{name} has no rows")
    weights = None
    if weight is not None:
        _refuse_missing(frame[weight], name)
        if frame[weight].dtype.is_nested():
            raise DataError(f"column {weight!r} of {name} must hold finite numbers")
        numbers = frame[weight].cast(pl.Float64, strict=False)
        if numbers.null_count() or not numbers.is_finite().all():
            raise DataError(f"column {weight!r} of {name} must hold finite numbers")
        weights = numbers.to_numpy()
    return Interactions.from_pairs(_ids(frame[user_column], name), _ids(frame[item_column], name), weights)


def _read_file(path: Path) -> pl.DataFrame:
    import polars as pl

    if not path.exists():
        raise DataError(f"there is no file {path}")
    if path.is_dir():
        raise DataError(f"{path} is a folder: name one CSV, TSV, NDJSON or Parquet file")
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty")
    try:
        match path.suffix.lower():
            case ".parquet":
                return pl.read_parquet(path)
            case ".ndjson" | ".jsonl":
                return pl.read_ndjson(path, infer_schema_length=None)
            case ".tsv" | ".tab" | ".csv" | ".txt":
                # As text: what looks like a number on the first rows may be a name on a later one.
                separator = "\t" if path.suffix.lower() in (".tsv", ".tab") else ","
                return pl.read_csv(path, separator=separator, infer_schema=False)
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(f"{path} cannot be read as a {path.suffix[1:].upper()} table: {reason}") from None
    raise DataError(f"{path} has an unknown ending: expected .csv, .tsv, .ndjson or .parquet")


def _as_polars(frame: Any) -> pl.DataFrame:
    import polars as pl

    if isinstance(frame, pl.DataFrame):
        return frame
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if hasattr(frame, "__arrow_c_stream__") and hasattr(frame, "columns"):
        return pl.DataFrame(frame)
    raise DataError(
        f"expected a file's path or a polars, pandas or Arrow frame, got {type(frame).__name__} "
        "(for a sparse matrix use Interactions.from_csr)"
    )


def _find_columns(frame: pl.DataFrame, user: str | None, item: str | None, name: str) -> tuple[str, str]:
    by_name = {column.lower().replace(" ", "_"): column for column in frame.columns}
    found = []
    for role, given, names, place in (("user", user, _USER_NAMES, 0), ("item", item, _ITEM_NAMES, 1)):
        column = given or next((by_name[known] for known in names if known in by_name), None)
        if column is None and len(frame.columns) == 2:
            column = frame.columns[place]
        if column is None or column not in frame.columns:
            problem = f"has no column {given!r}" if given else f"has no column that looks like the {role}'s"
            raise DataError(f"{name} {problem}: say {role}=… with one of {name_some(frame.columns, 12)}")
        found.append(column)
    if found[0] == found[1]:
        raise DataError(f"user and item of {name} are the same column, {found[0]!r}: say user=… and item=…")
    return found[0], found[1]


def _refuse_missing(series: pl.Series, name: str) -> None:
    missing = series.is_null() | (series.is_nan() if series.dtype.is_float() else False)
    count = int(missing.sum())
    if count:
        row = int(missing.arg_max() or 0) + 1
        raise DataError(f"column {series.name!r} of {name} has {count:,} missing values, the first in data row {row}")


def _ids(series: pl.Series, name: str) -> Any:
    """Ids as integers where every value is one, else as text.

    Text counts as an integer only if it is written as one would write that integer, so that 007 and
    7, or the zeros at the front of an ISBN, stay what they are.
    """
    import polars as pl

    _refuse_missing(series, name)
    if series.dtype.is_nested() or series.dtype in (pl.Binary, pl.Object):
        raise DataError(f"column {series.name!r} of {name} holds {series.dtype} values: ids must be numbers or text")
    text = series.cast(pl.String)
    if series.dtype.is_float():
        text = text.str.strip_suffix(".0")  # whole numbers that a gap once turned into floats
    whole = text.cast(pl.Int64, strict=False)
    if not whole.null_count() and (whole.cast(pl.String) == text).all():
        return whole.to_numpy()
    return text.to_numpy() if not series.dtype.is_float() else series.cast(pl.String).to_numpy()
