"""``deql recommend``, ``similar`` and ``explain``: questions to a saved model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from deql.cli.items import item_called, item_rows, items_called, known_items, named, scored_items, title_of
from deql.cli.options import AsJson, check_out
from deql.cli.show import bar, console, print_json, progress_wanted, say, table
from deql.errors import ParameterError
from deql.io.atomic import write_whole

__all__ = ["explain", "recommend", "similar"]

ModelFile = Annotated[Path, typer.Argument(help="Model file written by deql fit.", metavar="MODEL")]
HowMany = Annotated[int, typer.Option("--k", "-k", help="How many.")]


def recommend(
    model_file: ModelFile,
    history: Annotated[list[str] | None, typer.Argument(help="Items of one history.", metavar="[ITEM]...")] = None,
    k: HowMany = 20,
    histories: Annotated[Path | None, typer.Option(help="Table of many users' histories instead.")] = None,
    user: Annotated[str | None, typer.Option(help="Its column of users.")] = None,
    item: Annotated[str | None, typer.Option(help="Its column of items.")] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="Never recommend this item; may be repeated.")] = None,
    candidate: Annotated[list[str] | None, typer.Option(help="Recommend only these; may be repeated.")] = None,
    include_seen: Annotated[bool, typer.Option("--include-seen", help="Items of the history may come back.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Unknown items are an error.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="With --histories: .csv or .parquet to write.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Recommend items for a history, or for every user of a table."""
    model = _load(model_file)
    options = {
        "k": k, "exclude_seen": not include_seen, "strict": strict,
        "exclude": items_called(model, exclude), "candidates": items_called(model, candidate),
    }  # fmt: skip
    if histories is not None:
        if history:
            raise ParameterError("give either the items of one history or --histories, not both")
        _recommend_many(model, histories, user, item, options, out, json)
        return
    if out is not None:
        raise ParameterError("--out goes with --histories; for one history redirect the output")
    typed = known_items(model, history or [], strict)
    found = model.recommend([typed], **options)
    if found.from_popularity[0]:
        say("note: no known item in the history, so this is the popularity order")
    best = scored_items(model, found.ids[0], found.scores[0])
    if json:
        print_json({
            "history": typed, "from_popularity": bool(found.from_popularity[0]), "recommendations": best,
        })  # fmt: skip
    else:
        console().print(table("", *item_rows(best)))


def similar(
    model_file: ModelFile,
    item: Annotated[str, typer.Argument(help="The item.", metavar="ITEM")],
    k: HowMany = 10,
    json: AsJson = False,
) -> None:
    """Items that having ITEM speaks for most."""
    model = _load(model_file)
    asked = item_called(model, item)
    best = scored_items(model, *model.similar_items(asked, k=k))
    if json:
        print_json({"item": asked, "similar": best})
    else:
        console().print(table(f"after {title_of(model, asked)}", *item_rows(best)))


def explain(
    model_file: ModelFile,
    item: Annotated[str, typer.Argument(help="The item whose score is explained.", metavar="ITEM")],
    history: Annotated[list[str], typer.Argument(help="Items of the history.", metavar="HISTORY...")],
    k: Annotated[int | None, typer.Option("--k", "-k", help="Show only the largest parts.")] = None,
    json: AsJson = False,
) -> None:
    """Why ITEM is recommended after HISTORY: parts that add up to its score exactly."""
    model = _load(model_file)
    why = model.explain(known_items(model, history, False), item_called(model, item), k=k)
    if json:
        print_json({
            **named(model, why.item), "score": why.score, "rest": why.rest,
            "parts": [named(model, part.item) | {"value": part.value} for part in why],
        })  # fmt: skip
    else:
        console().print(explanation_table(why, lambda item: title_of(model, item)))


def explanation_table(why: Any, called: Callable[[Any], str] = str) -> Any:
    """The parts of a score as a table with bars; ``called`` gives the title of an item."""
    from rich.text import Text

    largest = max((abs(part.value) for part in why), default=0.0)

    def drawn(value: float) -> Text:
        return Text(bar(abs(value), 0.0, largest, 24) if value else "", "green" if value >= 0 else "red")

    rows = [(called(part.item), f"{part.value:+.4f}", drawn(part.value)) for part in why]
    if why.rest:
        rows.append(("everything else", f"{why.rest:+.4f}", Text("")))
    rows.append((f"score of {called(why.item)}", f"{why.score:+.4f}", Text("")))
    return table(f"Why {called(why.item)}?", ["because of", "adds", ""], rows)


def _load(path: Path) -> Any:
    from deql.models import load

    return load(path)


def _recommend_many(
    model: Any, source: Path, user: str | None, item: str | None, options: dict[str, Any], out: Path | None, json: bool
) -> None:
    import polars as pl

    from deql.data.read import read_interactions

    if out is not None and out.suffix not in (".csv", ".parquet"):
        raise ParameterError(f"--out must end in .csv or .parquet, got {out}")
    if out is not None:
        check_out(out, source)
    data = read_interactions(source, user=user, item=item)
    model.progress = progress_wanted()
    found = model.recommend(data, **options)
    filled = ~np.isnan(found.scores)
    rows, ranks = np.nonzero(filled)
    titles = {} if found.titles is None else {"title": found.titles[filled].tolist()}
    frame = pl.DataFrame({
        "user": data.users[rows].tolist(),
        "rank": ranks + 1,
        "item": found.ids[filled].tolist(),
        **titles,
        "score": found.scores[filled],
    })  # fmt: skip
    cold = int(found.from_popularity.sum())
    if cold:
        say(f"note: {cold:,} of {data.n_users:,} users have no known item and got the popularity order")
    if out is None:
        if json:
            print_json(frame.to_dicts())
        else:
            print(frame.write_csv(), end="")
        return
    write_whole(out, frame.write_csv if out.suffix == ".csv" else frame.write_parquet)
    say(f"wrote {len(frame):,} rows for {data.n_users:,} users to {out}")
