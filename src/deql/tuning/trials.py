"""Trials: what was measured, what it cost, what is left of the budget."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from deql.errors import DeqlError, JournalError, ParameterError
from deql.evaluation.model_groups import LogCallback
from deql.io.journal import Journal
from deql.metrics import lower_is_better
from deql.tuning.space import Point, RuleParameters, format_parameters
from deql.tuning.trainer import Trainer

__all__ = ["Budget", "Trial", "TrialStore"]

_UNITS = {"s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Budget:
    """How much a search may cost: inverses of full size, or seconds; None is no limit."""

    inverses: int | None = None
    seconds: float | None = None

    @property
    def limited(self) -> bool:
        """Whether there is a limit at all."""
        return self.inverses is not None or self.seconds is not None

    @classmethod
    def parse(cls, budget: Any) -> Budget:
        """A number of inverses, or a time such as "20min".

        Examples
        --------
        >>> Budget.parse(20), Budget.parse("1.5h")
        (Budget(inverses=20, seconds=None), Budget(inverses=None, seconds=5400.0))
        """
        if budget is None:
            return cls()
        text = str(budget).strip().lower()
        if re.fullmatch("[1-9][0-9]*", text) and not isinstance(budget, bool):
            return cls(inverses=int(text))
        found = re.fullmatch(rf"([0-9]*\.?[0-9]+) *({'|'.join(_UNITS)})", text)
        if not found or not float(found[1]):
            raise ParameterError(
                f"a budget is a number of inverses from 1 up or a time such as 90s, 20min or 2h, got {budget!r}",
                parameter="budget",
            )
        return cls(seconds=float(found[1]) * _UNITS[found[2]])


@dataclass(frozen=True)
class Trial:
    """A point, and how good the models on its inverse are.

    Attributes
    ----------
    point : Point
    values : dict of str to list of float
        For each metric its mean over the validation users, rule by rule; empty if there is no model.
    seconds : float
    failure : str or None
        Why there is no model here.
    """

    point: Point
    values: dict[str, list[float]]
    seconds: float
    failure: str | None = None


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
    tell : callable or None
        The log callback: called with a line for each trial.
    screened, trials : dict of Point to Trial
        What was measured on the sample, and on the whole data.
    planned : int or None
        How many trials there will be, if that is known.
    left_out : int
        How many points were still to be measured.
    """

    full: Trainer
    small: Trainer | None
    rules: list[RuleParameters]
    metrics: list[str]
    journal: Journal
    budget: Budget
    tell: LogCallback | None = None

    def __post_init__(self) -> None:
        self.planned: int | None = None
        self.left_out = 0
        self._sign = -1.0 if lower_is_better(self.metrics[0]) else 1.0
        self.screened: dict[Point, Trial] = {}
        self.trials: dict[Point, Trial] = {}
        for record in self.journal.records:
            step = record["step"]
            if step in ("look", "point"):
                known, metrics = (self.screened, self.metrics[:1]) if step == "look" else (self.trials, self.metrics)
                trial = _trial(record)
                if trial is None or (trial.failure is None and not self._is_whole(trial, metrics)):
                    raise JournalError(f"{self.journal.path} is damaged: delete it to begin again")
                known[trial.point] = trial

    @property
    def spent(self) -> float:
        """Seconds, all runs of the search together."""
        return _seconds(self.screened) + _seconds(self.trials)

    def may_screen(self, point: Point) -> bool:
        """Whether the point is screened or that can be afforded: screening may take half of the time."""
        limit = self.budget.seconds
        return point in self.screened or not self.screened or limit is None or _seconds(self.screened) < limit / 2

    def may_measure(self, point: Point) -> bool:
        """Whether the point is measured or that can be afforded; one always can."""
        inverses, seconds = self.budget.inverses, self.budget.seconds
        if point in self.trials or not self.trials:
            return True
        if inverses is not None and len(self.trials) >= inverses:
            return False
        return seconds is None or self.spent < seconds

    def screen(self, point: Point) -> float:
        """What the point is worth on the sample of items, larger is better."""
        if point not in self.screened:
            assert self.small is not None
            trial = self._run(self.small, point, self.metrics[:1])
            self._append("look", trial)
            self.screened[point] = trial
        return self._worth(self.screened[point])

    def measure(self, point: Point, journaled: bool = True) -> float:
        """What the point is worth, larger is better.

        Without the journal it is for this run alone, which then ends: a search that goes on must not find what it
        would not have asked for.
        """
        if point not in self.trials:
            trial = self._run(self.full, point, self.metrics)
            if journaled:
                self._append("point", trial)
            self.trials[point] = trial
            if self.tell is not None:
                self.tell(self._line(trial))
        return self._worth(self.trials[point])

    def best_so_far(self) -> Point | None:
        """The best point measured, or, before any was, the best one screened; None if no point gave a model."""
        for known in (self.trials, self.screened):
            best = max(known.values(), key=self._worth, default=None)
            if best is not None and best.failure is None:
                return best.point
        return None

    def best_rule(self, trial: Trial) -> int:
        """The place of the best rule of a point; of equal ones the first."""
        values = [self._sign * value for value in trial.values[self.metrics[0]]]
        return values.index(max(values))

    def _is_whole(self, trial: Trial, metrics: list[str]) -> bool:
        """Whether a trial of the journal has a value for each metric and rule."""
        return all(
            len(values := trial.values.get(metric, ())) == len(self.rules) and np.isfinite(values).all()
            for metric in metrics
        )

    def _worth(self, trial: Trial) -> float:
        if trial.failure is not None:
            return -math.inf
        return self._sign * trial.values[self.metrics[0]][self.best_rule(trial)]

    def _run(self, trainer: Trainer, point: Point, metrics: list[str]) -> Trial:
        begin = time.perf_counter()
        values: dict[str, list[float]] = {}
        failure = None
        try:
            found = trainer.evaluate(point, self.rules, metrics)
            values = {metric: [one.means[metric] for one in found] for metric in metrics}
            if not np.isfinite(list(values.values())).all():
                values, failure = {}, f"{metrics[0]} is not finite"
        except DeqlError as error:  # such as a matrix without an inverse: the others may do
            failure = str(error)
        return Trial(point, values, time.perf_counter() - begin, failure)

    def _append(self, step: str, trial: Trial) -> None:
        self.journal.append({"step": step, **trial.point._asdict(), "values": trial.values, "seconds": trial.seconds}
                            | ({} if trial.failure is None else {"failure": trial.failure}))  # fmt: skip

    def _line(self, trial: Trial) -> str:
        """A trial in words, and how far the search is."""
        done, name = len(self.trials), self.metrics[0]
        place = f"{done} of {self.planned}" if self.planned else str(done)
        where = format_parameters(trial.point._asdict())
        if trial.failure is not None:
            return f"{place}: {where}: no model, {trial.failure}"
        rule = self.best_rule(trial)
        best = self._sign * max(self._worth(one) for one in self.trials.values())
        words = f"{trial.values[name][rule]:.4f} at {format_parameters(self.rules[rule])}"
        line = f"{place}: {where}: {name} {words} (best so far {best:.4f})"
        left = (self.planned or done) - done
        if left > 0:
            seconds = left * _seconds(self.trials) / done
            line += f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {seconds:.0f} s left"
        return line


def _seconds(trials: Mapping[Point, Trial]) -> float:
    return sum(trial.seconds for trial in trials.values())


def _trial(record: dict[str, Any]) -> Trial | None:
    """What a line of the journal says; None if it makes no sense."""
    try:
        point = Point.of(record)
        values = {metric: [float(value) for value in several] for metric, several in record["values"].items()}
        return Trial(point, values, float(record["seconds"]), record.get("failure"))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None
