"""``deql data convert``: a table cleaned and written in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deql.cli.options import AsJson, TableFile, TableOptions, with_options
from deql.cli.output import file_size, print_json, say
from deql.cli.written_files import check_outputs
from deql.data.clean import describe_steps
from deql.data.write import ENDINGS, write_table
from deql.errors import ParameterError

__all__ = ["convert"]


@with_options
def convert(
    data: TableFile,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File to write: .csv, .tsv, .parquet, .ndjson, .inter or .npz.")
    ],
    json: AsJson = False,
    *,
    table: TableOptions,
) -> None:
    """Read a table, clean it, and write it in another format."""
    ending = out.suffix.lower()
    if ending not in ENDINGS:
        raise ParameterError(f"--out must end in one of {', '.join(ENDINGS)}, got {out}")
    check_outputs(out, inputs=[data, table.items])
    interactions = table.read(data, quiet=json)
    write_table(interactions, out)
    if ending == ".npz":
        say("note: .npz holds the matrix only: ids are left out, and rows and columns are in their order")
    if json:
        print_json({"file": str(out), "bytes": out.stat().st_size, "steps": describe_steps(interactions.steps)})
    else:
        say(f"wrote {interactions.n_interactions:,} interactions to {out} ({file_size(out)})")
