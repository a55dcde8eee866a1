"""Features of items as a prior: what the items have in common, also of those that nobody has touched."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.checks import check_range
from deql._system.describe import short_repr
from deql.data import Interactions
from deql.errors import DataError
from deql.priors.feature_basis import ridge_basis
from deql.priors.feature_columns import learn_matrix
from deql.priors.feature_space import FeatureSpace
from deql.priors.prior import Prior, PriorWeights
from deql.priors.scaling import fitted_scale, scaled

__all__ = ["ItemFeatures"]


@dataclass(frozen=True, eq=False, repr=False)
class ItemFeatures(Prior):
    """EASE on the features of items: W₀_ji = f_jᵀ·K₋ᵢ·f_i, with K₋ᵢ = (λ·I + Σ_{h ≠ i} f_h·f_hᵀ)⁻¹."""

    table: Any
    l2: float = 1.0

    __repr__ = short_repr

    def __post_init__(self) -> None:
        check_range("l2", self.l2, 0.0, np.inf)

    def weights(self, data: Interactions) -> PriorWeights:
        """W₀ for the columns of the interactions; what nobody has is not learned from."""
        matrix = csr_array(self.table)
        if matrix.shape[0] != data.n_items:
            raise DataError(f"features of {matrix.shape[0]:,} items, in the order of {data.n_items:,}")
        warm = np.bincount(data.matrix.indices, minlength=data.n_items) > 0
        column = learn_matrix(matrix[warm])
        features = column.encode(matrix)
        space = FeatureSpace((column,), features, ridge_basis(features[warm], self.l2), 1.0)
        unscaled = feature_weights(space, warm)
        strength = fitted_scale(data.matrix, unscaled)
        return replace(scaled(unscaled, strength), features=replace(space, strength=strength))

    @property
    def config(self) -> dict[str, Any]:
        """Its name and l2; the table is not kept."""
        return {"name": "ItemFeatures", "l2": self.l2}


def feature_weights(space: FeatureSpace, learned: NDArray[np.bool_]) -> PriorWeights:
    """W₀ of a space: f_jᵀ·K·f_i/(1 − f_iᵀ·K·f_i) where the basis was learned from item i, else f_jᵀ·K·f_i."""
    factor = space.factor()
    own = np.einsum("ik,ik->i", factor, factor, dtype=np.float64)
    scale = space.strength / np.where(learned, np.maximum(1.0 - own, 1e-6), 1.0)
    return PriorWeights(factor, factor, scale, -own * scale, space)
