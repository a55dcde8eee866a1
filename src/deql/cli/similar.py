"""``deql similar``: the items that having one item speaks for."""

from __future__ import annotations

from typing import Annotated

import typer

from deql.cli.items import find_item, item_rows, scored_items, title_of
from deql.cli.options import AsJson, HowMany, ModelFile
from deql.cli.output import console, print_json, rich_table
from deql.models import load

__all__ = ["similar"]


def similar(
    model_file: ModelFile,
    item: Annotated[str, typer.Argument(help="The item.", metavar="ITEM")],
    k: HowMany = 10,
    json: AsJson = False,
) -> None:
    """Items that having ITEM speaks for most."""
    model = load(model_file)
    asked = find_item(model, item)
    best = scored_items(model, *model.similar_items(asked, k=k))
    if json:
        print_json({"item": asked, "similar": best})
    else:
        console().print(rich_table(f"after {title_of(model, asked)}", *item_rows(best)))
