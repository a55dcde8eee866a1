"""``deql data partition``: a table larger than memory as a folder that fits go through part by part."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from deql._system.tables import counted
from deql.cli.options import (
    AsJson,
    Encoding,
    Format,
    Header,
    Ids,
    ItemColumn,
    MaxUnpacked,
    MinWeight,
    OnMissing,
    UserColumn,
    WeightColumn,
    as_column,
    with_options,
)
from deql.cli.output import print_json, progress_wanted, say, sizes
from deql.data.partition_folder import is_partition_folder
from deql.data.read_partitions import read_partitions
from deql.errors import ParameterError

__all__ = ["partition"]


@dataclass(frozen=True)
class ReadingOptions:
    """Reading a table, as asked for on the command line."""

    section: ClassVar[str] = "Reading the table"

    user: UserColumn = None
    item: ItemColumn = None
    weight: WeightColumn = None
    min_weight: MinWeight = None
    format: Format = None
    header: Header = None
    encoding: Encoding = "utf-8"
    ids: Ids = "auto"
    on_missing: OnMissing = "error"
    max_unpacked: MaxUnpacked = None


@with_options
def partition(
    data: Annotated[
        list[Path],
        typer.Argument(help="Files, folders or patterns, with a row for each interaction.", metavar="FILE..."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="New folder for the parts.", metavar="FOLDER")],
    partitions: Annotated[
        int | None, typer.Option(help="How many parts; of about two million interactions each if not given.")
    ] = None,
    json: AsJson = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Read a table that may be larger than memory into files that each hold whole users."""
    if done := next(filter(is_partition_folder, data), None):
        raise ParameterError(f"{done} is partitioned already: name the table that it is made of")
    options = asdict(reading) | {name: as_column(getattr(reading, name)) for name in ("user", "item", "weight")}
    made = read_partitions(data, folder=out, partitions=partitions, progress=progress_wanted() and not json, **options)
    if json:
        counts = {"users": made.n_users, "items": made.n_items, "interactions": made.n_interactions}
        print_json(counts | {"partitions": len(made.parts), "folder": str(out)})
    else:
        say(f"wrote {sizes(made)} in {counted(len(made.parts), 'part', 'parts')} to {out}")
