"""The ideal low pass: what the leading eigenvectors of the graph of users and items keep of a history."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from deql._system.checks import check_range, check_whole
from deql._system.progress import ProgressCallback
from deql.data import Interactions
from deql.data.partitions import PartitionedInteractions, TrainingData
from deql.errors import DataError, ParameterError
from deql.linalg.eigenvectors import leading_eigenvectors
from deql.linalg.sparse_product import GramOperator
from deql.linalg.tall_blocks import inner_products
from deql.priors.prior import Prior, PriorWeights

__all__ = ["LowPass", "LowPassBasis", "normalised"]

Vector = NDArray[np.float64]
Block = NDArray[np.float32]

RANK = 512
"""How many eigenvectors, if that is not said."""


@dataclass(frozen=True, repr=False)
class LowPass(Prior):
    """W₀ = c·D^(−power_in)·V·Vᵀ·D^(power_out): the smooth part of a history on the graph of users and items.

    V are the leading eigenvectors of G = D^(−½)·Rᵀ·U⁻¹·R·D^(−½), where U and D are how many interactions each user and
    each item has. They keep of a history what it shares with many others, which is what graph filters know and a ridge
    forgets. The number c makes R·W₀ fit R best in least squares. Items that nobody has get weights of zero.

    Where interactions have weights, U and D are sums of their absolute values. The eigenvalues of G are then between 0
    and 1 for weights of any size and sign, and weights twice as large make the same W₀.

    Parameters
    ----------
    rank : int, optional
        How many eigenvectors; 512 if not given, or as many as the data have. Eigenvectors of the eigenvalue 0, of which
        the data tell nothing, are left out; where eigenvalues are tied at the cut, some of them are taken, the same
        each time.
    power_in : float, default 0
        How much less a popular item counts as evidence.
    power_out : float, default 0.6
        How much more a popular item is recommended.

    Examples
    --------
    >>> import deql
    >>> from deql.priors import LowPass
    >>> data = deql.Interactions.from_pairs(list("aabbc"), list("xyxyz"))
    >>> LowPass(rank=2, power_in=0.5, power_out=0.5).weights(data).to_dense().round(3)
    array([[0.5, 0.5, 0. ],
           [0.5, 0.5, 0. ],
           [0. , 0. , 1. ]])
    """

    rank: int | None = None
    power_in: float = 0.0
    power_out: float = 0.6

    def __post_init__(self) -> None:
        if self.rank is not None:
            check_whole("rank", self.rank)
        check_range("power_in", self.power_in, -np.inf, np.inf)
        check_range("power_out", self.power_out, -np.inf, np.inf)

    def weights(
        self, data: TrainingData, *, device: str | None = None, report: ProgressCallback | None = None
    ) -> PriorWeights:
        """W₀ for the columns of the interactions."""
        if isinstance(data, PartitionedInteractions):
            raise DataError(
                "a low pass needs all interactions in memory at once: fit on data.to_interactions(), or leave it out"
            )
        basis = LowPassBasis.of(data, self.rank, device=device, report=report)
        return basis.weights(self.rank, self.power_in, self.power_out)

    @property
    def config(self) -> dict[str, Any]:
        """Its name and its parameters."""
        return {"prior": "lowpass", "rank": self.rank, "power_in": self.power_in, "power_out": self.power_out}


@dataclass(frozen=True, eq=False)
class LowPassBasis:
    """The eigenvectors of some interactions, from which every low pass of at most their rank is made.

    Attributes
    ----------
    rank : int
        How many eigenvectors were asked for.
    vectors : ndarray of float32, n × rank
        V, the largest eigenvalues first, or fewer columns if the others' are zero.
    values : ndarray of float64
        The eigenvalues of G.
    degrees : ndarray of float64
        The diagonal of D, where the largest weight counts as 1.
    matrix : csr_array
        R, its largest weight 1.

    Examples
    --------
    >>> import deql
    >>> data = deql.Interactions.from_pairs(list("aabbc"), list("xyxyz"))
    >>> basis = LowPassBasis.of(data, 2)
    >>> [basis.weights(rank, 0.5, 0.5).left.shape for rank in (1, 2)]
    [(3, 1), (3, 2)]
    """

    rank: int
    vectors: Block
    values: Vector
    degrees: Vector
    matrix: csr_array = field(repr=False)
    _image: dict[float, Block] = field(default_factory=dict, init=False, repr=False)
    _inputs: dict[float, Vector] = field(default_factory=dict, init=False, repr=False)
    _outputs: dict[float, Vector] = field(default_factory=dict, init=False, repr=False)
    _overlaps: dict[tuple[float, float], Vector] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls,
        data: Interactions,
        rank: int | None = None,
        *,
        device: str | None = None,
        report: ProgressCallback | None = None,
    ) -> LowPassBasis:
        """The leading eigenvectors of the interactions.

        Parameters
        ----------
        data : Interactions
        rank : int, optional
            How many; 512 if not given, or as many as the data have.
        device : str, optional
            Such as ``"cuda"``: where they are computed; in memory if not given.
        report : callable, optional
            Called as ``report(done, total)``.
        """
        if not data.matrix.nnz:
            raise DataError("a low pass needs interactions, and there are none")
        matrix = data.matrix.astype(np.float64)
        matrix.data /= np.abs(matrix.data).max()  # sums stay finite, and W₀ is the same
        half, degrees = normalised(matrix)
        had = np.flatnonzero(degrees)
        most = min(int(np.count_nonzero(np.diff(matrix.indptr))), len(had))
        if rank is not None and rank > most:
            raise ParameterError(
                f"rank must be at most {most:,}, the lesser of the users and the items in these data, got {rank:,}",
                parameter="rank",
            )
        half = half if len(had) == len(degrees) else csr_array(half[:, had])
        asked = min(RANK, most) if rank is None else rank
        found = leading_eigenvectors(half, asked, device=device, report=report)
        vectors = found.vectors
        if len(had) < len(degrees):
            vectors = np.zeros((len(degrees), vectors.shape[1]), np.float32)
            vectors[had] = found.vectors
        return cls(asked, vectors, found.values, degrees, matrix)

    def weights(self, rank: int | None, power_in: float, power_out: float) -> PriorWeights:
        """The low pass of the first eigenvectors.

        O(n·rank) for powers that were there before; a new ``power_out`` takes one product of V with itself, a new
        ``power_in`` also two sparse products, which are kept until the next. So loop over ``power_in`` outermost.

        Parameters
        ----------
        rank : int or None
            At most as many as were asked for, which None stands for.
        power_in, power_out : float
        """
        if rank is not None and rank > self.rank:
            raise ParameterError(f"rank must be at most {self.rank:,}, the basis's own, got {rank:,}", parameter="rank")
        V = self.vectors[:, :rank]
        with np.errstate(over="ignore", invalid="ignore"):
            left = self._scaled(-power_in)[:, :rank]
            scale = self._fit(V.shape[1], power_in, power_out) * _power(self.degrees, power_out)
        if not np.isfinite(scale).all():
            name, power = max((("power_in", power_in), ("power_out", power_out)), key=lambda one: abs(one[1]))
            raise ParameterError(
                f"{name}={power:g} makes weights that float32 cannot hold: take one nearer 0", parameter=name
            )
        return PriorWeights(np.ascontiguousarray(left), np.ascontiguousarray(V), scale, np.zeros(len(V)))

    def _fit(self, rank: int, power_in: float, power_out: float) -> float:
        """c = ⟨R, R·W₀⟩/‖R·W₀‖² of the first columns of V; NaN where a power makes them overflow, or vanish.

        With L = D^(−power_in)·V, M = D^(power_out)·V and S = RᵀR these are Σ_j (MᵀSL)_jj and Σ_jl (LᵀSL)_jl·(MᵀM)_jl.
        """
        if (power_in, power_out) not in self._overlaps:
            L, M = self._scaled(-power_in), self._scaled(power_out)
            if power_in not in self._image:
                self._image.clear()  # n × rank numbers each
                self._image[power_in] = GramOperator(self.matrix) @ L
            image = self._image[power_in]
            if power_in not in self._inputs:
                self._inputs[power_in] = inner_products(L, image)
            if power_out not in self._outputs:
                self._outputs[power_out] = inner_products(M, M)
            self._overlaps[power_in, power_out] = np.einsum("ij,ij->j", M, image, dtype=np.float64)
        first = slice(0, rank)
        squared = float((self._inputs[power_in][first, first] * self._outputs[power_out][first, first]).sum())
        return float(self._overlaps[power_in, power_out][first].sum()) / squared if 0 < squared < np.inf else np.nan

    def _scaled(self, power: float) -> Block:
        """D^power·V."""
        return _power(self.degrees, power).astype(np.float32)[:, None] * self.vectors


def normalised(matrix: csr_array) -> tuple[csr_array, Vector]:
    """U^(−½)·R·D^(−½), of which G is the Gram matrix, and the diagonal of D.

    Examples
    --------
    >>> half, degrees = normalised(csr_array([[1.0, 1.0], [0.0, -2.0]]))
    >>> degrees, half.toarray().round(3)
    (array([1., 3.]), array([[ 0.707,  0.408],
           [ 0.   , -0.816]]))
    """
    size = abs(matrix)
    of_users, degrees = np.asarray(size.sum(axis=1), np.float64), np.asarray(size.sum(axis=0), np.float64)
    return csr_array(diags_array(_power(of_users, -0.5)) @ matrix @ diags_array(_power(degrees, -0.5))), degrees


def _power(degrees: Vector, power: float) -> Vector:
    """degrees^power, and 0 where there is nothing."""
    with np.errstate(over="ignore"):
        raised: Vector = np.power(degrees, power, out=np.zeros_like(degrees), where=degrees > 0)
    return raised
