"""``deql recommend``: the best items for a history, or for every user of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer

from deql.cli.items import find_items, item_rows, parse_history, scored_items
from deql.cli.options import AsJson, Encoding, HowMany, MaxUnpacked, ModelFile, OnMissing
from deql.cli.output import console, print_json, progress_wanted, rich_table, say
from deql.cli.written_files import check_outputs
from deql.data import Interactions
from deql.data.read import read_interactions
from deql.errors import ParameterError
from deql.io.atomic import write_whole
from deql.models import load

__all__ = ["recommend"]


def recommend(
    model_file: ModelFile,
    history: Annotated[list[str] | None, typer.Argument(help="Items of one history.", metavar="[ITEM]...")] = None,
    k: HowMany = 20,
    histories: Annotated[Path | None, typer.Option(help="Table of many users' histories instead.")] = None,
    user: Annotated[str | None, typer.Option(help="Its column of users.")] = None,
    item: Annotated[str | None, typer.Option(help="Its column of items.")] = None,
    max_unpacked: MaxUnpacked = None,
    encoding: Encoding = "utf-8",
    on_missing: OnMissing = "error",
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
    _check_output(out, histories, model_file)
    model = load(model_file)
    options = {
        "k": k, "exclude_seen": not include_seen, "strict": strict,
        "exclude": find_items(model, exclude), "candidates": find_items(model, candidate),
    }  # fmt: skip
    if histories is None:
        _recommend_one(model, parse_history(model, history or [], strict), options, json)
        return
    if history:
        raise ParameterError("give either the items of one history or --histories, not both")
    data = read_interactions(
        histories, user=user, item=item, on_missing=on_missing, max_unpacked=max_unpacked, encoding=encoding
    )
    found = _recommend_many(model, data, options)
    if out is not None:
        write_whole(out, found.write_csv if out.suffix == ".csv" else found.write_parquet)
        say(f"wrote {len(found):,} rows for {data.n_users:,} users to {out}")
    elif json:
        print_json(found.to_dicts())
    else:
        print(found.write_csv(), end="")


def _check_output(out: Path | None, histories: Path | None, model_file: Path) -> None:
    """Whatever is wrong with the file is said before the work."""
    if out is None:
        return
    if histories is None:
        raise ParameterError("--out goes with --histories; for one history redirect the output")
    if out.suffix not in (".csv", ".parquet"):
        raise ParameterError(f"--out must end in .csv or .parquet, got {out}")
    check_outputs(out, inputs=[histories, model_file])


def _recommend_one(model: Any, history: list[Any], options: dict[str, Any], json: bool) -> None:
    found = model.recommend([history], **options)
    from_popularity = bool(found.from_popularity[0])
    if from_popularity:
        say("note: no known item in the history, so this is the popularity order")
    best = scored_items(model, found.ids[0], found.scores[0])
    if json:
        print_json({"history": history, "from_popularity": from_popularity, "recommendations": best})
    else:
        console().print(rich_table("", *item_rows(best)))


def _recommend_many(model: Any, data: Interactions, options: dict[str, Any]) -> pl.DataFrame:
    """A row for each user and rank; places that stayed empty are left out."""
    model.progress = progress_wanted()
    found = model.recommend(data, **options)
    cold = int(found.from_popularity.sum())
    if cold:
        say(f"note: {cold:,} of {data.n_users:,} users have no known item and got the popularity order")
    filled = ~np.isnan(found.scores)
    rows, ranks = np.nonzero(filled)
    titles = {} if found.titles is None else {"title": found.titles[filled].tolist()}
    return pl.DataFrame({
        "user": data.users[rows].tolist(), "rank": ranks + 1, "item": found.ids[filled].tolist(),
        **titles, "score": found.scores[filled],
    })  # fmt: skip
