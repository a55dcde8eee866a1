"""The page of ``deql tune --report``: the winner, the leaderboard, and what the search learned on its way."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from deql.evaluation.comparison import lower_is_better
from deql.report import page, plots
from deql.report.tables import Cell, Grid, number
from deql.tuning.space import PARAMETERS, Point, Space, ridges_around

if TYPE_CHECKING:
    from deql.tuning.tuning_result import Tuning

__all__ = ["edges", "leaderboard_grid", "tuning_page", "verdict"]

_ROWS = 20
_MOST_POWERS = 4
_NEAR = 0.05

Figure = tuple[str, str]


def leaderboard_grid(tuning: Tuning, rows: int = 10) -> Grid:
    """The best models: their parameters and metrics; what all of them share is said in the title.

    Marked is the best value of all models measured, shown or not.

    Examples
    --------
    >>> import deql
    >>> from deql.report.tables import text_table
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
            + [Cell(number(row[metric]), best=row[metric] == best[metric]) for metric in metrics],
        )
        for place, row in enumerate(shown.to_dicts(), start=1)
    ]
    of = f"Best {len(shown)} of {table.height:,}" if len(shown) < table.height else f"All {table.height:,}"
    title = f"{of} {'model' if table.height == 1 else 'models'}"
    title += f" on {_inverses(tuning)}"
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


def verdict(tuning: Tuning) -> list[str]:
    """What was found, in sentences: the result, what to know before believing it, and where to search on."""
    return [tuning.sentence, *tuning.notes, *edges(tuning)]


def tuning_page(title: str, about: Mapping[str, str], tuning: Tuning) -> str:
    """The whole page; ``about`` tells of the data and the search, in words."""
    grid = leaderboard_grid(tuning, _ROWS)
    names, drawn = _interaction(tuning)
    looks = _looks(tuning)
    widen = edges(tuning)
    return page.page(
        title,
        page.facts({**about, **_facts(tuning)}),
        page.heading("Result"),
        page.lead(tuning.sentence),
        *(page.paragraph(note) for note in tuning.notes),
        page.heading("Leaderboard"),
        page.paragraph(grid.title + "."),
        page.grid_table(grid, ranked=True),
        page.paragraph(
            f"Means over {tuning.judged:,} validation users. Highlighted: best of all models measured."
        ),
        page.heading("What b does"),
        page.figures([_sensitivity(tuning, metric) for metric in tuning.curve.values]),
        page.heading("Dropout and l2") if drawn else "",
        page.key(names, "Lines") if names else "",
        page.figures(drawn),
        page.heading("First looks") if looks else "",
        page.figures(looks),
        page.heading("Edges of the space") if widen else "",
        *(page.paragraph(sentence) for sentence in widen),
    )  # fmt: skip


def _facts(tuning: Tuning) -> dict[str, str]:
    cost = f"{tuning.seconds:.0f} s" if tuning.seconds < 90 else f"{tuning.seconds / 60:.0f} min"
    measured = f"{tuning.table.height:,} models on {_inverses(tuning)}, {cost}"
    if tuning.points is not None and tuning.points > tuning.inverses:
        measured += f"; the space has {tuning.points:,} points"
    if tuning.looks.height:
        measured += f"; before that a first look at {tuning.looks.height:,} points on a sample of the items"
    direction = "lower" if lower_is_better(tuning.metric) else "higher"
    return {
        "Chosen by": f"{tuning.metric} ({direction} is better) of {tuning.judged:,} users: {tuning.how}",
        "Space": space_in_words(tuning.space),
        "Measured": measured,
        "State": _state(tuning),
    }


def _state(tuning: Tuning) -> str:
    if not tuning.complete:
        return "interrupted: this is the best up to then"
    return "ended by its budget" if tuning.left_out else "complete"


def space_in_words(space: Space) -> str:
    """The values of each parameter in a line.

    Examples
    --------
    >>> space_in_words(Space(dropout=(0.0, 0.5), b=(0.0, 1.0)))
    'l2 around the mean diagonal of the Gram matrix; dropout 0, 0.5; user_power 0; b 0, 1; popularity_power 0'
    """
    values = {name: getattr(space, name) for name in PARAMETERS}
    words = [f"{name} {', '.join(f'{value:g}' for value in tried)}" for name, tried in values.items() if tried]
    return "; ".join((["l2 around the mean diagonal of the Gram matrix"] if space.l2 is None else []) + words)


