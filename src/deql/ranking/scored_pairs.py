"""The scores of items that somebody else has chosen: what ``score_pairs`` answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from deql._system.frames import make_frame
from deql.ranking.notebook import scored_pairs_html, scored_pairs_repr

__all__ = ["ScoredPairs"]


@dataclass(frozen=True, eq=False)
class ScoredPairs(Sequence[NDArray[np.float64]]):
    """Scores of given items: a sequence with an array for each history, in the order of its items.

    Attributes
    ----------
    users : ndarray
        Ids of the users in the order of rows; numbers from 0 for histories that came without.
    items : ndarray
        The items of all rows, one row after the other.
    scores : ndarray of float64
        The score of each: the very number that ``recommend`` gives, or NaN for an item that the model does not know.
    bounds : ndarray of int64
        Row r has the items ``bounds[r]`` … ``bounds[r + 1] − 1``.
    from_popularity : ndarray of bool
        True for rows whose history has no known item, or none that has a weight for another: their scores are the share
        of users who have the item.
    titles : ndarray of str or None
        What people call the items.

    Examples
    --------
    >>> import deql
    >>> data = deql.Interactions.from_pairs(list("aabbcccd"), ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"])
    >>> found = deql.EASE(l2=1.0).fit(data).score_pairs([["egg"], ["tea"]], [["tea", "jam"], ["jam"]])
    >>> [scores.round(2).tolist() for scores in found]
    [[0.14, 0.22], [0.56]]
    """

    users: NDArray[Any]
    items: NDArray[Any]
    scores: NDArray[np.float64]
    bounds: NDArray[np.int64]
    from_popularity: NDArray[np.bool_]
    titles: NDArray[Any] | None = None

    @overload
    def __getitem__(self, index: int) -> NDArray[np.float64]: ...
    @overload
    def __getitem__(self, index: slice) -> list[NDArray[np.float64]]: ...
    def __getitem__(self, index: int | slice) -> NDArray[np.float64] | list[NDArray[np.float64]]:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        row = range(len(self))[index]
        return self.scores[self.bounds[row] : self.bounds[row + 1]]

    def __len__(self) -> int:
        return len(self.users)

    __repr__ = scored_pairs_repr
    _repr_html_ = scored_pairs_html

    def to_frame(self, kind: str | None = None) -> Any:
        """A row for each pair, in the order given: user, item, title if there are any, score, from_popularity.

        ``kind`` is polars, pandas or pyarrow; polars if not given.
        """
        rows = np.repeat(np.arange(len(self)), np.diff(self.bounds))
        columns = {"user": self.users[rows], "item": self.items}
        if self.titles is not None:
            columns["title"] = self.titles
        return make_frame(columns | {"score": self.scores, "from_popularity": self.from_popularity[rows]}, kind)
