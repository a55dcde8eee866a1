"""What commands that write a split say of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from deql.cli.output import console, file_size, rich_table, say
from deql.data.clean import describe_steps
from deql.split import Split

__all__ = ["SplitFile", "show_split", "split_facts"]

SplitFile = Annotated[Path, typer.Option("--out", "-o", help="Split file to write.")]


def show_split(split: Split, out: Path) -> None:
    """The sizes of its parts, and the file."""
    columns = ("users", "items", "seen", "held_out")
    rows = [
        (part["part"], *("" if part[name] is None else f"{part[name]:,}" for name in columns)) for part in split.sizes()
    ]
    console().print(rich_table("", ["part", "users", "items", "seen", "held out"], rows))
    print(split.describe())
    say(f"wrote {out} ({file_size(out)})")


def split_facts(split: Split, out: Path) -> dict[str, Any]:
    """The same and more for machines."""
    return {
        "protocol": split.protocol,
        "seed": split.seed,
        "parameters": split.parameters,
        "steps": describe_steps(split.train.steps),
        "parts": split.sizes(),
        "dropped": split.dropped,
        "file": str(out),
        "bytes": out.stat().st_size,
    }
