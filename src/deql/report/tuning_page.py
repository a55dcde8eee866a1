"""The page of ``deql tune --report``: the winner, the leaderboard, and what the search learned on its way."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from deql._system.tables import counted
from deql.metrics import lower_is_better
from deql.plotting import plots
from deql.plotting.plots import Labels
from deql.report import page
from deql.report.page import Figure
from deql.report.point_leaderboard import point_leaderboard
from deql.tuning.importance import Effect, effect_panel, effects
from deql.tuning.prior_space import PRIOR_PARAMETERS
from deql.tuning.space import PARAMETERS, Point, Space
from deql.tuning.summary import best_by_point, better_b, is_between_values, summary_sentences
from deql.tuning.tuning_result import Tuning

__all__ = ["describe_space", "rank_correlation", "tuning_page"]

_MOST_POWERS = 4


def tuning_page(title: str, about: Mapping[str, str], tuning: Tuning) -> str:
    """The whole page; ``about`` tells of the data and the search, in words."""
    lines, interaction = _interaction(tuning)
    leaderboard, others = point_leaderboard(tuning)
    mattered = effects(tuning)
    return page.render(
        "tuning", title, about={**about, **_facts(tuning)}, tuning=tuning, lines=lines, interaction=interaction,
        leaderboard=leaderboard, others=others, looks=_screening_figures(tuning), sentences=summary_sentences(tuning),
        importance=_importance(tuning, mattered),
        effects=[Figure.of(*effect_panel(tuning, effect, mattered)) for effect in mattered],
        sensitivity=[_sensitivity(tuning, metric) for metric in tuning.curve.values],
    )  # fmt: skip


def _importance(tuning: Tuning, mattered: list[Effect]) -> str:
    """What the order of the figures is, in words."""
    if not mattered:
        return ""
    order = ", then ".join(f"{one.parameter} ({one.importance:.4f})" for one in mattered)
    walked = " Points were chosen as the search went: a value that it left early was measured with few others."
    return (
        f"In order: {order}. How much a parameter matters is how far the best {tuning.metric} measured with each "
        "of its values moves from value to value. All figures have one scale."
        + walked
        * (tuning.points is None or tuning.points > tuning.inverses)
    )


def _facts(tuning: Tuning) -> dict[str, str]:
    cost = f"{tuning.seconds:.0f} s" if tuning.seconds < 90 else f"{tuning.seconds / 60:.0f} min"
    models = counted(tuning.table.height, "model", "models")
    measured = f"{models} on {counted(tuning.inverses, 'inverse', 'inverses')}, {cost}"
    if tuning.points is not None and tuning.points > tuning.inverses:
        measured += f"; the space has {tuning.points:,} points"
    if tuning.looks.height:
        measured += f"; before that a screening of {tuning.looks.height:,} points on a sample of the items"
    direction = "lower" if lower_is_better(tuning.metric) else "higher"
    return {
        "Chosen by": f"{tuning.metric} ({direction} is better) of {tuning.judged:,} users: {tuning.how}",
        "Space": describe_space(tuning.space),
        "Measured": measured,
        "State": _state(tuning),
    }


def _state(tuning: Tuning) -> str:
    if not tuning.complete:
        return "interrupted: this is the best up to then"
    return "ended by its budget" if tuning.left_out else "complete"


def describe_space(space: Space) -> str:
    """The values of each parameter in a line.

    Examples
    --------
    >>> describe_space(Space(dropout=(0.0, 0.5), b=(0.0, 1.0)))
    'l2 around the mean diagonal of the Gram matrix; dropout 0, 0.5; user_power 0; b 0, 1; popularity_power 0'
    """
    names = [name for name in PARAMETERS if name not in PRIOR_PARAMETERS or space.prior == "lowpass"]
    if space.prior not in (None, "lowpass"):
        names.append("prior_weight")
    values = {name: getattr(space, name) for name in names if name != "half_life"}
    words = [f"{name} {', '.join(f'{value:g}' for value in tried)}" for name, tried in values.items() if tried]
    if space.half_life != (None,):
        words.append(f"half_life {', '.join('none' if value is None else str(value) for value in space.half_life)}")
    if space.prior is not None:
        rank = ", its rank by the number of items" if space.prior == "lowpass" and space.prior_rank is None else ""
        words.append(f"prior {space.prior}{rank}")
    return "; ".join((["l2 around the mean diagonal of the Gram matrix"] if space.l2 is None else []) + words)


def _sensitivity(tuning: Tuning, metric: str) -> Figure:
    """A curve over b, with a star at the winner's b where it decided, else at the best."""
    curve, best = tuning.curve, tuning.best
    top = curve.best(metric)
    star, where = top, f"best at b = {top:g}"
    if metric == tuning.metric and best["b"] not in (None, top):
        star = best["b"]
        where += f"; the winner has {star:g}" if better_b(tuning) else f", which is tied with the winner's {star:g}"
    labels = Labels(f"b-{page.anchor(metric)}", f"{metric} by b; {where}", "b", metric)
    colour = list(curve.values).index(metric)
    drawn = plots.optimum(labels, colour, curve.b, curve.values[metric], curve.errors[metric], curve.b.index(star))
    text = (
        f"{metric} by b (a = 1), all else as the winner has it: {where}. Band: ± standard error; the users "
        "are the same at every b, so differences along the curve are surer than the band looks."
    )
    if best["b"] is None:
        text += f" The winner itself has xi = {best['xi']:g} and no b."
    elif best["dropout"] == 0:
        text += " Nothing is dropped, so every b above 0 gives the same model."
    return Figure(drawn, text)


