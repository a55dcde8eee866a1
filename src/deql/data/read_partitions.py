"""``deql.read_partitions``: a table larger than memory into parts that each hold whole users."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from deql._system.checks import check_whole
from deql._system.formatting import parse_bytes
from deql._system.machine import scratch_folder
from deql._system.progress import ProgressCallback, stages
from deql._system.tables import counted
from deql.data.partition_folder import ITEMS, is_partition_folder, new_folder, open_folder, scratch_name
from deql.data.partition_runs import MOST_PARTITIONS
from deql.data.partition_writer import PartitionWriter
from deql.data.partitions import PartitionedInteractions, Scratch
from deql.data.read import check_reading, open_columns
from deql.data.readers.columns import Choice, ColumnRoles
from deql.data.readers.encoding import UTF8, check_encoding
from deql.data.readers.files import TableSource, open_table, would_be_read
from deql.data.readers.parsed_rows import ParsedRows
from deql.errors import DataError, ParameterError, Setting

__all__ = ["read_partitions"]

Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def read_partitions(
    path: Paths,
    user: Choice = None,
    item: Choice = None,
    weight: Choice = None,
    folder: str | os.PathLike[str] | None = None,
    partitions: int | None = None,
    *,
    min_weight: float | None = None,
    format: str | None = None,
    header: bool | None = None,
    ids: str = "auto",
    on_missing: str = "error",
    max_unpacked: int | str | None = None,
    encoding: str = UTF8,
    progress: bool = False,
) -> PartitionedInteractions:
    """Read a table that may be larger than memory into parts that each hold whole users.

    Memory grows with the number of items, not with that of rows or users. Ids, weights and repeated pairs are what
    :func:`deql.read_interactions` makes of them, and columns have the same order, so that models agree.

    Parameters
    ----------
    path : path or sequence of paths
        A file or folder as :func:`deql.read_interactions` takes it, Parquet or text, or a pattern such as
        ``"logs/*.parquet"``; several of them with the same columns; or a folder that this function made before, which
        is opened at once.
    user, item, weight
        As in :func:`deql.read_interactions`.
    folder : path, optional
        A new folder for the parts: it is there once all of them are. If not given they go to a scratch folder, which is
        removed with the last object that has them.
    partitions : int, optional
        How many parts, where there are as many users; of about two million interactions each if not given.
    min_weight, format, header, ids, on_missing, max_unpacked, encoding, progress
        As in :func:`deql.read_interactions`.

    Returns
    -------
    PartitionedInteractions

    Examples
    --------
    >>> import tempfile, polars as pl, deql
    >>> table = pl.DataFrame({"user": [1, 1, 2, 3], "item": ["tea", "jam", "tea", "ale"]})
    >>> with tempfile.TemporaryDirectory() as place:
    ...     table.write_parquet(f"{place}/eaten.parquet")
    ...     made = deql.read_partitions(f"{place}/eaten.parquet", "user", "item", folder=f"{place}/parts")
    ...     deql.read_partitions(f"{place}/parts").to_interactions().history(1)
    ['jam', 'tea']
    """
    paths = _as_paths(path)
    if not isinstance(folder, str | os.PathLike | None):
        raise ParameterError(f"folder must be a path, got {type(folder).__name__}", parameter="folder")
    if len(paths) == 1 and is_partition_folder(paths[0]):
        given: dict[str, Any] = {
            "user": user, "item": item, "weight": weight, "folder": folder, "partitions": partitions,
            "min_weight": min_weight, "format": format, "header": header,
        }  # fmt: skip
        asked = [name for name, value in given.items() if value is not None]
        if asked:
            raise ParameterError(
                f"{paths[0]} is partitioned already: leave out ", Setting(asked[0], noun=asked[0]), parameter=asked[0]
            )
        return open_folder(Path(os.path.abspath(paths[0])))
    for one in paths:
        if is_partition_folder(one):
            raise ParameterError(f"{one} is partitioned already: name the table that it is made of", parameter="path")
    check_reading(ids, on_missing, min_weight)
    if partitions is not None and check_whole("partitions", partitions) > MOST_PARTITIONS:
        raise ParameterError(
            f"partitions must be at most {MOST_PARTITIONS:,}, got {partitions:,}", parameter="partitions"
        )
    within = [one for one in paths if folder is not None and would_be_read(Path(one), Path(folder, ITEMS))]
    if within:
        raise ParameterError(
            f"{folder} would be read with {within[0]} from then on: name a folder outside of it", parameter="folder"
        )
    most = None if max_unpacked is None else parse_bytes(max_unpacked, "max_unpacked")
    target = scratch_name(scratch_folder()) if folder is None else Path(folder)
    encoding = check_encoding(encoding)
    with new_folder(target) as building:
        opened = open_columns(
            paths[0], user, item, weight, None, min_weight=min_weight, format=format, header=header,
            on_missing=on_missing, max_unpacked=most, encoding=encoding,
        )  # fmt: skip
        named = opened.table.names if opened.table.has_header else ()
        others = [open_table(one, named, format, header, most, encoding) for one in paths[1:]]
        table = _joined([opened.table, *others])
        writer = PartitionWriter(building, ids == "text", min_weight, opened.likes)
        with stages(progress) as stage:
            for rows in table.rows(opened.roles, ids == "text", stage("Reading")):
                writer.add(rows)
            writer.finish(table.name, opened.label, partitions, stage("Partitioning"))
    target = Path(os.path.abspath(target))
    return open_folder(target, Scratch(target) if folder is None else None)


def _as_paths(path: Paths) -> list[str | os.PathLike[str]]:
    paths = [path] if isinstance(path, str | os.PathLike) or not isinstance(path, Sequence) else list(path)
    if not paths:
        raise ParameterError("expected a table's path, or a list of several, got none", parameter="path")
    other = next((one for one in paths if not isinstance(one, str | os.PathLike)), None)
    if other is not None or None in paths:
        raise ParameterError(
            f"expected a table's path, or a list of several, got {type(other).__name__}: deql.read_interactions takes "
            "frames and matrices",
            parameter="path",
        )
    return paths


def _joined(tables: Sequence[TableSource]) -> TableSource:
    """Tables with the same columns as one, whose rows come one table after the other."""
    first = tables[0]
    if len(tables) == 1:
        return first
    for table in tables:
        if table.names != first.names or table.has_header != first.has_header:
            raise DataError(f"{table.name} has other columns than {first.name}: partition them one by one")

    def rows(roles: ColumnRoles, text_ids: bool, report: ProgressCallback | None) -> Iterator[ParsedRows]:
        for place, table in enumerate(tables):
            yield from table.rows(roles, text_ids, _part_of(report, place, len(tables)))

    return replace(first, name=f"{first.name} and {counted(len(tables) - 1, 'other', 'others')}", rows=rows)


def _part_of(report: ProgressCallback | None, place: int, parts: int) -> ProgressCallback | None:
    """Reports the progress of one of several parts as that of all, each of which counts the same."""
    return None if report is None else lambda done, total: report(place * total + done, parts * total)
