"""Fits points of the space on one training set: one Gram matrix for each user_power, one inverse for each point."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array

from deql.evaluation import Evaluation, evaluate
from deql.gram import SharedGram, gram, user_weights, weighted_diagonal
from deql.models import DEQL
from deql.models.solvable import check_solvable_without_ridge
from deql.progress import stages
from deql.tuning.ground import Ground
from deql.tuning.space import Point, Rule

__all__ = ["Trainer"]


class Trainer:
    """Fits and judges points.

    It keeps the Gram matrix of the user_power that was asked for last, so points are best taken user_power by
    user_power; memory is that of the Gram matrix and one inverse.

    Parameters
    ----------
    ground : Ground
    weighed_by : csr_array, optional
        The matrix whose users' lengths decide their weights, if not that of ``ground``: the whole one, where
        ``ground`` has a sample of its items.
    dtype : str
    progress : bool
    """

    def __init__(self, ground: Ground, dtype: str, progress: bool, weighed_by: csr_array | None = None) -> None:
        self.ground = ground
        self.dtype = dtype
        self.progress = progress
        self._weighed_by = ground.train.matrix if weighed_by is None else weighed_by
        self._shared: tuple[float, SharedGram] | None = None

    def mean_diagonal(self, user_power: float) -> float:
        """Mean of D over the items."""
        return float(weighted_diagonal(self.ground.train.matrix, user_weights(self._weighed_by, user_power)).mean())

    def fit(self, point: Point) -> DEQL:
        """A model at the point, with a b of 1."""
        l2, dropout, user_power = point
        if l2 == 0 and self.ground.final is not self.ground.train:
            # Else the winner might turn out to have no solution on the data it is to be fitted on in the end.
            final = self.ground.final
            diagonal = weighted_diagonal(final.matrix, user_weights(final.matrix, user_power))
            check_solvable_without_ridge(final, diagonal, dropout)
        model = DEQL(l2, dropout, 1.0, user_power=user_power, dtype=self.dtype, progress=self.progress)
        return model.fit_gram(self.ground.train, self._gram(user_power))

    def judge(self, point: Point, rules: Sequence[Rule], metrics: Sequence[str]) -> list[Evaluation]:
        """Each rule at the point, in one pass over the validation users."""
        model = self.fit(point)
        return evaluate([model.with_rule(**rule) for rule in rules], self.ground.validation, metrics)

    def release(self) -> None:
        """Let the Gram matrix go."""
        self._shared = None

    def _gram(self, user_power: float) -> SharedGram:
        if self._shared is None or self._shared[0] != user_power:
            self.release()  # two at once would need twice the memory
            matrix = self.ground.train.matrix
            weights = user_weights(self._weighed_by, user_power)
            with stages(self.progress) as stage:
                packed = gram(matrix, weights=weights, dtype=np.dtype(self.dtype), report=stage("Gram matrix"))
            self._shared = (user_power, SharedGram(packed, weighted_diagonal(matrix, weights)))
        return self._shared[1]
