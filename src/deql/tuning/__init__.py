"""Tuning: one inverse for each point of the space, every rule on it in one pass, chosen on validation users."""

from deql.tuning.model_tuning import ModelTuning
from deql.tuning.space import Space
from deql.tuning.tuner import forecast_tuning, tune
from deql.tuning.tuning_result import Tuning

__all__ = ["ModelTuning", "Space", "Tuning", "forecast_tuning", "tune"]
