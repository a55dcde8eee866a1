"""What ``recommend`` and ``similar_items`` answer: lists of items with their scores."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from deql._system.frames import make_frame
from deql.ranking.notebook import recommendations_html, recommendations_repr

__all__ = ["Recommendations", "SimilarItems"]


class Recommendations(tuple[NDArray[Any], NDArray[np.float64]]):
    """What ``recommend`` returns: unpacks into ``ids, scores``.

    Attributes
    ----------
    ids : ndarray, users × k
        Item ids, best first. Where fewer than k items were left a row ends in markers: −1 if ids are
        integers, None otherwise, and the score there is NaN.
    scores : ndarray of float64, users × k
        Exact scores; for users without a usable history the share of users who have the item.
    from_popularity : ndarray of bool
        True for cold-start users, whose history was empty or unknown, or has no weight for any other item: their row is
        the fallback, the popularity order.
    titles : ndarray of str or None
        What people call the items, if the model was fitted on interactions with titles.
    users : ndarray
        Ids of the users in the order of rows; numbers from 0 for histories that came without.
    reasons : ndarray of str or None, users × k
        If asked for, the items of the history that speak most for each item, largest part first; None where nothing
        does.

    Examples
    --------
    >>> import deql
    >>> data = deql.Interactions.from_pairs(list("aabbcccd"), ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"])
    >>> found = deql.EASE(l2=1.0).fit(data).recommend([["egg"], []], k=2)
    >>> found.ids.tolist()
    [['jam', 'tea'], ['tea', 'jam']]
    >>> found.from_popularity.tolist()
    [False, True]
    """

    from_popularity: NDArray[np.bool_]
    titles: NDArray[Any] | None
    users: NDArray[Any]
    reasons: NDArray[Any] | None

    def __new__(
        cls,
        ids: NDArray[Any],
        scores: NDArray[np.float64],
        from_popularity: NDArray[np.bool_],
        titles: NDArray[Any] | None = None,
        users: NDArray[Any] | None = None,
        reasons: NDArray[Any] | None = None,
    ) -> Self:
        pair = super().__new__(cls, (ids, scores))
        pair.from_popularity = from_popularity
        pair.titles = titles
        pair.users = np.arange(len(ids)) if users is None else users
        pair.reasons = reasons
        return pair

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.ids, self.scores, self.from_popularity, self.titles, self.users, self.reasons

    @property
    def ids(self) -> NDArray[Any]:
        """Item ids, best first."""
        return self[0]

    @property
    def scores(self) -> NDArray[np.float64]:
        """Scores, largest first."""
        return self[1]

    _row: ClassVar[str] = "user"

    def __repr__(self) -> str:
        return recommendations_repr(self)

    def _repr_html_(self) -> str:
        return recommendations_html(self)

    def to_frame(self, kind: str | None = None) -> Any:
        """A row for each user and rank: user, rank, item, title if there are any, score, from_popularity, reason.

        Parameters
        ----------
        kind : {"polars", "pandas", "pyarrow"}, optional
            Whose frame; polars' if not given.

        Examples
        --------
        >>> import deql
        >>> eaten = ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"]
        >>> data = deql.Interactions.from_pairs(list("aabbcccd"), eaten)
        >>> frame = deql.EASE(l2=1.0).fit(data).recommend([["egg"]], k=2).to_frame("pandas")
        >>> frame[["user", "rank", "item"]].values.tolist()
        [[0, 1, 'jam'], [0, 2, 'tea']]
        """
        filled = ~np.isnan(self.scores)
        rows, ranks = np.nonzero(filled)
        columns = {"user": self.users[rows], "rank": ranks + 1, "item": self.ids[filled]}
        if self.titles is not None:
            columns["title"] = self.titles[filled]
        columns |= {"score": self.scores[filled], "from_popularity": self.from_popularity[rows]}
        if self.reasons is not None:
            columns["reason"] = self.reasons[filled]
        return make_frame(columns, kind)


class SimilarItems(Recommendations):
    """What ``similar_items`` returns: unpacks into ``ids, scores``, with a row for each item if several were asked for.

    Attributes
    ----------
    ids, scores, titles
        As in :class:`Recommendations`; flat for a single item.
    items : ndarray
        What was asked for, in the order of rows.

    Examples
    --------
    >>> import deql
    >>> data = deql.Interactions.from_pairs(list("aabbcccd"), ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"])
    >>> deql.EASE(l2=1.0).fit(data).similar_items(["jam", "egg"], k=1).to_frame()[["item", "similar"]].rows()
    [('jam', 'tea'), ('egg', 'jam')]
    """

    _row = "item"

    @property
    def items(self) -> NDArray[Any]:
        """What was asked for, in the order of rows."""
        return self.users

    def first(self) -> SimilarItems:
        """Those of the first item, flat."""
        titles = None if self.titles is None else self.titles[0]
        return SimilarItems(self.ids[0], self.scores[0], self.from_popularity[:1], titles, self.users[:1])

    def _in_rows(self) -> SimilarItems:
        """The same with a row for each item, also for a single one."""
        if self.ids.ndim == 2:
            return self
        titles = None if self.titles is None else self.titles[None]
        return SimilarItems(self.ids[None], self.scores[None], self.from_popularity, titles, self.users)

    def __repr__(self) -> str:
        return recommendations_repr(self._in_rows())

    def _repr_html_(self) -> str:
        return recommendations_html(self._in_rows())

    def to_frame(self, kind: str | None = None) -> Any:
        """A row for each item and rank: item, rank, similar (the other one), its title if there are any, and score."""
        found = self._in_rows()
        filled = ~np.isnan(found.scores)
        rows, ranks = np.nonzero(filled)
        columns = {"item": found.items[rows], "rank": ranks + 1, "similar": found.ids[filled]}
        if found.titles is not None:
            columns["title"] = found.titles[filled]
        return make_frame(columns | {"score": found.scores[filled]}, kind)
