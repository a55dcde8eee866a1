"""What a search found, in words and as a table: the result, what to believe of it, and where to go on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deql._system.tables import Cell, Grid, counted, value_cell
from deql.evaluation.model_groups import describe
from deql.evaluation.significance import is_tied
from deql.metrics import lower_is_better
from deql.tuning.prior_space import PRIOR_PARAMETERS
from deql.tuning.space import PARAMETERS, Point, ridges_around, show_value

if TYPE_CHECKING:
    from deql.tuning.tuning_result import Tuning

__all__ = [
    "best_by_point", "better_b", "edges", "is_between_values", "leaderboard_grid", "prior_sentences", "result_notes",
    "result_sentence", "search_notes", "summary_sentences", "varying",
]  # fmt: skip

_FEW_USERS = 30

_NEAR = 0.05
"""Share of an axis that counts as its edge for a value between those of the space."""

_MOST_DROPOUT = 0.99
"""From here up there is no room for other values below 1."""


def summary_sentences(tuning: Tuning) -> list[str]:
    """What was found, in sentences: the result, what to know before believing it, and where to search on."""
    return [tuning.sentence, *prior_sentences(tuning), *_over_baselines(tuning), *tuning.notes, *edges(tuning)]


def result_sentence(tuning: Tuning) -> str:
    """Which b, whether b > a, how much better than b = 0, and whether that is more than chance."""
    name = describe(tuning.model, shown=("l2", "dropout", "b", "xi"))
    users = counted(tuning.judged, "validation user", "validation users")
    value = f"{tuning.metric} {tuning.best[tuning.metric]:.4f} on {users}"
    return f"Best: {name} ({_side_of_b(tuning)}), {value}. {_against_zero(tuning)}".rstrip()


def result_notes(tuning: Tuning) -> list[str]:
    """What a reader should know before believing the result; nothing if all is well."""
    values, found = tuning.table[tuning.metric], []
    if tuning.tie is not None:
        found.append(_tie_note(tuning))
    if tuning.left_out:
        left = counted(tuning.left_out, "more point was", "more points were")
        go_on = ", and a larger --budget goes on" if tuning.complete else ""
        found.append(f"The search ended early: {left} to be measured{go_on}.")
    found += search_notes(tuning.failures, ("point", "points"), tuning.judged)
    if tuning.table.height > 1 and values.min() == values.max():
        which = "Both" if tuning.table.height == 2 else f"All {tuning.table.height:,}"
        found.append(f"{which} models did equally well: this space decides nothing.")
    elif (better := better_b(tuning)) is not None:
        b, gain = better
        # What does no better than the model that the winner is tied with would not change the winner.
        if b not in tuning.space.b and (tuning.tie is None or gain > tuning.tie.difference):
            found.append(
                f"b = {b:g}, which the search did not try, does {gain:.4f} better with all else equal: "
                "add it to the values of b."
            )
    return found


def search_notes(failures: Sequence[str], what: tuple[str, str], judged: int) -> list[str]:
    """That some of what was measured gave no model, and that too few users decided."""
    found = []
    if failures:
        found.append(f"{counted(len(failures), *what)} gave no model, such as {failures[0]}.")
    if judged < _FEW_USERS:
        found.append(
            f"{counted(judged, 'validation user is', 'validation users are')} too few to tell luck from skill."
        )
    return found


def _side_of_b(tuning: Tuning) -> str:
    """Where b is, and what that means."""
    b = tuning.best["b"]
    if b is None:
        return "its diagonal is bounded, so it has no b"
    if tuning.best["dropout"] == 0:
        ease = "EASE with a prior" if tuning.best["prior_weight"] else "EASE"
        return f"nothing is dropped: this is {ease}" if b == 0 else "nothing is dropped, so every b above 0 is the same"
    if b == 0:
        return "b = 0: only what is dropped counts"
    if b == 1:
        return "b = a: kept and dropped entries count alike"
    return f"b {'>' if b > 1 else '<'} a: what is kept counts {'more' if b > 1 else 'less'} than what is dropped"


def _against_zero(tuning: Tuning) -> str:
    rival = tuning.rival
    which = "the best with b = 0" if rival.searched else "b = 0 with all else equal"
    if tuning.best["b"] == 0:
        return "Of the b tried, none above 0 did better." if len(tuning.space.b) > 1 and tuning.tie is None else ""
    if rival.difference == 0:
        return f"It does exactly as well as {which}."
    if rival.tied:
        return f"It is tied with {which} ({rival.value:.4f}): {_size(rival.difference, rival.error)}."
    better = (rival.difference < 0) == lower_is_better(tuning.metric)
    share = f" ({abs(rival.difference) / rival.value:.2%})" if rival.value else ""
    text = (
        f"That is {abs(rival.difference):.4f}{share} {'better' if better else 'worse'} than {which} ({rival.value:.4f})"
    )
    if not better:
        return text + "."
    if not rival.significant:
        return text + f", which may be chance (one-sided paired t-test: p = {rival.p_value:.2g})."
    return text + (
        f", which is significant (one-sided paired t-test: p = {rival.p_value:.2g}); but these users also "
        "chose it, so the test part has the last word."
    )


def prior_sentences(tuning: Tuning) -> list[str]:
    """Whether a prior helped, and by how much; nothing where none was tried."""
    found, metric = tuning.prior, tuning.metric
    if found is None:
        return []
    row, value = found.parameters, found.without[metric]
    what = "the prior" if row["prior_rank"] is None else f"a low pass of rank {row['prior_rank']:g}"
    what += f" with weight {row['prior_weight']:g}"
    share = f"{abs(found.difference) / value:.1%}" if value else f"{abs(found.difference):.4f}"
    better = (found.difference < 0) == lower_is_better(metric)
    if found.clear and found.taken:
        return [f"{what[0].upper()}{what[1:]} gains {share} over the best model without a prior ({value:.4f})."]
    if found.clear and not better:
        return [f"A prior did not help: {what} is {share} worse than the best model without."]
    size = f"{abs(found.difference):.1g}, less than two standard errors ({found.error:.1g} each)"
    if abs(found.difference) < 0.0001:
        size = "less than 0.0001"
    if found.taken:
        return [f"{what[0].upper()}{what[1:]} was taken for the items that nobody has: without, it differs by {size}."]
    return [f"A prior did not clearly help: {what} and the best model without, which was taken, differ by {size}."]


def _size(difference: float, error: float) -> str:
    """How small a difference is that counts as none."""
    if abs(difference) < 0.0001:
        return "they differ by less than 0.0001"
    return f"they differ by {abs(difference):.1g}, less than one standard error ({error:.1g})"


def _tie_note(tuning: Tuning) -> str:
    tie = tuning.tie
    assert tie is not None
    changed = {
        name: tie.parameters[name]
        for name in ("b", "xi", "popularity_power")
        if tie.parameters[name] != tuning.best[name] and tie.parameters[name] is not None
    }
    other = ", ".join(f"{name} = {value:g}" for name, value in changed.items())
    return (
        f"With {other} it has {tie.parameters[tuning.metric]:.4f}, which is tied "
        f"({_size(tie.difference, tie.error)}): the simpler model was taken."
    )


def _over_baselines(tuning: Tuning) -> list[str]:
    """What was gained over what people know, and whether one of them that the space does not have does better."""
    metric, value = tuning.metric, tuning.best[tuning.metric]
    words = []
    for name, row in tuning.baselines.items():
        if math.isnan(row[metric]):
            continue
        how = {"EASE": ("l2",), "EDLAE": ("l2", "dropout")}.get(name, ())
        typed = f" ({', '.join(f'{part}={row[part]:g}' for part in how)})" if how else ""
        if name == "EDLAE" and row == tuning.baselines.get("EASE"):
            words.append("and so has EDLAE, which is best where nothing is dropped")
        else:
            words.append(f"{name}{typed} has {row[metric]:.4f}{_gain(tuning, name) if how else ''}")
    if not words:
        return []
    found = [f"On the same users {', '.join(words)}."]
    sign = -1 if lower_is_better(metric) else 1
    for name in ("EASE", "EDLAE"):
        row = tuning.baselines.get(name, tuning.best)
        lacking = [axis for axis in PARAMETERS if row[axis] == 0 and 0.0 not in (getattr(tuning.space, axis) or (0.0,))]
        tied = is_tied(value - row[metric], tuning.baseline_errors.get(name, math.nan))
        if lacking and not tied and sign * row[metric] > sign * value:
            axes = " and ".join(f"--{axis.replace('_', '-')}" for axis in lacking)
            return [*found, f"{name} does better, and this space does not have it: add 0 to {axes}."]
    return found


def _gain(tuning: Tuning, name: str) -> str:
    """How much better the winner is than a baseline, or that it is not."""
    metric, row = tuning.metric, tuning.baselines[name]
    difference = tuning.best[metric] - row[metric]
    if row == tuning.best:
        return " (the winner itself)"
    if is_tied(difference, tuning.baseline_errors.get(name, math.nan)):
        return " (tied)"
    way = "better" if (difference < 0) == lower_is_better(metric) else "worse"
    return f" (the winner is {abs(difference) / row[metric]:.1%} {way})" if row[metric] else ""


def better_b(tuning: Tuning) -> tuple[float, float] | None:
    """The best b of the curve and its gain, if that is another than the winner's by more than a standard error."""
    curve, metric, mine = tuning.curve, tuning.metric, tuning.best["b"]
    b = curve.best(metric)
    if mine is None or b == mine:
        return None
    place = curve.b.index(b)
    gain = abs(curve.values[metric][place] - curve.values[metric][curve.b.index(mine)])
    error = (curve.paired_errors or curve.errors[metric])[place]
    return None if is_tied(gain, error) else (b, gain)


