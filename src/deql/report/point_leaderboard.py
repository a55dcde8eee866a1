"""The leaderboard of a search by points: one row for each inverse with its best rule, the other rules folded below."""

from __future__ import annotations

from typing import Any

from deql._system import html
from deql._system.tables import Cell, Grid, counted, value_cell
from deql.metrics import lower_is_better
from deql.tuning.space import PARAMETERS, Point, show_value
from deql.tuning.summary import varying
from deql.tuning.tuning_result import Tuning

__all__ = ["point_leaderboard"]

_FOLDED = 12

Row = dict[str, Any]


def point_leaderboard(tuning: Tuning, rows: int = 12) -> tuple[Grid, dict[int, str]]:
    """The best points, then what people know already; and for each row that has more rules these as HTML.

    Examples
    --------
    >>> import deql
    >>> split = deql.split_strong(deql.datasets.debian().take_users(slice(0, 2000)))
    >>> space = {"l2": [3, 9], "dropout": 0.3, "user_power": 0, "b": [0, 1], "popularity_power": 0, "prior": None}
    >>> best = deql.tune(split, space)
    >>> grid, others = point_leaderboard(best)
    >>> grid.title
    'All 2 points of 4 models, each with its best rule; these have user_power 0, b 0, popularity_power 0'
    >>> [names[0] for names, _ in grid.rows], list(others)
    (['1', '2', 'EDLAE', 'EASE', 'popularity'], [0, 1])
    """
    points: dict[Point, list[Row]] = {}
    for row in tuning.table.to_dicts():
        points.setdefault(Point.of(row), []).append(row)
    # A simpler rule that is tied with the best of its inverse wins, and stands for it.
    points[Point.of(tuning.best)].sort(key=lambda row: row != tuning.best)
    groups = list(points.values())[:rows]
    baselines = dict(reversed(tuning.baselines.items()))
    shown = [group[0] for group in groups]
    columns, shared = varying([*shown, *(row for row in baselines.values() if row["l2"] is not None)])
    metrics = [name for name in tuning.table.columns if name not in PARAMETERS]
    lines = [_line(tuning, str(place), row, columns, metrics) for place, row in enumerate(shown, start=1)]
    lines += [_line(tuning, name, row, columns, metrics) for name, row in baselines.items()]
    which = f"Best {len(groups):,} of " if len(groups) < len(points) else "All " * (len(points) > 1)
    models = counted(tuning.table.height, "model", "models")
    title = f"{which}{counted(len(points), 'point', 'points')} of {models}, each with its best rule"
    title += ", the first with the simpler one that is tied with it" * (tuning.tie is not None)
    words = [f"{name} {show_value(name, value)}" for name, value in shared.items() if value is not None]
    grid = Grid(title + (f"; these have {', '.join(words)}" if words else ""), ["#", *metrics, *columns], lines)
    return grid, {place: _others(tuning, group, metrics) for place, group in enumerate(groups) if len(group) > 1}


def _others(tuning: Tuning, group: list[Row], metrics: list[str]) -> str:
    """A point's other rules, as what differs between them."""
    columns, _ = varying(group, [name for name in PARAMETERS if name not in Point._fields])
    lines = [_line(tuning, "", row, columns, metrics) for row in group[1:]]
    grid = Grid("", ["", *metrics, *columns], [([""], cells) for _, cells in lines])
    return html.folded(counted(len(group) - 1, "more rule", "more rules"), html.table(grid, _FOLDED, ranked=True))


def _line(tuning: Tuning, place: str, row: Row, columns: list[str], metrics: list[str]) -> tuple[list[str], list[Cell]]:
    table = tuning.table
    best = {metric: table[metric].min() if lower_is_better(metric) else table[metric].max() for metric in metrics}
    cells = [Cell(show_value(name, row[name])) for name in columns]
    # Metrics first: a phone shows some columns only, and these are read first.
    return [place], [value_cell(row[metric], best=row[metric] == best[metric]) for metric in metrics] + cells
