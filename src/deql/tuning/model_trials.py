"""Settings of one model, each fitted and evaluated once: what the journal has is remembered, not measured again."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from deql._system.formatting import as_json, show_seconds
from deql.errors import DeqlError, DeviceError, JournalError, TooLargeError
from deql.evaluation import evaluate
from deql.evaluation.model_groups import LogCallback
from deql.io.journal import Journal
from deql.metrics import lower_is_better
from deql.models import Recommender
from deql.tuning.budget import Budget
from deql.tuning.model_space import ModelSpace, Setting
from deql.tuning.trial import tie
from deql.tuning.tuning_data import TuningData

__all__ = ["ModelTrial", "ModelTrials", "words_of"]


@dataclass(frozen=True)
class ModelTrial:
    """A setting, and how good the model is.

    Attributes
    ----------
    setting : tuple
    values : dict of str to float
        For each metric its mean over the validation users; empty if there is no model.
    seconds : float
    users : int
        How many were evaluated.
    error : float
        Standard error of the metric that decides; NaN where it is not known.
    failure : str or None
        Why there is no model.
    """

    setting: Setting
    values: dict[str, float]
    seconds: float
    users: int = 0
    error: float = math.nan
    failure: str | None = None


@dataclass(eq=False)
class ModelTrials:
    """Runs trials, and keeps the best model of this run.

    Attributes
    ----------
    space : ModelSpace
    data : TuningData
    metrics : list of str
        The first one decides.
    journal : Journal
    budget : Budget
    execution : dict
        Parameters of how a model is fitted, such as its progress.
    tell : callable or None
        The log callback: called with a line for each trial.
    trials : dict of tuple to ModelTrial
        What was measured, by setting.
    planned : int or None
        How many trials there will be at most, as far as can be seen.
    left_out : int
        How many settings were still to be measured.
    """

    space: ModelSpace
    data: TuningData
    metrics: list[str]
    journal: Journal
    budget: Budget
    execution: dict[str, Any] = field(default_factory=dict)
    tell: LogCallback | None = None

    def __post_init__(self) -> None:
        self.trials: dict[Setting, ModelTrial] = {}
        self.planned: int | None = None
        self.left_out = 0
        self._best: tuple[Setting, Recommender] | None = None
        self._sign = -1.0 if lower_is_better(self.metrics[0]) else 1.0
        by_name = {_key(self.space.named(setting)): setting for setting in self.space.settings()}
        for record in self.journal.records:
            trial = _read(record, by_name, self.metrics)
            if trial is None:
                raise JournalError(f"{self.journal.path} is damaged: delete it to begin again")
            self.trials[trial.setting] = trial

    @property
    def spent(self) -> float:
        """Seconds, all runs of the search together."""
        return sum(trial.seconds for trial in self.trials.values())

    @property
    def end_fits(self) -> int:
        """Whether the best is fitted once more: on all data, if the search had to hold some out."""
        return int(self.data.final is not self.data.train)

    def may_measure(self, setting: Setting) -> bool:
        """Whether a setting is measured or can be afforded, and the end after it; one always can."""
        done, budget = len(self.trials), self.budget
        if setting in self.trials or not done:
            return True
        if budget.inverses is not None:
            return done + 1 + self.end_fits <= budget.inverses
        return budget.seconds is None or self.spent * (done + 1 + self.end_fits) / done <= budget.seconds

    def measure(self, setting: Setting) -> float:
        """What a setting is worth, larger is better; −∞ where there is no model."""
        if setting not in self.trials:
            trial, model = self._run(setting)
            good = {"users": trial.users, "error": trial.error}
            self.journal.append({
                "step": "fit", "parameters": self.space.named(setting), "values": trial.values,
                "seconds": trial.seconds, **(good if trial.failure is None else {"failure": trial.failure}),
            })  # fmt: skip
            self.trials[setting] = trial
            if model is not None and self.best is trial:
                self._best = setting, model
            if self.tell is not None:
                self.tell(self._line(trial))
        return self.worth(self.trials[setting])

    def worth(self, trial: ModelTrial) -> float:
        """Larger is better; −∞ where there is no model."""
        return -math.inf if trial.failure is not None else self._sign * trial.values[self.metrics[0]]

    def least_gain(self, setting: Setting) -> float:
        """What another setting must be better by to count as better."""
        return tie(self.trials[setting].error)

    @property
    def best(self) -> ModelTrial | None:
        """The best so far, of equal ones the first; None if none gave a model."""
        found = max(self.trials.values(), key=self.worth, default=None)
        return None if found is None or found.failure is not None else found

    def fitted(self, setting: Setting) -> Recommender:
        """The model of a setting, fitted on all that it may learn from."""
        if not self.end_fits and self._best is not None and self._best[0] == setting:
            return self._best[1]
        self._best = None
        return self.space.configured(setting, **self.execution).fit(self.data.final)

    def _run(self, setting: Setting) -> tuple[ModelTrial, Recommender | None]:
        begin = time.perf_counter()
        model = self.space.configured(setting, **self.execution)
        try:
            model.fit(self.data.train)
            found = evaluate(model, self.data.validation, self.metrics)
        except (DeviceError, TooLargeError):  # such as no torch: the others will not do either
            raise
        except DeqlError as problem:
            return ModelTrial(setting, {}, time.perf_counter() - begin, failure=str(problem)), None
        seconds = time.perf_counter() - begin
        if not np.isfinite(list(found.means.values())).all():
            return ModelTrial(setting, {}, seconds, failure=f"{self.metrics[0]} is not finite"), None
        error = found.standard_errors[self.metrics[0]]
        return ModelTrial(setting, found.means, seconds, len(found.users), error), model

    def _line(self, trial: ModelTrial) -> str:
        """A trial in words, and how far the search is."""
        done, name = len(self.trials), self.metrics[0]
        most = max(self.planned or done, done)
        where = f"{done} of {most}" if self.planned else str(done)
        words = f"{where}: {words_of(self.space.named(trial.setting))}: "
        if trial.failure is not None:
            return f"{words}no model, {trial.failure}"
        assert self.best is not None
        words += f"{name} {trial.values[name]:.4f} (best so far {self.best.values[name]:.4f})"
        # The first one may load and compile, so that the mean would say too much.
        ahead = (most - done + self.end_fits) * median(trial.seconds for trial in self.trials.values())
        return f"{words}, {show_seconds(ahead)} left at most" if most > done else words


def words_of(named: Mapping[str, Any]) -> str:
    """Values by parameter, as people type them.

    Examples
    --------
    >>> words_of({"learning_rate": 0.01, "backbone": "mf"})
    'learning_rate=0.01 backbone=mf'
    """
    return " ".join(
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in named.items()
    )


def _key(named: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells a setting in a journal, where numbers may have lost their type."""
    return tuple(sorted((name, as_json({"": value})[""]) for name, value in named.items()))


def _read(record: dict[str, Any], settings: Mapping[Any, Setting], metrics: list[str]) -> ModelTrial | None:
    """What a line of the journal says; None if it makes no sense."""
    try:
        setting, failure, error = settings[_key(record["parameters"])], record.get("failure"), record.get("error")
        users = 0 if failure else int(record["users"])
        values = {name: float(record["values"][name]) for name in ([] if failure else metrics)}
        if record["step"] != "fit" or not np.isfinite(list(values.values())).all():
            return None
        return ModelTrial(
            setting, values, float(record["seconds"]), users, math.nan if error is None else error, failure
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None
