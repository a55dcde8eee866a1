"""DEQL of low rank: for so many items that n² numbers are too many."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql._system.checks import check_range, check_whole, chosen_rank
from deql._system.machine import check_fits, free_memory
from deql._system.progress import stages
from deql._system.threads import blas_limited
from deql.data import Interactions
from deql.errors import NotPositiveDefiniteError, ParameterError, name_some
from deql.io.model_file import fact, vector
from deql.linalg.gram import check_size, check_solvable_without_ridge, gram, user_weights, weighted_diagonal
from deql.linalg.sparse_product import CHUNK_BYTES, GramOperator
from deql.models.lowrank.solver import solve_dense, solve_operators
from deql.models.stored import FactoredAutoencoder
from deql.rules import ridge_of_gram

__all__ = ["LowRankDEQL"]

_DENSE_ITEMS = 1500
"""Up to so many items the dense solution takes a second or so."""

_MOST_ITERATIONS = 100

_MOST_L2 = 1e18
"""Its square must be well within float32."""


@dataclass(eq=False, repr=False)
class LowRankDEQL(FactoredAutoencoder):
    """The best weights of a given rank under the loss of DEQL with a = b (Theorem D.1 of the paper).

    W = left_·right_ᵀ has 2·n·rank numbers, and nothing larger is ever held: a million items fit where
    n² numbers would not. Its diagonal is free.

    Parameters
    ----------
    rank : int, optional
        How many directions W has; 256 if not given, or as many as there are items if those are fewer.
    l2 : float, default 60
        Ridge as the Gram matrix sees it: what is added to its diagonal, λ/(1−p)² of the paper's λ.
    dropout : float, default 0.3
        Share of a user's items that training hides, from 0 to below 1; p in the paper.
    user_power : float, default 0
        Above 0, users with many items count for less: user u weighs |u|^(−γ) in the Gram matrix, with γ this.
    solver : {"auto", "dense", "sparse"}, default "auto"
        ``"dense"`` is exact and takes n² numbers and n³ time. ``"sparse"`` comes as close to the smallest loss as
        ``tolerance`` says with sparse products alone. ``"auto"`` is dense for few items; ``solver_`` says which ran.
    tolerance : float, default 1e-4
        About how far above the smallest loss the sparse solver may stop, as a share of it. It goes by the trend of the
        last iterations.

    Attributes
    ----------
    left_, right_ : ndarray of float32, n × rank
        W = left_·right_ᵀ.
    loss_ : float
        The expected loss of W with its ridge, before the popularity power.
    captured_ : ndarray of float64
        What each of the rank directions takes off the loss.
    iterations_ : int
        Of the sparse solver.
    solver_ : {"dense", "sparse"}
        The solver that ran.

    Examples
    --------
    >>> import numpy as np, deql
    >>> from scipy.sparse import csr_array
    >>> R = csr_array(np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]]))
    >>> deql.LowRankDEQL(rank=1, l2=1.0, dropout=0.0).fit(R).weights().round(2)
    array([[0.21, 0.3 , 0.21],
           [0.3 , 0.43, 0.3 ],
           [0.21, 0.3 , 0.21]], dtype=float32)
    """

    rank: int | None = None
    l2: float = 60.0
    dropout: float = 0.3
    user_power: float = field(default=0.0, kw_only=True)
    solver: str = field(default="auto", kw_only=True)
    tolerance: float = field(default=1e-4, kw_only=True)

    @classmethod
    def from_paper(cls, rank: int, lam: float, p: float, a: float = 1.0, b: float = 1.0, **other: Any) -> LowRankDEQL:
        """The model for the paper's own parameters λ, p and a = b.

        Examples
        --------
        >>> import deql
        >>> deql.LowRankDEQL.from_paper(8, lam=10.0, p=0.5).l2
        40.0
        """
        check_range("lam", lam, 0.0, np.inf)
        check_range("p", p, 0.0, 1.0, below=True)
        check_range("a", a, 0.0, np.inf)
        check_range("b", b, 0.0, np.inf)
        if a == b == 0:
            raise ParameterError("the loss is empty at a = b = 0: neither dropped nor kept entries count")
        _check_emphasis(b / a if a > 0 else np.inf)
        ridge = ridge_of_gram(lam, p, a, b) if a**2 > 0 else np.inf
        return cls(rank, ridge, p, **other)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.rank is not None:
            check_whole("rank", self.rank)
        check_range("l2", self.l2, 0.0, np.inf)
        if self.l2 > _MOST_L2:
            raise ParameterError(f"l2 must be at most {_MOST_L2:g}, got {self.l2:g}", parameter="l2")
        check_range("dropout", self.dropout, 0.0, 1.0, below=True)
        check_range("user_power", self.user_power, -np.inf, np.inf)
        check_range("tolerance", self.tolerance, 0.0, 1.0)
        if self.solver not in ("auto", "dense", "sparse"):
            raise ParameterError(f"solver must be auto, dense or sparse, got {self.solver!r}", parameter="solver")

    def _learn(self, data: Interactions) -> None:
        rank = chosen_rank(self.rank, data.n_items)
        weights = user_weights(data.matrix, self.user_power)
        diagonal = weighted_diagonal(data.matrix, weights)
        check_size(data, diagonal / (1.0 - self.dropout), np.float32)
        if self.l2 == 0:
            check_solvable_without_ridge(data, diagonal, self.dropout)
        added = self.dropout / (1.0 - self.dropout) * diagonal + self.l2
        dense = self.solver == "dense" or (self.solver == "auto" and data.n_items <= _DENSE_ITEMS)
        if not dense and not self.l2 and not self.dropout:
            raise ParameterError(
                "the sparse solver needs l2 or dropout above 0, or A may be singular unseen", parameter="solver"
            )
        _check_memory(dense, data.n_items, rank)
        with stages(self.progress) as stage, blas_limited():
            if dense:
                S = gram(data.matrix, weights=weights, dtype=np.float64).to_dense()
                try:
                    found = solve_dense(S, added, rank)
                except NotPositiveDefiniteError as error:
                    raise NotPositiveDefiniteError(
                        f"item {name_some(data.items[error.indices])} follows from the items before it, so without a "
                        "ridge there is no solution: set l2 above 0",
                        error.indices,
                    ) from None
            else:
                found = solve_operators(
                    GramOperator(data.matrix, weights if self.user_power else None), diagonal, added, rank,
                    tolerance=self.tolerance, max_iterations=_MOST_ITERATIONS, report=stage("Low rank"),
                )  # fmt: skip
        if not found.settled:
            warnings.warn(
                f"the loss was still falling after {_MOST_ITERATIONS} iterations: raise l2 or tolerance", stacklevel=4
            )
        self.solver_ = "dense" if dense else "sparse"
        self.loss_, self.captured_, self.iterations_ = found.loss, found.captured, found.iterations
        self._keep(found.basis, found.image / found.image.dtype.type(1.0 - self.dropout))

    @classmethod
    def _from_config(cls, config: dict[str, Any]) -> dict[str, Any]:
        # In files of version 0.1 the solver was called an engine, and there was a b, which could only be 1.
        config.pop("b", None)
        return config if "engine" not in config else config | {"solver": config.pop("engine")}

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays, facts = super()._state()
        return arrays | {"captured": self.captured_}, facts | {
            "loss": self.loss_, "iterations": self.iterations_, "engine": self.solver_,
        }  # fmt: skip

    def _restore(self, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        super()._restore(arrays, facts)
        self.captured_ = vector(arrays, "captured", self.left_.shape[1])
        self.loss_, self.iterations_ = fact(facts, "loss", float), fact(facts, "iterations", int)
        self.solver_ = str(facts["engine"])


def _check_memory(dense: bool, n: int, rank: int) -> None:
    # Six matrices of float64, or B, S·B and their copies in float32 with what is worked on at once.
    needed, free = 48 * n**2 if dense else 17 * n * rank + min(CHUNK_BYTES, 64 * 7 * 4 * n), free_memory()
    advice = "use solver='sparse'" if dense else "choose a lower rank"
    check_fits(f"rank {rank:,} of {n:,} items", needed, free, advice)


def _check_emphasis(ratio: float) -> None:
    if not np.isclose(ratio, 1.0, rtol=1e-12):
        raise ParameterError(
            f"a low rank needs b = a, got b/a = {ratio:g}: otherwise the quadratic form differs from item to item "
            "(Lemma 3.2) and no closed form is known; use DEQL for any b at full rank",
            parameter="b",
        )
