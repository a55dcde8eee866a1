"""``deql prune``: a smaller model of the largest weights of each item."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from deql._system.checks import check_whole
from deql._system.tables import counted
from deql.cli import data_source
from deql.cli.options import AsJson, ModelFile, TableOptions, with_options
from deql.cli.output import file_size, option_name, print_json, progress_wanted, say
from deql.cli.written_files import check_outputs
from deql.errors import ParameterError
from deql.io.model_file import model_bytes
from deql.models import load
from deql.models.linear import LinearAutoencoder

__all__ = ["prune"]


@with_options
def prune(
    model_file: ModelFile,
    per_item: Annotated[int, typer.Option(help="Weights to keep for each item, those of the largest size.")] = 400,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Model file to write.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Split whose test part, or table with users of whom a part, both models are measured on.",
            metavar="FILE",
        ),
    ] = None,
    json: AsJson = False,
    *,
    table: TableOptions,
) -> None:
    """Keep the largest weights of each item, and say what leaving out the others costs. No fit."""
    if out is None:
        raise ParameterError("say with -o where to save the smaller model")
    check_whole("per_item", per_item)  # before a large model is read
    check_outputs(model=out, inputs=[model_file, data, table.items])
    if data is None and (typed := table.typed()):
        raise ParameterError(f"{', '.join(map(option_name, typed))}: what is read is --data FILE, which is not given")
    model: Any = load(model_file)
    if not isinstance(model, LinearAutoencoder):
        raise ParameterError(f"{model_file} is a {type(model).__name__}, which has no P to prune")
    target = None
    if data is not None:
        split = data_source.as_split(data_source.open_source(data, table, None, {}, json), None, {})
        target = split.test
        say(f"note: if {model_file} was fitted on what is held out here, it looks too good")
    model.progress = progress_wanted()
    small = model.prune(per_item, target)
    small.save(out)
    assert small.pruned_ is not None
    if json:
        print_json(dataclasses.asdict(small.pruned_) | {"file": str(out), "file_bytes": model_bytes(out)})
    else:
        kept = counted(small.pruned_.per_item, "weight", "weights")
        print(f"{kept} for each of {len(small.items_):,} items saved as {out} ({file_size(out)})")
