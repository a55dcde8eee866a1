"""Where items stand by their features: how these are encoded, and what was learned of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack, vstack

from deql.data.matrices import check_compressed
from deql.io.container import Arrays, pack_text, unpack_text
from deql.io.model_file import fact, refuse_infinite, vector
from deql.priors.feature_columns import ALIKE, FeatureColumn
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

    def shared(self, item: int, other: int, most: int = 5) -> tuple[str, ...]:
        """What two items have in common, in words, what says most about others first.

        Categories and tags by name. Of a text, an embedding, a number or a matrix no more can be said than that theirs
        are similar, which is where the cosine of their features is above what unlike items reach.
        """
        (at, mine), (there, theirs) = self._row(item), self._row(other)
        common, own, same = np.intersect1d(at, there, assume_unique=True, return_indices=True)
        products = mine[own] * theirs[same]
        says = products * self._says[common]
        of_column = np.searchsorted(self._starts, common, side="right") - 1
        found: list[tuple[float, str]] = []
        for place in np.unique(of_column).tolist():
            column, first, here = self.columns[place], int(self._starts[place]), of_column == place
            if column.values:
                named = zip(says[here].tolist(), (common[here] - first).tolist(), strict=True)
                found += [(much, column.label(value)) for much, value in named]
                continue
            lengths = (
                np.linalg.norm(row[(ids >= first) & (ids < first + column.width)])
                for ids, row in ((at, mine), (there, theirs))
            )
            if products[here].sum() > ALIKE[column.kind] * np.prod(list(lengths)):
                found.append((float(says[here].sum()), f"similar {column.name or 'features'}"))
        return tuple(name for _, name in sorted(found, key=lambda one: -one[0])[:most])

    def _row(self, item: int) -> tuple[NDArray[Any], NDArray[np.float64]]:
        entries = slice(self.features.indptr[item], self.features.indptr[item + 1])
        return self.features.indices[entries], self.features.data[entries].astype(np.float64)

    @cached_property
    def _says(self) -> NDArray[np.float64]:
        """The diagonal of B·Bᵀ: how much it says that two items share a feature."""
        says: NDArray[np.float64] = np.einsum("ij,ij->i", self.basis, self.basis, dtype=np.float64)
        return says

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """The first feature of each column."""
        return np.cumsum([0, *(column.width for column in self.columns[:-1])])

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
        told = facts["features"]["columns"]
        widths, offsets, texts = ([fact(one, name, int) for one in told] for name in ("width", "offsets", "values"))
        basis, n_features = arrays["features_basis"], sum(widths)
        if basis.shape[:1] != (n_features,) or len(values) != sum(texts):
            raise ValueError("its features and what was learned of them differ in number")
        factor = vector(arrays, "features_factor", n_features)
        offset = vector(arrays, "features_offset", sum(offsets))
        columns, at, before, named = [], 0, 0, 0
        for one, width, known, text in zip(told, widths, offsets, texts, strict=True):
            column = FeatureColumn(
                str(one["name"]), str(one["kind"]), factor[at : at + width], fact(one, "weight", float),
                offset[before : before + known], tuple(values[named : named + text]), str(one["separator"]),
            )  # fmt: skip
            column.check()
            columns.append(column)
            at, before, named = at + width, before + known, named + text
        if not columns or len({column.name for column in columns}) < len(columns):
            raise ValueError("its features' columns are not one or more, each of another name")
        parts = (arrays["features_values"], arrays["features_indices"], arrays["features_indptr"])
        features = csr_array(parts, shape=(len(parts[2]) - 1, n_features))
        check_compressed(features)
        if basis.ndim != 2 or {basis.dtype, features.dtype} != {np.dtype(np.float32)}:
            raise ValueError(f"its features are of {features.dtype}, and their basis {basis.ndim}-d of {basis.dtype}")
        refuse_infinite("features", features.data, basis)
        return cls(tuple(columns), features, basis, fact(facts["features"], "strength", float))
