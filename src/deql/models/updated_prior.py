"""A prior's factors after an update of P."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql._system.progress import Stage
from deql.data.changes import DataChange
from deql.errors import ParameterError
from deql.linalg.low_rank import LowRankStep
from deql.models.fitted_prior import FittedPrior
from deql.models.updatable import Updatable

__all__ = ["updated_prior"]


def updated_prior(
    model: Updatable,
    updated: Updatable,
    change: DataChange,
    steps: Sequence[LowRankStep | int | NDArray[np.int64]],
    prior: Any,
    stage: Stage,
) -> FittedPrior | None:
    """The prior of a model after an update.

    Parameters
    ----------
    model, updated : models
        Before, and as far as it is done: with P and the items of afterwards.
    change : DataChange
    steps : sequence
        What became of P, in order: columns that went (an array), a number of new ones, or a low-rank step.
    prior : Prior or None
        Given once more.
    stage : callable
        Opens a progress bar.
    """
    if model.prior_ is None:
        return None
    raise ParameterError("a model with a prior cannot be updated")
