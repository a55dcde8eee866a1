"""Verbs for many users at once: whose rows are asked for, scores of pairs and of the model, lists written to a file."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.callers import levels_to_the_caller
from deql._system.checks import check_whole
from deql._system.frames import frame_kind
from deql._system.lazy import pl
from deql._system.progress import ProgressCallback, stages
from deql.data import Interactions
from deql.data.id_arrays import id_array
from deql.data.interactions import InteractionsLike, ItemId, UserId, is_frame
from deql.errors import ParameterError, UnknownItemError, name_some
from deql.io.frame_stream import STREAM_ENDINGS, write_frames
from deql.metrics import ndcg
from deql.models.fitted import FittedModel
from deql.models.kept_data import pick_users
from deql.models.reasons import name_reasons
from deql.ranking import NO_ITEM
from deql.ranking.histories import Histories, ids_of_kind, name_unknown
from deql.ranking.item_lookup import find_column
from deql.ranking.recommendations import Recommendations
from deql.ranking.scored_pairs import ScoredPairs
from deql.split.held_out import HeldOut
from deql.split.new_users import hold_out_items

__all__ = ["BulkVerbs", "Written"]

_LIST_ENTRIES = 2**19
"""Entries of lists in memory at once."""

_LEAST_USERS = 2**10

_CUTOFF = 20
"""That of the NDCG that ``score`` gives."""


class Asked(NamedTuple):
    """Whose lists are wanted: rows in the model's columns, ids of users, and the kind of frame they came as, if one."""

    matrix: csr_array
    users: NDArray[Any]
    kind: str | None


class Written(NamedTuple):
    """What was written: rows, and users, of whom some got the popularity order."""

    rows: int
    users: int
    from_popularity: int