def leaderboard_grid(tuning: Tuning, rows: int = 10) -> Grid:
    """The best models, then what people know already: parameters and metrics; what all share is said in the title.

    Marked is the best value of all models measured, shown or not. A winner that is tied with the best of them and not
    among the first rows takes the place of the last.

    Examples
    --------
    >>> import deql
    >>> split = deql.split_strong(deql.datasets.debian().take_users(slice(0, 2000)))
    >>> space = {"l2": 3, "dropout": [0.3, 0.5], "user_power": 0, "b": [0, 1], "popularity_power": 0, "prior": None}
    >>> best = deql.tune(split, space)
    >>> grid = leaderboard_grid(best, rows=3)
    >>> grid.title.split("; ")
    ['Best 3 of 4 models on 2 inverses, 1 more to compare with', 'these have l2 3, user_power 0, popularity_power 0']
    >>> grid.header, [names[0] for names, _ in grid.rows]
    (['#', 'dropout', 'b', 'ndcg@20', 'recall@20'], ['1', '2', '3', 'EDLAE', 'EASE', 'popularity'])
    """
    table = tuning.table
    every = _telling(tuning)
    shown = every[:rows]
    if tuning.best not in shown:
        shown[-1] = tuning.best
    metrics = [name for name in table.columns if name not in PARAMETERS]
    best = {
        metric: (min if lower_is_better(metric) else max)(row[metric] for row in every) for metric in metrics
    }  # fmt: skip
    baselines = [row for row in tuning.baselines.values() if row["l2"] is not None]
    columns, shared = varying([*shown, *baselines] if len(shown) > 1 else shown)

    def line(place: str, row: dict[str, Any]) -> tuple[list[str], list[Cell]]:
        cells = [Cell(show_value(name, row[name])) for name in columns]
        return [place], cells + [value_cell(row[metric], best=row[metric] == best[metric]) for metric in metrics]

    lines = [line(str(every.index(row) + 1), row) for row in shown]
    lines += [line(name, row) for name, row in reversed(tuning.baselines.items())]
    of = f"Best {len(shown)} of " if len(shown) < table.height else "All " * (table.height > 1)
    title = f"{of}{counted(table.height, 'model', 'models')} on {counted(tuning.inverses, 'inverse', 'inverses')}"
    if tuning.baseline_inverses:
        title += f", {tuning.baseline_inverses} more to compare with"
    words = [f"{name} {show_value(name, value)}" for name, value in shared.items() if value is not None]
    words += [
        f"no {name}" for name, value in shared.items()
        if value is None and name not in PRIOR_PARAMETERS and getattr(tuning.space, name) not in ((), (None,))
    ]  # fmt: skip
    return Grid(title + (f"; these have {', '.join(words)}" if words else ""), ["#", *columns, *metrics], lines)


