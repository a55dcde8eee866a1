"""How a notebook shows interactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deql._system import html
from deql._system.tables import Cell, Grid

if TYPE_CHECKING:
    from deql.data.interactions import Interactions

__all__ = ["interactions_html", "name_items", "spread"]

_ITEMS = 5


def interactions_html(data: Interactions) -> str:
    """Sizes, how they are spread over users and items, the most frequent items, and what reading and cleaning did."""
    per_item = np.bincount(data.matrix.indices, minlength=data.n_items)
    cells = data.n_users * data.n_items
    told = {
        "users": f"{data.n_users:,}, each with {_spread_of('item', np.diff(data.matrix.indptr))}",
        "items": f"{data.n_items:,}, each with {_spread_of('user', per_item)}",
        "interactions": f"{data.n_interactions:,}, {data.n_interactions / max(cells, 1):.2%} of all pairs",
        "values": _values(data.matrix.data),
    }
    if data.times is not None and len(data.times):
        told["times"] = f"{data.times.min():g} to {data.times.max():g}"
    top = np.argsort(-per_item, kind="stable")[:_ITEMS]
    rows = [
        (names, [Cell(f"{per_item[column]:,}")])
        for column, names in zip(top.tolist(), name_items(data.items[top], data.titles, top), strict=True)
    ]
    header = ["most frequent item", *(["title"] if data.titles is not None else []), "users"]
    parts = [html.heading("Interactions"), html.facts(told)]
    parts += [html.table(Grid("Most frequent items", header, rows))] if rows else []
    if data.steps:
        steps = [
            ([step.what], [Cell(f"{count:,}") for count in (step.users, step.items, step.interactions)])
            for step in data.steps
        ]
        grid = Grid("Steps", ["step", "users", "items", "interactions"], steps)
        parts.append(html.folded("what reading and cleaning did", html.table(grid)))
    return html.block(*parts)


def name_items(items: NDArray[Any], titles: NDArray[Any] | None, columns: NDArray[np.intp]) -> list[list[str]]:
    """Each item's id, and its title where there are titles.

    Examples
    --------
    >>> name_items(np.array([7, 8]), np.array(["Tea", "Jam", "Egg"]), np.array([0, 2]))
    [['7', 'Tea'], ['8', 'Egg']]
    """
    ids = [[str(item)] for item in items.tolist()]
    return ids if titles is None else [[*one, str(titles[column])] for one, column in zip(ids, columns, strict=True)]


def spread(counts: NDArray[np.integer[Any]]) -> str:
    """Median and range of some counts.

    Examples
    --------
    >>> spread(np.array([1, 2, 2, 90]))
    '1 to 90 (median 2)'
    """
    if not counts.size:
        return "no"
    low, high = int(counts.min()), int(counts.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,} (median {float(np.median(counts)):,g})"


def _spread_of(what: str, counts: NDArray[np.integer[Any]]) -> str:
    """How many of something there are.

    Examples
    --------
    >>> _spread_of("item", np.array([1, 1])), _spread_of("item", np.array([2, 2]))
    ('1 item', '2 items')
    """
    words = spread(counts)
    return f"{words} {what}" if words == "1" else f"{words} {what}s"


def _values(values: NDArray[np.floating[Any]]) -> str:
    if not values.size:
        return "none"
    low, high = float(values.min()), float(values.max())
    return f"all {low:g}" if low == high else f"{low:g} to {high:g}, mean {float(values.mean()):.3g}"
