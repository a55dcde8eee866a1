"""The search of a model that has no P to share: a walk from setting to better setting, and what it found."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deql._system.checks import check_whole
from deql._system.frames import make_frame
from deql._system.lazy import pl
from deql._system.tables import text_table
from deql.data.interactions import InteractionsLike
from deql.errors import DataError, ParameterError
from deql.evaluation.evaluator import check_metrics
from deql.evaluation.model_groups import LogCallback, model_spec
from deql.io.journal import Journal
from deql.models import Recommender
from deql.split.parts import SplitOrInteractions
from deql.tuning.budget import Budget
from deql.tuning.measured_metrics import metrics_for
from deql.tuning.model_space import Setting, model_space, setting_words
from deql.tuning.model_summary import model_grid, model_html, model_repr, model_sentences
from deql.tuning.model_trials import ModelTrials
from deql.tuning.search import spread_order
from deql.tuning.tuning_data import hold_out_validation, refit_data
from deql.tuning.walk import walk

if TYPE_CHECKING:
    import polars

__all__ = ["ModelTuning", "tune_model"]


@dataclass(frozen=True, eq=False)
class ModelTuning:
    """What the search of one model found.

    Attributes
    ----------
    model : Recommender
        The best, fitted.
    table : polars.DataFrame
        The leaderboard: a row for each setting that gave a model, best first.
    metric : str
        What decided.
    best : dict
        The first row of the leaderboard.
    error : float
        Standard error of the best value over the validation users; NaN where it is not known.
    axes : dict of str to tuple
        What was searched, and from which values.
    judged : int
        How many validation users there are.
    how : str
        Where validation data came from, in words.
    complete : bool
        False if the search was interrupted.
    fits : int
        How many models were fitted to choose.
    left_out : int
        How many settings the search would have gone on with.
    failures : list of str
        Settings that gave no model, and why.
    seconds : float
        All runs of the search together.
    journal : Path or None
    """

    model: Recommender
    table: polars.DataFrame
    metric: str
    best: dict[str, Any]
    error: float
    axes: dict[str, tuple[Any, ...]]
    judged: int
    how: str
    complete: bool
    fits: int
    left_out: int
    failures: list[str]
    seconds: float
    journal: Path | None

    @property
    def sentences(self) -> list[str]:
        """What was found in words, what to know before believing it, and where to search on."""
        return model_sentences(self)

    @property
    def spec(self) -> str:
        """The winner as it can be typed after ``deql fit -m``, ``deql compare`` and ``deql evaluate``."""
        return model_spec(self.model)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the model, in plain Python."""
        return {
            "metric": self.metric, "best": self.best, "error": self.error, "spec": self.spec,
            "sentences": self.sentences, "leaderboard": self.table.to_dicts(), "axes": self.axes,
            "judged": self.judged, "how": self.how, "complete": self.complete, "fits": self.fits,
            "left_out": self.left_out, "failures": self.failures, "seconds": self.seconds,
            "journal": None if self.journal is None else str(self.journal),
        }  # fmt: skip

    def to_frame(self, kind: str | None = None) -> Any:
        """The leaderboard as a frame; ``kind`` is polars, pandas or pyarrow, polars if not given."""
        return self.table if kind in (None, "polars") else make_frame(self.table.to_dict(as_series=False), kind)

    def __str__(self) -> str:
        grid = model_grid(self)
        return "\n".join([grid.title, text_table(grid), "", *self.sentences])

    __repr__ = model_repr
    _repr_html_ = model_html


def tune_model(
    model: Any,
    data: SplitOrInteractions,
    space: Any,
    metric: str | Sequence[str],
    budget: int | str | None,
    search: str,
    seed: int,
    journal: Path | None,
    progress: bool,
    tell: LogCallback | None,
    refit: str | InteractionsLike,
    validation: str,
) -> ModelTuning:
    """Search a model's space and fit the best; arguments are those of :func:`deql.tune`."""
    if not isinstance(model, Recommender):
        raise ParameterError(f"model must be a model such as deql.SLIM(), got {model!r}", parameter="model")
    seed = check_whole("seed", seed, least=0)
    if search not in ("walk", "grid"):
        raise ParameterError(f"search of a model must be walk or grid, got {search!r}", parameter="search")
    metrics, limit, final = metrics_for(metric), Budget.parse(budget), refit_data(data, refit)
    check_metrics([model], metrics)
    params = model.get_params()
    if params.get("checkpoint") is not None:
        raise ParameterError("a checkpoint is of one fit, and these are many: leave it out", parameter="checkpoint")
    held = hold_out_validation(data, seed, validation)
    held = held if final is None else replace(held, final=final)
    chosen = model_space(model, held.train, space)
    axes = {name: list(values) for name, values in chosen.axes.items()}
    identity = {
        "model": model_spec(chosen.model), "axes": axes, "data": held.fingerprint(), "metric": metrics,
        "search": search, "seed": seed,
    }  # fmt: skip
    with Journal(journal, identity) as log:
        execution = {"progress": progress} if "progress" in params else {}
        trials = ModelTrials(chosen, held, metrics, log, limit, execution, tell)
        complete = True
        try:
            if search == "grid":
                _measure_all(trials)
            else:
                _walk(trials)
        except KeyboardInterrupt:
            complete = False
            if trials.best is None:
                raise
            if tell is not None:
                again = "" if trials.is_done else ": fitting the best so far; Ctrl-C again leaves without it"
                tell(f"interrupted{again}")
        return _found(trials, complete)


def _measure_all(trials: ModelTrials) -> None:
    """Every setting; where a budget may end it early, they come from all over the grid."""
    settings = trials.space.settings()
    trials.planned = trials.left_out = len(settings)
    for place in spread_order(len(settings)) if trials.budget.limited else range(len(settings)):
        if trials.may_measure(settings[place]):
            trials.measure(settings[place])
            trials.left_out -= 1


def _walk(trials: ModelTrials) -> None:
    space = trials.space

    def measure(setting: Setting, here: Setting) -> float | None:
        ahead = {one for one in (setting, *space.neighbours(here)) if one not in trials.trials}
        trials.planned, trials.left_out = len(trials.trials) + len(ahead), len(ahead)
        if not trials.may_measure(setting):
            return None
        value = trials.measure(setting)
        trials.left_out -= 1
        return value

    end = walk(space.start(), lambda here: list(space.neighbours(here)), measure, trials.least_gain)
    trials.left_out = sum(one not in trials.trials for one in space.neighbours(end))


def _found(trials: ModelTrials, complete: bool) -> ModelTuning:
    """The best setting, fitted, and all that were measured."""
    best = trials.best
    failures = [
        f"{setting_words(trials.space.named(trial.setting))}: {trial.failure}"
        for trial in trials.trials.values() if trial.failure is not None
    ]  # fmt: skip
    if best is None:
        raise DataError(f"no setting gave a model, such as {failures[0]}")
    begin = time.perf_counter()
    model = trials.fitted(best.setting)
    good = [trial for trial in trials.trials.values() if trial.failure is None]
    rows = [trials.space.named(trial.setting) | trial.values for trial in sorted(good, key=trials.worth, reverse=True)]
    return ModelTuning(
        model=model, table=pl.DataFrame(rows), metric=trials.metrics[0], best=rows[0], error=best.error,
        axes=trials.space.axes, judged=best.users, how=trials.data.how, complete=complete,
        fits=len(trials.trials), left_out=trials.left_out, failures=failures,
        seconds=trials.spent + time.perf_counter() - begin, journal=trials.journal.path,
    )  # fmt: skip
