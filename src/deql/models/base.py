"""What every model can do once fitted: one base class, the same verbs."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, overload

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.checks import check_whole
from deql._system.describe import short_repr, with_inherited_sections
from deql._system.progress import ProgressCallback, stages
from deql.data import Interactions, as_interactions
from deql.data.interactions import InteractionsLike, ItemId, UserId
from deql.data.partitions import Data, TrainingData
from deql.errors import DataError
from deql.models.bulk import BulkVerbs
from deql.models.estimator import EXECUTION_PARAMETERS, NOT_SERIALISED
from deql.models.fitted import OF_ITEMS
from deql.models.kept_data import KeepData, data_to_keep
from deql.models.notebook import model_html
from deql.ranking.explanations import Contribution, Explanation, Neighbourhood
from deql.ranking.histories import Histories, History, encode_history
from deql.ranking.item_lookup import known_column
from deql.ranking.recommendations import Recommendations, SimilarItems

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from narwhals.typing import IntoFrame

__all__ = ["EXECUTION_PARAMETERS", "NOT_SERIALISED", "Recommender"]

_LEFT = (*OF_ITEMS, "_kept")
"""What a fit leaves beside the attributes that end in an underscore."""


class Recommender(BulkVerbs):
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
    weighted_ : bool or None
        Whether interactions had other weights than 1; None if that is not known, as the file is of an earlier version.
    fitted_params_ : dict
        The hyper-parameters at that time.
    """

    # What an earlier fit left goes before the next: two inverses at once would need twice the memory.
    _frees_before_fit: ClassVar[bool] = True
    # Whether scores are X·W, as the held-out error (mse) assumes.
    _is_linear: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        cls.__doc__ = with_inherited_sections(cls)

    @abstractmethod
    def _learn(self, data: Interactions) -> None:
        """Set the fitted attributes of the subclass."""

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
    def _needs_times(self) -> bool:
        """Whether a fit asks when interactions happened."""
        return False

    @property
    def _prior_key(self) -> Any:
        """What prior a fit is with: of models that share one, those of equal priors share its product, too."""
        return None

    @property
    def _shared_fit(self) -> tuple[object, ...] | None:
        """The very objects that fitted models share if they are ranked in one pass. None: this one is ranked alone."""
        return None

    @abstractmethod
    def _contributions(
        self, columns: NDArray[np.int32], values: NDArray[np.floating], target: int
    ) -> tuple[NDArray[np.float64], float]:
        """What each column of a history, with its weight, adds to the target's score, and the score."""

    @property
    def _display_name(self) -> str:
        """What the model is called where it stands beside others."""
        return type(self).__name__

    __repr__ = short_repr

    def _repr_html_(self) -> str:
        fields = sorted(dataclasses.fields(self), key=lambda field: bool(field.kw_only))
        shown = {field.name: (getattr(self, field.name), field.default) for field in fields}
        fitted = (self.n_users_, len(self.items_), *self._state()) if hasattr(self, "items_") else None
        return model_html(self._display_name, shown, fitted)

    def fit(self, data: InteractionsLike, y: None = None, *, keep_data: KeepData = False) -> Self:
        """Learn from interactions.

        Parameters
        ----------
        data : Interactions, PartitionedInteractions, sparse matrix or frame
            Users × items; a plain matrix's ids are its column numbers. A frame has a row for each interaction, and its
            columns are found as :func:`deql.read_interactions` does.
        y : ignored
            Present for scikit-learn's conventions.
        keep_data : bool or "hashed", default False
            Keep the data as ``data_``, in the model file too: users can then be asked for by their ids. "hashed" keeps
            salted hashes of the ids in their place: the file names nobody, and users are still found by their ids.

        Returns
        -------
        self
        """
        return self._fit_keeping(self._training_data(data), self._learn, keep_data)

    def _training_data(self, data: InteractionsLike) -> TrainingData:
        """What a fit learns from: all interactions in memory, unless a model can do with parts of them."""
        return as_interactions(data, time=self._needs_times)

    def _catalogue(self, data: Data) -> Data:
        """The interactions with all items that the model is to know: a prior may know more of them.

        Where there are more, ``_learn`` is told as ``known`` how many were there before.
        """
        return data

    def _fit_keeping(self, data: TrainingData, learn: Callable[..., None], keep_data: KeepData) -> Self:
        catalogue = self._catalogue(data)
        kept = data_to_keep(catalogue, keep_data)  # whatever is wrong with ids is told before the long work
        self._fit(catalogue, learn if catalogue is data else partial(learn, known=data.n_items))
        self._kept, self.user_salt_ = kept
        return self

    def _keep_data(self, data: Interactions, keep_data: KeepData) -> None:
        """Keep the data that the model was fitted on, all of its items among theirs."""
        self._kept, self.user_salt_ = data_to_keep(data, keep_data)

    def _fit(self, data: TrainingData, learn: Callable[..., None]) -> Self:
        self._check_parameters()
        if not data.n_interactions:
            raise DataError("there are no interactions to learn from")
        before = {name: value for name, value in self.__dict__.items() if name.endswith("_") or name in _LEFT}
        for name in before:
            del self.__dict__[name]
        if self._frees_before_fit:
            before.clear()
        self.item_counts_ = data.item_counts
        try:
            learn(data)
        except BaseException:
            self.__dict__.update(before)
            raise
        self.items_, self.titles_ = data.items, data.titles
        self.n_users_, self.weighted_ = data.n_users, data.weighted
        self.fitted_params_ = self.get_params()
        return self

    @overload
    def recommend(
        self,
        histories: Histories | None = None,
        k: int = 20,
        exclude_seen: bool = True,
        exclude: Iterable[ItemId] | None = None,
        candidates: Iterable[ItemId] | None = None,
        strict: bool = False,
        *,
        users: Iterable[UserId] | None = None,
        reasons: int = 0,
    ) -> Recommendations: ...
    @overload
    def recommend(self, histories: IntoFrame, *given: Any, **named: Any) -> Any: ...
    def recommend(
        self,
        histories: Histories | IntoFrame | None = None,
        k: int = 20,
        exclude_seen: bool = True,
        exclude: Iterable[ItemId] | None = None,
        candidates: Iterable[ItemId] | None = None,
        strict: bool = False,
        *,
        users: Iterable[UserId] | None = None,
        reasons: int = 0,
    ) -> Recommendations | IntoFrame:
        """The k best items for each history; nobody needs to have been in the training data.

        Parameters
        ----------
        histories : Interactions, sparse matrix, frame, or list of lists or mappings of items, optional
            One row, list or mapping for each user: items by id, or by a title that only one item has. Weights are the
            values of a matrix or a mapping, ``{"tea": 2.5, "jam": -1.0}``; in lists every item weighs 1. What weighs 0
            is not in the history. A frame has a row for each interaction, which counts 1; its columns are found as
            :func:`deql.read_interactions` does, which also reads weights. A model that kept its data
            (see :meth:`fit`) needs none.
        k : int, default 20
            How many items; at most as many as the model knows are returned.
        exclude_seen : bool, default True
            Leave out the items of the history.
        exclude : iterable of items, optional
            Never recommend these.
        candidates : iterable of items, optional
            Recommend only among these; an error if none of them is known.
        strict : bool, default False
            Raise an error for unknown items in histories and candidates, which are else ignored with a warning, in
            ``exclude``, and in ``users``, who else get the popularity order with a warning.
        users : iterable of user ids, optional
            Only these users of the histories, or of the data that the model kept; all of them if not given.
        reasons : int, default 0
            Name for each item at most so many items of the history: those that add most to its score. (For the exact
            parts see :meth:`explain`.)

        Returns
        -------
        Recommendations
            Unpacks into ``ids, scores``. A cold-start user, without a known item, gets the popularity order as a
            fallback and is marked in ``from_popularity``; so is one whose items have no weight for any other, as may
            be in a pruned model. For a frame, a frame of the same kind with a row for each user and rank, see
            :meth:`Recommendations.to_frame <deql.ranking.recommendations.Recommendations.to_frame>`.

        Examples
        --------
        >>> import deql
        >>> eaten = ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"]
        >>> data = deql.Interactions.from_pairs(list("aabbcccd"), eaten)
        >>> model = deql.EASE(l2=1.0).fit(data, keep_data=True)
        >>> ids, scores = model.recommend([["egg"]], k=2)
        >>> ids.tolist()
        [['jam', 'tea']]
        >>> model.recommend(users=["d"], k=1).ids.tolist()
        [['jam']]
        """
        check_whole("reasons", reasons, least=0)
        asked = self._asked(histories, users, strict)  # type: ignore[arg-type]
        check_whole("k", k)
        allowed = self._allowed(exclude, candidates, strict)
        with stages(self.progress) as stage:
            found = self._recommended(asked, int(k), exclude_seen, allowed, int(reasons), stage("Recommend"))
        return found if asked.kind is None else found.to_frame(asked.kind)

    def similar_items(self, item: ItemId | Iterable[ItemId], k: int = 10) -> SimilarItems:
        """The items that having ``item`` speaks for most: the largest entries of its row of W.

        Parameters
        ----------
        item : item id or title, or list of them
        k : int, default 10
            How many others; at most as many as the model knows.

        Returns
        -------
        SimilarItems
            Unpacks into ``ids, scores``: item ids, the most similar first, and their entries in the item's row of W;
            for a list of items a row for each. Others that score 0 end the list, the most popular first where W is
            sparse.

        Examples
        --------
        >>> import deql
        >>> eaten = ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"]
        >>> data = deql.Interactions.from_pairs(list("aabbcccd"), eaten)
        >>> model = deql.EASE(l2=1.0).fit(data)
        >>> ids, scores = model.similar_items("jam", k=1)
        >>> ids.tolist()
        ['tea']
        >>> model.similar_items(["jam", "egg"], k=1).ids.tolist()
        [['tea'], ['jam']]
        """
        self._check_fitted()
        several = list(item) if isinstance(item, Iterable) and not isinstance(item, Hashable) else None
        asked: list[Any] = [item] if several is None else several
        columns = np.array([self._column(each) for each in asked], np.int32)
        rows = csr_array(
            (np.ones(len(columns), np.float32), columns, np.arange(len(columns) + 1, dtype=np.int32)),
            shape=(len(columns), len(self.items_)),
        )
        found = self.recommend(rows, k=k)
        found.scores[found.from_popularity] *= 0.0  # which are shares of users, and no entries of W
        listed = SimilarItems(*found, found.from_popularity, found.titles, self.items_[columns])
        return listed.first() if several is None else listed

    def explain(self, history: History, item: ItemId, k: int | None = None, strict: bool = False) -> Explanation:
        """How each item of a history adds to the score of ``item``.

        Parameters
        ----------
        history : iterable or mapping of items, Interactions or sparse matrix
            One user's items, as :meth:`recommend` takes them; of the last two, one row.
        item : item id or title
            What to explain.
        k : int, optional
            Keep only the k largest parts; the others are summed in ``rest``.
        strict : bool, default False
            As in :meth:`recommend`.

        Returns
        -------
        Explanation
            A sequence of ``(item, value)`` that adds up to its ``score`` exactly.

        Examples
        --------
        >>> import deql
        >>> eaten = ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"]
        >>> model = deql.EASE(l2=1.0).fit(deql.Interactions.from_pairs(list("aabbcccd"), eaten))
        >>> why = model.explain({"egg": 3.0, "tea": 1.0}, "jam")
        >>> [(part.item, round(part.value, 2)) for part in why]
        [('egg', 0.67), ('tea', 0.56)]
        """
        self._check_fitted()
        if k is not None:
            check_whole("k", k)
        target = self._column(item)
        row = encode_history(history, self._item_index, self.items_, strict, self._title_index)
        if isinstance(history, Interactions):
            row = self._personal(row, history.users)
        return self._explained(row.indices, row.data, target, k)

    def _explained(
        self, columns: NDArray[np.int32], weights: NDArray[np.floating], target: int, k: int | None
    ) -> Explanation:
        """What the columns of a history add to the score of another."""
        values, score = self._contributions(columns, weights, target)
        from_popularity = bool(self._cold(np.array([0, len(columns)], np.int32), columns)[0])
        of_items = columns < len(self.items_)  # what a user's own vector adds is in the rest
        columns, values = columns[of_items], values[of_items]
        if from_popularity:
            values, score = np.zeros(len(columns)), float(self._share(target))
        order = np.lexsort((columns, -np.abs(values)))
        shown = order[:k]
        parts = tuple(
            Contribution(name, float(value), self._shared_features(int(column), target))
            for name, value, column in zip(
                self.items_[columns[shown]].tolist(), values[shown], columns[shown], strict=True
            )
        )
        # All sums are exact (see Explanation), so this is what the shown parts leave, to the last bit.
        rest, titles = float(score - values[shown].sum()), self._titles_by_id([target, *columns[shown]])
        return Explanation(self.items_[[target]].tolist()[0], float(score), parts, rest, titles, from_popularity)

    def _shared_features(self, source: int, target: int) -> tuple[str, ...]:
        """Names of the features that two items share, if the model knows features."""
        return ()

    def neighbours(self, item: ItemId, k: int = 10) -> Neighbourhood:
        """The items that ``item`` has most to do with, and all weights among them: a small directed graph.

        W_ij says how much having i adds to the score of j; the larger it is in size, the more i has to do with j,
        whatever its sign.

        Parameters
        ----------
        item : item id or title
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
        names = tuple(self.items_[columns].tolist())
        return Neighbourhood(names, among.reshape(len(columns), -1), self._titles_by_id(columns))

    def plot_neighbours(self, item: ItemId, k: int = 10) -> Figure:
        """:meth:`neighbours` as a matplotlib figure."""
        return self.neighbours(item, k).plot()

    def _titles_by_id(self, columns: Sequence[int] | NDArray[np.int32]) -> dict[Any, str] | None:
        """Titles by item id."""
        if self.titles_ is None:
            return None
        return dict(zip(self.items_[columns].tolist(), self.titles_[columns].tolist(), strict=True))

    def _column(self, item: ItemId) -> int:
        return known_column(item, self._item_index, self.items_, self._title_index)
