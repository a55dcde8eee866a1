"""What every model can do once fitted: one base class, the same verbs."""

from __future__ import annotations

import dataclasses
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.checks import check_whole
from deql._system.describe import short_repr, with_inherited_sections
from deql._system.progress import ProgressCallback, stages
from deql.data import Interactions, as_interactions
from deql.data.interactions import InteractionsLike, ItemId
from deql.errors import DataError, NotFittedError, ParameterError, UnknownItemError
from deql.io import model_file
from deql.io.model_file import ModelRecord
from deql.models.notebook import model_html
from deql.ranking import NO_ITEM
from deql.ranking.explanations import Contribution, Explanation, Neighbourhood
from deql.ranking.histories import Histories, History, Recommendations, allowed_items, encode_histories

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXECUTION_PARAMETERS", "NOT_SERIALISED", "Recommender"]

EXECUTION_PARAMETERS = frozenset({"progress", "device"})
"""Parameters that say how a model is computed here, and nothing of the model."""

NOT_SERIALISED = EXECUTION_PARAMETERS | {"W"}
"""Those, and what only Python can hand over: neither is part of a model's description."""


class Recommender(ABC):
    """Base of all models.

    A subclass is a dataclass whose fields are its hyper-parameters. It learns in ``_learn``, ranks in
    ``_rank`` and explains in ``_contributions``; ids, filters, users without a history and model
    files are dealt with here.

    Attributes
    ----------
    items_ : ndarray
        Item ids in the order of columns.
    titles_ : ndarray of str or None
        What people call the items, if the interactions said so.
    item_counts_ : ndarray of int64
        How many users have each item.
    n_users_ : int
        How many users the model was fitted on.
    fitted_params_ : dict
        The hyper-parameters at that time.
    """

    items_: NDArray[Any]
    titles_: NDArray[Any] | None
    item_counts_: NDArray[np.int64]
    n_users_: int
    fitted_params_: dict[str, Any]
    progress: bool
    # What an earlier fit left goes before the next: two inverses at once would need twice the memory.
    _frees_before_fit: ClassVar[bool] = True
    # Whether scores are X·W, as the held-out error (mse) assumes.
    _is_linear: ClassVar[bool] = True
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __init_subclass__(cls) -> None:
        cls.__doc__ = with_inherited_sections(cls)

    @abstractmethod
    def _learn(self, data: Interactions) -> None:
        """Set the fitted attributes of the subclass."""

    @abstractmethod
    def _rank(
        self, matrix: csr_array, k: int, exclude_seen: bool, allowed: NDArray[np.bool_], report: ProgressCallback | None
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Best columns and their scores for rows that have a history."""

    def _rank_group(
        self,
        models: Sequence[Recommender],
        matrix: csr_array,
        k: int,
        squares: NDArray[np.float64] | None,
        report: ProgressCallback | None,
    ) -> NDArray[np.int32]:
        """Best unseen columns under models with this one's ``_shared_fit``: models × rows × k, for evaluation.

        ``squares``, models × rows, becomes Σ score² over the columns that a row does not have.
        """
        return self._rank(matrix, k, True, np.ones(len(self.items_), bool), report)[0][None]

    @property
    def _fit_key(self) -> Any:
        """What a fit depends on: models of equal keys share one. None: this model shares with no other."""
        return None

    @property
    def _shared_fit(self) -> object | None:
        """What fitted models have in common that are ranked in one pass. None: this model is ranked alone."""
        return None

    @abstractmethod
    def _contributions(self, columns: NDArray[np.int32], target: int) -> tuple[NDArray[np.float64], float]:
        """What each column of a binary history adds to the target's score, and the score."""

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise ParameterError for a hyper-parameter out of its range."""

    @property
    def _display_name(self) -> str:
        """What the model is called where it stands beside others."""
        return type(self).__name__

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Hyper-parameters by name, as scikit-learn expects."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    __repr__ = short_repr

    def _repr_html_(self) -> str:
        fields = sorted(dataclasses.fields(self), key=lambda field: bool(field.kw_only))
        shown = {field.name: (getattr(self, field.name), field.default) for field in fields}
        fitted = (self.n_users_, len(self.items_), *self._state()) if hasattr(self, "items_") else None
        return model_html(self._display_name, shown, fitted)

    def _to_config(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Serialise the hyper-parameters that describe the model, as plain values; None stands for a default."""
        return {name: value for name, value in params.items() if name not in NOT_SERIALISED and value is not None}

    @classmethod
    def _from_config(cls, config: dict[str, Any]) -> dict[str, Any]:
        """Hyper-parameters from what :meth:`_to_config` serialised, in this version or an earlier one."""
        return config

    def set_params(self, **params: Any) -> Self:
        """Change hyper-parameters; takes effect at the next ``fit``."""
        for name, value in params.items():
            if name not in self.get_params():
                raise ParameterError(f"{type(self).__name__} has no parameter {name!r}", parameter=name)
            setattr(self, name, value)
        return self

    def fit(self, data: InteractionsLike, y: None = None) -> Self:
        """Learn from interactions.

        Parameters
        ----------
        data : Interactions or sparse matrix
            Users × items; a plain matrix's ids are its column numbers.
        y : ignored
            Present for scikit-learn's conventions.

        Returns
        -------
        self
        """
        return self._fit(as_interactions(data), self._learn)

    def _fit(self, data: Interactions, learn: Callable[[Interactions], None]) -> Self:
        self._check_parameters()
        if not data.n_interactions:
            raise DataError("there are no interactions to learn from")
        before = {name: value for name, value in self.__dict__.items() if name.endswith("_") or name == "_item_index"}
        for name in before:
            del self.__dict__[name]
        if self._frees_before_fit:
            before.clear()
        self.item_counts_ = np.bincount(data.matrix.indices, minlength=data.n_items)
        try:
            learn(data)
        except BaseException:
            self.__dict__.update(before)
            raise
        self.items_, self.titles_ = data.items, data.titles
        self.n_users_ = data.n_users
        self.fitted_params_ = self.get_params()
        return self

    def recommend(
        self,
        histories: Histories,
        k: int = 20,
        exclude_seen: bool = True,
        exclude: Iterable[ItemId] | None = None,
        candidates: Iterable[ItemId] | None = None,
        strict: bool = False,
    ) -> Recommendations:
        """The k best items for each history; nobody needs to have been in the training data.

        Parameters
        ----------
        histories : Interactions, sparse matrix, or list of lists of item ids
            One row or list for each user.
        k : int, default 20
            How many items; at most as many as the model knows are returned.
        exclude_seen : bool, default True
            Leave out the items of the history.
        exclude : iterable of item ids, optional
            Never recommend these.
        candidates : iterable of item ids, optional
            Recommend only among these.
        strict : bool, default False
            Raise an error for unknown ids in histories, which are else ignored with a warning, and in
            ``exclude``.

        Returns
        -------
        Recommendations
            Unpacks into ``ids, scores``. A cold-start user, without a known item, gets the popularity order as a
            fallback and is marked in ``from_popularity``.

        Examples
        --------
        >>> import deql
        >>> eaten = ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"]
        >>> data = deql.Interactions.from_pairs(list("aabbcccd"), eaten)
        >>> ids, scores = deql.EASE(l2=1.0).fit(data).recommend([["egg"]], k=2)
        >>> ids.tolist()
        [['jam', 'tea']]
        """
        columns, scores, cold = self._top(histories, k, exclude_seen, exclude, candidates, strict)
        titles = None if self.titles_ is None else self._names(columns, self.titles_)
        return Recommendations(self._names(columns, self.items_), scores, cold, titles)

    def similar_items(self, item: ItemId, k: int = 10) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """The items that having ``item`` speaks for most: the largest entries of its row of W.

        Parameters
        ----------
        item : item id
        k : int, default 10
            How many others; at most as many as the model knows.

        Returns
        -------
        ids : ndarray
            Item ids, the most similar first.
        scores : ndarray of float64
            Their entries in the item's row of W.

        Examples
        --------
        >>> import deql
        >>> eaten = ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"]
        >>> data = deql.Interactions.from_pairs(list("aabbcccd"), eaten)
        >>> ids, scores = deql.EASE(l2=1.0).fit(data).similar_items("jam", k=1)
        >>> ids.tolist()
        ['tea']
        """
        self._check_fitted()
        self._column(item)
        found = self.recommend([[item]], k=k)
        return found.ids[0], found.scores[0]

    def explain(self, history: History, item: ItemId, k: int | None = None, strict: bool = False) -> Explanation:
        """How each item of a history adds to the score of ``item``.

        Parameters
        ----------
        history : iterable of item ids
            One user's items, each with weight 1.
        item : item id
            What to explain.
        k : int, optional
            Keep only the k largest parts; the others are summed in ``rest``.
        strict : bool, default False
            As in :meth:`recommend`.

        Returns
        -------
        Explanation
            A sequence of ``(item, value)`` that adds up to its ``score`` exactly.
        """
        self._check_fitted()
        if k is not None:
            check_whole("k", k)
        if isinstance(history, str | bytes) or not isinstance(history, Iterable):
            raise ParameterError(f"a history must be a list of item ids, got {history!r}", parameter="history")
        target = self._column(item)
        columns = encode_histories([history], self._item_index, self.items_, strict).indices
        return self._explained(columns, target, k)

    def _explained(self, columns: NDArray[np.int32], target: int, k: int | None) -> Explanation:
        """What the columns of a history add to the score of another."""
        values, score = self._contributions(columns, target)
        if not len(columns):  # recommend gives the popularity order then
            score = self._share(target)
        order = np.lexsort((columns, -np.abs(values)))
        shown = order[:k]
        parts = tuple(
            Contribution(name, float(value))
            for name, value in zip(self.items_[columns[shown]].tolist(), values[shown], strict=True)
        )
        # All sums are exact (see Explanation), so this is what the shown parts leave, to the last bit.
        return Explanation(self.items_[[target]].tolist()[0], float(score), parts, float(score - values[shown].sum()))

    def neighbours(self, item: ItemId, k: int = 10) -> Neighbourhood:
        """The items that ``item`` has most to do with, and all weights among them: a small directed graph.

        W_ij says how much having i adds to the score of j; the larger it is in size, the more i has to do with j,
        whatever its sign.

        Parameters
        ----------
        item : item id
            The one in the middle.
        k : int, default 10
            How many others: those with the largest weight in size, to the item or from it. Fewer if the others'
            weights are all zero.

        Examples
        --------
        >>> import deql
        >>> eaten = ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"]
        >>> data = deql.Interactions.from_pairs(list("aabbcccd"), eaten)
        >>> near = deql.EASE(l2=1.0).fit(data).neighbours("jam", k=1)
        >>> near.items, near.weights.round(2).tolist()
        (('jam', 'tea'), [[0.0, 0.71], [0.56, 0.0]])
        """
        self._check_fitted()
        check_whole("k", k)
        middle = self._column(item)
        others = np.delete(np.arange(len(self.items_), dtype=np.int32), middle)
        there = self._weights_at(np.full_like(others, middle), others)
        back = self._weights_at(others, np.full_like(others, middle))
        size = np.maximum(abs(there), abs(back))
        order = np.argsort(-size, kind="stable")[:k]
        columns = np.concatenate([[middle], others[order[size[order] > 0]]]).astype(np.int32)
        among = self._weights_at(np.repeat(columns, len(columns)), np.tile(columns, len(columns)))
        return Neighbourhood(tuple(self.items_[columns].tolist()), among.reshape(len(columns), -1))

    def plot_neighbours(self, item: ItemId, k: int = 10) -> Figure:
        """:meth:`neighbours` as a matplotlib figure."""
        return self.neighbours(item, k).plot()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one file, which :func:`deql.load` reads.

        The file is written beside its final name and renamed, so a crash leaves the old one whole.
        """
        self._check_fitted()
        model_file.write(Path(path), self._as_record())

    def _as_record(self) -> ModelRecord:
        arrays, facts = self._state()
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
        """Arrays and plain facts that a model file keeps, beside ids and hyper-parameters."""
        return {"item_counts": self.item_counts_}, {"n_users": self.n_users_}

    def _restore(self, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        """Become fitted from what ``_state`` gave; raises ValueError or KeyError if it does not fit."""
        self.item_counts_ = model_file.vector(arrays, "item_counts", len(self.items_), np.int64)
        self.n_users_ = model_file.fact(facts, "n_users", int)
        if self.item_counts_.min() < 0:
            raise ValueError("an item has fewer than no users")

    def _top(
        self,
        histories: Histories,
        k: int,
        exclude_seen: bool = True,
        exclude: Iterable[ItemId] | None = None,
        candidates: Iterable[ItemId] | None = None,
        strict: bool = False,
    ) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.bool_]]:
        """Best columns, their scores, and which rows are the popularity order."""
        self._check_fitted()
        check_whole("k", k)
        matrix = encode_histories(histories, self._item_index, self.items_, strict)
        allowed = allowed_items(len(self.items_), self._item_index, exclude, candidates, strict)
        return self._best(matrix, int(k), exclude_seen, allowed)

    def _best(
        self, matrix: csr_array, k: int, exclude_seen: bool, allowed: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.bool_]]:
        """The same for rows in the model's columns, among those that are allowed."""
        k = min(k, len(self.items_))
        with stages(self.progress) as stage:
            columns, scores = self._rank(matrix, k, exclude_seen, allowed, stage("Recommend"))
        cold = np.diff(matrix.indptr) == 0
        if cold.any():
            columns[cold], scores[cold] = self._popular(k, allowed)
        return columns, scores, cold

    @cached_property
    def _item_index(self) -> dict[Any, int]:
        return {item: column for column, item in enumerate(self.items_.tolist())}

    def _column(self, item: ItemId) -> int:
        try:
            return self._item_index[item]
        except (KeyError, TypeError):
            raise UnknownItemError(f"the model does not know the item {item!r}") from None

    def _names(self, columns: NDArray[np.int32], of_items: NDArray[Any]) -> NDArray[Any]:
        names = of_items[columns]
        names[columns == NO_ITEM] = NO_ITEM if names.dtype != object else None
        return names

    def _popular(self, k: int, allowed: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The fallback for cold-start users: the most popular allowed columns, and the share of users with each."""
        columns = np.full(k, NO_ITEM, np.int32)
        scores = np.full(k, np.nan)
        order = np.argsort(-self.item_counts_, kind="stable")
        best = order[allowed[order]][:k]
        columns[: len(best)] = best
        scores[: len(best)] = self._share(best)
        return columns, scores

    def _weights_at(self, sources: NDArray[np.int32], targets: NDArray[np.int32]) -> NDArray[np.float64]:
        """The entries of W in these rows and columns, pair by pair: the scores of histories of one item each."""
        ones, steps = np.ones(len(sources), np.float32), np.arange(len(sources) + 1, dtype=np.int32)
        shape = len(sources), len(self.items_)
        return self._pair_scores(csr_array((ones, sources, steps), shape), csr_array((ones, targets, steps), shape))

    @abstractmethod
    def _pair_scores(self, matrix: csr_array, pairs: csr_array) -> NDArray[np.float64]:
        """The exact scores of the columns stored in ``pairs``, row by row."""

    def _share(self, columns: Any) -> Any:
        """Share of users who have the items."""
        return self.item_counts_[columns] / max(1, self.n_users_)

    def _check_fitted(self) -> None:
        if not hasattr(self, "items_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")
