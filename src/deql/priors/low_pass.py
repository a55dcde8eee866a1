"""The ideal low pass: what the leading eigenvectors of the items' graph keep of a history."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from deql._system.checks import check_range, check_whole
from deql.data import Interactions
from deql.errors import ParameterError
from deql.linalg.eigenvectors import leading_eigenvectors
from deql.priors.prior import Prior, PriorWeights

__all__ = ["LowPass", "LowPassBasis"]

Vector = NDArray[np.float64]

_RANK = 512


@dataclass(frozen=True, repr=False)
class LowPass(Prior):
    """W₀ = c·D^(−power_in)·V·Vᵀ·D^(power_out): the smooth part of a history on the graph of users and items.

    V are the leading eigenvectors of G = D^(−½)·Rᵀ·U⁻¹·R·D^(−½), where U and D are what each user and each item has:
    counts, or sums of absolute weights. Of the interactions they keep what many share, which is what graph filters know and
    a ridge forgets. The one number c fits R·W₀ to R best in least squares.

    Parameters
    ----------
    rank : int, optional
        How many eigenvectors; 512 if not given, or as many as the data have.
    power_in : float, default 0.5
        How much less a popular item counts as evidence.
    power_out : float, default 0.5
        How much more a popular item is recommended.

    Examples
    --------
    >>> import deql
    >>> from deql.priors import LowPass
    >>> data = deql.Interactions.from_pairs(list("aabbc"), list("xyxyz"))
    >>> LowPass(rank=2).weights(data).to_dense().round(3)
    array([[0.5, 0.5, 0. ],
           [0.5, 0.5, 0. ],
           [0. , 0. , 1. ]])
    """

    rank: int | None = None
    power_in: float = 0.5
    power_out: float = 0.5

    def __post_init__(self) -> None:
        if self.rank is not None:
            check_whole("rank", self.rank)
        check_range("power_in", self.power_in, -np.inf, np.inf)
        check_range("power_out", self.power_out, -np.inf, np.inf)

    def weights(self, data: Interactions) -> PriorWeights:
        """W₀ for the columns of the interactions."""
        return LowPassBasis.of(data, self.rank).weights(self.rank, self.power_in, self.power_out)

    @property
    def config(self) -> dict[str, Any]:
        """Its name and its parameters."""
        return {"prior": "lowpass", "rank": self.rank, "power_in": self.power_in, "power_out": self.power_out}


@dataclass(frozen=True, eq=False)
class LowPassBasis:
    """The eigenvectors of some interactions, from which every low pass of at most their rank is made.

    Attributes
    ----------
    vectors : ndarray of float32, n × k
        V, the largest eigenvalues first; rows of items that nobody has are zero.
    values : ndarray of float64
        The eigenvalues of G, from 1 down to 0.
    degrees : ndarray of float64
        The diagonal of D.
    matrix : csr_array
        R.

    Examples
    --------
    >>> import deql
    >>> data = deql.Interactions.from_pairs(list("aabbc"), list("xyxyz"))
    >>> LowPassBasis.of(data, 2).weights(1, 0.5, 0.5).left.shape
    (3, 1)
    """

    vectors: NDArray[np.float32]
    values: Vector
    degrees: Vector
    matrix: csr_array
    _inputs: dict[float, tuple[NDArray[np.float32], Vector]] = field(default_factory=dict, repr=False)
    _outputs: dict[float, Vector] = field(default_factory=dict, repr=False)
    _alike: dict[tuple[float, float], Vector] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, data: Interactions, rank: int | None = None) -> LowPassBasis:
        """The leading eigenvectors of the interactions.

        Parameters
        ----------
        data : Interactions
        rank : int, optional
            How many; 512 if not given, or as many as the data have.
        """
        size = abs(data.matrix.astype(np.float64))
        of_user, degrees = size.sum(axis=1), size.sum(axis=0)
        most = min(np.count_nonzero(of_user), np.count_nonzero(degrees))
        if rank is not None and rank > most:
            raise ParameterError(
                f"the low pass has rank {rank:,}, and the data have {most:,} eigenvectors, the lesser of the users and of "
                "the items with interactions: choose a lower rank",
                parameter="rank",
            )
        half = diags_array(_power(of_user, -0.5)) @ data.matrix @ diags_array(_power(degrees, -0.5))
        found = leading_eigenvectors(csr_array(half), min(_RANK, most) if rank is None else rank)
        return cls(found.vectors, found.values, degrees, data.matrix)

    @property
    def rank(self) -> int:
        """How many eigenvectors there are."""
        return self.vectors.shape[1]

    def weights(self, rank: int | None, power_in: float, power_out: float) -> PriorWeights:
        """The low pass of the first eigenvectors.

        Cheap once any low pass with this ``power_in`` was made right before, whatever its rank.

        Parameters
        ----------
        rank : int or None
            At most as many as were asked for; all if None.
        power_in, power_out : float
        """
        V = self.vectors[:, :rank]
        left, scale = self._scaled(V, -power_in), _power(self.degrees, power_out)
        return PriorWeights(left, V, self._fit(V.shape[1], power_in, power_out) * scale, np.zeros(len(V)))

    def _fit(self, rank: int, power_in: float, power_out: float) -> float:
        """c = ⟨R, R·W₀⟩ / ‖R·W₀‖², with ⟨R, R·W₀⟩ = Σ_j (D^out·v_j)ᵀ·S·D^(−in)·v_j."""
        if power_in not in self._inputs:
            left = self._scaled(self.vectors, -power_in)
            image = np.asarray(self.matrix.T @ (self.matrix @ left), dtype=np.float32)
            self._inputs[power_in] = image, (left.T @ image).astype(np.float64)
        image, energy = self._inputs[power_in]
        if power_out not in self._outputs:
            right = self._scaled(self.vectors, power_out)
            self._outputs[power_out] = (right.T @ right).astype(np.float64)
        if (power_in, power_out) not in self._alike:
            right = self._scaled(self.vectors, power_out)
            self._alike[power_in, power_out] = np.einsum("ij,ij->j", right, image, dtype=np.float64)
        alike = self._alike[power_in, power_out][:rank].sum()
        squared = float((energy[:rank, :rank] * self._outputs[power_out][:rank, :rank]).sum())
        return float(alike / squared) if squared > 0 else 0.0

    def _scaled(self, vectors: NDArray[np.float32], power: float) -> NDArray[np.float32]:
        return np.asarray(_power(self.degrees, power)[:, None] * vectors, dtype=np.float32)


def _power(degrees: Vector, power: float) -> Vector:
    """degrees^power, and 0 where nobody has the item or the user has nothing."""
    raised: Vector = np.power(degrees, power, out=np.zeros_like(degrees), where=degrees > 0)
    return raised
