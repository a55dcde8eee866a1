"""How a notebook shows recommendations, explanations and neighbourhoods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from deql._system import html
from deql._system.tables import Cell, Grid, counted, number

if TYPE_CHECKING:
    from deql.ranking.explanations import Explanation, Neighbourhood
    from deql.ranking.recommendations import Recommendations
    from deql.ranking.scored_pairs import ScoredPairs

__all__ = [
    "explanation_html", "explanation_rows", "item_name", "neighbourhood_html", "recommendations_html",
    "recommendations_repr", "scored_pairs_html", "scored_pairs_repr", "short_list",
]  # fmt: skip

_USERS, _ITEMS, _PARTS, _EDGES = 4, 10, 20, 20
_FIRST = 3
"""Of how many users, and how many of their items, the repr tells."""


def recommendations_html(found: Recommendations) -> str:
    """The first users' lists beside each other."""
    users = len(found.ids)
    lists = [_one_list(found, row) for row in range(min(users, _USERS))]
    more = [html.paragraph(f"… and {users - _USERS:,} more {found._row}s", quiet=True)] if users > _USERS else []
    return html.block(html.heading(type(found).__name__, _sizes(found)), html.side_by_side(*lists), *more)


def recommendations_repr(found: Recommendations) -> str:
    """Sizes, and the beginnings of the first lists."""
    lines = [f"{type(found).__name__}({_sizes(found)})"]
    for row in range(min(len(found.ids), _FIRST)):
        listed = _listed(found, row)
        shown = [f"{name} {score:.4g}" for name, score in listed[:_FIRST]] + ["…"] * (len(listed) > _FIRST)
        cold = " (popularity)" if found.from_popularity[row] else ""
        lines.append(f"  {_short(found.users[row])}: {', '.join(shown) or 'nothing'}{cold}")
    return "\n".join(lines + ["  …"] * (len(found.ids) > _FIRST))


def _sizes(found: Recommendations) -> str:
    users, k = found.ids.shape
    said = f"{counted(users, found._row, f'{found._row}s')} × {k:,} best"
    cold = int(found.from_popularity.sum())
    return said + (f"; {cold:,} by popularity alone" if cold else "")


def _listed(found: Recommendations, row: int) -> list[tuple[str, float]]:
    """The items of a list, by title where there is one, without the places that stayed empty."""
    names = found.ids if found.titles is None else found.titles
    pairs = zip(names[row].tolist(), found.scores[row].tolist(), strict=True)
    return [(_short(name), score) for name, score in pairs if not np.isnan(score)]


def _one_list(found: Recommendations, row: int) -> str:
    listed = _listed(found, row)
    because = [[]] * len(listed) if found.reasons is None else [[_short(one or "")] for one in found.reasons[row]]
    rows = [
        ([str(place), name, *why], [Cell(f"{score:.4f}")])
        for place, ((name, score), why) in enumerate(zip(listed, because[: len(listed)], strict=True), 1)
    ]
    user = f"{found._row} {_short(found.users[row])}"
    grid = Grid(user, ["", "item", *([] if found.reasons is None else ["because of"]), "score"], rows)
    shown = html.table(grid, _ITEMS, ranked=True) if rows else html.paragraph("nothing", quiet=True)
    return html.heading(user, "popularity fallback" if found.from_popularity[row] else "") + shown


def _short(name: Any) -> str:
    return html.shorten(str(name), 40)


def explanation_rows(why: Explanation, most: int = _PARTS) -> list[tuple[str, float]]:
    """The parts of a score by name, and what is left of it in a last row; together they are the score."""
    rows = [(item_name(part.item, why.titles), part.value) for part in why.parts[:most]]
    left = why.score - sum(value for _, value in rows)
    more = [f"{len(why.parts) - most:,} more"] if len(why.parts) > most else []
    what = " and ".join(more + ["the rest"] * (why.rest != 0 or not more))
    return rows + [(what, left)] * (left != 0 or not rows)


def explanation_html(why: Explanation) -> str:
    """The parts as bars that add up to the score, and below them the features that the items share."""
    shared = [
        f"{item_name(part.item, why.titles)}: {', '.join(part.shared)}" for part in why.parts[:_PARTS] if part.shared
    ]
    return html.block(
        html.heading(f"Why {_short(item_name(why.item, why.titles))}", f"score {why.score:.4f}, which is the sum of:"),
        html.bars(["item of the history", "adds"], explanation_rows(why)),
        *(html.paragraph(f"shares with {one}", quiet=True) for one in shared),
    )


def neighbourhood_html(near: Neighbourhood) -> str:
    """What the item in the middle gives to each neighbour, and has from it."""
    rows = []
    for place, item in enumerate(near.items[1:], 1):
        weights = near.weights[0, place], near.weights[place, 0]
        rows.append(([item_name(item, near.titles)], [Cell(f"{weight:+.4f}") for weight in weights]))
    name = _short(item_name(near.items[0], near.titles))
    grid = Grid("Neighbours", ["neighbour", "weight to it", "weight from it"], rows)
    said = html.table(grid, _EDGES) if rows else html.paragraph("It has no neighbours: its weights are all zero.")
    return html.block(html.heading(f"Neighbours of {name}"), said)


def scored_pairs_repr(found: ScoredPairs) -> str:
    """How many pairs there are, and the first of them."""
    shown = short_list([f"{names[-1]} {score:.4g}" for names, score in _pairs(found, _FIRST + 1)], _FIRST)
    return (
        f"ScoredPairs({counted(len(found.scores), 'pair', 'pairs')} of {counted(len(found), 'user', 'users')}: {shown})"
    )


def scored_pairs_html(found: ScoredPairs) -> str:
    """A row for each pair."""
    rows = [(names, [Cell(number(score))]) for names, score in _pairs(found, _PARTS)]
    said = f"{counted(len(found.scores), 'pair', 'pairs')} of {counted(len(found), 'user', 'users')}"
    more = [html.paragraph(f"… and {len(found.scores) - _PARTS:,} more", quiet=True)] * (len(found.scores) > _PARTS)
    table = [html.table(Grid("Scores", ["user", "item", "score"], rows))] if rows else []
    return html.block(html.heading("ScoredPairs", said), *table, *more)


def _pairs(found: ScoredPairs, most: int) -> list[tuple[list[str], float]]:
    """User, item and score of the first pairs."""
    names = found.items[:most].tolist()
    if found.titles is not None:  # which items have that the model knows
        titles = found.titles[:most].tolist()
        names = [name if title is None else title for name, title in zip(names, titles, strict=True)]
    rows = np.searchsorted(found.bounds, np.arange(min(most, len(found.scores))), side="right") - 1
    return [
        ([_short(found.users[row]), _short(names[place])], float(found.scores[place])) for place, row in enumerate(rows)
    ]


def item_name(item: Any, titles: Mapping[Any, str] | None) -> str:
    """An item's title where there are titles, else its id.

    Examples
    --------
    >>> item_name(7, {7: "Tea"}), item_name(7, None)
    ('Tea', '7')
    """
    return str(item) if titles is None else str(titles[item])


def short_list(names: list[Any], most: int = 5) -> str:
    """The first of some names.

    Examples
    --------
    >>> short_list(["tea", "jam", "egg"], most=2)
    'tea, jam, …'
    """
    shown = [_short(name) for name in names[:most]]
    return ", ".join(shown + ["…"] * (len(names) > most))
