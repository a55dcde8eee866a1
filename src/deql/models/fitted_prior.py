"""What a fit leaves of a prior: P·W₀ as two thin factors, and the diagonals that rules need."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.progress import ProgressCallback
from deql.io.container import Arrays
from deql.io.model_file import refuse_infinite, vector
from deql.linalg.packed import PackedSymmetric
from deql.linalg.thin_product import thin_product
from deql.priors.feature_space import FeatureSpace
from deql.priors.prior import PriorWeights
from deql.ranking.prior_term import prior_diagonal
from deql.rules import PriorDiagonals

if TYPE_CHECKING:
    from deql.linalg.engines.torch_packed import DevicePacked

__all__ = ["FittedPrior", "beside", "product_bytes"]

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FittedPrior:
    """A prior W₀ = U·Vᵀ·diag(scale) + diag(diagonal) beside a P: P·W₀ = left·Vᵀ·diag(scale) + P·diag(diagonal).

    Attributes
    ----------
    left : ndarray of float32, n × rank
        P·U.
    right : ndarray of float32, n × rank, or None
        V; None for the identity, where ``left`` is n × n.
    scale, diagonal : ndarray of float64
        Of W₀.
    own, image : ndarray of float64
        The diagonals of W₀ and of P·W₀.
    features : FeatureSpace or None
        The features that it was made of, if it was.

    Examples
    --------
    >>> P = PackedSymmetric.from_dense(np.float32([[2, 1], [1, 2]]), tile=2)
    >>> W0 = PriorWeights(np.float32([[1], [0]]), np.float32([[1], [3]]), np.ones(2), np.zeros(2))
    >>> FittedPrior.of(W0, P).image
    array([2., 3.])
    """

    left: NDArray[np.float32]
    right: NDArray[np.float32] | None
    scale: Vector
    diagonal: Vector
    own: Vector
    image: Vector
    features: FeatureSpace | None = None

    @classmethod
    def of(
        cls,
        weights: PriorWeights,
        precision: PackedSymmetric,
        on_device: DevicePacked | None = None,
        report: ProgressCallback | None = None,
    ) -> FittedPrior:
        """The one product that a prior costs, P·U, where P is.

        Parameters
        ----------
        weights : PriorWeights
        precision : PackedSymmetric
            P in memory, or mapped from a file.
        on_device : DevicePacked, optional
            P once more, on a device, which then multiplies.
        report : callable, optional
            Called as ``report(done, total)`` while the processor multiplies.
        """
        if on_device is None:
            left = thin_product(precision, weights.left, report)
        else:
            left = on_device.thin_product(weights.left)
        return cls.of_product(weights, left, precision.diagonal())

    @classmethod
    def of_product(cls, weights: PriorWeights, product: NDArray[np.float32], precision_diagonal: Vector) -> FittedPrior:
        """As :meth:`of` gives it, with P·U and diag(P) already there."""
        left: NDArray[np.float32] = product
        right = None if weights.right is None else np.ascontiguousarray(weights.right, np.float32)
        own = weights.scale * prior_diagonal(weights.left, right) + weights.diagonal
        if weights.cold is not None and weights.cold.any():
            left, right = beside(weights.left, left, right, weights.cold, precision_diagonal)
        image = weights.scale * prior_diagonal(left, right) + weights.diagonal * precision_diagonal
        return cls(left, right, weights.scale, weights.diagonal, own, image, weights.features)

    def with_cold(self, features: csr_array, precision_diagonal: Vector) -> FittedPrior:
        """With further items that nobody has, of these features: what :meth:`of` would give with them.

        Parameters
        ----------
        features : csr_array
            Those of the new items, encoded.
        precision_diagonal : ndarray of float64
            diag(P), that of the new items too, which is 1/l2.
        """
        assert self.features is not None
        space, n, extra = self.features.with_rows(features), len(self.left), features.shape[0]
        cold = np.arange(n + extra) >= n
        own = space.weights(~cold, cold)
        rank, plain = own.left.shape[1], own.left[cold]
        by_ridge = precision_diagonal[cold].astype(np.float32)[:, None]
        left: NDArray[np.float32] = self.left
        right: NDArray[np.float32] | None = self.right
        if left.shape[1] == rank:  # there were no cold items before
            left, right = beside(own.left[:n], left, right, cold[:n], precision_diagonal[:n])
        assert right is not None
        left = np.vstack([left, np.hstack([plain * by_ridge, plain])])
        right = np.vstack([right, np.hstack([np.zeros_like(plain), plain * by_ridge])])
        scale, diagonal = own.scale[cold], own.diagonal[cold]
        more = {
            "scale": scale,
            "diagonal": diagonal,
            "own": scale * prior_diagonal(plain, plain) + diagonal,
            "image": scale * prior_diagonal(left[cold], right[cold]) + diagonal * precision_diagonal[cold],
        }
        vectors = {name: np.concatenate([getattr(self, name), more[name]]) for name in _VECTORS}
        return FittedPrior(left, right, **vectors, features=space)

    @cached_property
    def products(self) -> Vector:
        """The diagonal of left·rightᵀ, to the last bit as it is in scores."""
        return prior_diagonal(self.left, self.right)

    @cached_property
    def largest(self) -> Vector:
        """What no entry of each column of left·rightᵀ passes in size."""
        if self.right is None:
            return np.asarray(np.maximum(self.left.max(axis=0), -self.left.min(axis=0)), np.float64)
        left, right = (np.sqrt(np.einsum("ij,ij->i", one, one, dtype=np.float64)) for one in (self.left, self.right))
        return np.asarray(left.max() * right)

    @property
    def factors(self) -> tuple[NDArray[np.float32] | None, ...]:
        """What models with the same term share: how its columns are scaled is each model's own."""
        return self.left, self.right

    def to_dense(self) -> NDArray[np.float64]:
        """left·rightᵀ as a dense n × n array: for small n."""
        left = self.left.astype(np.float64)
        return left if self.right is None else left @ self.right.astype(np.float64).T

    def diagonals(self, m: float) -> PriorDiagonals:
        """What a rule must know, if so much of l2 pulls towards W₀."""
        return PriorDiagonals(m, self.own, self.image)

    def weights(
        self, gain: Vector, shift: Vector, m: float, precision_diagonal: Vector, column_scale: Vector
    ) -> tuple[Vector, Vector, Vector]:
        """From W = P·diag(gain) + diag(shift) + m·P·W₀, each column scaled, to the form that is kept.

        Parameters
        ----------
        gain, shift : ndarray of float64
            A rule's, with this prior.
        m : float
        precision_diagonal : ndarray of float64
            diag(P).
        column_scale : ndarray of float64
            What multiplies each column of W.

        Returns
        -------
        gain, shift, scale : ndarray of float64
            W = P·diag(gain) + diag(shift) + left·rightᵀ·diag(scale). The diagonal, as scores compute it, is zero
            exactly where that of the rule is.
        """
        own = ((gain * precision_diagonal + m * self.image) + shift) * column_scale
        gain, scale = (gain + m * self.diagonal) * column_scale, m * self.scale * column_scale
        return gain, own - (precision_diagonal * gain + scale * self.products), scale

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Arrays and plain facts that a model file keeps."""
        arrays: Arrays = {f"prior_{name}": getattr(self, name) for name in ("left", *_VECTORS)}
        arrays |= {} if self.right is None else {"prior_right": self.right}
        of_features: tuple[Arrays, dict[str, Any]] = ({}, {}) if self.features is None else self.features.state()
        return arrays | of_features[0], of_features[1]

    @classmethod
    def from_state(cls, arrays: Arrays, facts: dict[str, Any], n: int) -> FittedPrior:
        """What :meth:`state` gave, for n items; raises ValueError or KeyError if it is not of a prior."""
        left, right = arrays["prior_left"], arrays.get("prior_right")
        if left.ndim != 2 or left.shape != (n, n if right is None else left.shape[1]):
            raise ValueError(f"its prior has {' × '.join(map(str, left.shape))} numbers for {n} items")
        if right is not None and right.shape != left.shape:
            raise ValueError("the factors of its prior differ in shape")
        for factor in (left, right):
            if factor is not None and factor.dtype != np.float32:
                raise ValueError(f"the factors of its prior are of {factor.dtype}")
        # Of n × n numbers no more than the diagonal, which is read anyway: all of it would be read for that.
        refuse_infinite("prior's factors", *([left.diagonal()] if right is None else [left, right]))
        features = FeatureSpace.from_state(arrays, facts) if "features" in facts else None
        if features is not None and features.features.shape[0] != n:
            raise ValueError("its features and the ids of items differ in number")
        vectors = {name: vector(arrays, f"prior_{name}", n) for name in _VECTORS}
        return cls(left, right, **vectors, features=features)


def beside(
    plain: NDArray[np.float32],
    product: NDArray[np.float32],
    right: NDArray[np.float32] | None,
    cold: NDArray[np.bool_],
    precision_diagonal: Vector,
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Factors whose product is that of P·U·Vᵀ, but for cold items, whose column of A is l2 alone, U·Vᵀ/l2.

    Parameters
    ----------
    plain, product : ndarray of float32, n × rank
        U and P·U.
    right : ndarray of float32 or None
        V; None for the identity.
    cold : ndarray of bool
    precision_diagonal : ndarray of float64
        diag(P), which is 1/l2 for cold items.

    Returns
    -------
    left, right : ndarray of float32
        [P·U, U], and V's rows on the one side or the other: of twice the rank.

    Examples
    --------
    >>> U, V = np.float32([[1], [2]]), np.float32([[3], [4]])
    >>> left, right = beside(U, 10 * U, V, np.array([False, True]), np.array([0.1, 0.5]))
    >>> (left @ right.T).tolist()
    [[30.0, 2.0], [60.0, 4.0]]
    """
    by_ridge = precision_diagonal[cold].astype(np.float32)
    if right is None:
        whole = product.copy()
        whole[:, cold] = plain[:, cold] * by_ridge
        return whole, None
    rank = right.shape[1]
    sides = np.zeros((len(right), 2 * rank), np.float32)
    sides[~cold, :rank] = right[~cold]
    sides[cold, rank:] = right[cold] * by_ridge[:, None]
    return np.hstack([product, plain.astype(np.float32, copy=False)]), sides


def product_bytes(weights: PriorWeights) -> int:
    """What :meth:`FittedPrior.of` takes beside P and the weights: P·U, and with cold items factors of twice the rank.

    Examples
    --------
    >>> from dataclasses import replace
    >>> U, cold = np.zeros((1000, 64), np.float32), np.arange(1000) > 900
    >>> weights = PriorWeights(U, U, np.ones(1000), np.zeros(1000))
    >>> product_bytes(weights), product_bytes(replace(weights, cold=cold))
    (256000, 1280000)
    """
    if weights.cold is None or not weights.cold.any():
        return weights.left.nbytes
    return weights.left.nbytes * (2 if weights.right is None else 5)


_VECTORS = ("scale", "diagonal", "own", "image")
