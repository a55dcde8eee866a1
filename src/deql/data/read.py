"""Tables of who did what, from any file or frame people have."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from scipy.sparse import issparse

from deql._system.formatting import parse_bytes
from deql._system.progress import stages
from deql.data.interactions import Interactions
from deql.data.matrices import SparseMatrix
from deql.data.partition_folder import check_manifest
from deql.data.readers.collect import Collector
from deql.data.readers.columns import Choice, ColumnRoles, choose_columns
from deql.data.readers.encoding import UTF8, check_encoding
from deql.data.readers.files import TableSource, open_table
from deql.data.readers.npz import read_matrix
from deql.data.titles import TitlesLike, with_titles
from deql.errors import ParameterError, Setting

if TYPE_CHECKING:
    from narwhals.typing import IntoFrame

__all__ = ["OpenedTable", "TableLike", "check_reading", "open_columns", "read_interactions"]

TableLike: TypeAlias = "str | os.PathLike[str] | SparseMatrix | IntoFrame"
"""Where interactions are read from: a file or folder, a matrix, or a frame of any library that narwhals knows."""


def read_interactions(
    source: TableLike,
    user: Choice = None,
    item: Choice = None,
    weight: Choice = None,
    time: Choice = None,
    *,
    items: TitlesLike | None = None,
    min_weight: float | None = None,
    format: str | None = None,
    header: bool | None = None,
    ids: str = "auto",
    on_missing: str = "error",
    max_unpacked: int | str | None = None,
    encoding: str = UTF8,
    progress: bool = False,
) -> Interactions:
    """Read a table with a row for each interaction.

    Which columns were taken is printed on standard error unless ``user`` and ``item`` name them.

    Parameters
    ----------
    source : path, frame or sparse matrix
        CSV or other delimited text, NDJSON, Parquet, LightGCN or Netflix text, RecBole's .inter, SciPy's
        .npz, plain or packed as .gz or .zst; a folder with parts of one of these, or with a public
        data set's files; or a frame of pandas, polars, Arrow or another library that narwhals knows.
    user, item : str or int, optional
        Columns with the ids, by name or number from 1; found by common names if not given.
    weight : str, int or True, optional
        Column with a number for each interaction; True finds it by common names. Without it every
        interaction counts 1; repeated pairs count once, and with it their weights add up.
    time : str, int or True, optional
        Column with the time of each interaction, a number or a date; True finds it. Of repeated pairs
        the latest time stays.
    items : path, frame or mapping, optional
        Titles: a table with a column of item ids and one of titles, or a mapping from id to title.
    min_weight : float, optional
        Leave out rows whose weight is below. The column is found by common names if ``weight`` does not
        name it, and the rows that stay then count 1 each: ``min_weight=4`` turns ratings into likes.
    format : str, optional
        One of csv (any delimited text), recbole, lightgcn, netflix, ndjson, parquet, npz; else seen from
        the file.
    header : bool, optional
        Whether the first line of delimited text names the columns; else seen from the file.
    ids : {"auto", "text"}, default "auto"
        Ids are whole numbers if all of a column are, else text; "text" keeps all as text.
    on_missing : {"error", "skip"}, default "error"
        What is done with rows without a user or an item: "skip" leaves them out and counts them in ``steps``. An id is
        missing if it is empty or null, and with "skip" also if it is written as NA, N/A, null, NULL, None, NaN, nan
        or \\N.
    max_unpacked : int or str, optional
        Bytes that a packed file, that of the titles too, may unpack to, such as ``"20GiB"``; if not given 1 GiB, or
        100 times its own size if that is more.
    encoding : str, default "utf-8"
        What text files are written in, that of the titles too: any that Python knows, such as ``"latin-1"``.
    progress : bool, default False
        Show a progress bar on standard error.

    Returns
    -------
    Interactions
        Ids sorted; ``steps`` tells what was read, left out and merged.

    Examples
    --------
    >>> import polars as pl, deql
    >>> frame = pl.DataFrame({"user_id": [1, 1, 2], "item_id": ["tea", "jam", "tea"], "stars": [5, 3, 4]})
    >>> deql.read_interactions(frame, "user_id", "item_id")
    Interactions(2 users × 2 items, 3 interactions)
    >>> data = deql.read_interactions(frame, "user_id", "item_id", min_weight=4)
    >>> [(step.what, step.interactions) for step in data.steps]
    [('read from the frame', 3), ('stars ≥ 4', 2)]
    """
    check_reading(ids, on_missing, min_weight)
    encoding = check_encoding(encoding)
    most = None if max_unpacked is None else parse_bytes(max_unpacked, "max_unpacked")
    if isinstance(source, Interactions):
        raise ParameterError(
            "these are Interactions already: deql.clean leaves out what is not wanted", parameter="source"
        )
    npz = isinstance(source, str | os.PathLike) and (format == "npz" or Path(source).suffix == ".npz")
    if issparse(source) or npz:
        named = {"user": user, "item": item, "weight": weight, "time": time, "header": header}
        asked = [name for name, value in named.items() if value is not None]
        if asked or format not in (None, "npz") or ids != "auto":
            leave_out = [part for name in asked for part in (", ", Setting(name, noun=name))][1:]
            leave_out = leave_out or [Setting("format", noun="format"), " and ", Setting("ids", noun="ids")]
            raise ParameterError("a matrix has no columns to name: leave out ", *leave_out)
        return with_titles(read_matrix(source, min_weight, most), items, most, encoding)
    opened = open_columns(
        source, user, item, weight, time, min_weight=min_weight, format=format, header=header, on_missing=on_missing,
        max_unpacked=most, encoding=encoding,
    )  # fmt: skip
    collector = Collector(ids == "text", signed=min_weight is not None, ordered=opened.table.is_ordered)
    with stages(progress) as stage:
        for rows in opened.table.rows(opened.roles, ids == "text", stage("Reading")):
            collector.add(rows)
    read = collector.finish(opened.table.name, min_weight, opened.label, opened.likes)
    return with_titles(read, items, most, encoding)


def check_reading(ids: str, on_missing: str, min_weight: float | None) -> None:
    """Raise ParameterError for options of reading that are none."""
    if ids not in ("auto", "text"):
        raise ParameterError(f"ids must be 'auto' or 'text', got {ids!r}", parameter="ids")
    if on_missing not in ("error", "skip"):
        raise ParameterError(f"on_missing must be 'error' or 'skip', got {on_missing!r}", parameter="on_missing")
    if min_weight is not None and (not isinstance(min_weight, int | float) or not math.isfinite(min_weight)):
        raise ParameterError(f"min_weight must be a number, got {min_weight!r}", parameter="min_weight")


class OpenedTable(NamedTuple):
    """A table whose columns are found: what its rows are read with."""

    table: TableSource
    roles: ColumnRoles
    likes: bool
    """Whether weights decide what stays, and are then forgotten."""
    label: str
    """What the step is called that leaves out small weights."""


def open_columns(
    source: Any,
    user: Choice,
    item: Choice,
    weight: Choice,
    time: Choice,
    *,
    min_weight: float | None,
    format: str | None,
    header: bool | None,
    on_missing: str,
    max_unpacked: int | None,
    encoding: str,
) -> OpenedTable:
    """Open a table and find its columns, which are told unless user and item are named: see `read_interactions`."""
    # With a lower bound and no named column, weights decide what stays and are then forgotten.
    likes = min_weight is not None and weight is None
    if isinstance(source, str | os.PathLike):
        check_manifest(source)
    named_columns = tuple(one for one in (user, item, weight, time) if isinstance(one, str))
    table = open_table(source, named_columns, format, header, max_unpacked, encoding)
    if table.is_ordered and time is True:  # lines of items have no such column, but an order
        time = None
    roles = choose_columns(table.names, table.name, user, item, likes or weight, time, table.has_header)
    roles = replace(roles, skip_missing=on_missing == "skip")
    if roles.guessed:
        kind = f" ({table.kind})" if table.kind else ""
        print(f"deql: {table.name}{kind}: {roles.describe(table.names)}", file=sys.stderr)
    label = "" if roles.weight is None or min_weight is None else f"{table.names[roles.weight]} ≥ {min_weight:g}"
    return OpenedTable(table, roles, likes, label)