def _sensitivity(tuning: Tuning, metric: str) -> Figure:
    curve, best = tuning.curve, tuning.best
    top = curve.best(metric)
    drawn = plots.optimum(
        f"b-{page.anchor(metric)}", f"{metric} by b; best at b = {top:g}", list(curve.values).index(metric),
        curve.b, curve.values[metric], curve.errors[metric], curve.b.index(top), "b", metric,
    )  # fmt: skip
    text = (
        f"{metric} by b (a = 1), all else as the winner has it: best at b = {top:g}. Band: ± standard error; the users "
        "are the same at every b, so differences along the curve are surer than the band looks."
    )
    if best["b"] is None:
        text += f" The winner itself has xi = {best['xi']:g} and no b."
    elif best["dropout"] == 0:
        text += " Nothing is dropped, so every b above 0 gives the same model."
    elif metric == tuning.metric and best["b"] != top:
        text += f" The search, which tried fewer values, chose b = {best['b']:g}."
    return drawn, text


def _interaction(tuning: Tuning) -> tuple[list[str], list[Figure]]:
    """The best value at each point over l2, a line for each dropout: the lines' names, and the figures."""
    best, looks = _best_by_point(tuning), _looks_by_point(tuning)
    dropouts = sorted({point.dropout for point in [*best, *looks]})
    if len({point[:2] for point in best}) < 2:
        return [], []
    if _between(tuning) or len(dropouts) > plots.COLOURS:
        return [], [_strengths(tuning, best)]
    powers = sorted({point.user_power for point in best})
    shown = powers if len(powers) <= _MOST_POWERS else [tuning.best["user_power"]]
    figures = [_lines(tuning, best, power, dropouts) for power in shown]
    drawn, text = figures[-1]
    if shown != powers:
        text += f" It is the winner's; {len(powers) - 1} others are not drawn."
    for power in sorted({point.user_power for point in looks} - set(powers)):
        text += _unmeasured(tuning, power)
    figures[-1] = drawn, text
    if len(looks) > len(best) and _several_ridges(looks):
        figures.append(_looked_at(tuning, looks, dropouts))
    several = _several_ridges([*best, *looks])
    return [f"dropout {dropout:g}" for dropout in dropouts] if several else [], figures


def _lines(tuning: Tuning, best: Mapping[Point, float], power: float, dropouts: list[float]) -> Figure:
    """One user_power, on a scale for all of them. With a single l2 there is nothing to draw over but dropout."""
    over = "l2" if _several_ridges(best) else "dropout"
    lines = _by_dropout(best, power, dropouts, over)
    star = (tuning.best[over], tuning.best[tuning.metric]) if power == tuning.best["user_power"] else None
    title = f"{tuning.metric} by {'l2 and dropout' if over == 'l2' else 'dropout'}, user_power {power:g}"
    drawn = plots.interaction(
        f"interaction-{page.anchor(f'{power:g}')}", title, lines, star,
        (min(best.values()), max(best.values())), over, tuning.metric, log=over == "l2",
    )  # fmt: skip
    return drawn, f"{title}: at each point the best of its {_rules(tuning)}." + _unmeasured(tuning, power)


def _looked_at(tuning: Tuning, looks: Mapping[Point, float], dropouts: list[float]) -> Figure:
    """All points of the winner's user_power by their first looks: what lies around those that were measured."""
    power, winner = tuning.best["user_power"], Point.of(tuning.best)
    star = (winner.l2, looks[winner]) if winner in looks else None
    title = f"First looks: {tuning.metric} by l2 and dropout, user_power {power:g}"
    drawn = plots.interaction(
        "interaction-looks", title, _by_dropout(looks, power, dropouts, "l2"), star,
        (min(looks.values()), max(looks.values())), "l2", f"{tuning.metric}, on a sample", log=True,
    )  # fmt: skip
    return drawn, f"{title}, at all points and on a sample of the items, so on another scale. Star: the winner."


def _by_dropout(
    values: Mapping[Point, float], power: float, dropouts: list[float], over: str
) -> dict[int, dict[float, float]]:
    """The points of one user_power as lines, by the place of their dropout."""
    lines: dict[int, dict[float, float]] = {}
    for point, value in values.items():
        if point.user_power == power:
            lines.setdefault(dropouts.index(point.dropout) if over == "l2" else 0, {})[getattr(point, over)] = value
    return dict(sorted(lines.items()))


