"""``deql data split``: a table cleaned and split for honest evaluation, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from deql.cli.data_source import ProtocolName, SplitOptions
from deql.cli.options import AsJson, TableOptions, with_options
from deql.cli.output import console, file_size, print_json, rich_table, say
from deql.cli.written_files import check_outputs
from deql.data.clean import describe_steps
from deql.split import PROTOCOLS, TIMED, Split

__all__ = ["SplitFile", "show_split", "split", "split_facts", "written_facts"]

SplitFile = Annotated[Path, typer.Option("--out", "-o", help="Split file to write.")]


@with_options
def split(
    data: Annotated[Path, typer.Argument(help="Table with a row for each interaction.", metavar="FILE")],
    out: SplitFile,
    protocol: Annotated[
        ProtocolName,
        typer.Option(
            help="strong: users held out whole; weak: a share of each user; leave-last: the last of each user; "
            "time: what happened after a moment."
        ),
    ] = "strong",
    json: AsJson = False,
    *,
    split_options: SplitOptions,
    table: TableOptions,
) -> None:
    """Read a table, clean it, split it for honest evaluation, and save the split."""
    chosen = split_options.chosen(protocol)
    check_outputs(out, inputs=[data, table.items])
    interactions = table.read(data, quiet=json, find_time=protocol in TIMED)
    made = PROTOCOLS[protocol](interactions, **chosen)
    made.save(out)
    if json:
        print_json(split_facts(made) | written_facts(out))
    else:
        show_split(made)
        say(f"wrote {out} ({file_size(out)})")


def show_split(split: Split) -> None:
    """The sizes of its parts."""
    columns = ("users", "items", "seen", "held_out")
    rows = [
        (part["part"], *("" if part[name] is None else f"{part[name]:,}" for name in columns)) for part in split.sizes()
    ]
    console().print(rich_table("", ["part", "users", "items", "seen", "held out"], rows))
    print(split.describe())


def split_facts(split: Split) -> dict[str, Any]:
    """The same and more for machines."""
    return {
        "protocol": split.protocol,
        "seed": split.seed,
        "parameters": split.parameters,
        "steps": describe_steps(split.train.steps),
        "parts": split.sizes(),
        "dropped": split.dropped,
    }


def written_facts(out: Path) -> dict[str, Any]:
    """The file that was written, for machines."""
    return {"file": str(out), "bytes": out.stat().st_size}
