"""What a fit leaves: items, their counts, the best columns of a row; in memory and in a model file."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.callers import levels_to_the_caller
from deql._system.progress import ProgressCallback, stages
from deql.data import Interactions, as_interactions
from deql.data.hashed_users import hash_users
from deql.data.id_arrays import id_array
from deql.data.interactions import InteractionsLike, ItemId, UserId, is_frame
from deql.data.matrices import canonical
from deql.errors import NotFittedError
from deql.io import model_file
from deql.io.container import Arrays
from deql.io.model_file import ModelRecord
from deql.models.estimator import Estimator
from deql.models.kept_data import kept_arrays, kept_salt, pack_interactions, unpack_interactions
from deql.ranking import NO_ITEM
from deql.ranking.histories import Histories, allowed_items, encode_histories
from deql.ranking.item_lookup import TitleIndex
from deql.ranking.popularity_order import PopularityOrder

__all__ = ["OF_ITEMS", "FittedModel"]

OF_ITEMS = ("_item_index", "_title_index", "_popularity_order")
"""What a model makes of its items when it is first needed, and forgets when they or their counts change."""


class FittedModel(Estimator, ABC):
    """A model with items in the order of columns, which can be saved and ranks rows of them.

    Attributes
    ----------
    data_ : Interactions or None
        What the model was fitted on, if ``keep_data`` was asked for.
    user_salt_ : bytes or None
        The salt of the hashes that stand in ``data_`` for the ids of users, if ``keep_data="hashed"`` was asked for.
    """

    items_: NDArray[Any]
    titles_: NDArray[Any] | None
    item_counts_: NDArray[np.int64]
    n_users_: int
    weighted_: bool | None = None
    fitted_params_: dict[str, Any]
    progress: bool
    user_salt_: bytes | None = None
    _kept: Interactions | Arrays | None = None
    """The data, or the arrays of a model file that hold them and are read at their first use."""

    @abstractmethod
    def _rank(
        self, matrix: csr_array, k: int, exclude_seen: bool, allowed: NDArray[np.bool_], report: ProgressCallback | None
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Best columns and their scores for rows that have a history."""

    @abstractmethod
    def _pair_scores(self, matrix: csr_array, pairs: csr_array) -> NDArray[np.float64]:
        """The exact scores of the columns stored in ``pairs``, row by row."""

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise ParameterError for a hyper-parameter out of its range."""

    @property
    def data_(self) -> Interactions | None:
        """What the model was fitted on, if it was kept: see :meth:`fit`."""
        if isinstance(self._kept, dict):
            kept, counts = self._kept, self.item_counts_
            self._kept = unpack_interactions(kept, self.items_, self.titles_, counts, self.n_users_)
        return self._kept

    def _user_keys(self, ids: Iterable[UserId]) -> NDArray[Any]:
        """Ids of users as ``data_`` has them: hashed, if the model keeps hashes."""
        listed: list[Any] = list(ids)
        return id_array(listed) if self.user_salt_ is None else hash_users(listed, self.user_salt_)

    def save(self, path: str | os.PathLike[str], *, shards: bool | int | str = False) -> None:
        """Write the model to one file, or to a folder of several, which :func:`deql.load` reads.

        The file is written beside its final name and renamed, so a crash leaves the old one whole.

        Parameters
        ----------
        path : path
            Where a folder of shards is, it is replaced by another.
        shards : bool, int or str, default False
            Write a folder with P in several files, of about 1 GiB or of as many bytes as are said ("256MiB"). Files
            that workers of a cluster wrote are linked into it, and not written again.
        """
        self._check_fitted()
        model_file.write(Path(path), self._as_record(), shards)

    def checksum(self) -> str:
        """A name for the model: the checksum of its file, without quantised rows, whether it is saved or not.

        Examples
        --------
        >>> import deql
        >>> data = deql.Interactions.from_pairs(list("aab"), list("xyx"))
        >>> deql.EASE(l2=1.0).fit(data).checksum() == deql.EASE(l2=1.0).fit(data).checksum()
        True
        """
        self._check_fitted()
        return model_file.record_checksum(self._as_record())

    def _as_record(self) -> ModelRecord:
        arrays, facts = self._state()
        kept = self._kept
        arrays |= pack_interactions(kept, self.user_salt_) if isinstance(kept, Interactions) else kept or {}
        # Without the parameters that are as by default: older versions, which may not know them, can read the file.
        return ModelRecord(
            type(self).__name__, self._to_config(self.fitted_params_), self.items_, self.titles_, arrays, facts
        )

    @classmethod
    def _from_record(cls, record: ModelRecord) -> Self:
        """The fitted model; raises ValueError, TypeError or KeyError if the record is not of one."""
        model = cls(**cls._from_config({**record.parameters}))
        model.items_, model.titles_ = record.items, record.titles
        if record.titles is not None and len(record.titles) != len(record.items):
            raise ValueError("its titles and item ids differ in number")
        model._check_parameters()
        model._restore(record.arrays, record.facts)
        model.fitted_params_ = model.get_params()
        return model

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Arrays and plain facts that a model file keeps, beside ids, hyper-parameters and interactions."""
        weighted = {} if self.weighted_ is None else {"weighted": self.weighted_}
        return {"item_counts": self.item_counts_}, {"n_users": self.n_users_} | weighted

    def _restore(self, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        """Become fitted from what ``_state`` gave; raises ValueError or KeyError if it does not fit."""
        self.item_counts_ = model_file.vector(arrays, "item_counts", len(self.items_), np.int64)
        self.n_users_ = model_file.fact(facts, "n_users", int)
        self.weighted_ = facts.get("weighted")
        if not isinstance(self.weighted_, bool | None):
            raise ValueError("it is weighted neither with nor without weights")
        if self.item_counts_.min() < 0:
            raise ValueError("an item has fewer than no users")
        self._kept, self.user_salt_ = kept_arrays(arrays), kept_salt(arrays)

    def _best(
        self, matrix: csr_array, k: int, exclude_seen: bool, allowed: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.bool_]]:
        """:meth:`_lists`, with a progress bar if there are to be any."""
        with stages(self.progress) as stage:
            return self._lists(matrix, k, exclude_seen, allowed, stage("Recommend"))

    def _lists(
        self, matrix: csr_array, k: int, exclude_seen: bool, allowed: NDArray[np.bool_], report: ProgressCallback | None
    ) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.bool_]]:
        """Best columns among those allowed, their scores, and which rows are the popularity order."""
        k = min(k, len(self.items_))
        columns, scores = self._rank(matrix, k, exclude_seen, allowed, report)
        cold = self._cold(matrix.indptr, matrix.indices)
        if cold.any():
            columns[cold], scores[cold] = self._popular_lists(matrix[cold], k, exclude_seen, allowed)
        return columns, scores, cold

    def _cold(self, indptr: NDArray[np.integer], indices: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Which histories, in compressed rows, get the popularity fallback: empty ones, where W has all weights."""
        cold: NDArray[np.bool_] = np.diff(indptr) == 0
        return cold

    @cached_property
    def _popularity_order(self) -> PopularityOrder:
        return PopularityOrder.of(self.item_counts_)

    def _popular_lists(
        self, matrix: csr_array, k: int, exclude_seen: bool, allowed: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The popularity fallback of each row, without what it has unless that may come back."""
        lengths = np.diff(matrix.indptr) * exclude_seen
        order, shares = self._popular(min(len(self.items_), k + int(lengths.max(initial=0))), allowed)
        columns, scores = np.tile(order[:k], (len(lengths), 1)), np.tile(shares[:k], (len(lengths), 1))
        seen = np.zeros(len(self.items_), bool)
        for row in np.flatnonzero(lengths):
            history = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]
            seen[history] = True
            best = np.flatnonzero(~seen[order] & (order != NO_ITEM))[:k]
            seen[history] = False
            columns[row], scores[row] = NO_ITEM, np.nan
            columns[row, : len(best)], scores[row, : len(best)] = order[best], shares[best]
        return columns, scores

    def _with_ids(self, data: InteractionsLike) -> Interactions:
        """Interactions; the columns of a plain matrix are the model's, and its users the numbers of its rows."""
        if isinstance(data, Interactions):
            return data
        if is_frame(data):
            return self._from_frame(data)
        matrix = self._encode(canonical(data))
        return Interactions(matrix, np.arange(matrix.shape[0]), self.items_, titles=self.titles_)

    def _from_frame(self, frame: Any) -> Interactions:
        """A frame's interactions, each of which counts 1: worth a warning if the model and the frame have weights."""
        if self.weighted_:
            from deql.data.pairs import weight_column  # it needs what ELSA's training does without

            if (name := weight_column(frame)) is not None:
                warnings.warn(
                    "every row of the frame counts 1, though the model was fitted with weights: give "
                    f"deql.read_interactions(frame, weight={name!r}) to use that column",
                    stacklevel=levels_to_the_caller(),
                )
        return as_interactions(frame)

    def _encode(self, histories: Histories, where: str = "histories", strict: bool = False) -> csr_array:
        """Histories in the model's columns; ``where`` is what a warning of unknown items calls them."""
        return encode_histories(histories, self._item_index, self.items_, strict, where, self._title_index)

    def _personal(self, matrix: csr_array, users: Iterable[UserId]) -> csr_array:
        """Rows with what the model knows of their users beside the items, in columns after those of the items."""
        return matrix

    def _allowed(
        self, exclude: Iterable[ItemId] | None, candidates: Iterable[ItemId] | None, strict: bool
    ) -> NDArray[np.bool_]:
        """Which columns may be recommended."""
        return allowed_items(len(self.items_), self._item_index, exclude, candidates, strict, self._title_index)

    @cached_property
    def _item_index(self) -> dict[Any, int]:
        return {item: column for column, item in enumerate(self.items_.tolist())}

    @cached_property
    def _title_index(self) -> TitleIndex | None:
        return None if self.titles_ is None else TitleIndex(self.titles_, self.items_)

    def _names(self, columns: NDArray[np.int32], of_items: NDArray[Any]) -> NDArray[Any]:
        names = of_items[columns]
        names[columns == NO_ITEM] = NO_ITEM if names.dtype != object else None
        return names

    def _popular(self, k: int, allowed: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The most popular allowed columns, and the share of users with each."""
        columns = np.full(k, NO_ITEM, np.int32)
        scores = np.full(k, np.nan)
        best = self._popularity_order.among(allowed)[:k]
        columns[: len(best)] = best
        scores[: len(best)] = self._share(best)
        return columns, scores

    def _weights_at(self, sources: NDArray[np.int32], targets: NDArray[np.int32]) -> NDArray[np.float64]:
        """The entries of W in these rows and columns, pair by pair: the scores of histories of one item each."""
        ones, steps = np.ones(len(sources), np.float32), np.arange(len(sources) + 1, dtype=np.int32)
        shape = len(sources), len(self.items_)
        return self._pair_scores(csr_array((ones, sources, steps), shape), csr_array((ones, targets, steps), shape))

    def _share(self, columns: Any) -> Any:
        """Share of users who have the items."""
        return self.item_counts_[columns] / max(1, self.n_users_)

    def _check_fitted(self) -> None:
        if not hasattr(self, "items_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")
