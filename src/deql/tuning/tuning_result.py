"""What a search found: winner, leaderboard and the curve over b; what to believe of it, and where to go on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deql._system.tables import Cell, Grid, counted, text_table, value_cell
from deql.errors import ParameterError
from deql.evaluation.comparison import LEVEL
from deql.evaluation.model_groups import describe
from deql.metrics import lower_is_better
from deql.models.linear import LinearAutoencoder
from deql.plotting.figures import figure
from deql.tuning.importance import effect_panel, effects
from deql.tuning.notebook import curve_html, tuning_html, tuning_repr
from deql.tuning.space import PARAMETERS, Point, Space, ridges_around

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

__all__ = [
    "BCurve",
    "BaselineComparison",
    "Tuning",
    "best_by_point",
    "edges",
    "is_between_values",
    "leaderboard_grid",
    "summary_sentences",
]

_FEW_USERS = 30

_NEAR = 0.05
"""Share of an axis that counts as its edge for a value between those of the space."""


@dataclass(frozen=True)
class BCurve:
    """Metrics over b with all else as the winner has it: the paper's sensitivity curve for these data.

    Attributes
    ----------
    b : list of float
    values, errors : dict of str to list of float
        For each metric its mean over the validation users, and the standard error of that, at each b.
    """

    b: list[float]
    values: dict[str, list[float]]
    errors: dict[str, list[float]]

    def __post_init__(self) -> None:
        several = [*self.values.values(), *self.errors.values()]
        if not self.b or not self.values or any(len(one) != len(self.b) for one in several):
            raise ValueError("a curve needs a value and an error for each b")

    def best(self, metric: str) -> float:
        """The b with the best value; of equal ones the smallest."""
        values = self.values[metric]
        return self.b[values.index(min(values) if lower_is_better(metric) else max(values))]

    def __repr__(self) -> str:
        best = ", ".join(f"{metric} best at {self.best(metric):g}" for metric in self.values)
        return f"BCurve({len(self.b)} values of b from {min(self.b):g} to {max(self.b):g}; {best})"

    _repr_html_ = curve_html


@dataclass(frozen=True)
class BaselineComparison:
    """The best model with b = 0 (EDLAE; EASE where nothing is dropped), and how the winner does against that baseline.

    Attributes
    ----------
    parameters : dict
        Its row of the leaderboard, or the winner's with b = 0 if the space has no b = 0.
    searched : bool
        Whether the space has b = 0, so that this baseline was chosen as freely as the winner.
    value : float
    difference : float
        Mean over the validation users of winner − baseline; negative is good where lower values are.
    p_value : float
        One-sided paired t-test over those users.
    """

    parameters: dict[str, Any]
    searched: bool
    value: float
    difference: float
    p_value: float

    @property
    def significant(self) -> bool:
        """Whether the test rejects "the winner is no better" at 5 %."""
        return self.p_value < LEVEL


@dataclass(frozen=True, eq=False)
class Tuning:
    """What :func:`deql.tune` found; ``str()`` gives it as text.

    Attributes
    ----------
    model : fitted model
        The winner, fitted on all that may be learned from: ``split.train``, or the whole table.
    table : polars.DataFrame
        The leaderboard: a row for each model measured, best first, with its parameters and metrics.
    metric : str
        What decided.
    best : dict
        The first row of the table.
    curve : BCurve
    rival : BaselineComparison
    space : Space
    looks : polars.DataFrame
        Points that were screened (measured on a sample of the items), best first; no rows if none were.
    judged : int
        How many validation users decided.
    how : str
        Where they came from.
    complete : bool
        False if Ctrl-C ended the search early.
    ridges : tuple of float
        The values of l2 that the winner's user_power could have been tried with.
    points : int or None
        How many points the grid has; None for Optuna, which has no grid.
    inverses : int
        How many points gave models.
    left_out : int
        How many points were still to be measured when a budget or Ctrl-C ended the search.
    failures : list of str
        Points that gave no model, each with the reason.
    seconds : float
        What all took, the end included, all runs of the search together.
    journal : Path or None
    baselines : dict of str to dict
        What people know already, measured on the same validation users: "popularity", the best "EASE" (b, dropout and
        powers 0) and the best "EDLAE" (b and powers 0), each with the columns of ``table``. One that a budget left no
        room for is not there.
    baseline_inverses : int
        How many inverses were made for them alone.
    """

    model: LinearAutoencoder
    table: pl.DataFrame
    metric: str
    best: dict[str, Any]
    curve: BCurve
    rival: BaselineComparison
    space: Space
    looks: pl.DataFrame
    judged: int
    how: str
    complete: bool
    ridges: tuple[float, ...]
    points: int | None
    inverses: int
    left_out: int
    failures: list[str]
    seconds: float
    journal: Path | None
    baselines: dict[str, dict[str, Any]] = field(default_factory=dict)
    baseline_inverses: int = 0

    @property
    def sentence(self) -> str:
        """In words: which b, whether b > a, how much better than b = 0, and whether that is more than chance."""
        return f"{self._winner()} {self._against_zero()}".rstrip()

    @property
    def notes(self) -> list[str]:
        """What a reader should know before believing the result; nothing if all is well."""
        values, found = self.table[self.metric], []
        if self.left_out:
            left = counted(self.left_out, "more point was", "more points were")
            found.append(f"The search ended early: {left} to be measured.")
        if self.failures:
            found.append(f"{counted(len(self.failures), 'point', 'points')} gave no model, such as {self.failures[0]}.")
        if self.judged < _FEW_USERS:
            found.append(
                f"{counted(self.judged, 'validation user is', 'validation users are')} too few to tell luck from skill."
            )
        if self.table.height > 1 and values.min() == values.max():
            found.append(f"All {self.table.height:,} models did equally well: this space decides nothing.")
        elif self.best["b"] is not None and (b := self.curve.best(self.metric)) != self.best["b"]:
            found.append(f"The curve has more values of b than the search tried: on it, b = {b:g} does best.")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Everything but the model, in plain Python."""
        return {
            "metric": self.metric, "best": self.best, "sentence": self.sentence,
            "rival": vars(self.rival) | {"significant": self.rival.significant}, "curve": vars(self.curve),
            "leaderboard": self.table.to_dicts(), "looks": self.looks.to_dicts(), "space": self.space.to_dict(),
            "judged": self.judged, "how": self.how, "complete": self.complete, "points": self.points,
            "ridges": list(self.ridges), "inverses": self.inverses, "left_out": self.left_out,
            "failures": self.failures, "notes": self.notes, "models": self.table.height, "seconds": self.seconds,
            "journal": None if self.journal is None else str(self.journal),
            "baselines": self.baselines, "baseline_inverses": self.baseline_inverses,
        }  # fmt: skip

    def __str__(self) -> str:
        grid = leaderboard_grid(self)
        return "\n".join([grid.title, text_table(grid), "", self.sentence, *self.notes])

    def plot(self) -> Figure:
        """What mattered: the best metric at each value of a parameter, the most important parameter first.

        Importance is how far that best moves over the values. Needs matplotlib (extra ``report``).
        """
        shown = effects(self)
        if not shown:
            raise ParameterError("every parameter had a single value: there is nothing to plot")
        return figure([effect_panel(self, effect, shown)[0] for effect in shown])

    __repr__ = tuning_repr

    def _repr_html_(self) -> str:
        return tuning_html(self, leaderboard_grid(self))

    def _winner(self) -> str:
        name = describe(self.model, shown=("l2", "dropout", "b", "xi"))
        users = counted(self.judged, "validation user", "validation users")
        value = f"{self.metric} {self.best[self.metric]:.4f} on {users}"
        return f"Best: {name} ({self._side()}), {value}."

    def _side(self) -> str:
        """Where b is, and what that means."""
        b = self.best["b"]
        if b is None:
            return "its diagonal is bounded, so it has no b"
        if self.best["dropout"] == 0:
            return (
                "nothing is dropped: this is EASE" if b == 0 else "nothing is dropped, so every b above 0 is the same"
            )
        if b == 0:
            return "b = 0: only what is dropped counts"
        if b == 1:
            return "b = a: kept and dropped entries count alike"
        return f"b {'>' if b > 1 else '<'} a: what is kept counts {'more' if b > 1 else 'less'} than what is dropped"

    def _against_zero(self) -> str:
        rival = self.rival
        which = "the best with b = 0" if rival.searched else "b = 0 with all else equal"
        if self.best["b"] == 0:
            return "No b above 0 did better." if len(self.space.b) > 1 else ""
        if rival.difference == 0:
            return f"It does exactly as well as {which}."
        better = (rival.difference < 0) == lower_is_better(self.metric)
        share = f" ({abs(rival.difference) / rival.value:.2%})" if rival.value else ""
        text = (
            f"That is {abs(rival.difference):.4f}{share} {'better' if better else 'worse'} than {which} "
            f"({rival.value:.4f})"
        )
        if not better:
            return text + "."
        if not rival.significant:
            return text + f", which may be chance (one-sided paired t-test: p = {rival.p_value:.2g})."
        return text + (
            f", which is significant (one-sided paired t-test: p = {rival.p_value:.2g}); but these users also "
            "chose it, so the test part has the last word."
        )


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
        axis = tuning.ridges if name == "l2" else getattr(tuning.space, name)
        if best in values and best != (max(axis) if side > 0 else min(axis)):  # a budget ended before the next one
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
