"""Features of items as a prior: what the items have in common, also of those that nobody has touched."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.checks import check_range
from deql._system.progress import ProgressCallback
from deql._system.tables import counted
from deql.data.matrices import widened
from deql.data.partitions import Data, PartitionedInteractions, TrainingData
from deql.errors import DataError, ParameterError, name_some, printable
from deql.priors.feature_basis import ridge_basis
from deql.priors.feature_columns import FeatureColumn, learn_column
from deql.priors.feature_kinds import choose_kinds
from deql.priors.feature_space import FeatureSpace, encode
from deql.priors.feature_table import MATRIX, FeatureTable, open_features, typed_ids
from deql.priors.prior import Prior, PriorWeights
from deql.priors.scaling import fitted_scale

__all__ = ["ItemFeatures", "fitted_weights", "with_columns"]


@dataclass(frozen=True, eq=False, repr=False)
class ItemFeatures(Prior):
    """EASE on the features of items: W₀_ji = c·f_jᵀ·K₋ᵢ·f_i with K₋ᵢ = (λ·I + Σ_{h ≠ i} f_h·f_hᵀ)⁻¹.

    How well item j's features foretell item i's, given all other items; its diagonal is 0. The one number c fits R·W₀
    to R best in least squares. Everything is learned from the items that anybody has; others are placed by it, whether
    the table has them or they are added to the fitted model later.

    What a column holds is guessed, unless ``kinds`` says it:

    - ``"number"``: numbers and dates. Eight points lie among the items' values, with as many items between any two; a
      number becomes its shares of the two that it lies between, so that near numbers have something in common.
    - ``"category"``: short text that comes again, booleans. A feature for each value.
    - ``"tags"``: lists, or text with ``|``, ``;`` or ``,`` between short parts. A feature for each; those of an item
      are divided by the square root of their number.
    - ``"embedding"``: lists of as many floats in every row, which are centred.
    - ``"text"``: other text. Words by tf-idf, hashed into 2,048 features, of unit length.
    - ``"ignore"``, as is the column of titles.

    Each column is then multiplied by one number, so that the squares of an item that has it sum up to 1 on average: a
    text of a thousand words counts for as much as a year. An item without a value has none of its features. A matrix
    is one such column, taken as it is. Beyond 1,024 features their leading 1,024 singular directions are kept.

    Parameters
    ----------
    table : path, frame, mapping, sparse matrix or array
        Parquet, CSV or NDJSON, or a frame, with a row for each item; a mapping from item to features by name; a
        matrix of items × features, in the order of the items.
    l2 : float, default 1
        Ridge λ, in units of the mean of diag(FᵀF): the larger, the less rare features count for more than frequent
        ones.
    item : str, optional
        The table's column of item ids; found by common names if not given.
    kinds : mapping, optional
        Kinds of columns by name, where a guess would be wrong.

    Examples
    --------
    >>> import deql, polars as pl
    >>> from deql.priors import ItemFeatures
    >>> data = deql.Interactions.from_pairs(list("aabbc"), ["tea", "jam", "tea", "ale", "jam"])
    >>> table = pl.DataFrame({"item": ["tea", "jam", "ale", "rum"], "kind": ["drink", "food", "drink", "drink"]})
    >>> prior = ItemFeatures(table, l2=0.5)
    >>> prior.with_items(data).items.tolist()
    ['ale', 'jam', 'tea', 'rum']
    >>> prior.weights(prior.with_items(data)).to_dense().round(2)
    array([[0.  , 0.  , 0.67, 0.42],
           [0.  , 0.  , 0.  , 0.  ],
           [0.67, 0.  , 0.  , 0.42],
           [0.67, 0.  , 0.67, 0.  ]])
    """

    table: Any = field(repr=False)
    l2: float = 1.0
    item: str | None = field(default=None, kw_only=True)
    kinds: Mapping[str, str] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_range("l2", self.l2, 0.0, np.inf)
        if self.l2 == 0:
            raise ParameterError("the l2 of item features must be above 0", parameter="l2")

    @property
    def config(self) -> dict[str, Any]:
        """Its name and l2; of the table a model file keeps what was learned."""
        return {"prior": "features", "l2": self.l2}

    def _contents(self) -> dict[str, NDArray[Any]]:
        table = self.opened
        if table.keys is None:
            matrix = table.columns[MATRIX]
            return {name: np.asarray(getattr(matrix, name)) for name in ("indptr", "indices", "data")}
        values = {"\n": table.keys} | {name: series.to_list() for name, series in table.columns.items()}
        written = repr([self.column_kinds, values])
        return {"table": np.frombuffer(written.encode("utf-8", "surrogatepass"), np.uint8)}

    @cached_property
    def opened(self) -> FeatureTable:
        """The table, read once."""
        return open_features(self.table, self.item)

    @cached_property
    def column_kinds(self) -> dict[str, str]:
        """What the table's columns hold."""
        table = self.opened
        if MATRIX in table.columns:
            return {MATRIX: "matrix"}
        titles = next((name for name, series in table.columns.items() if series is table.titles), None)
        kinds = choose_kinds(table.columns, titles, self.kinds)
        used = {name: kind for name, kind in kinds.items() if kind != "ignore"}
        if not used:
            raise DataError(f"{table.name} has no column of features: it has {name_some([*kinds], 12)}")
        told = ", ".join(f"{printable(name)} = {kind}" for name, kind in used.items())
        self._say(f"{table.name}: {told}")
        return used

    def with_items(self, data: Data) -> Data:
        """The interactions with the table's other items as further columns, which nobody has."""
        table = self.opened
        if table.keys is None:
            return with_columns(data, self._further_rows(table, data), table)
        known = {str(item) for item in data.items.tolist()}
        new = [key for key in table.keys if key not in known]
        if len(new) == table.n_rows:
            raise DataError(
                f"{table.name} has none of the items of the interactions: its ids are like {name_some(new, 3)}, theirs "
                f"like {name_some(data.items, 3)}; is it the right table?"
            )
        return with_columns(data, typed_ids(new, data.items, table.name), table)

    def _further_rows(self, table: FeatureTable, data: TrainingData) -> NDArray[np.int64]:
        """The rows of a matrix beyond the items, where these are numbers."""
        n, rows = data.n_items, table.n_rows
        numbered = data.items.dtype.kind == "i" and np.array_equal(data.items, np.arange(n))
        if rows < n or (rows > n and not numbered):
            raise DataError(
                f"the matrix of features has {rows:,} rows, and the data {n:,} items: give a row for each, in the "
                "order of the items, or a frame with their ids"
            )
        return np.arange(n, rows)

    def weights(
        self, data: TrainingData, *, device: str | None = None, report: ProgressCallback | None = None
    ) -> PriorWeights:
        """W₀ for the columns of the interactions."""
        table = self.opened
        rows = table.rows_of(data.items)
        warm = data.item_counts > 0
        learned = warm & (rows >= 0)
        if not learned.any():
            raise DataError(f"{table.name} has none of the items that anybody has: there is nothing to learn from")
        columns = self._learn(table, rows[learned])
        features = encode(columns, table.take(rows))
        basis = ridge_basis(csr_array(features[learned]), self.l2, device=device, report=report)
        weights = fitted_weights(FeatureSpace(columns, features, basis, 1.0), data.blocks(), learned, ~warm)
        self._tell(table, data, warm, rows, weights)
        return weights

    def lacks(self, items: NDArray[Any], space: FeatureSpace) -> NDArray[np.bool_]:
        """Which of a model's items have features and no row in the table: those that were added to the model later."""
        return (self.opened.rows_of(items) < 0) & (np.diff(space.features.indptr) > 0)

    def _learn(self, table: FeatureTable, rows: NDArray[np.int64]) -> tuple[FeatureColumn, ...]:
        raw = table.take(rows)
        learned = {name: learn_column(name, kind, raw[name]) for name, kind in self.column_kinds.items()}
        alike = [name for name, column in learned.items() if column is None]
        if len(alike) == len(learned):
            raise DataError(f"all features of {table.name} are empty or the same for all items: they tell nothing")
        if alike:
            self._say(f"{table.name}: {name_some(alike)} left out, empty or the same for all items")
        return tuple(column for column in learned.values() if column is not None)

    def _tell(
        self,
        table: FeatureTable,
        data: TrainingData,
        warm: NDArray[np.bool_],
        rows: NDArray[np.int64],
        weights: PriorWeights,
    ) -> None:
        """What the table lacks, and what the interactions lack."""
        cold, bare = int((~warm & (rows >= 0)).sum()), data.items[warm & (rows < 0)]
        if cold:
            self._say(f"{table.name}: {counted(cold, 'item', 'items')} that nobody has, known by features alone")
        if len(bare):
            self._say(f"{table.name}: {counted(len(bare), 'item', 'items')} without features ({name_some(bare, 3)})")
        if weights.features is not None and weights.features.strength == 0:
            self._say(f"{table.name}: its features say nothing about who has what, so the prior is zero")

    def _say(self, text: str) -> None:
        """On standard error, once for each prior: a search makes the same weights many times."""
        if text not in self._said:
            self._said.add(text)
            print(f"deql: {text}", file=sys.stderr)

    @cached_property
    def _said(self) -> set[str]:
        return set()


