"""What a fit leaves of a prior where P has some entries alone: as many of P·W₀, and the diagonals that rules need."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql.io.container import Arrays
from deql.io.model_file import vector
from deql.linalg.sparse_precision import SparsePrecision
from deql.priors.feature_space import FeatureSpace
from deql.priors.prior import PriorWeights
from deql.ranking.prior_term import prior_diagonal
from deql.rules import PriorDiagonals

__all__ = ["SparsePrior"]

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SparsePrior:
    """A prior W₀ whose product with P is E, the ``images`` of a sparse P: what
    :class:`~deql.models.fitted_prior.FittedPrior` is for a whole one.

    Attributes
    ----------
    precision : SparsePrecision
        C and E.
    own : ndarray of float64
        The diagonal of W₀.
    features : FeatureSpace or None
        The features that it was made of, if it was.
    """

    precision: SparsePrecision
    own: Vector
    features: FeatureSpace | None = None

    @classmethod
    def of(cls, weights: PriorWeights, precision: SparsePrecision) -> SparsePrior:
        """What an engine has left of these weights, beside a P with their images."""
        if precision.images is None:
            raise TypeError("the engine left no images of the prior that it was given")
        right = None if weights.right is None else np.ascontiguousarray(weights.right, np.float32)
        own = weights.scale * prior_diagonal(weights.left, right) + weights.diagonal
        return cls(precision, own, weights.features)

    @cached_property
    def products(self) -> Vector:
        """The diagonal of E, to the last bit as it is in scores."""
        return self.precision.image_diagonal()

    @property
    def largest(self) -> float:
        """What no entry of E passes in size."""
        return self.precision.largest_image

    @property
    def factors(self) -> tuple[NDArray[Any] | None, ...]:
        """What models with the same term share."""
        return (self.precision.images,)

    def to_dense(self) -> NDArray[np.float64]:
        """E as a dense n × n array: for small n."""
        return self.precision.images_to_dense().astype(np.float64)

    def diagonals(self, m: float) -> PriorDiagonals:
        """What a rule must know, if so much of l2 pulls towards W₀."""
        return PriorDiagonals(m, self.own, self.products)

    def weights(
        self, gain: Vector, shift: Vector, m: float, precision_diagonal: Vector, column_scale: Vector
    ) -> tuple[Vector, Vector, Vector]:
        """From W = C·diag(gain) + diag(shift) + m·E, each column scaled, to the form that is kept.

        The diagonal, as scores compute it, is zero exactly where that of the rule is.
        """
        own = ((gain * precision_diagonal + m * self.products) + shift) * column_scale
        gain, scale = gain * column_scale, m * column_scale
        return gain, own - (precision_diagonal * gain + scale * self.products), scale

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Arrays and plain facts that a model file keeps."""
        of_features: tuple[Arrays, dict[str, Any]] = ({}, {}) if self.features is None else self.features.state()
        arrays: Arrays = {"prior_images": np.asarray(self.precision.images), "prior_own": self.own}
        return arrays | of_features[0], of_features[1]

    @classmethod
    def from_state(cls, arrays: Arrays, facts: dict[str, Any], precision: SparsePrecision) -> SparsePrior:
        """What :meth:`state` gave, beside a P that has its images; raises ValueError or KeyError if it is none."""
        if precision.images is None:
            raise KeyError("prior_images")
        features = FeatureSpace.from_state(arrays, facts) if "features" in facts else None
        if features is not None and features.features.shape[0] != precision.n:
            raise ValueError("its features and the ids of items differ in number")
        return cls(precision, vector(arrays, "prior_own", precision.n), features)
