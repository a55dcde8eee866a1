"""Fits points of the space on one training set: one Gram matrix for all l2 and dropout, one inverse for each point."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.progress import Stage, stages
from deql.data import Interactions
from deql.data.recency import faded, latest_time, written_half_life
from deql.evaluation import Evaluation, evaluate
from deql.linalg.engines.engine import Problem
from deql.linalg.gram import SharedGram, check_solvable_without_ridge, user_weights, weighted_diagonal
from deql.linalg.packed import PackedSymmetric
from deql.linalg.planner.choose import choose_engine
from deql.models import DEQL
from deql.tuning.space import Point, RuleParameters
from deql.tuning.tuning_data import TuningData

__all__ = ["Trainer"]


def make_gram(
    matrix: csr_array, weights: NDArray[np.float64] | None, dtype: str, matrices: int, stage: Stage
) -> PackedSymmetric:
    """The Gram matrix, where so many of its size would fit."""
    engine = choose_engine(matrix, dtype=dtype, matrices=matrices)
    return engine.gram(Problem(matrix, np.zeros(matrix.shape[1]), weights, dtype), stage)


class Trainer:
    """Fits points and evaluates them on the validation users.

    It keeps the Gram matrix of the user_power and half-life that were asked for last, so points with the same are best
    taken together, and the last inverse until the next is made; memory is that of the Gram matrix and one inverse.

    Parameters
    ----------
    data : TuningData
    dtype : str
    progress : bool
    weights_from : csr_array, optional
        The matrix whose users' lengths decide their weights, if not that of ``data``: the whole one, where
        ``data`` has a sample of its items.
    grams : int, default 1
        How many Gram matrices to keep.
    """

    def __init__(
        self, data: TuningData, dtype: str, progress: bool, weights_from: csr_array | None = None, grams: int = 1
    ) -> None:
        self.data = data
        self.dtype = dtype
        self.progress = progress
        self._weights_from = data.train.matrix if weights_from is None else weights_from
        self._most = grams
        self._shared: dict[tuple[float, float], SharedGram] = {}
        self._means: dict[tuple[float, float], float] = {}
        self._faded: tuple[float, Interactions] = math.inf, data.train
        self._last: tuple[Point, DEQL] | None = None

    def mean_diagonal(self, user_power: float, half_life: float = math.inf) -> float:
        """Mean of D over the items."""
        key = user_power, half_life
        if key not in self._means:
            weights = user_weights(self._weights_from, user_power)
            self._means[key] = float(weighted_diagonal(self._rows(half_life).matrix, weights).mean())
        return self._means[key]

    def model(self, point: Point) -> DEQL:
        """A model at the point, not fitted; its rule is still to be chosen."""
        l2, dropout, user_power, length = point
        half_life = written_half_life(length) if point.fades else None
        return DEQL(
            l2, dropout, user_power=user_power, half_life=half_life, dtype=self.dtype, progress=self.progress
        )  # fmt: skip

    def fit(self, point: Point) -> DEQL:
        """The model at the point, fitted."""
        if self._last is not None and self._last[0] == point:
            return self._last[1]
        self._last = None  # before the next is made: one more would need its memory too
        if point.l2 == 0 and self.data.final is not self.data.train:
            # Else the winner might turn out to have no solution on the data it is to be fitted on in the end.
            final = fade(self.data.final, point.half_life)
            diagonal = weighted_diagonal(final.matrix, user_weights(final.matrix, point.user_power))
            check_solvable_without_ridge(final, diagonal, point.dropout)
        model = self.model(point).fit_gram(self.data.train, self._gram(point.user_power, point.half_life))
        self._last = point, model
        return model

    def evaluate(self, point: Point, rules: Sequence[RuleParameters], metrics: Sequence[str]) -> list[Evaluation]:
        """Each rule at the point, in one pass over the validation users."""
        model = self.fit(point)
        return evaluate([model.with_rule(**rule) for rule in rules], self.data.validation, metrics)

    def release(self) -> None:
        """Let the Gram matrices and the last inverse go."""
        self._shared.clear()
        self._last = None

    def _rows(self, half_life: float) -> Interactions:
        """What is learned from, as it counts with a half-life."""
        if self._faded[0] != half_life:
            self._faded = half_life, fade(self.data.train, half_life)
        return self._faded[1]

    def _gram(self, user_power: float, half_life: float) -> SharedGram:
        key = user_power, half_life
        if key not in self._shared:
            if len(self._shared) == self._most:  # likewise before
                del self._shared[next(iter(self._shared))]
            matrix = self._rows(half_life).matrix
            weights = user_weights(self._weights_from, user_power)
            diagonal = weighted_diagonal(matrix, weights)
            with stages(self.progress) as stage:
                # The Gram matrices that are kept, and an inverse.
                packed = make_gram(matrix, weights if user_power else None, self.dtype, self._most + 1, stage)
            self._shared[key] = SharedGram(user_power, packed, diagonal, half_life if half_life < math.inf else None)
        return self._shared[key]


def fade(data: Interactions, half_life: float) -> Interactions:
    """The interactions as a fit sees them; as they are where the half-life is infinite."""
    return faded(data, half_life, latest_time(data)) if half_life < math.inf else data
