"""One trial: a point, fitted and evaluated, as it stands in the journal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from deql.tuning.space import Point

__all__ = ["TIE", "Trial", "is_whole", "read_trial", "tie", "total_seconds"]

TIE = 0.1
"""Of the metric's standard error over users: a gain below it is a tie.

Neighbours have most users' lists in common, so that their difference has a standard error of its own, of 0.1 to 0.4 of
that of the metric itself: this is no more than one of those.
"""


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
    error : float
        Standard error of the metric that decides, of the best rule; NaN where it is not known.
    """

    point: Point
    values: dict[str, list[float]]
    seconds: float
    failure: str | None = None
    error: float = math.nan


def tie(error: float) -> float:
    """What another trial must be better by to count as better, by the standard error of this one."""
    return 0.0 if math.isnan(error) else TIE * error


def total_seconds(trials: Mapping[Any, Trial]) -> float:
    """What all of them took."""
    return sum(trial.seconds for trial in trials.values())


def is_whole(trial: Trial, metrics: list[str], rules: int) -> bool:
    """Whether a trial of the journal has a value for each metric and rule."""
    return all(len(values := trial.values.get(metric, ())) == rules and np.isfinite(values).all() for metric in metrics)


def read_trial(record: dict[str, Any]) -> Trial | None:
    """What a line of the journal says; None if it makes no sense."""
    try:
        point = Point.of(record)
        values = {metric: [float(value) for value in several] for metric, several in record["values"].items()}
        error = record.get("error")  # which journals of earlier versions have not
        return Trial(
            point, values, float(record["seconds"]), record.get("failure"), math.nan if error is None else float(error)
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None
