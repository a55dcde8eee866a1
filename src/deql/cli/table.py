"""``deql data info`` and ``deql data convert``: what is in a file, and the same in another format."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from deql.cli.options import AsJson, TableOptions, check_out, with_options
from deql.cli.show import bar, console, print_json, say
from deql.cli.show import table as drawn
from deql.errors import ParameterError

__all__ = ["convert", "info"]

TableFile = Annotated[Path, typer.Argument(help="File or folder with a row for each interaction.", metavar="FILE")]


@with_options
def info(data: TableFile, json: AsJson = False, *, table: TableOptions) -> None:
    """Read a table and say what is in it: columns, counts, sparsity, how uneven it is."""
    from deql.data.clean import describe_steps
    from deql.data.summary import profile

    interactions = table.read(data, quiet=json)
    facts = profile(interactions)
    if json:
        print_json({"file": str(data), "steps": describe_steps(interactions.steps), **facts})
        return
    screen = console()
    rows = [
        ("users", f"{facts['users']:,}"),
        ("items", f"{facts['items']:,}"),
        ("interactions", f"{facts['interactions']:,}"),
        ("density", f"{facts['density']:.3%}"),
        ("items ÷ users", f"{facts['item_user_ratio']:.2f}"),
        ("share of the most popular tenth of the items", f"{facts['top_share']:.0%}"),
    ]
    if "times" in facts:
        rows += [("first", _moment(facts["times"]["first"])), ("last", _moment(facts["times"]["last"]))]
    screen.print(drawn("", ["", str(data)], rows))
    columns = ["min", "quarter", "median", "mean", "three_quarters", "max"]
    spreads = [
        (name.replace("_", " "), *(f"{facts[name][column]:,.4g}" for column in columns))
        for name in ("items_per_user", "users_per_item", "weights")
        if name in facts
    ]
    screen.print(drawn("", ["", "min", "¼", "median", "mean", "¾", "max"], spreads))
    screen.print(drawn("Histories by length", ["items", "users", ""], _histogram(interactions)))


@with_options
def convert(
    data: TableFile,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File to write: .csv, .tsv, .parquet, .ndjson, .inter or .npz.")
    ],
    json: AsJson = False,
    *,
    table: TableOptions,
) -> None:
    """Read a table, clean it, and write it in another format."""
    from deql.data.clean import describe_steps
    from deql.data.write import ENDINGS, write_table

    if out.suffix.lower() not in ENDINGS:
        raise ParameterError(f"--out must end in one of {', '.join(ENDINGS)}, got {out}")
    check_out(out, data, table.items)
    interactions = table.read(data, quiet=json)
    write_table(interactions, out)
    if out.suffix.lower() == ".npz":
        say("note: .npz holds the matrix only: ids are left out, and rows and columns are in their order")
    if json:
        print_json({"file": str(out), "bytes": out.stat().st_size, "steps": describe_steps(interactions.steps)})
    else:
        say(f"wrote {interactions.n_interactions:,} interactions to {out} ({out.stat().st_size / 2**20:,.1f} MiB)")


def _histogram(interactions: Any) -> list[tuple[str, str, str]]:
    """Users by the length of their history, in bins that double."""
    import numpy as np

    sizes = np.diff(interactions.matrix.indptr)
    bins = np.floor(np.log2(np.maximum(sizes, 1))).astype(int)
    counts = np.bincount(bins)
    labels = ["1", *(f"{2**place} … {2 ** (place + 1) - 1}" for place in range(1, len(counts)))]
    most = int(counts.max())
    return [
        (label, f"{count:,}", bar(count, 0, most, 40)) for label, count in zip(labels, counts.tolist(), strict=True)
    ]


def _moment(seconds: float) -> str:
    """A time as a date if it can be seconds since 1970, else as the number it is."""
    if 1e8 < seconds < 1e10:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"
    return f"{seconds:,.15g}"
