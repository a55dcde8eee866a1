"""SLIM: sparse, non-negative weights by coordinate descent."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Self

import numpy as np
from scipy.sparse import csc_array

from deql._system.checks import check_range, check_whole
from deql._system.progress import stages
from deql.data import Interactions
from deql.data.partitions import TrainingData
from deql.errors import DataError
from deql.linalg.gram import check_size, user_weights, weighted_diagonal
from deql.linalg.sparse_gram import sparse_gram
from deql.models.slim.coordinate_descent import descend
from deql.models.stored import ExplicitAutoencoder
from deql.rules import popularity_scale

__all__ = ["SLIM"]


@dataclass(eq=False, repr=False)
class SLIM(ExplicitAutoencoder):
    """Regression of each item on the others with non-negative weights, most of them zero.

    Column j of W is the w ≥ 0 with w_j = 0 that minimises ½wᵀSw − S_jᵀw + ½·l2·‖w‖² + l1·‖w‖₁, where S = RᵀΛR is kept
    sparse. That is scikit-learn's ``ElasticNet(alpha, l1_ratio, positive=True, fit_intercept=False)`` on the other
    columns with alpha·l1_ratio·m = l1 and alpha·(1 − l1_ratio)·m = l2 for m users.

    Parameters
    ----------
    l1 : float, default 0.1
        How sparse the weights are: the penalty on their sum. Two items of binary data that at most l1 users share never
        have a weight.
    l2 : float, default 10
        Regularisation: the larger, the smaller the weights, and the more even; a ridge on the Gram matrix.
    user_power : float, default 0
        Above 0, users with many items count for less: user u weighs |u|^(−γ) in the Gram matrix, with γ this.
    tolerance : float, default 1e-8
        How exact the weights are: a column is done when none of them, moved alone, would move further. Where values of
        items differ by many powers of ten, so do weights: scale them first.
    max_sweeps : int, default 10,000
        Most sweeps of coordinate descent for one column.
    warm_start : bool, default False
        Start from the weights of the fit before, for the items that were there already. The result is the same, to
        the tolerance.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> import deql
    >>> R = csr_array(np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]]))
    >>> deql.SLIM(l1=0.5, l2=1.0).fit(R).weights().round(3)
    array([[0.   , 0.375, 0.   ],
           [0.375, 0.   , 0.375],
           [0.   , 0.375, 0.   ]], dtype=float32)
    """

    l1: float = 0.1
    l2: float = 10.0
    user_power: float = field(default=0.0, kw_only=True)
    tolerance: float = field(default=1e-8, kw_only=True)
    max_sweeps: int = field(default=10_000, kw_only=True)
    warm_start: bool = field(default=False, kw_only=True)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in ("l1", "l2", "tolerance"):
            check_range(name, getattr(self, name), 0.0, np.inf)
        check_range("user_power", self.user_power, -np.inf, np.inf)
        check_whole("max_sweeps", self.max_sweeps)

    def _fit(self, data: TrainingData, learn: Callable[..., None]) -> Self:
        start = self._start(data) if self.warm_start and hasattr(self, "weights_") else None
        return super()._fit(data, partial(learn, start=start))

    def _start(self, data: TrainingData) -> csc_array:
        """The weights of the fit before, of the items in ``data`` and in their order."""
        scale = popularity_scale(self.item_counts_, self.fitted_params_["popularity_power"])
        before = csc_array(self.weights_, dtype=np.float64, copy=True)
        with np.errstate(divide="ignore", over="ignore"):
            before.data /= np.repeat(scale, np.diff(before.indptr))
        before.data[~np.isfinite(before.data)] = 0.0
        index = self._item_index
        there, now = (
            np.array(
                [(index[item], column) for column, item in enumerate(data.items.tolist()) if item in index], np.int64
            )
            .reshape(-1, 2)
            .T
        )
        entries = before[there][:, there].tocoo()
        return csc_array((entries.data, (now[entries.row], now[entries.col])), shape=(data.n_items, data.n_items))

    def _learn(self, data: Interactions, start: csc_array | None = None) -> None:
        with stages(self.progress) as stage:
            weights = user_weights(data.matrix, self.user_power)
            check_size(data, weighted_diagonal(data.matrix, weights), np.float64)
            S = sparse_gram(data.matrix, weights)
            found = descend(
                S, self.l1, self.l2,
                tolerance=self.tolerance, max_sweeps=min(self.max_sweeps, 2**62), start=start, report=stage("Descent"),
            )  # fmt: skip
        if found.unfinished:
            warnings.warn(
                f"{found.unfinished:,} of {data.n_items:,} columns of SLIM still moved after {self.max_sweeps:,} "
                "sweeps; set l2, tolerance or max_sweeps higher",
                stacklevel=5,
            )
        if not found.weights.nnz:
            S.setdiag(0.0)
            most = S.data.max()
            advice = "set l1 below that" if most > 0 else "SLIM has nothing to learn from these data"
            if 0 <= self.l1 < most:
                advice = "set l2 lower"
            warnings.warn(
                f"every weight of SLIM is zero: two items have at most {most:g} in common; {advice}", stacklevel=5
            )
        with np.errstate(over="ignore"):
            W = found.weights.astype(np.float32)
        if not np.isfinite(W.data).all():
            raise DataError("items whose values differ too much in size have weights beyond float32: scale them first")
        self._keep(W)
