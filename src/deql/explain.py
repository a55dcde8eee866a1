"""Why an item was recommended: what each item of the history adds to its score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

__all__ = ["Contribution", "Explanation"]


class Contribution(NamedTuple):
    """What one item of the history adds to the score: x_j·W_ji."""

    item: Any
    value: float


@dataclass(frozen=True)
class Explanation(Sequence[Contribution]):
    """The parts of one score, largest in size first.

    The parts and ``rest`` add up to ``score`` exactly, in any order of addition: every part is a
    multiple of one power of two small enough that no partial sum is ever rounded.

    Attributes
    ----------
    item : object
        The item whose score is explained.
    score : float
        Its score, the very number ``recommend`` returns.
    parts : tuple of Contribution
        One for each item of the history, or the k largest of them.
    rest : float
        What the parts leave: the sum of those left out because of k, and the item's own popularity
        where that is the score (:class:`deql.Popularity`, or an empty history). Otherwise 0.

    Examples
    --------
    >>> import deql
    >>> data = deql.Interactions.from_pairs(list("aabbcccd"), ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"])
    >>> why = deql.EASE(l2=1.0).fit(data).explain(["egg", "tea"], "jam")
    >>> [part.item for part in why]
    ['tea', 'egg']
    >>> sum(part.value for part in why) == why.score
    True
    """

    item: Any
    score: float
    parts: tuple[Contribution, ...]
    rest: float = 0.0

    @overload
    def __getitem__(self, index: int) -> Contribution: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Contribution, ...]: ...
    def __getitem__(self, index: int | slice) -> Contribution | tuple[Contribution, ...]:
        return self.parts[index]

    def __len__(self) -> int:
        return len(self.parts)
