"""What a search found, as a reader sees it: the leaderboard, and sentences on what to believe and where to go on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from deql._system.tables import Cell, Grid, counted, value_cell
from deql.metrics import lower_is_better
from deql.tuning.space import PARAMETERS, Point, ridges_around

if TYPE_CHECKING:
    from deql.tuning.tuning_result import Tuning

__all__ = ["best_by_point", "edges", "is_between_values", "leaderboard_grid", "summary_sentences"]

_NEAR = 0.05
"""Share of an axis that counts as its edge for a value between those of the space."""


def leaderboard_grid(tuning: Tuning, rows: int = 10) -> Grid:
    """The best models: their parameters and metrics; what all of them share is said in the title.

    Marked is the best value of all models measured, shown or not.

    Examples
    --------
    >>> import deql
    >>> split = deql.split_strong(deql.datasets.debian().take_users(slice(0, 2000)))
    >>> best = deql.tune(split, {"l2": 3, "dropout": [0.3, 0.5], "user_power": 0, "b": [0, 1], "popularity_power": 0})
    >>> grid = leaderboard_grid(best, rows=3)
    >>> grid.title
    'Best 3 of 4 models on 2 inverses; these have l2 3, user_power 0, popularity_power 0'
    >>> grid.header
    ['#', 'dropout', 'b', 'ndcg@20', 'recall@20']
    """
    table = tuning.table
    shown = table.head(rows)
    metrics = [name for name in table.columns if name not in PARAMETERS]
    best = {metric: table[metric].min() if lower_is_better(metric) else table[metric].max() for metric in metrics}
    values = {name: shown[name].to_list() for name in PARAMETERS}
    shared = {name: column[0] for name, column in values.items() if len(set(column)) == 1}
    if len(shown) == 1:
        shared = {name: value for name, value in shared.items() if value is None}
    columns = [name for name in PARAMETERS if name not in shared]
    lines = [
        (
            [str(place)],
            [Cell("–" if row[name] is None else f"{row[name]:g}") for name in columns]
            + [value_cell(row[metric], best=row[metric] == best[metric]) for metric in metrics],
        )
        for place, row in enumerate(shown.to_dicts(), start=1)
    ]
    of = f"Best {len(shown)} of {table.height:,}" if len(shown) < table.height else f"All {table.height:,}"
    title = f"{of} {'model' if table.height == 1 else 'models'} on {counted(tuning.inverses, 'inverse', 'inverses')}"
    words = [f"{name} {value:g}" for name, value in shared.items() if value is not None]
    words += [f"no {name}" for name, value in shared.items() if value is None and getattr(tuning.space, name)]
    return Grid(title + (f"; these have {', '.join(words)}" if words else ""), ["#", *columns, *metrics], lines)


def edges(tuning: Tuning) -> list[str]:
    """A sentence for each parameter whose best value is the smallest or largest tried, so that more may lie beyond.

    Natural limits, such as 0, are no edges, and neither is the only value of a parameter.
    """
    found = []
    for name in PARAMETERS:
        best, values = tuning.best[name], _tried(tuning, name)
        # Where nothing is dropped, every b above 0 gives the same model.
        if best is None or len(values) < 2 or (name == "b" and tuning.best["dropout"] == 0):
            continue
        side = _side(best, values, log=name == "l2")
        if side == 0 or best == 0 or (name == "xi" and best == 1):
            continue
        which, way = ("largest", "upwards") if side > 0 else ("smallest", "downwards")
        where = f"is the {which} tried" if best in values else f"is next to the {which} of the space"
        found.append(f"The best {name} ({best:g}) {where}: widen --{name.replace('_', '-')} {way}.")
    return found


def summary_sentences(tuning: Tuning) -> list[str]:
    """What was found, in sentences: the result, what to know before believing it, and where to search on."""
    return [tuning.sentence, *tuning.notes, *edges(tuning)]


def best_by_point(tuning: Tuning) -> dict[Point, float]:
    """What each point measured is worth with its best rule, best first."""
    found: dict[Point, float] = {}
    for row in tuning.table.to_dicts():
        found.setdefault(Point.of(row), row[tuning.metric])
    return found


def is_between_values(tuning: Tuning) -> bool:
    """Whether the search went between the values of the space, as Optuna does."""
    space = tuning.space
    return any(
        point.dropout not in space.dropout or point.user_power not in space.user_power
        for point in best_by_point(tuning)
    )


def _tried(tuning: Tuning, name: str) -> list[float]:
    """The values of a parameter that were tried; of an l2 that follows the data, with the winner's user_power."""
    values = getattr(tuning.space, name)
    if name not in Point._fields:
        return list(values)
    if is_between_values(tuning):
        around = [ridge * float(tuning.model.gram_diagonal_.mean()) for ridge in ridges_around(1.0)]
        return list(around if values is None else values)
    rows = [*tuning.table.to_dicts(), *tuning.looks.to_dicts()]
    mine = [row for row in rows if values is not None or row["user_power"] == tuning.best["user_power"]]
    return sorted({row[name] for row in mine})


def _side(value: float, values: list[float], log: bool) -> int:
    """1 at the largest of the values, −1 at the smallest, 0 elsewhere; a value between them may be close to either."""
    if value in values:
        return (value == max(values)) - (value == min(values))
    low, high = min(values), max(values)
    if log:
        low = min(one for one in values if one > 0)
        value, low, high = math.log(value), math.log(low), math.log(high)
    across = (value - low) / (high - low) if high > low else 0.5
    return (across > 1 - _NEAR) - (across < _NEAR)
