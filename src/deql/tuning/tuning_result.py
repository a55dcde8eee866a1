"""What a search found: winner, leaderboard, the curve over b, and what people know already."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deql._system.frames import make_frame
from deql._system.tables import text_table
from deql.errors import ParameterError
from deql.evaluation.model_groups import model_spec
from deql.evaluation.significance import LEVEL, is_tied
from deql.metrics import lower_is_better
from deql.models.rule_model import RuleModel
from deql.plotting.figures import figure
from deql.tuning.importance import effect_panel, effects
from deql.tuning.notebook import curve_html, tuning_html, tuning_repr
from deql.tuning.space import Space
from deql.tuning.summary import edges, leaderboard_grid, result_notes, result_sentence, summary_sentences

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

__all__ = ["BCurve", "BaselineComparison", "PriorComparison", "Tie", "Tuning", "is_beyond_choosing"]

_CLEAR = 2.0
"""Standard errors."""


@dataclass(frozen=True)
class BCurve:
    """Metrics over b with all else as the winner has it: the paper's sensitivity curve for these data.

    Attributes
    ----------
    b : list of float
    values, errors : dict of str to list of float
        For each metric its mean over the validation users, and the standard error of that, at each b.
    paired_errors : list of float
        Of the metric that decided, the standard error of its difference from the winner on the same users, at each b;
        empty where it is not known.
    """

    b: list[float]
    values: dict[str, list[float]]
    errors: dict[str, list[float]]
    paired_errors: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        several = [*self.values.values(), *self.errors.values(), self.paired_errors or self.b]
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
    error : float
        Standard error of the difference; NaN where it is not known.
    """

    parameters: dict[str, Any]
    searched: bool
    value: float
    difference: float
    p_value: float
    error: float = math.nan

    @property
    def tied(self) -> bool:
        """Whether the difference is below one standard error, or too small to be seen in four digits."""
        return is_tied(self.difference, self.error)

    @property
    def significant(self) -> bool:
        """Whether the test rejects "the winner is no better" at 5 %, and there is a difference to be seen."""
        return self.p_value < LEVEL and not self.tied


@dataclass(frozen=True)
class Tie:
    """The model with the best value, where the winner is a simpler one on the same inverse that is tied with it.

    Attributes
    ----------
    parameters : dict
        Its row of the leaderboard.
    difference : float
        How much better it is, on average over the validation users.
    error : float
        Standard error of that difference.
    """

    parameters: dict[str, Any]
    difference: float
    error: float


@dataclass(frozen=True)
class PriorComparison:
    """The best model with a prior, and how it does against the best without.

    Attributes
    ----------
    parameters, without : dict
        Their rows of the leaderboard.
    difference : float
        Mean over the validation users of with − without; negative is good where lower values are.
    error : float
        Standard error of the difference.
    taken : bool
        Whether the model with a prior was taken: if its gain is clear; where the prior has items that nobody has, of
        which validation users say nothing, unless its loss is.
    """

    parameters: dict[str, Any]
    without: dict[str, Any]
    difference: float
    error: float
    taken: bool

    @property
    def clear(self) -> bool:
        """Whether the difference is more than choosing among many models brings about by chance."""
        return is_beyond_choosing(self.difference, self.error)


def is_beyond_choosing(difference: float, error: float) -> bool:
    """Whether a mean difference is at least two standard errors, and large enough to be seen in four digits.

    The best of some hundred models with a prior is held against a model that was the best before them. Were all of them
    worth the same, it would lead by a standard error or more as a rule, as it was chosen by the very users who judge.

    Examples
    --------
    >>> is_beyond_choosing(0.0006, 0.0005), is_beyond_choosing(-0.0011, 0.0005), is_beyond_choosing(0.00004, 0.00001)
    (False, True, False)
    """
    return not is_tied(difference, _CLEAR * error)


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
        The winner's row of the table: the first, or one on the same inverse that is tied with it and simpler.
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
    baseline_errors : dict of str to float
        For EASE and EDLAE the standard error of the winner's difference from each in ``metric``, on the same users;
        where it is not known they are not there.
    baseline_inverses : int
        How many inverses were made for them alone.
    tie : Tie or None
        The model that the winner is tied with, if another than the winner has the best value.
    prior : PriorComparison or None
        What a prior is worth on the same users; None where none was tried.
    """

    model: RuleModel
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
    baseline_errors: dict[str, float] = field(default_factory=dict)
    baseline_inverses: int = 0
    tie: Tie | None = None
    prior: PriorComparison | None = None

    @property
    def sentence(self) -> str:
        """In words: which b, whether b > a, how much better than b = 0, and whether that is more than chance."""
        return result_sentence(self)

    @property
    def notes(self) -> list[str]:
        """What a reader should know before believing the result; nothing if all is well."""
        return result_notes(self)

    @property
    def spec(self) -> str:
        """The winner as it can be typed after ``deql fit -m``, ``deql compare`` and ``deql evaluate``."""
        return model_spec(self.model)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the model, in plain Python."""
        return {
            "metric": self.metric, "best": self.best, "spec": self.spec, "sentence": self.sentence,
            "tie": None if self.tie is None else vars(self.tie),
            "prior": None if self.prior is None else vars(self.prior) | {"clear": self.prior.clear},
            "rival": vars(self.rival) | {"significant": self.rival.significant, "tied": self.rival.tied},
            "curve": vars(self.curve),
            "leaderboard": self.table.to_dicts(), "looks": self.looks.to_dicts(), "space": self.space.to_dict(),
            "judged": self.judged, "how": self.how, "complete": self.complete, "points": self.points,
            "ridges": list(self.ridges), "inverses": self.inverses, "left_out": self.left_out,
            "failures": self.failures, "notes": self.notes, "edges": edges(self),
            "models": self.table.height, "seconds": self.seconds,
            "journal": None if self.journal is None else str(self.journal),
            "baselines": self.baselines, "baseline_errors": self.baseline_errors,
            "baseline_inverses": self.baseline_inverses,
        }  # fmt: skip

    def to_frame(self, kind: str | None = None) -> Any:
        """The leaderboard as a frame; ``kind`` is polars, pandas or pyarrow, polars if not given."""
        return self.table if kind in (None, "polars") else make_frame(self.table.to_dict(as_series=False), kind)

    def __str__(self) -> str:
        grid = leaderboard_grid(self)
        return "\n".join([grid.title, text_table(grid), "", *summary_sentences(self)])

    def plot(self) -> Figure:
        """What mattered: the best metric at each value of a parameter, the most important parameter first.

        Importance is how far that best moves over the values. Needs matplotlib (extra ``report``).
        """
        shown = effects(self)
        if not shown:
            raise ParameterError("every parameter had a single value: there is nothing to plot")
        return figure([effect_panel(self, effect, shown)[0] for effect in shown])

    __repr__ = tuning_repr
    _repr_html_ = tuning_html
