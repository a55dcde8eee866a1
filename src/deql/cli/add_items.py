"""``deql add-items``: new items in a fitted model, by their features, without a fit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from deql._system.tables import counted
from deql.cli.options import AsJson, ModelFile
from deql.cli.output import file_size, print_json
from deql.cli.written_files import check_outputs
from deql.errors import ParameterError
from deql.io.model_file import model_bytes
from deql.models import load

__all__ = ["add_items"]


def add_items(
    model_file: ModelFile,
    features: Annotated[
        Path, typer.Argument(help="Table with a row for each new item: its id and its features.", metavar="FILE")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Model file to write; may be the one that is read.")
    ] = None,
    item: Annotated[str | None, typer.Option(help="The table's column of items; else guessed.")] = None,
    json: AsJson = False,
) -> None:
    """Put new items into a model that was fitted with item features. No fit."""
    if out is None:
        raise ParameterError(f"say with -o where to save the model: -o {model_file} replaces it, whole or not at all")
    check_outputs(model=out, inputs=[features])
    model: Any = load(model_file)
    prior = getattr(model, "prior_", None)
    if prior is None or prior.features is None:
        kind = type(model).__name__
        raise ParameterError(
            f"{model_file} is a {kind} without features to place new items by: fit it with --item-features FILE"
        )
    before = len(model.items_)
    model.add_items(features, item=item)
    model.save(out, quantized_rows=model.quantized_rows_ is not None)
    added, items = len(model.items_) - before, len(model.items_)
    if json:
        print_json({"added": added, "items": items, "file": str(out), "bytes": model_bytes(out)})
    else:
        print(f"{counted(added, 'item', 'items')} added, {items:,} in all, and saved as {out} ({file_size(out)})")
