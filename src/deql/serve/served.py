"""A fitted model with what answering needs: names, other rules on the same P, many histories at once."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql.io.model_file import checksum
from deql.models import load
from deql.models.base import Recommender
from deql.models.linear import LinearAutoencoder
from deql.ranking.histories import allowed_items, known_columns
from deql.serve.catalogue import Catalogue
from deql.serve.errors import ApiError

__all__ = ["OWN_RULE", "Query", "Ranked", "Rule", "Served"]

_RULES_KEPT = 64
"""Rules of which the two vectors are kept: those of a few people who move sliders."""

_LONG_LIST = 100
"""Lists up to this length are made together: it hardly matters to one of 20 that another has 100."""


class Rule(NamedTuple):
    """What a request changes about the rule; None stays as the model has it."""

    b: float | None = None
    zero_diagonal: bool | None = None
    popularity_power: float | None = None


OWN_RULE = Rule()


@dataclass(frozen=True, eq=False)
class Query:
    """One history to rank for.

    Attributes
    ----------
    columns : list of int
        The history's known items, sorted: the kernels rely on it.
    k : int
    exclude_seen : bool
    allowed : ndarray of bool or None
        Which items may come; None for all.
    rule : Rule
    """

    columns: list[int]
    k: int
    exclude_seen: bool = True
    allowed: NDArray[np.bool_] | None = None
    rule: Rule = OWN_RULE

    @property
    def together(self) -> tuple[Any, ...]:
        """Queries that agree in this can be ranked in one pass."""
        return self.rule, self.exclude_seen, id(self.allowed), self.k > _LONG_LIST and self.k


class Ranked(NamedTuple):
    """The best columns, best first, and their scores."""

    columns: list[int]
    scores: list[float]


class Served:
    """A model as the server holds it; nothing of it changes, so that any thread may ask.

    Parameters
    ----------
    model : fitted Recommender
    checksum : str, default ""
        That of its file.
    example : sequence of item ids
        The history the page begins with; the most popular items if none of these is known.
    curve : dict or None
        See :mod:`deql.serve.curve`.

    Examples
    --------
    >>> import deql
    >>> eaten = ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"]
    >>> data = deql.Interactions.from_pairs(list("aabbcccd"), eaten)
    >>> served = Served(deql.EASE(l2=1.0).fit(data))
    >>> columns, unknown = served.known(["egg", "oat"])
    >>> [best] = served.rank([Query(columns, k=2)])
    >>> [served.name(column)["item"] for column in best.columns], unknown
    (['jam', 'tea'], ['oat'])
    """

    def __init__(
        self,
        model: Recommender,
        checksum: str = "",
        example: Sequence[Any] = (),
        curve: dict[str, Any] | None = None,
    ) -> None:
        self.model, self.checksum, self.curve = model, checksum, curve
        self.loaded = datetime.now(UTC)
        self.items: list[Any] = model.items_.tolist()
        self.titles: list[str] | None = None if model.titles_ is None else model.titles_.tolist()
        self.index = model._item_index
        names = self.titles if self.titles is not None else [str(item) for item in self.items]
        self.catalogue = Catalogue(names, model.item_counts_)
        self.example = self.known(example)[0] or sorted(self.catalogue.find("", 3)[0])
        self._everything = np.ones(len(self.items), bool)
        self._ruled: OrderedDict[Rule, Recommender] = OrderedDict()
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path, *, verify: bool = True, **known: Any) -> Served:
        """The model of a file; what else is known about it goes to the constructor."""
        model = load(path, verify=verify)
        return cls(model, checksum(path), **known)

    def warm(self) -> None:
        """Answer once, so that the first to ask need not wait for kernels to be compiled, and pages to be read."""
        self.rank([Query(self.example, k=10)])
        self.model._explained(np.array(self.example, np.int32), 0, None)
        self.model.neighbours(self.items[self.example[0]])

    def name(self, column: int) -> dict[str, Any]:
        """An item for machines: its id, and its title if it has one."""
        if self.titles is None:
            return {"item": self.items[column]}
        return {"item": self.items[column], "title": self.titles[column]}

    def known(self, history: Iterable[Any]) -> tuple[list[int], list[Any]]:
        """The columns of a history's items, and the items that the model does not know."""
        return known_columns(history, self.index)

    def column_called(self, text: str) -> int | None:
        """Where an item is whose id came as text, in an address; None if the model does not know it."""
        if isinstance(self.items[0], int):
            whole = re.fullmatch("0|-?[1-9][0-9]{0,30}", text)
            return None if whole is None else self.index.get(int(text))
        return self.index.get(text)

    def allowed(
        self, exclude: Sequence[Any] | None, candidates: Sequence[Any] | None, strict: bool
    ) -> NDArray[np.bool_] | None:
        """Which items may come; None for all. Unknown candidates are an error."""
        if exclude is None and candidates is None:
            return None
        return allowed_items(len(self.items), self.index, exclude, candidates, strict)

    @property
    def rule(self) -> dict[str, Any] | None:
        """The model's own rule; None if its weights cannot be changed without another fit."""
        if not isinstance(self.model, LinearAutoencoder):
            return None
        own = self.model
        return {
            "b": own._kept_weight, "zero_diagonal": own._zero_diagonal, "popularity_power": own.popularity_power,
        }  # fmt: skip

    def ruled(self, rule: Rule) -> Recommender:
        """The model with another rule on the same P: O(n) the first time, then remembered for a while."""
        changes = {name: value for name, value in rule._asdict().items() if value is not None}
        if not changes:
            return self.model
        if not isinstance(self.model, LinearAutoencoder):
            raise ApiError(
                422, "rule_fixed",
                f"the weights of a {type(self.model).__name__} are fixed: {', '.join(changes)} can be changed for the "
                "models that are one inverse and two vectors only",
            )  # fmt: skip
        with self._lock:
            if rule in self._ruled:
                self._ruled.move_to_end(rule)
                return self._ruled[rule]
        other = self.model.with_rule(**changes)
        with self._lock:
            self._ruled[rule] = other
            if len(self._ruled) > _RULES_KEPT:
                self._ruled.popitem(last=False)
        return other

    def rank(self, queries: Sequence[Query]) -> list[Ranked]:
        """Lists for many histories: those that agree in all else in one pass over P."""
        order = sorted(range(len(queries)), key=lambda q: hash(queries[q].together))
        lists: dict[int, Ranked] = {}
        for _, group in groupby(order, key=lambda q: queries[q].together):
            members = list(group)
            lists.update(zip(members, self._rank_alike([queries[q] for q in members]), strict=True))
        return [lists[q] for q in range(len(queries))]

    def _rank_alike(self, queries: list[Query]) -> list[Ranked]:
        first = queries[0]
        sizes = [len(query.columns) for query in queries]
        indptr = np.cumsum([0, *sizes], dtype=np.int32)
        indices = np.array([column for query in queries for column in query.columns], np.int32)
        matrix = csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(len(queries), len(self.items)))
        allowed = self._everything if first.allowed is None else first.allowed
        columns, scores, _ = self.ruled(first.rule)._best(
            matrix, max(query.k for query in queries), first.exclude_seen, allowed
        )
        filled = np.sum(columns >= 0, axis=1)
        return [
            Ranked(columns[row, :end].tolist(), scores[row, :end].tolist())
            for row, end in enumerate(np.minimum(filled, [query.k for query in queries]).tolist())
        ]

    def summary(self) -> dict[str, Any]:
        """What kind of model this is and what it learned from."""
        model = self.model
        return {
            "model": type(model).__name__,
            "parameters": model._in_words(model.fitted_params_),
            "data": {
                "users": model.n_users_, "items": len(self.items), "interactions": int(model.item_counts_.sum()),
                "titles": self.titles is not None, "ids": "integers" if isinstance(self.items[0], int) else "text",
            },
            "checksum": self.checksum, "loaded": self.loaded.isoformat(timespec="seconds"), "rule": self.rule,
            "example": [self.name(column) for column in self.example], "curve": self.curve is not None,
        }  # fmt: skip
