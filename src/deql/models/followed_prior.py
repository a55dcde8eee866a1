"""A prior that stays as it is while P changes: its factors, P·U among them, through the steps that P took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql._system.progress import ProgressCallback
from deql.linalg.low_rank import LowRankStep
from deql.linalg.thin_product import COLUMNS_AT_ONCE
from deql.models.fitted_prior import FittedPrior
from deql.models.updated_precision import PrecisionStep
from deql.ranking.prior_term import prior_diagonal

__all__ = ["followed_prior", "followed_product"]


def followed_prior(
    before: FittedPrior,
    steps: Sequence[PrecisionStep],
    precision_diagonal: NDArray[np.float64],
    report: ProgressCallback | None,
) -> FittedPrior:
    """The prior where W₀ is as it was, but for items that went, and new ones, of which it says nothing."""
    n = len(before.left)
    columns = np.arange(before.left.shape[1])
    right: NDArray[np.float32] | None = None
    if before.right is None:  # the identity, whose columns go and come with the rows
        columns = _through_steps(np.arange(n), steps, -1)
    else:
        right = np.ascontiguousarray(_through_steps(before.right, steps, 0.0))
    left = followed_product(before.left, columns, steps, report)
    own, diagonal = (_through_steps(values, steps, 0.0) for values in (before.own, before.diagonal))
    scale = _through_steps(before.scale, steps, 1.0)
    image = scale * prior_diagonal(left, right) + diagonal * precision_diagonal
    return FittedPrior(left, right, scale, diagonal, own, image)


def _through_steps(values: NDArray[Any], steps: Sequence[PrecisionStep], new: float) -> NDArray[Any]:
    """What each item has, for the items of afterwards; new ones have ``new``."""
    for step in steps:
        if isinstance(step, int):
            values = np.concatenate([values, np.full((step, *values.shape[1:]), new, values.dtype)])
        elif not isinstance(step, LowRankStep):
            values = np.delete(values, step, axis=0)
    return values


def followed_product(
    product: NDArray[np.float32],
    columns: NDArray[np.int64],
    steps: Sequence[PrecisionStep],
    report: ProgressCallback | None,
) -> NDArray[np.float32]:
    """P·U of afterwards in some of its columns, of which −1 is one of zeros: new items have none of U's.

    A few thousand columns at a time, as those of n × n numbers take much memory.
    """
    n = len(_through_steps(np.zeros(len(product)), steps, 0.0))
    followed = np.zeros((n, len(columns)), np.float32)
    there = np.flatnonzero(columns >= 0)
    for start in range(0, len(there), COLUMNS_AT_ONCE):
        some = there[start : start + COLUMNS_AT_ONCE]
        part = np.ascontiguousarray(product[:, columns[some]], np.float32)
        for step in steps:
            part = step.thin(part) if isinstance(step, LowRankStep) else _through_steps(part, [step], 0.0)
        followed[:, some] = part
        if report is not None:
            report(start + len(some), len(there))
    return followed
