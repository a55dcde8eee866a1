"""``deql data info``: what is in a table."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from deql.cli.options import AsJson, TableFile, TableOptions, with_options
from deql.cli.output import bar, console, print_json, rich_table
from deql.data import Interactions
from deql.data.clean import describe_steps
from deql.data.summary import profile

__all__ = ["info"]


@with_options
def info(data: TableFile, json: AsJson = False, *, table: TableOptions) -> None:
    """Read a table and say what is in it: columns, counts, sparsity, how uneven it is."""
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
    screen.print(rich_table("", ["", str(data)], rows))
    columns = ["min", "quarter", "median", "mean", "three_quarters", "max"]
    spreads = [
        (name.replace("_", " "), *(f"{facts[name][column]:,.4g}" for column in columns))
        for name in ("items_per_user", "users_per_item", "weights")
        if name in facts
    ]
    screen.print(rich_table("", ["", "min", "¼", "median", "mean", "¾", "max"], spreads))
    screen.print(rich_table("Histories by length", ["items", "users", ""], _histogram(interactions)))


def _histogram(interactions: Interactions) -> list[tuple[str, str, str]]:
    """Users by the length of their history, in bins that double."""
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
