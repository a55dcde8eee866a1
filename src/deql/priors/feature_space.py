"""Where items stand by their features: how these are encoded, and what was learned of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack, vstack

from deql.io.container import Arrays, pack_text, unpack_text
from deql.priors.feature_columns import FeatureColumn
from deql.priors.prior import PriorWeights

__all__ = ["FeatureSpace", "encode"]

_NEAREST = 1e-6
"""Least of 1 − f_iᵀ·K·f_i that rounding is not trusted with."""


def encode(columns: Sequence[FeatureColumn], raw: Mapping[str, Any]) -> csr_array:
    """The features of some rows, those of all columns beside each other; a column that is not there has none."""
    n = len(next(iter(raw.values()))) if "" not in raw else raw[""].shape[0]
    parts = [
        column.encode(raw[column.name]) if column.name in raw else csr_array((n, column.width), dtype=np.float32)
        for column in columns
    ]
    return csr_array(hstack(parts, format="csr", dtype=np.float32))


@dataclass(frozen=True, eq=False)
class FeatureSpace:
    """The features of items, F, and the basis B in which f_jᵀ·(B·Bᵀ)·f_i says how much item j says about item i.

    Attributes
    ----------
    columns : tuple of FeatureColumn
        How a table's columns become features.
    features : csr_array of float32, n × d
        F, in the order of the model's items.
    basis : ndarray of float32, d × rank
        B, with B·Bᵀ = (λ·I + FᵀF)⁻¹ over the items that it was learned from.
    strength : float
        What W₀ is multiplied by, so that it fits the interactions.
    """

    columns: tuple[FeatureColumn, ...]
    features: csr_array
    basis: NDArray[np.float32]
    strength: float

    def factor(self) -> NDArray[np.float32]:
        """F·B: an item's row is what it has in common with others in."""
        return np.asarray(self.features @ self.basis, np.float32)

    def weights(self, learned: NDArray[np.bool_], cold: NDArray[np.bool_] | None = None) -> PriorWeights:
        """W₀_ji = c·f_jᵀ·K₋ᵢ·f_i, where K = B·Bᵀ without item i: by Sherman and Morrison f_jᵀ·K·f_i/(1 − f_iᵀ·K·f_i).

        Parameters
        ----------
        learned : ndarray of bool
            Which items the basis was learned from; for the others K is without them already.
        cold : ndarray of bool, optional
            Which items nobody has.
        """
        factor = self.factor()
        own = np.einsum("ik,ik->i", factor, factor, dtype=np.float64)
        scale = self.strength / np.where(learned, np.maximum(1.0 - own, _NEAREST), 1.0)
        return PriorWeights(factor, factor, scale, -own * scale, self, cold)

    def with_rows(self, features: csr_array) -> FeatureSpace:
        """The same space with further items."""
        return replace(self, features=csr_array(vstack([self.features, features], format="csr", dtype=np.float32)))

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Arrays and plain facts that a model file keeps."""
        arrays: Arrays = {
            "features_indptr": self.features.indptr,
            "features_indices": self.features.indices,
            "features_values": self.features.data,
            "features_basis": self.basis,
            "features_factor": np.concatenate([column.factor for column in self.columns]),
            "features_offset": np.concatenate([column.offset for column in self.columns]),
        }
        values = [value for column in self.columns for value in column.values]
        arrays |= pack_text("features_names", np.array(values, object)) if values else {}
        facts = [
            {
                "name": column.name,
                "kind": column.kind,
                "width": column.width,
                "weight": column.weight,
                "offsets": len(column.offset),
                "values": len(column.values),
                "separator": column.separator,
            }
            for column in self.columns
        ]
        return arrays, {"features": {"columns": facts, "strength": self.strength}}

    @classmethod
    def from_state(cls, arrays: Arrays, facts: dict[str, Any]) -> FeatureSpace:
        """What :meth:`state` gave; raises ValueError, TypeError or KeyError if it is not of a space."""
        values = unpack_text("features_names", arrays).tolist() if "features_names_ends" in arrays else []
        factor, offset = arrays["features_factor"], arrays["features_offset"]
        columns, at, before, named = [], 0, 0, 0
        for fact in facts["features"]["columns"]:
            width, offsets, texts = (int(fact[name]) for name in ("width", "offsets", "values"))
            columns.append(
                FeatureColumn(
                    str(fact["name"]), str(fact["kind"]), np.array(factor[at : at + width]), float(fact["weight"]),
                    np.array(offset[before : before + offsets]), tuple(values[named : named + texts]),
                    str(fact["separator"]),
                )
            )  # fmt: skip
            at, before, named = at + width, before + offsets, named + texts
        basis = arrays["features_basis"]
        parts = (arrays["features_values"], arrays["features_indices"], arrays["features_indptr"])
        features = csr_array(parts, shape=(len(parts[2]) - 1, at))
        if basis.shape[:1] != (at,) or len(factor) != at or len(offset) != before or len(values) != named:
            raise ValueError("its features and what was learned of them differ in number")
        return cls(tuple(columns), features, basis, float(facts["features"]["strength"]))