def _several_ridges(points: Iterable[Point]) -> bool:
    return len({point.l2 for point in points}) > 1


def _strengths(tuning: Tuning, best: Mapping[Point, float]) -> Figure:
    """Points that form no lines: l2 by dropout, the stronger the better the place. The first one is the best."""
    last = max(len(best) - 1, 1)
    points = [(point.l2, point.dropout, 1 - place / last) for place, point in enumerate(best)]
    powers = {point.user_power for point in best}
    title = f"{tuning.metric} by l2 and dropout"
    text = f"{title}: each point stands for the best of its {_rules(tuning)}; the stronger, the better its place."
    if len(powers) > 1:
        text += f" Points of all user_powers, {min(powers):g} to {max(powers):g}."
    text += _unmeasured(tuning)
    return plots.scatter("interaction", title, points, 0, "l2", "dropout"), text


def _looks(tuning: Tuning) -> list[Figure]:
    """First looks against full measurements, for points that have both."""
    if not tuning.looks.height:
        return []
    best, looks = _best_by_point(tuning), _looks_by_point(tuning)
    both = [point for point in best if point in looks]
    if not both:
        return []
    x, y = [looks[point] for point in both], [best[point] for point in both]
    title = f"{tuning.metric} on a sample of the items and on all of them"
    text = (
        f"First looks against full measurements: {tuning.metric} on a sample of the items and on all of them, at the "
        f"{len(both):,} of {len(looks):,} points that have both."
    )
    correlation = rank_correlation(x, y)
    if not math.isnan(correlation):
        text += f" Rank correlation: {correlation:.2f}, among the points that were kept."
    winner = next(iter(best))
    if winner in looks:
        text += f" By first look the winner was number {list(looks).index(winner) + 1:,} of {len(looks):,}."
    star = max(range(len(both)), key=lambda place: both[place] == winner)
    drawn = plots.agreement("looks", title, x, y, star, "first look", "full measurement")
    return [(drawn, text)]


def rank_correlation(x: list[float], y: list[float]) -> float:
    """Spearman's; not a number where fewer than three pairs, or equal values only, show none.

    Examples
    --------
    >>> round(rank_correlation([1.0, 2.0, 3.0, 4.0], [10.0, 20.0, 90.0, 30.0]), 6)
    0.8
    """
    from scipy.stats import rankdata

    if len(x) < 3 or len(set(x)) == 1 or len(set(y)) == 1:
        return math.nan
    return float(np.corrcoef(rankdata(x), rankdata(y))[0, 1])


def _best_by_point(tuning: Tuning) -> dict[Point, float]:
    """What each point measured is worth with its best rule, best first."""
    found: dict[Point, float] = {}
    for row in tuning.table.to_dicts():
        found.setdefault(Point.of(row), row[tuning.metric])
    return found


def _looks_by_point(tuning: Tuning) -> dict[Point, float]:
    """What each point was worth at its first look, best first."""
    return {Point.of(row): row[tuning.metric] for row in tuning.looks.to_dicts()}


def _inverses(tuning: Tuning) -> str:
    return f"{tuning.inverses:,} {'inverse' if tuning.inverses == 1 else 'inverses'}"


def _rules(tuning: Tuning) -> str:
    return f"{len(tuning.space.rules()):,} models" if len(tuning.space.rules()) > 1 else "model"


def _unmeasured(tuning: Tuning, user_power: float | None = None) -> str:
    """How many points had a first look only."""
    measured = _best_by_point(tuning)
    left = [
        point for point in _looks_by_point(tuning)
        if point not in measured and user_power in (None, point.user_power)
    ]  # fmt: skip
    count = f"{len(left):,} {'point' if len(left) == 1 else 'points'}"
    where = "" if user_power is None else f" with user_power {user_power:g}"
    return f" Not drawn: {count}{where} that had a first look only." if left else ""


def _between(tuning: Tuning) -> bool:
    """Whether the search went between the values of the space, as Optuna does."""
    space = tuning.space
    return any(
        point.dropout not in space.dropout or point.user_power not in space.user_power
        for point in _best_by_point(tuning)
    )


def _tried(tuning: Tuning, name: str) -> list[float]:
    """The values of a parameter that were tried; of an l2 that follows the data, with the winner's user_power."""
    values = getattr(tuning.space, name)
    if name not in Point._fields:
        return list(values)
    if _between(tuning):
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
