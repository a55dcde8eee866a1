"""Why an item was recommended: what each item of the history adds to its score, and the graph these weights make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

from deql._system.frames import make_frame
from deql.plotting.drawing import Labels
from deql.plotting.figures import figure
from deql.plotting.item_plots import contributions, neighbourhood
from deql.ranking.notebook import explanation_html, explanation_rows, item_name, neighbourhood_html, short_list

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

__all__ = ["Contribution", "Edge", "Explanation", "Neighbourhood"]


class _Part(NamedTuple):
    item: Any
    value: float


class Contribution(_Part):
    """What one item of the history adds to the score, x_j·W_ji: a pair of the item and that value.

    Attributes
    ----------
    shared : tuple of str
        Names of the features that it shares with the explained item, such as "genre Comedy", what says most first;
        empty unless the model has features. It is no part of the pair.

    Examples
    --------
    >>> item, value = part = Contribution("tea", 0.5, ("kind drink",))
    >>> part
    Contribution(item='tea', value=0.5, shared=('kind drink',))
    """

    shared: tuple[str, ...] = ()

    def __new__(cls, item: Any, value: float, shared: tuple[str, ...] = ()) -> Self:
        """A pair, with what it shares beside it."""
        part = super().__new__(cls, item, value)
        part.shared = shared
        return part

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, shared={self.shared!r})" if self.shared else super().__repr__()


@dataclass(frozen=True, repr=False)
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
        where that is the score (:class:`deql.Popularity`, or ``from_popularity``). Otherwise 0.
    titles : dict or None
        What people call the items, by id, if the model knows.
    from_popularity : bool
        Whether the history says nothing of other items, so that ``recommend`` gives the popularity order.

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
    titles: dict[Any, str] | None = field(default=None, compare=False)
    from_popularity: bool = False

    @overload
    def __getitem__(self, index: int) -> Contribution: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Contribution, ...]: ...
    def __getitem__(self, index: int | slice) -> Contribution | tuple[Contribution, ...]:
        return self.parts[index]

    def __len__(self) -> int:
        return len(self.parts)

    def __repr__(self) -> str:
        parts = short_list([f"{item_name(part.item, self.titles)} {part.value:+.4g}" for part in self.parts])
        shared = short_list(list(dict.fromkeys(name for part in self.parts for name in part.shared)))
        parts += f"; shares {shared}" * bool(shared)
        return f"Explanation({self.item!r}: {self.score:.4g} = {parts or f'{self.rest:.4g}'})"

    def _repr_html_(self) -> str:
        return explanation_html(self)

    def plot(self) -> Figure:
        """A bar for each part; together they are the score. Needs matplotlib (extra ``report``)."""
        name = short_list([item_name(self.item, self.titles)])
        labels = Labels("explanation", f"Why {name}: score {self.score:.4f}", "adds to the score")
        return figure([contributions.panel(labels, explanation_rows(self))], width=6.5)

    def to_frame(self, kind: str | None = None) -> Any:
        """A row for each part, largest in size first: item and value. They and ``rest`` add up to ``score``.

        Where any item shares features with the explained one, a third column names them, with semicolons between.
        ``kind`` is polars, pandas or pyarrow; polars if not given.
        """
        columns = {"item": [part.item for part in self], "value": [part.value for part in self]}
        if any(part.shared for part in self):
            columns["shared"] = ["; ".join(part.shared) for part in self]
        return make_frame(columns, kind)


class Edge(NamedTuple):
    """That having ``source`` adds ``weight`` to the score of ``target``."""

    source: Any
    target: Any
    weight: float


@dataclass(frozen=True, eq=False, repr=False)
class Neighbourhood:
    """An item and those it has most to do with: a directed graph with signed weights.

    Attributes
    ----------
    items : tuple
        The item in the middle, then its neighbours, nearest first.
    weights : ndarray of float64
        Entry (s, t) is W at ``items[s]``, ``items[t]``; the diagonal is what each item adds to its own score.
    titles : dict or None
        What people call the items, by id, if the model knows.

    Examples
    --------
    >>> import deql
    >>> data = deql.Interactions.from_pairs(list("aabbcccd"), ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"])
    >>> near = deql.EASE(l2=1.0).fit(data).neighbours("jam")
    >>> [(edge.source, edge.target, round(edge.weight, 2)) for edge in near.edges(between=0)]
    [('jam', 'tea', 0.71), ('tea', 'jam', 0.56), ('egg', 'jam', 0.22), ('jam', 'egg', 0.18)]
    """

    items: tuple[Any, ...]
    weights: NDArray[np.float64]
    titles: dict[Any, str] | None = None

    def to_frame(self, kind: str | None = None) -> Any:
        """A row for each of the :meth:`edges`: source, target, weight.

        ``kind`` is polars, pandas or pyarrow; polars if not given.
        """
        edges = self.edges()
        return make_frame({name: [getattr(edge, name) for edge in edges] for name in Edge._fields}, kind)

    def edges(self, between: int | None = None) -> list[Edge]:
        """All edges that are not zero, those of the item in the middle first, each kind by size.

        ``between`` keeps only so many of those that lie between neighbours.
        """
        n = len(self.items)
        pairs = [(s, t) for s in range(n) for t in range(n) if s != t and self.weights[s, t] != 0]
        pairs.sort(key=lambda pair: (0 not in pair, -abs(self.weights[pair])))
        own = sum(0 in pair for pair in pairs)
        kept = pairs if between is None else pairs[: own + between]
        return [Edge(self.items[s], self.items[t], float(self.weights[s, t])) for s, t in kept]

    def __repr__(self) -> str:
        return f"Neighbourhood({self.items[0]!r}: {short_list(self._names()[1:]) or 'none'})"

    def _repr_html_(self) -> str:
        return neighbourhood_html(self)

    def plot(self) -> Figure:
        """The graph: an arrow's width is its weight's size. Needs matplotlib (extra ``report``)."""
        title = f"Neighbours of {short_list(self._names()[:1])}: arrows point to whose score they add to"
        labels = Labels("neighbourhood", title, "")
        return figure([neighbourhood.panel(labels, self._names(), self.weights)], width=7.5, height=5.2)

    def _names(self) -> list[str]:
        return [item_name(item, self.titles) for item in self.items]
