"""The state of a search: what was measured, what it cost, what is left to spend."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deql.errors import DeqlError, JournalError, ParameterError
from deql.evaluation.comparison import lower_is_better
from deql.evaluation.model_groups import Tell
from deql.io.journal import Journal
from deql.tuning.space import Point, Rule, in_words
from deql.tuning.trainer import Trainer

__all__ = ["Budget", "Outcome", "Workbench"]

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
                f"a budget is a number of inverses from 1 up or a time such as 90s, 20min or 2h, got {budget!r}"
            )
        return cls(seconds=float(found[1]) * _UNITS[found[2]])


@dataclass(frozen=True)
class Outcome:
    """What a point was found to be worth.

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


class Workbench:
    """Measures points, each of them once: what the journal has is remembered, not measured again.

    So a search that asks the same questions in the same order goes on where it was killed.

    Parameters
    ----------
    full, small : Trainer
        The whole data, and a sample of the items for a first look; None for no first looks.
    rules : sequence of Rule
    metrics : sequence of str
        The first one decides.
    journal : Journal
    budget : Budget
    tell : callable, optional
        Called with a line for each point measured.
    """

    def __init__(
        self,
        full: Trainer,
        small: Trainer | None,
        rules: Sequence[Rule],
        metrics: Sequence[str],
        journal: Journal,
        budget: Budget,
        tell: Tell | None = None,
    ) -> None:
        self.full, self.small = full, small
        self.rules, self.metrics, self.journal, self.budget = list(rules), list(metrics), journal, budget
        self.planned: int | None = None
        self.left_out = 0
        self._tell = tell
        self._sign = -1.0 if lower_is_better(metrics[0]) else 1.0
        self.looks: dict[Point, Outcome] = {}
        self.outcomes: dict[Point, Outcome] = {}
        for record in journal.records:
            known = {"look": self.looks, "point": self.outcomes}.get(record["step"])
            if known is not None:
                outcome = _outcome(record)
                if outcome is None or (outcome.failure is None and not self._is_whole(outcome, record["step"])):
                    raise JournalError(f"{journal.path} is damaged: delete it to begin again")
                known[outcome.point] = outcome

    @property
    def spent(self) -> float:
        """Seconds, all runs of the search together."""
        return _seconds(self.looks) + _seconds(self.outcomes)

    def may_look(self, point: Point) -> bool:
        """Whether a first look at the point is known or can be afforded: looks may take half of the time."""
        limit = self.budget.seconds
        return point in self.looks or not self.looks or limit is None or _seconds(self.looks) < limit / 2

    def may_measure(self, point: Point) -> bool:
        """Whether the point is known or can be afforded; one always can."""
        inverses, seconds = self.budget.inverses, self.budget.seconds
        if point in self.outcomes or not self.outcomes:
            return True
        if inverses is not None and len(self.outcomes) >= inverses:
            return False
        return seconds is None or self.spent < seconds

    def look(self, point: Point) -> float:
        """What the point is worth on the sample of items, larger is better."""
        if point not in self.looks:
            assert self.small is not None
            self.looks[point] = self._measure(self.small, point, "look", self.metrics[:1])
        return self._worth(self.looks[point])

    def measure(self, point: Point, journaled: bool = True) -> float:
        """What the point is worth, larger is better.

        Without the journal it is for this run alone, which then ends: a search that goes on must not find what it
        would not have asked for.
        """
        if point not in self.outcomes:
            self.outcomes[point] = outcome = self._measure(self.full, point, "point", self.metrics, journaled)
            if self._tell is not None:
                self._tell(self._line(outcome))
        return self._worth(self.outcomes[point])

    def best_so_far(self) -> Point | None:
        """The best point measured, or, before any was, the best by its first look; None if no point gave a model."""
        for known in (self.outcomes, self.looks):
            found = [outcome for outcome in known.values() if outcome.failure is None]
            if found:
                return max(found, key=self._worth).point
        return None

    def best_rule(self, outcome: Outcome) -> int:
        """The place of the best rule of a point; of equal ones the first."""
        values = [self._sign * value for value in outcome.values[self.metrics[0]]]
        return values.index(max(values))

    def _is_whole(self, outcome: Outcome, step: str) -> bool:
        """Whether an outcome of the journal has a value for each metric and rule."""
        metrics = self.metrics if step == "point" else self.metrics[:1]
        return all(
            len(values := outcome.values.get(metric, ())) == len(self.rules) and np.isfinite(values).all()
            for metric in metrics
        )

    def _worth(self, outcome: Outcome) -> float:
        if outcome.failure is not None:
            return float("-inf")
        return self._sign * outcome.values[self.metrics[0]][self.best_rule(outcome)]

    def _measure(
        self, trainer: Trainer, point: Point, step: str, metrics: Sequence[str], journaled: bool = True
    ) -> Outcome:
        begin = time.perf_counter()
        values: dict[str, list[float]] = {}
        failure = None
        try:
            judged = trainer.judge(point, self.rules, metrics)
            values = {metric: [one.means[metric] for one in judged] for metric in metrics}
            if not np.isfinite(list(values.values())).all():
                values, failure = {}, f"{metrics[0]} is not finite"
        except DeqlError as error:  # such as a matrix without an inverse: the others may do
            failure = str(error)
        outcome = Outcome(point, values, time.perf_counter() - begin, failure)
        if journaled:
            self.journal.append({"step": step, **point._asdict(), "values": values, "seconds": outcome.seconds}
                            | ({} if failure is None else {"failure": failure}))  # fmt: skip
        return outcome

    def _line(self, outcome: Outcome) -> str:
        """A point in words, and how far the search is."""
        done, name = len(self.outcomes), self.metrics[0]
        place = f"{done} of {self.planned}" if self.planned else str(done)
        where = in_words(outcome.point._asdict())
        if outcome.failure is not None:
            return f"{place}: {where}: no model, {outcome.failure}"
        rule = self.best_rule(outcome)
        best = self._sign * max(self._worth(one) for one in self.outcomes.values())
        words = f"{outcome.values[name][rule]:.4f} at {in_words(self.rules[rule])}"
        line = f"{place}: {where}: {name} {words} (best so far {best:.4f})"
        left = (self.planned or done) - done
        if left > 0:
            seconds = left * _seconds(self.outcomes) / done
            line += f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {seconds:.0f} s left"
        return line


def _seconds(outcomes: Mapping[Point, Outcome]) -> float:
    return sum(outcome.seconds for outcome in outcomes.values())


def _outcome(record: dict[str, Any]) -> Outcome | None:
    """What a line of the journal says; None if it makes no sense."""
    try:
        point = Point.of(record)
        values = {metric: [float(value) for value in several] for metric, several in record["values"].items()}
        return Outcome(point, values, float(record["seconds"]), record.get("failure"))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None