def _interaction(tuning: Tuning) -> tuple[list[str], list[Figure]]:
    """The best value at each point over l2, a line for each dropout: the lines' names, and the figures."""
    best, looks = (_beside_winner(tuning, points) for points in (best_by_point(tuning), _screened_by_point(tuning)))
    dropouts = sorted(_drawn_dropouts(tuning, best, looks))
    if len({point[:2] for point in best}) < 2:
        return [], []
    if is_between_values(tuning) or len(dropouts) > plots.COLOURS or not _form_lines(best):
        return [], [_strengths(tuning, best)]
    powers = sorted({point.user_power for point in best})
    shown = powers if len(powers) <= _MOST_POWERS else [tuning.best["user_power"]]
    figures = [_lines(tuning, best, power, dropouts) for power in shown]
    more = ""
    if shown != powers:
        more += f" It is the winner's; {len(powers) - 1} others are not drawn."
    if len(tuning.space.half_life) > 1:
        more += " With the winner's half_life; others are not drawn."
    for power in sorted({point.user_power for point in looks} - set(powers)):
        more += _unmeasured(tuning, power)
    figures[-1] = Figure(figures[-1].svg, figures[-1].caption + more)
    beside = [point for point in looks if point.user_power == tuning.best["user_power"]]
    if len(looks) > len(best) and _several_ridges(beside):
        figures.append(_screened_points(tuning, looks, dropouts))
    several = _several_ridges([*best, *looks])
    return [f"dropout {dropout:g}" for dropout in dropouts] if several else [], figures


def _beside_winner(tuning: Tuning, points: Mapping[Point, float]) -> dict[Point, float]:
    """The points with the winner's half-life."""
    half_life = Point.of(tuning.best).half_life
    return {point: value for point, value in points.items() if point.half_life == half_life}


def _form_lines(best: Mapping[Point, float]) -> bool:
    """Whether every dropout has a line: several l2 with one user_power, if there are several l2 at all."""
    if not _several_ridges(best):
        return True
    lines = Counter((point.dropout, point.user_power) for point in best)
    return {dropout for (dropout, _), count in lines.items() if count > 1} == {point.dropout for point in best}


def _drawn_dropouts(tuning: Tuning, best: Mapping[Point, float], looks: Mapping[Point, float]) -> set[float]:
    """Those that have a line in some figure: of points that were screened only, those beside the winner."""
    screened = {point.dropout for point in looks if point.user_power == tuning.best["user_power"]}
    return {point.dropout for point in best} | (screened if len(looks) > len(best) else set())


