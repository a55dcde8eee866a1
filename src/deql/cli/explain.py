"""``deql explain``: why an item is recommended after a history."""

from __future__ import annotations

from typing import Annotated

import typer

from deql.cli.items import find_item, item_facts, parse_history, title_of
from deql.cli.options import AsJson, ModelFile
from deql.cli.output import console, explanation_table, print_json, say
from deql.models import load

__all__ = ["explain"]


def explain(
    model_file: ModelFile,
    item: Annotated[str, typer.Argument(help="The item whose score is explained.", metavar="ITEM")],
    history: Annotated[list[str], typer.Argument(help="Items of the history.", metavar="HISTORY...")],
    k: Annotated[int | None, typer.Option("--k", "-k", help="Show only the largest parts.")] = None,
    json: AsJson = False,
) -> None:
    """Why ITEM is recommended after HISTORY: parts that add up to its score exactly."""
    model = load(model_file)
    why = model.explain(parse_history(model, history, False), find_item(model, item), k=k)
    if not why.parts:
        say("note: no known item in the history, so the score is the item's popularity")
    if json:
        print_json({
            **item_facts(model, why.item), "score": why.score, "rest": why.rest, "from_popularity": not why.parts,
            "parts": [item_facts(model, part.item) | {"value": part.value} for part in why],
        })  # fmt: skip
    else:
        console().print(explanation_table(why, lambda item: title_of(model, item)))
