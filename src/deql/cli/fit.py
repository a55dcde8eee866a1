"""``deql fit``: a table in, a model file out."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from deql.cli.options import AsJson, TableOptions, check_out, with_options
from deql.cli.show import print_json, progress_wanted, say
from deql.cli.source import open_source
from deql.errors import ParameterError

__all__ = ["fit"]


class Kind(StrEnum):
    """Names of models on the command line."""

    deql = "deql"
    ease = "ease"
    lae = "lae"
    dlae = "dlae"
    edlae = "edlae"
    rlae = "rlae"
    rdlae = "rdlae"
    popularity = "popularity"


@with_options
def fit(
    data: Annotated[
        Path, typer.Argument(help="Table with a row for each interaction, or a split, whose training part counts.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Model file to write.")],
    model: Annotated[Kind, typer.Option("--model", "-m", help="Which model.")] = Kind.deql,
    l2: Annotated[float | None, typer.Option(help="Ridge added to the Gram matrix.")] = None,
    dropout: Annotated[float | None, typer.Option(help="Share of entries dropped in training, p.")] = None,
    b: Annotated[float | None, typer.Option(help="Weight of kept relative to dropped entries, b/a (deql).")] = None,
    zero_diagonal: Annotated[
        bool | None, typer.Option("--zero-diagonal", help="Items may not speak for themselves (deql).")
    ] = None,
    xi: Annotated[float | None, typer.Option(help="Largest diagonal entry (rlae, rdlae).")] = None,
    user_power: Annotated[float | None, typer.Option(help="Hold back heavy users: weight |u|^-power.")] = None,
    popularity_power: Annotated[float | None, typer.Option(help="Hold back popular items: count^-power.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32 or float64.")] = None,
    json: AsJson = False,
    *,
    table: TableOptions,
) -> None:
    """Fit a model on a table of who did what and save it."""
    from deql import models
    from deql.split import Split

    given = {
        "l2": l2, "dropout": dropout, "b": b, "zero_diagonal": zero_diagonal, "xi": xi,
        "user_power": user_power, "popularity_power": popularity_power, "dtype": dtype,
    }  # fmt: skip
    kind: Any = getattr(models, "Popularity" if model is Kind.popularity else model.value.upper())
    known = kind().get_params()
    chosen = {name: value for name, value in given.items() if value is not None}
    for name in chosen:
        if name not in known:
            raise ParameterError(f"--{name.replace('_', '-')} does not belong to the model {model.value}")
    estimator = kind(**chosen, progress=progress_wanted())
    estimator._check_parameters()
    check_out(out, data, table.items)
    source = open_source(data, table, None, {}, quiet=json)
    interactions = source.train if isinstance(source, Split) else source
    if not json:
        say(f"read {interactions.n_users:,} users, {interactions.n_items:,} items, "
            f"{interactions.n_interactions:,} interactions")  # fmt: skip
    begin = time.perf_counter()
    estimator.fit(interactions)
    seconds = time.perf_counter() - begin
    estimator.progress = False
    estimator.save(out)
    facts = {
        "model": kind.__name__,
        "parameters": {name: value for name, value in estimator.get_params().items() if name != "progress"},
        "users": interactions.n_users,
        "items": interactions.n_items,
        "interactions": interactions.n_interactions,
        "seconds": round(seconds, 3),
        "file": str(out),
        "bytes": out.stat().st_size,
    }
    if json:
        print_json(facts)
    else:
        print(f"{kind.__name__} fitted in {seconds:.1f} s and saved as {out} ({facts['bytes'] / 2**20:,.1f} MiB)")