def _lines(tuning: Tuning, best: Mapping[Point, float], power: float, dropouts: list[float]) -> Figure:
    """One user_power, on a scale for all of them. With a single l2 there is nothing to draw over but dropout."""
    over = "l2" if _several_ridges(best) else "dropout"
    lines = _by_dropout(best, power, dropouts, over)
    star = (tuning.best[over], tuning.best[tuning.metric]) if power == tuning.best["user_power"] else None
    title = f"{tuning.metric} by {'l2 and dropout' if over == 'l2' else 'dropout'}, user_power {power:g}"
    labels = Labels(f"interaction-{page.anchor(f'{power:g}')}", title, over, tuning.metric)
    drawn = plots.interaction(labels, lines, star, (min(best.values()), max(best.values())), log=over == "l2")
    told = f"{title}: at each point the best of its {_rules(tuning)}." + _unmeasured(tuning, power)
    return Figure(drawn, told)


def _screened_points(tuning: Tuning, looks: Mapping[Point, float], dropouts: list[float]) -> Figure:
    """The points of the winner's user_power by their screening: what lies around those that were measured."""
    power, winner = tuning.best["user_power"], Point.of(tuning.best)
    star = (winner.l2, looks[winner]) if winner in looks else None
    title = f"Screening: {tuning.metric} by l2 and dropout, user_power {power:g}"
    labels = Labels("interaction-looks", title, "l2", f"{tuning.metric}, on a sample")
    lines, limits = _by_dropout(looks, power, dropouts, "l2"), (min(looks.values()), max(looks.values()))
    drawn = plots.interaction(labels, lines, star, limits, log=True)
    told = f"{title}, on a sample of the items, so on another scale." + " Star: the winner." * (star is not None)
    return Figure(drawn, told)


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
    return Figure(plots.scatter(Labels("interaction", title, "l2", "dropout"), points, 0), text)


def _screening_figures(tuning: Tuning) -> list[Figure]:
    """Screening against full measurements, for points that have both."""
    if not tuning.looks.height:
        return []
    best, looks = best_by_point(tuning), _screened_by_point(tuning)
    both = [point for point in best if point in looks]
    if not both:
        return []
    x, y = [looks[point] for point in both], [best[point] for point in both]
    title = f"{tuning.metric} on a sample of the items and on all of them"
    text = (
        f"Screening against full measurements: {tuning.metric} on a sample of the items and on all of them, at the "
        f"{len(both):,} of {len(looks):,} points that have both."
    )
    correlation = rank_correlation(x, y)
    if not math.isnan(correlation):
        text += f" Rank correlation: {correlation:.2f}, among these."
    winner = next(iter(best))
    if winner in looks:
        text += f" By screening the winner was number {list(looks).index(winner) + 1:,} of {len(looks):,}."
    star = max(range(len(both)), key=lambda place: both[place] == winner)
    labels = Labels("looks", title, "screening", "full measurement")
    return [Figure(plots.agreement(labels, x, y, star), text)]


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


def _screened_by_point(tuning: Tuning) -> dict[Point, float]:
    """What each point was worth when it was screened, best first."""
    return {Point.of(row): row[tuning.metric] for row in tuning.looks.to_dicts()}


def _rules(tuning: Tuning) -> str:
    if tuning.prior is not None:
        return "models, with a prior where one was tried"
    return f"{len(tuning.space.rules()):,} models" if len(tuning.space.rules()) > 1 else "model"


def _unmeasured(tuning: Tuning, user_power: float | None = None) -> str:
    """How many points were screened only."""
    measured = best_by_point(tuning)
    left = [
        point for point in _beside_winner(tuning, _screened_by_point(tuning))
        if point not in measured and user_power in (None, point.user_power)
    ]  # fmt: skip
    where = "" if user_power is None else f" with user_power {user_power:g}"
    return f" Not drawn: {counted(len(left), 'point', 'points')}{where}, only screened." if left else ""
