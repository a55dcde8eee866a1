"""``deql data split``: a table cleaned and split for honest evaluation, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deql.cli.data.split_files import SplitFile, show_split, split_facts
from deql.cli.data_source import ProtocolName, SplitOptions
from deql.cli.options import AsJson, TableOptions, check_outputs, with_options
from deql.cli.output import print_json
from deql.split import PROTOCOLS

__all__ = ["split"]


@with_options
def split(
    data: Annotated[Path, typer.Argument(help="Table with a row for each interaction.", metavar="FILE")],
    out: SplitFile,
    protocol: Annotated[
        ProtocolName,
        typer.Option(help="strong: users held out whole; weak: a share of each user; leave-last: by time."),
    ] = "strong",
    json: AsJson = False,
    *,
    split_options: SplitOptions,
    table: TableOptions,
) -> None:
    """Read a table, clean it, split it for honest evaluation, and save the split."""
    chosen = split_options.chosen(protocol)
    check_outputs(out, inputs=[data, table.items])
    interactions = table.read(data, quiet=json, find_time=protocol == "leave-last")
    made = PROTOCOLS[protocol](interactions, **chosen)
    made.save(out)
    if json:
        print_json(split_facts(made, out))
    else:
        show_split(made, out)