def _telling(tuning: Tuning) -> list[dict[str, Any]]:
    """The rows of the leaderboard; of those with a prior the best of each variant, the winner, and none if it has none:
    what the others are tied with is said in a sentence."""
    told: set[Any] = set()
    kept = []
    for row in tuning.table.to_dicts():
        variant = (*Point.of(row), row["prior_rank"], row["prior_power_in"])
        if not row["prior_weight"]:
            kept.append(row)
        elif tuning.best["prior_weight"] and (variant not in told or row == tuning.best):
            kept.append(row)
            told.add(variant)
    return kept


def varying(rows: list[dict[str, Any]], names: Sequence[str] = PARAMETERS) -> tuple[list[str], dict[str, Any]]:
    """The parameters that differ between rows, and the value of those that do not.

    Of a single row they are all shown, but for those that it does not have.
    """
    values = {name: {row[name] for row in rows} for name in names}
    shared = {name: next(iter(several)) for name, several in values.items() if len(several) == 1}
    if len(rows) == 1:
        shared = {name: value for name, value in shared.items() if value is None}
    return [name for name in names if name not in shared], shared


def edges(tuning: Tuning) -> list[str]:
    """A sentence for each parameter whose best value is the smallest or largest tried, so that more may lie beyond.

    Natural limits, such as 0 below, are no edges, and neither is the only value of a parameter.
    """
    found = []
    for name in PARAMETERS:
        best, values = tuning.best[name], _tried(tuning, name)
        if name == "half_life":
            best = Point.of(tuning.best).half_life
        # Where nothing is dropped, every b above 0 gives the same model.
        if best is None or len(values) < 2 or (name == "b" and tuning.best["dropout"] == 0):
            continue
        side = _side(best, values, log=name == "l2")
        if side == 0 or _is_limit(name, best, side):
            continue
        axes = {"l2": tuning.ridges, "half_life": tuning.space.lengths}
        axis = axes[name] if name in axes else getattr(tuning.space, name) or values
        if best in values and best != (max(axis) if side > 0 else min(axis)):  # a budget ended before the next one
            continue
        which, way = ("largest", "upwards") if side > 0 else ("smallest", "downwards")
        where = f"is the {which} tried" if best in values else f"is next to the {which} of the space"
        such_as = f", such as {(1 + best) / 2:.3g}; it stays below 1" if name == "dropout" and side > 0 else ""
        found.append(f"The best {name} ({show_value(name, best)}) {where}: widen {name} {way}{such_as}.")
    return found