def fitted_weights(
    space: FeatureSpace, blocks: Iterable[csr_array], learned: NDArray[np.bool_], cold: NDArray[np.bool_]
) -> PriorWeights:
    """W₀ of features, as strong as fits the interactions best.

    Parameters
    ----------
    space : FeatureSpace
        Of any strength.
    blocks : iterable of csr_array
        R, users × items, in blocks of rows.
    learned, cold : ndarray of bool
        Which items the basis was learned from, and which nobody has.
    """
    unscaled = replace(space, strength=1.0).weights(learned)
    # Of columns that nobody has the interactions say nothing.
    to_fit = replace(unscaled, scale=unscaled.scale * learned, diagonal=unscaled.diagonal * learned)
    return replace(space, strength=max(fitted_scale(blocks, to_fit), 0.0)).weights(learned, cold)


def with_columns(data: Data, items: NDArray[Any], table: FeatureTable) -> Data:
    """The interactions with further items that nobody has; titles as far as the data or the table have them."""
    if not len(items) and (table.titles is None or data.titles is not None):
        return data
    everything = np.concatenate([data.items, items])
    titles = data.titles
    if titles is not None or table.titles is not None:
        titles = table.titles_of(everything)
        if data.titles is not None:
            titles[: data.n_items] = data.titles
    grown: dict[str, Any] = {"items": everything, "titles": titles}
    if isinstance(data, PartitionedInteractions):
        grown["item_counts"] = np.concatenate([data.item_counts, np.zeros(len(items), np.int64)])
    else:
        grown["matrix"] = widened(data.matrix, (data.n_users, len(everything)))
    return replace(data, **grown)
