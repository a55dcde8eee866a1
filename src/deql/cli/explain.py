"""``deql explain``: why an item is recommended after a history."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from deql.cli.items import find_item, item_facts, parse_history, title_of
from deql.cli.options import AsJson, ModelFile
from deql.cli.output import console, explanation_table, print_json, say
from deql.models import load
from deql.ranking.explanations import Contribution

__all__ = ["explain"]


def explain(
    model_file: ModelFile,
    item: Annotated[str, typer.Argument(help="The item whose score is explained.", metavar="ITEM")],
    history: Annotated[
        list[str], typer.Argument(help="Items of the history; tea=2.5 gives one a weight.", metavar="HISTORY...")
    ],
    k: Annotated[int | None, typer.Option("--k", "-k", help="Show only the largest parts.")] = None,
    json: AsJson = False,
) -> None:
    """Why ITEM is recommended after HISTORY: parts that add up to its score exactly."""
    model = load(model_file)
    why = model.explain(parse_history(model, history, False), find_item(model, item), k=k)
    if why.from_popularity:
        say("note: nothing in the history is known and speaks for another item, so the score is the item's popularity")
    if json:
        print_json({
            **item_facts(model, why.item), "score": why.score, "rest": why.rest, "from_popularity": why.from_popularity,
            "parts": [_part_facts(model, part) for part in why],
        })  # fmt: skip
    else:
        console().print(explanation_table(why, lambda item: title_of(model, item)))


def _part_facts(model: Any, part: Contribution) -> dict[str, Any]:
    """A part for machines, with the features that its item shares with the explained one if there are any."""
    shared = {"shared": list(part.shared)} if part.shared else {}
    return item_facts(model, part.item) | {"value": part.value} | shared