def _is_limit(name: str, value: float, side: int) -> bool:
    """Whether a parameter cannot go on from the value to that side, or would no longer mean anything there."""
    if side < 0:
        return value == 0
    return value >= {"dropout": _MOST_DROPOUT, "xi": 1.0}.get(name, math.inf)


def best_by_point(tuning: Tuning) -> dict[Point, float]:
    """What each point measured is worth with its best rule, best first."""
    found: dict[Point, float] = {}
    for row in tuning.table.to_dicts():
        found.setdefault(Point.of(row), row[tuning.metric])
    return found


def is_between_values(tuning: Tuning) -> bool:
    """Whether the search went between the values of the space, as Optuna does."""
    space, ridges = tuning.space, tuning.ridges
    return any(
        point.dropout not in space.dropout or point.user_power not in space.user_power
        or (point[2:] == Point.of(tuning.best)[2:] and point.l2 not in ridges)
        for point in best_by_point(tuning)
    )  # fmt: skip


def _tried(tuning: Tuning, name: str) -> list[float]:
    """The values of a parameter that were tried; of an l2 that follows the data, beside the winner."""
    values = getattr(tuning.space, name)
    if name in PRIOR_PARAMETERS:
        return sorted({row[name] for row in tuning.table.to_dicts()} - {None})
    if name not in Point._fields:
        return list(values)
    if name == "half_life":
        return sorted(tuning.space.lengths)
    if is_between_values(tuning):
        around = [ridge * float(tuning.model.gram_diagonal_.mean()) for ridge in ridges_around(1.0)]
        return list(around if values is None else values)
    rows = [*tuning.table.to_dicts(), *tuning.looks.to_dicts()]
    mine = [row for row in rows if values is not None or Point.of(row)[2:] == Point.of(tuning.best)[2:]]
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
