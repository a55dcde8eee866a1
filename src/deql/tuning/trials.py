"""Trials: what was measured, what it cost, what is left of the budget."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from deql._system.compiling import time_compiling
from deql._system.formatting import show_seconds
from deql._system.tables import counted
from deql.errors import DeqlError, JournalError
from deql.evaluation import Evaluation
from deql.evaluation.model_groups import LogCallback
from deql.io.journal import Journal
from deql.metrics import lower_is_better
from deql.tuning.budget import Budget, inverses_of_screening
from deql.tuning.space import PLAIN, Point, RuleParameters, format_parameters
from deql.tuning.trainer import Trainer
from deql.tuning.trial import Trial, is_whole, read_trial, tie, total_seconds

if TYPE_CHECKING:
    from deql.tuning.prior_trials import PriorTrials

__all__ = ["COMPARED", "TrialStore"]

COMPARED: dict[str, Callable[[Point, RuleParameters], bool]] = {
    "no prior": lambda point, rule: True,
    "b = 0": lambda point, rule: rule.get("b") == 0,
    "EASE": lambda point, rule: rule == PLAIN and point.user_power == 0 and point.dropout == 0 and not point.fades,
    "EDLAE": lambda point, rule: rule == PLAIN and point.user_power == 0 and not point.fades,
}
"""What the winner is compared with on the same users: the best model of each kind."""

_SILENCE_SECONDS = 10.0
"""How long screening may take in a log without a line."""


@dataclass(eq=False)
class TrialStore:
    """Runs trials, each of them once: what the journal has is remembered, not measured again.

    So a search that asks the same questions in the same order resumes where it was killed.

    Attributes
    ----------
    full, small : Trainer
        The whole data, and a sample of the items to screen points on; None for no screening.
    rules : list of RuleParameters
    metrics : list of str
        The first one decides.
    journal : Journal
    budget : Budget
        Of the search.
    tell : callable or None
        The log callback: called with a line for each trial.
    whole_budget : Budget
        Of everything, the prior and baselines included; no limit where none was asked for.
    prior : PriorTrials or None
        Trials with a prior, given once the store is there; None for no prior.
    screened, trials : dict of Point to Trial
        What was measured on the sample, and on the whole data.
    baselines : dict of Point to Trial
        What was measured for the baselines alone, with the one rule that they have.
    planned : int or None
        How many trials there will be, if that is known or can be guessed.
    guessed : bool
        Whether ``planned`` is a guess.
    left_out : int
        How many points were still to be measured.
    screening_cost : float
        Of one point, in inverses; 0 without screening.
    zero : tuple of (Point, RuleParameters, Evaluation) or None
        The best model with b = 0 that this run measured, for its users' values, which the journal does not have.
    """

    full: Trainer
    small: Trainer | None
    rules: list[RuleParameters]
    metrics: list[str]
    journal: Journal
    budget: Budget
    tell: LogCallback | None = None
    whole_budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        self.prior: PriorTrials | None = None
        self.planned: int | None = None
        self.guessed = False
        self.left_out = 0
        self._told = time.perf_counter()
        self._compiled = 0.0
        self._kept: dict[str, tuple[tuple[float, Point, int], RuleParameters, Evaluation]] = {}
        self.screening_cost = 0.0
        if self.small is not None:
            self.screening_cost = inverses_of_screening(self.small.data, self.full.data, len(self.rules))
        self._sign = -1.0 if lower_is_better(self.metrics[0]) else 1.0
        self.screened: dict[Point, Trial] = {}
        self.trials: dict[Point, Trial] = {}
        self.baselines: dict[Point, Trial] = {}
        kept = {
            "look": (self.screened, self.metrics[:1], len(self.rules)),
            "point": (self.trials, self.metrics, len(self.rules)),
            "baseline": (self.baselines, self.metrics, 1),
        }
        for record in self.journal.records:
            if record["step"] in kept:
                known, metrics, rules = kept[record["step"]]
                trial = read_trial(record)
                if trial is None or (trial.failure is None and not is_whole(trial, metrics, rules)):
                    raise JournalError(f"{self.journal.path} is damaged: delete it to begin again")
                known[trial.point] = trial

    @property
    def spent(self) -> float:
        """Seconds, all runs of the search together."""
        with_prior = 0.0 if self.prior is None else self.prior.seconds
        return total_seconds(self.screened) + total_seconds(self.trials) + with_prior + total_seconds(self.baselines)

    @property
    def inverses(self) -> float:
        """What was spent in inverses: one for each trial, and the share that each screening has of one.

        The prior and the baselines count where a budget is for everything.
        """
        extra = 0.0
        if self.whole_budget.limited:
            extra = len(self.baselines) + (0.0 if self.prior is None else self.prior.inverses)
        return len(self.trials) + self.screening_cost * len(self.screened) + extra

    @property
    def end_inverses(self) -> int:
        """What the end takes once a second trial is made: a fit of the best, which may not be the last, and one on
        all data if the search had to hold some out."""
        return 1 + (self.full.data.final is not self.full.data.train)

    def may_screen(self, point: Point) -> bool:
        """Whether the point is screened or that can be afforded.

        Screening may take half of the time, and half of the inverses that a single trial leaves.
        """
        inverses, seconds = self.budget.inverses, self.budget.seconds
        if point in self.screened:
            return True
        if inverses is not None:
            return self.screening_cost * (len(self.screened) + 1) <= (inverses - 1) / 2
        return not self.screened or seconds is None or total_seconds(self.screened) < seconds / 2

    def may_measure(self, point: Point) -> bool:
        """Whether the point is measured or that can be afforded, and the end after it; one always can."""
        return point in self.trials or not self.trials or self._has_room(self.budget)

    def has_room(self, inverses: float) -> bool:
        """Whether the whole budget has room for so many inverses more, and for the end after them."""
        return self._has_room(self.whole_budget, inverses)

    @property
    def affordable(self) -> int | None:
        """How many trials the budget of inverses allows in all; None if there is no such limit."""
        if self.budget.inverses is None:
            return None
        return max(1, int(self.budget.inverses - self.screening_cost * len(self.screened) - self.end_inverses))

    def least_gain(self, point: Point) -> float:
        """What another point must be better by to count as better."""
        return tie(self.trials[point].error)

    def screen(self, point: Point) -> float:
        """What the point is worth on the sample of items, larger is better."""
        if point not in self.screened:
            assert self.small is not None
            trial, _ = self._run(self.small, point, self.metrics[:1])
            self.append("look", trial)
            self.screened[point] = trial
            # Where a bar shows how far it is, nobody needs lines.
            if self.tell is not None and not self.full.progress and time.perf_counter() - self._told > _SILENCE_SECONDS:
                self._told = time.perf_counter()
                self.tell(f"{counted(len(self.screened), 'point', 'points')} screened")
        return self.worth(self.screened[point])

    def measure(self, point: Point, journaled: bool = True) -> float:
        """What the point is worth, larger is better.

        Without the journal it is for this run alone, which then ends: a search that goes on must not find what it
        would not have asked for.
        """
        if point not in self.trials:
            trial, found = self._run(self.full, point, self.metrics)
            if journaled:
                self.append("point", trial)
            self.trials[point] = trial
            self._keep(trial, self.rules, found, COMPARED)
            if self.tell is not None:
                self.tell(self._line(trial))
        return self.worth(self.trials[point])

    def plain(self, point: Point) -> Trial | None:
        """What was measured at the point with b = 0 and no popularity_power; None if nothing was."""
        if point in self.baselines or PLAIN not in self.rules:
            return self.baselines.get(point)
        trial, place = self.trials.get(point), self.rules.index(PLAIN)
        return trial and replace(trial, values={metric: [values[place]] for metric, values in trial.values.items()})

    def measure_plain(self, point: Point, name: str) -> float | None:
        """What the point is worth with b = 0 and no popularity_power; None if that cannot be afforded.

        ``name`` is the baseline's for which it is measured.
        """
        trial = self.plain(point)
        if trial is None:
            if not self._has_room(self.whole_budget):
                return None
            trial, found = self._run(self.full, point, self.metrics, [PLAIN])
            self.append("baseline", trial)
            self.baselines[point] = trial
            self._keep(trial, [PLAIN], found, ("EASE", "EDLAE"))
            if self.tell is not None:
                words = trial.failure or f"{self.metrics[0]} {trial.values[self.metrics[0]][0]:.4f}"
                self.tell(f"{name} to compare with: {format_parameters(point.named())}: {words}")
        return self.worth(trial)

    def best_so_far(self) -> Point | None:
        """The best point measured, or, before any was, the best one screened; None if no point gave a model."""
        for known in (self.trials, self.screened):
            best = max(known.values(), key=self.worth, default=None)
            if best is not None and best.failure is None:
                return best.point
        return None

    def best_rule(self, trial: Trial) -> int:
        """The place of the best rule of a point; of equal ones the first."""
        values = [self._sign * value for value in trial.values[self.metrics[0]]]
        return values.index(max(values))

    def _has_room(self, budget: Budget, inverses: float = 1.0) -> bool:
        """Whether the budget has room for a trial more, and for the end after it."""
        if budget.inverses is not None and self.inverses + inverses + self.end_inverses > budget.inverses:
            return False
        ahead = self._trial_seconds() * (inverses + self.end_inverses)
        return budget.seconds is None or self.spent + ahead <= budget.seconds

    def worth(self, trial: Trial) -> float:
        """What the best rule of a trial is worth, larger is better; −∞ where there is no model."""
        if trial.failure is not None:
            return -math.inf
        return self._sign * trial.values[self.metrics[0]][self.best_rule(trial)]

    def _run(
        self, trainer: Trainer, point: Point, metrics: list[str], rules: list[RuleParameters] | None = None
    ) -> tuple[Trial, list[Evaluation]]:
        wanted = self.rules if rules is None else rules
        return self.run(point, lambda: trainer.evaluate(point, wanted, metrics), metrics, trainer is self.full)

    def run(
        self, point: Point, measure: Callable[[], list[Evaluation]], metrics: list[str] | None = None, full: bool = True
    ) -> tuple[Trial, list[Evaluation]]:
        """Measure models at a point, however that is done; ``full`` if on the whole data."""
        begin, metrics = time.perf_counter(), metrics or self.metrics
        values: dict[str, list[float]] = {}
        found: list[Evaluation] = []
        failure, error = None, math.nan
        try:
            with time_compiling() as compiled:
                found = measure()
            if full:
                self._compiled += sum(compiled)
            values = {metric: [one.means[metric] for one in found] for metric in metrics}
            if not np.isfinite(list(values.values())).all():
                values, failure = {}, f"{metrics[0]} is not finite"
        except DeqlError as problem:  # such as a matrix without an inverse: the others may do
            failure = str(problem)
        if failure is None:
            best = self.best_rule(Trial(point, values, 0.0))
            error = found[best].standard_errors[metrics[0]]
        return Trial(point, values, time.perf_counter() - begin, failure, error), found

    def kept(self, kind: str, point: Point, rule: RuleParameters) -> Evaluation | None:
        """The users' values of the best of a kind, if it is this one and no earlier run measured it."""
        if kind not in self._kept:
            return None
        (_, its_point, _), its_rule, found = self._kept[kind]
        return found if (its_point, its_rule) == (point, rule) else None

    def _keep(self, trial: Trial, rules: list[RuleParameters], found: list[Evaluation], kinds: Iterable[str]) -> None:
        """Keep the best evaluation of each kind, chosen as the leaderboard orders its rows."""
        for place, one in enumerate(found if trial.failure is None else []):
            key = (-self._sign * one.means[self.metrics[0]], trial.point, place)
            for kind in kinds:
                is_first = kind not in self._kept or key < self._kept[kind][0]
                if is_first and COMPARED[kind](trial.point, rules[place]):
                    self._kept[kind] = key, rules[place], one

    def _trial_seconds(self) -> float:
        """Of a trial, as they were so far; but what was compiled for one is not compiled for the next."""
        return max(0.0, total_seconds(self.trials) - self._compiled) / len(self.trials)

    def append(self, step: str, trial: Trial, more: Mapping[str, Any] | None = None) -> None:
        """Add a trial to the journal, with what else tells it from others."""
        outcome = {"error": trial.error} if trial.failure is None else {"failure": trial.failure}
        self.journal.append({
            "step": step, **trial.point.named(), **(more or {}), "values": trial.values, "seconds": trial.seconds,
            **outcome,
        })  # fmt: skip

    def _line(self, trial: Trial) -> str:
        """A trial in words, and how far the search is."""
        done, name = len(self.trials), self.metrics[0]
        place = f"{done} of {'about ' * self.guessed}{max(self.planned, done)}" if self.planned else str(done)
        where = format_parameters(trial.point.named())
        if trial.failure is not None:
            return f"{place}: {where}: no model, {trial.failure}"
        rule = self.best_rule(trial)
        best = self._sign * max(self.worth(one) for one in self.trials.values())
        words = f"{trial.values[name][rule]:.4f} at {format_parameters(self.rules[rule])}"
        line = f"{place}: {where}: {name} {words} (best so far {best:.4f})"
        left = max(self.planned or done, done) - done
        if left > 0:
            line += f", {show_seconds((left + self.end_inverses) * self._trial_seconds())} left"
        return line