class BulkVerbs(FittedModel):
    """What a model does for many users at once."""

    def _asked(self, histories: Histories | None, users: Iterable[UserId] | None, strict: bool) -> Asked:
        """The rows of histories as given, or of users whose data were kept."""
        self._check_fitted()
        data = self._data_asked(histories)
        kind = (frame_kind(histories) or "pyarrow") if is_frame(histories) else None  # Arrow: what only that knows
        if data is None:
            if users is not None:
                raise ParameterError(
                    "users are picked by their ids, which lists and matrices do not have: give Interactions or a frame",
                    parameter="users",
                )
            matrix = self._encode(histories, strict=strict)  # type: ignore[arg-type]
            return Asked(matrix, np.arange(matrix.shape[0]), None)
        if users is None:
            return Asked(self._personal(self._encode(data, strict=strict), data.users), data.users, kind)
        rows, ids = pick_users(data, users, strict, self.user_salt_ if histories is None else None)
        some = Interactions(rows, ids, data.items)
        return Asked(self._personal(self._encode(some, strict=strict), ids), ids, kind)

    def _data_asked(self, histories: Histories | None) -> Interactions | None:
        """Histories with ids of users, or the data that were kept; None for lists and matrices, which have none."""
        if histories is None:
            if self.data_ is None:
                raise ParameterError(
                    "this model does not have its data, and so no users: give histories, such as [['a', 'b'], ['c']], "
                    "or fit it with keep_data=True",
                    parameter="histories",
                )
            return self.data_
        if is_frame(histories):
            return self._from_frame(histories)
        return histories if isinstance(histories, Interactions) else None

    def _recommended(
        self,
        asked: Asked,
        k: int,
        exclude_seen: bool,
        allowed: NDArray[np.bool_],
        reasons: int,
        report: ProgressCallback | None,
    ) -> Recommendations:
        columns, scores, cold = self._lists(asked.matrix, k, exclude_seen, allowed, report)
        why = None
        if reasons:
            why = name_reasons(self, asked.matrix, np.where(cold[:, None], NO_ITEM, columns), reasons)
        ids, titles = self._names(columns, self.items_), self._titles_of(columns)
        return Recommendations(ids, scores, cold, titles, asked.users, why)

    def score_pairs(
        self,
        histories: Histories | None = None,
        items: Any = None,
        *,
        users: Iterable[UserId] | None = None,
        strict: bool = False,
    ) -> Any:
        """The scores of items that somebody else has chosen, such as the candidates that a shop wants in order.

        They are those of :meth:`recommend` to the last bit; items of the history have theirs too.

        Parameters
        ----------
        histories : Interactions, sparse matrix, frame, or list of lists of item ids, optional
            As in :meth:`recommend`; not needed for a model that kept its data.
        items : list of lists of item ids, or frame
            For each history, or each of the ``users``, the items to score. Or a frame with a row for each pair of user
            and item, of users in the histories or in the data that were kept.
        users : iterable of user ids, optional
            Whose histories, where these have ids.
        strict : bool, default False
            Raise an error for unknown users and items, which else get the popularity order and NaN, with a warning.

        Returns
        -------
        ScoredPairs
            A sequence with an array of scores for each history. For a frame a frame of the same kind in the same
            order: user, item, title if there are any, score, from_popularity.

        Examples
        --------
        >>> import deql
        >>> eaten = ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"]
        >>> data = deql.Interactions.from_pairs(list("aabbcccd"), eaten)
        >>> model = deql.EASE(l2=1.0).fit(data, keep_data=True)
        >>> model.score_pairs([["egg"]], [["tea", "jam"]])[0].round(2).tolist()
        [0.14, 0.22]
        >>> import polars as pl
        >>> pairs = pl.DataFrame({"user": ["d", "a"], "item": ["jam", "egg"]})
        >>> model.score_pairs(items=pairs)["score"].round(2).to_list()
        [0.56, 0.27]
        """
        if is_frame(items):
            if users is not None:
                raise ParameterError("a frame of pairs names its users: leave out users", parameter="users")
            return self._score_frame(histories, items, strict)
        asked = self._asked(histories, users, strict)
        rows = [list(row) for row in _nested(items)]
        if len(rows) != asked.matrix.shape[0]:
            raise ParameterError(
                f"{asked.matrix.shape[0]:,} histories need as many lists of items, got {len(rows):,}", parameter="items"
            )
        bounds = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
        flat = [item for row in rows for item in row]
        columns = self._columns_of(flat, strict)
        scores, cold = self._scores_of(asked.matrix, columns, bounds)
        return ScoredPairs(asked.users, id_array(flat), scores, bounds, cold, self._titles_of(columns))

    def _score_frame(self, histories: Histories | None, frame: Any, strict: bool) -> Any:
        """The frame's pairs with their scores, in its order."""
        from deql.data.pairs import read_pairs  # it needs what ELSA's training does without

        self._check_fitted()
        data = self._data_asked(histories)
        (users, rows), (items, places) = read_pairs(frame)
        if data is not None and (histories is not None or self.user_salt_ is None):
            users, histories = _as_known(users, data.users), data
        asked = self._asked(histories, users, strict)
        order = np.argsort(rows, kind="stable")
        wanted = _as_known(items, self.items_)
        columns = self._columns_of(wanted, strict)[places]
        shown = id_array(wanted if self.items_.dtype == object else items)[places]
        bounds = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(users)))])
        scores, cold = self._scores_of(asked.matrix, columns[order], bounds)
        as_given = np.empty_like(order)
        as_given[order] = np.arange(len(order))
        each, titles = np.arange(len(rows) + 1), self._titles_of(columns)
        found = ScoredPairs(asked.users[rows], shown, scores[as_given], each, cold[rows], titles)
        return found.to_frame(frame_kind(frame) or "pyarrow")

    def _columns_of(self, items: list[Any], strict: bool) -> NDArray[np.int32]:
        """Columns of ids or titles; ``NO_ITEM`` for those that the model does not know."""
        found = [find_column(item, self._item_index, self._title_index) for item in items]
        columns = np.array([NO_ITEM if column is None else column for column in found], np.int32)
        unknown = list(dict.fromkeys(items[place] for place in np.flatnonzero(columns == NO_ITEM).tolist()))
        named = name_unknown(unknown, self._item_index)
        if unknown and strict:
            raise UnknownItemError(f"the pairs name items the model does not know: {named}")
        if unknown:
            several = f"{len(unknown):,} items that the model does not know have" if len(unknown) > 1 else (
                "1 item that the model does not know has"
            )  # fmt: skip
            warnings.warn(f"{several} no score: {named}", stacklevel=levels_to_the_caller())
        return columns

    def _titles_of(self, columns: NDArray[np.int32]) -> NDArray[Any] | None:
        return None if self.titles_ is None else self._names(columns, self.titles_)

    def _scores_of(
        self, matrix: csr_array, columns: NDArray[np.int32], bounds: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Scores of the columns ``bounds[r]`` … ``bounds[r + 1] − 1`` under row r, and which rows are cold."""
        known = columns != NO_ITEM
        ends = np.concatenate([[0], np.cumsum(known)])[bounds]
        pairs = csr_array((np.ones(int(ends[-1]), np.float32), columns[known], ends), shape=matrix.shape)
        cold = self._cold(matrix.indptr, matrix.indices)
        scores = np.full(len(columns), np.nan)
        scores[known] = self._pair_scores(matrix, pairs)
        lonely = known & np.repeat(cold, np.diff(bounds))
        scores[lonely] = self._share(columns[lonely])
        return scores, cold

    def score(self, X: InteractionsLike, y: None = None) -> float:
        """Mean NDCG@20 on users whom the model has not met, which scikit-learn's searches maximise.

        A fifth of each user's items is held out, the same ones in every call, and the model is to find them from the
        others. Users with fewer than two items are left out. For other metrics and shares see :func:`deql.evaluate`;
        for the scores of user–item pairs :meth:`~deql.Recommender.score_pairs`: this name is scikit-learn's.

        Parameters
        ----------
        X : Interactions, sparse matrix or frame
            The users' items.
        y : ignored
            Present for scikit-learn's conventions.

        Returns
        -------
        float
            Higher is better.

        Examples
        --------
        >>> import deql
        >>> data = deql.datasets.debian()[:600].without_empty()
        >>> known, others = data[:500], data[500:]
        >>> [round(model.fit(known).score(others), 2) for model in (deql.EASE(l2=10.0), deql.Popularity())]
        [0.52, 0.31]
        """
        self._check_fitted()
        hits, held_out = self._find_held_out(hold_out_items(self._with_ids(X)), _CUTOFF)
        return float(ndcg(hits, held_out, _CUTOFF).mean())

    def _find_held_out(self, part: HeldOut, k: int) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Whether each of the k best items of each user is held out, users × k, and how many items of each are."""
        from deql.ranking.hits import find_hits  # it needs what ELSA's training does without

        seen = self._personal(self._encode(part.seen, "what is seen"), part.seen.users)
        truth = self._encode(part.held_out, "what is held out, and counted as missed")
        columns = self._best(seen, k, True, np.ones(len(self.items_), bool))[0]
        return find_hits(columns[None], truth)[0], np.diff(part.held_out.matrix.indptr).astype(np.int64)

    def write_recommendations(
        self,
        path: str | os.PathLike[str],
        histories: Histories | None = None,
        k: int = 20,
        exclude_seen: bool = True,
        exclude: Iterable[ItemId] | None = None,
        candidates: Iterable[ItemId] | None = None,
        strict: bool = False,
        *,
        users: Iterable[UserId] | None = None,
        reasons: int = 0,
    ) -> Written:
        """Write what :meth:`recommend` gives to a file, a block of users at a time: millions of them in little memory.

        Parameters
        ----------
        path : path
            Ends in .parquet, .csv or .ndjson. The file is written beside its final name and renamed, so there is
            nothing of one that was not finished.
        histories, k, exclude_seen, exclude, candidates, strict, users, reasons
            As in :meth:`recommend`.

        Returns
        -------
        Written
            ``rows``, ``users``, and how many of these are ``from_popularity``.

        Examples
        --------
        >>> import os, tempfile, deql, polars as pl
        >>> data = deql.Interactions.from_pairs(list("aabbcccd"), list("tjtjtjet"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "lists.csv")
        ...     print(deql.EASE(l2=1.0).fit(data).write_recommendations(path, data, k=1))
        ...     print(pl.read_csv(path).columns)
        Written(rows=3, users=4, from_popularity=0)
        ['user', 'rank', 'item', 'score', 'from_popularity']
        """
        place = Path(path)
        if place.suffix not in STREAM_ENDINGS:
            raise ParameterError(f"{place} must end in one of {', '.join(STREAM_ENDINGS)}", parameter="path")
        check_whole("k", k)
        check_whole("reasons", reasons, least=0)
        asked = self._asked(histories, users, strict)
        allowed = self._allowed(exclude, candidates, strict)
        counts = Counter[str]()

        def frames() -> Iterator[pl.DataFrame]:
            with stages(self.progress) as stage:
                for found in self._in_blocks(asked, int(k), exclude_seen, allowed, reasons, stage("Recommend")):
                    frame = found.to_frame("polars")
                    counts.update(rows=len(frame), users=len(found.users), cold=int(found.from_popularity.sum()))
                    yield frame

        write_frames(place, frames(), self._schema(asked.users, bool(reasons)))
        return Written(counts["rows"], counts["users"], counts["cold"])

    def _in_blocks(
        self,
        asked: Asked,
        k: int,
        exclude_seen: bool,
        allowed: NDArray[np.bool_],
        reasons: int,
        report: ProgressCallback | None,
    ) -> Iterator[Recommendations]:
        users = asked.matrix.shape[0]
        block = max(_LEAST_USERS, _LIST_ENTRIES // min(k, len(self.items_)))
        for first in range(0, users, block):
            rows = slice(first, min(first + block, users))
            part = Asked(asked.matrix[rows], asked.users[rows], None)
            yield self._recommended(part, k, exclude_seen, allowed, reasons, None)
            if report is not None:
                report(rows.stop, users)

    def _schema(self, users: NDArray[Any], reasons: bool) -> dict[str, Any]:
        """The types of what is written, whatever a block has of it."""
        user, item = (pl.String if ids.dtype == object else pl.Int64 for ids in (users, self.items_))
        schema: dict[str, Any] = {"user": user, "rank": pl.Int64, "item": item}
        if self.titles_ is not None:
            schema["title"] = pl.String
        schema |= {"score": pl.Float64, "from_popularity": pl.Boolean}
        return schema | {"reason": pl.String} if reasons else schema


def _as_known(ids: list[Any], known: NDArray[Any]) -> list[Any]:
    """Ids of a frame, in which a column without words reads as numbers, as others have them, where they do."""
    return [one if other is None else other for one, other in zip(ids, ids_of_kind(id_array(ids), known), strict=True)]


def _nested(items: Any) -> Iterable[Any]:
    hint = "items must be a list for each history, such as [['a', 'b'], ['c']], or a frame of pairs"
    if items is None or isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise ParameterError(f"{hint}; got {name_some([items])}", parameter="items")
    rows = list(items)
    for row in rows:
        if isinstance(row, str | bytes) or not isinstance(row, Iterable):
            raise ParameterError(f"{hint}; one of them is {name_some([row])}", parameter="items")
    return rows
