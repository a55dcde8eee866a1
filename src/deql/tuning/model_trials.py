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
from deql.tuning.model_space import ModelSpace, Setting, setting_words
from deql.tuning.trial import tie
from deql.tuning.tuning_data import TuningData

__all__ = ["ModelTrial", "ModelTrials"]


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
    passing : bool
        Whether that was this machine's memory or device, so that another run should try again.
    """

    setting: Setting
    values: dict[str, float]
    seconds: float
    users: int = 0
    error: float = math.nan
    failure: str | None = None
    passing: bool = False


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
    planned : int
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
        self.planned = 0
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

    @property
    def is_done(self) -> bool:
        """Whether the best is there as it is to be in the end; one that an earlier run measured is not."""
        here = self._best is not None and self.best is not None and self._best[0] == self.best.setting
        return here and not self.end_fits

    @property
    def affordable(self) -> int | None:
        """How many trials a budget of fits allows in all; None if there is none."""
        return None if self.budget.inverses is None else max(1, self.budget.inverses - self.end_fits)

    def may_measure(self, setting: Setting) -> bool:
        """Whether a setting is measured or can be afforded, and the end after it; one always can."""
        done = len(self.trials)
        if setting in self.trials or not done:
            return True
        if self.affordable is not None:
            return done < self.affordable
        seconds = self.budget.seconds
        return seconds is None or self.spent * (done + 1 + self.end_fits) / done <= seconds

    def measure(self, setting: Setting) -> float:
        """What a setting is worth, larger is better; −∞ where there is no model."""
        if setting not in self.trials:
            trial, model = self._run(setting)
            if not trial.passing:
                self._write(trial)
            self.trials[setting] = trial
            if model is not None and self.best is trial:
                self._best = setting, model
            if self.tell is not None:
                self.tell(self._line(trial))
        return self.worth(self.trials[setting])

    def _write(self, trial: ModelTrial) -> None:
        good = {"users": trial.users, "error": trial.error}
        self.journal.append({
            "step": "fit", "parameters": self.space.named(trial.setting), "values": trial.values,
            "seconds": trial.seconds, **(good if trial.failure is None else {"failure": trial.failure}),
        })  # fmt: skip

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
        if self._best is not None and self.is_done:
            return self._best[1]
        self._best = None  # before the next is made: one more would need its memory too
        if self.tell is not None:
            self.tell(f"fitting {setting_words(self.space.named(setting))}")
        return self.space.configured(setting, **self.execution).fit(self.data.final)

    def _run(self, setting: Setting) -> tuple[ModelTrial, Recommender | None]:
        begin = time.perf_counter()
        model = self.space.configured(setting, **self.execution)
        try:
            model.fit(self.data.train)
            found = evaluate(model, self.data.validation, self.metrics)
        except DeqlError as problem:
            passing = isinstance(problem, DeviceError | TooLargeError)
            if passing and self.best is None:  # such as no torch: the others will not do either
                raise
            seconds = time.perf_counter() - begin
            return ModelTrial(setting, {}, seconds, failure=str(problem), passing=passing), None
        seconds = time.perf_counter() - begin
        if not np.isfinite(list(found.means.values())).all():
            return ModelTrial(setting, {}, seconds, failure=f"{self.metrics[0]} is not finite"), None
        error = found.standard_errors[self.metrics[0]]
        return ModelTrial(setting, found.means, seconds, len(found.users), error), model

    def _line(self, trial: ModelTrial) -> str:
        """A trial in words, and how far the search is."""
        done, name = len(self.trials), self.metrics[0]
        most = max(done, min(self.planned, self.affordable or self.planned))
        where = f"{done} of {most}"
        words = f"{where}: {setting_words(self.space.named(trial.setting))}: "
        if trial.failure is not None:
            return f"{words}no model, {trial.failure}"
        assert self.best is not None
        words += f"{name} {trial.values[name]:.4f} (best so far {self.best.values[name]:.4f})"
        # The first one may load and compile, so that the mean would say too much.
        ahead = (most - done + self.end_fits) * median(trial.seconds for trial in self.trials.values())
        return f"{words}, {show_seconds(ahead)} left at most" if most > done else words


def _key(named: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells a setting in a journal, where numbers may have lost their type."""
    return tuple(sorted((name, as_json({"": value})[""]) for name, value in named.items()))


def _read(record: dict[str, Any], settings: Mapping[Any, Setting], metrics: list[str]) -> ModelTrial | None:
    """What a line of the journal says; None if it makes no sense."""
    try:
        setting, seconds, failure = settings[_key(record["parameters"])], record["seconds"], record.get("failure")
        if record["step"] != "fit" or not _is_amount(seconds):
            return None
        if failure is not None:
            return ModelTrial(setting, {}, seconds, failure=failure) if failure and isinstance(failure, str) else None
        values, users, error = {name: record["values"][name] for name in metrics}, record["users"], record.get("error")
        good = all(map(_is_number, values.values())) and (error is None or _is_amount(error))
        if not good or not isinstance(users, int) or users < 1:
            return None
        return ModelTrial(setting, values, seconds, users, math.nan if error is None else error)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _is_amount(value: Any) -> bool:
    return _is_number(value) and value >= 0
