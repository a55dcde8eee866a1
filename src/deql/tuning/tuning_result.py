"""What a search found: the winner, the leaderboard, the curve over b, and what they say in words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deql._system.tables import counted, text_table
from deql.evaluation.comparison import LEVEL
from deql.evaluation.model_groups import describe
from deql.metrics import lower_is_better
from deql.models.linear import LinearAutoencoder
from deql.tuning.space import Space
from deql.tuning.tuning_summary import leaderboard_grid

if TYPE_CHECKING:
    import polars as pl

__all__ = ["BCurve", "BaselineComparison", "Tuning"]

_FEW_USERS = 30


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

    def best(self, metric: str) -> float:
        """The b with the best value; of equal ones the smallest."""
        values = self.values[metric]
        return self.b[values.index(min(values) if lower_is_better(metric) else max(values))]


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
    points : int or None
        How many points the grid has; None for Optuna, which has no grid.
    inverses : int
        How many points gave models.
    left_out : int
        How many points were still to be measured when a budget or Ctrl-C ended the search.
    failures : list of str
        Points that gave no model, each with the reason.
    seconds : float
        What they took, all runs of the search together.
    journal : Path or None
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
    points: int | None
    inverses: int
    left_out: int
    failures: list[str]
    seconds: float
    journal: Path | None

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
            "inverses": self.inverses, "left_out": self.left_out, "failures": self.failures, "notes": self.notes,
            "models": self.table.height, "seconds": self.seconds,
            "journal": None if self.journal is None else str(self.journal),
        }  # fmt: skip

    def __str__(self) -> str:
        grid = leaderboard_grid(self)
        return "\n".join([grid.title, text_table(grid), "", self.sentence, *self.notes])

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
