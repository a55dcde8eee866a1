"""``deql data info``: what is in a table, its counts, shapes and skew."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from deql.cli.data.split import show_split, split_facts
from deql.cli.data_source import open_partitions, open_source
from deql.cli.options import AsJson, TableOptions, with_options
from deql.cli.output import bar, console, print_json, rich_table
from deql.data import Interactions
from deql.data.clean import describe_steps
from deql.data.partition_folder import is_partition_folder
from deql.data.partitions import PartitionedInteractions
from deql.split import Split

__all__ = ["info", "profile"]


@with_options
def info(
    data: Annotated[
        Path,
        typer.Argument(help="Table, split file, folder with tables train and test, or of partitions.", metavar="DATA"),
    ],
    json: AsJson = False,
    *,
    table: TableOptions,
) -> None:
    """Read a table and say what is in it: columns, counts, sparsity, how uneven it is; or the parts of a split.

    Of partitions only the manifest is read.
    """
    if is_partition_folder(data):
        _show_partitions(open_partitions(data, table), data, json)
        return
    interactions = open_source(data, table, None, {}, quiet=json)
    if isinstance(interactions, Split):
        print_json({"file": str(data), **split_facts(interactions)}) if json else show_split(interactions)
        return
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


def _show_partitions(data: PartitionedInteractions, folder: Path, json: bool) -> None:
    """What the manifest says."""
    if json:
        steps = [{"what": what, "rows": rows} for what, rows in data.steps]
        counts = {"users": data.n_users, "items": data.n_items, "interactions": data.n_interactions}
        print_json(
            {"file": str(folder), "steps": steps, **counts, "partitions": len(data.parts), "weighted": data.weighted}
        )
        return
    rows = [
        ("users", f"{data.n_users:,}"),
        ("items", f"{data.n_items:,}"),
        ("interactions", f"{data.n_interactions:,}"),
        ("partitions", f"{len(data.parts):,}"),
        ("weights", "yes" if data.weighted else "every interaction counts 1"),
    ]
    screen = console()
    screen.print(rich_table("", ["", str(folder)], rows))
    screen.print(rich_table("", ["step", "rows"], [(what, f"{left:,}") for what, left in data.steps]))


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


def profile(data: Interactions) -> dict[str, Any]:
    """Numbers that describe a table, as plain values.

    Returns
    -------
    dict
        ``users``, ``items``, ``interactions``, ``density`` and ``item_user_ratio`` as in the paper's table
        of data sets; quartiles of ``items_per_user`` and ``users_per_item``; the ``top_share`` of
        interactions that go to the most popular tenth of the items; ``weights`` and ``times`` if there are any.

    Examples
    --------
    >>> facts = profile(Interactions.from_pairs(["ann", "ann", "bob"], ["tea", "jam", "tea"]))
    >>> facts["density"], facts["items_per_user"]["median"]
    (0.75, 1.5)
    """
    per_user = np.diff(data.matrix.indptr)
    per_item = np.bincount(data.matrix.indices, minlength=data.n_items)
    most = np.sort(per_item)[::-1][: max(1, round(0.1 * data.n_items))]
    facts: dict[str, Any] = {
        "users": data.n_users,
        "items": data.n_items,
        "interactions": data.n_interactions,
        "density": data.n_interactions / max(1, data.n_users * data.n_items),
        "item_user_ratio": data.n_items / max(1, data.n_users),
        "items_per_user": _spread(per_user),
        "users_per_item": _spread(per_item),
        "top_share": float(most.sum() / max(1, data.n_interactions)),
    }
    if (data.matrix.data != 1).any():
        facts["weights"] = _spread(data.matrix.data)
    if data.times is not None:
        facts["times"] = {"first": float(data.times.min()), "last": float(data.times.max())}
    return facts


def _spread(values: NDArray[Any]) -> dict[str, float]:
    low, quarter, median, three, high = np.quantile(values, [0, 0.25, 0.5, 0.75, 1]).tolist()
    return {"min": low, "quarter": quarter, "median": median, "mean": float(values.mean()),
            "three_quarters": three, "max": high}  # fmt: skip
