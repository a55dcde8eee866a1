"""A fitted model with what answering needs: other rules on the same P, many histories at once."""

from __future__ import annotations

import re
import threading
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql.data.matrices import shortest_float
from deql.errors import name_some
from deql.io.model_file import checksum
from deql.models import load
from deql.models.base import Recommender
from deql.models.linear import LinearAutoencoder
from deql.priors.matrix import as_prior
from deql.priors.saved import SavedPrior
from deql.priors.specs import prior_spec
from deql.ranking.histories import allowed_columns, allowed_items, known_columns, weighted_columns
from deql.serve.catalogue import Catalogue
from deql.serve.schemas import OWN_RULE, ApiError, RuleOverrides
from deql.serve.snapshot import ReloadError

__all__ = ["ModelHolder", "Query", "RankedColumns", "ServingModel"]

_RULES_KEPT = 64
"""Rules of which the two vectors are kept: those of a few people who move sliders."""

_LONG_LIST = 100
"""Lists up to this length are made together: it hardly matters to one of 20 that another has 100."""

_RELEASE_SECONDS = 0.5
"""Between the end of a model and that of its arrays, so that what referred to them is surely gone."""


@dataclass(frozen=True, eq=False)
class Query:
    """One history to rank for.

    Attributes
    ----------
    columns : list of int
        The history's known items, sorted: the kernels rely on it.
    weights : list of float
        How much each of them weighs.
    k : int
    exclude_seen : bool
    allowed : ndarray of bool or None
        Which items may come; None for all.
    rule : RuleOverrides
    """

    columns: list[int]
    weights: list[float]
    k: int
    exclude_seen: bool = True
    allowed: NDArray[np.bool_] | None = None
    rule: RuleOverrides = OWN_RULE

    @property
    def together(self) -> tuple[Any, ...]:
        """Queries that agree in this can be ranked in one pass."""
        return self.rule, self.exclude_seen, id(self.allowed), self.k > _LONG_LIST and self.k


class RankedColumns(NamedTuple):
    """The best columns, best first, their scores, and whether they are the popularity fallback."""

    columns: list[int]
    scores: list[float]
    from_popularity: bool


class ServingModel:
    """A model as the server holds it; nothing of it changes, so that any thread may ask.

    Parameters
    ----------
    model : fitted Recommender
    checksum : str, default ""
        That of its file.
    example : sequence of item ids
        The history the page begins with; the most popular items if none of these is known.
    curve : dict or None
        See :func:`deql.serve.settings.curve_of`.
    served_as : str, default "model"
        The name that requests call it by, where there are several.
    note : str, default ""
        What the page says about the data and the example.

    Examples
    --------
    >>> import deql
    >>> eaten = ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"]
    >>> data = deql.Interactions.from_pairs(list("aabbcccd"), eaten)
    >>> serving = ServingModel(deql.EASE(l2=1.0).fit(data))
    >>> columns, weights, unknown = serving.known(["egg", "oat"])
    >>> [best] = serving.rank([Query(columns, weights, k=2)])
    >>> [serving.name(column)["item"] for column in best.columns], unknown
    (['jam', 'tea'], ['oat'])
    """

    def __init__(
        self,
        model: Recommender,
        checksum: str = "",
        example: Sequence[Any] = (),
        curve: dict[str, Any] | None = None,
        served_as: str = "model",
        note: str = "",
    ) -> None:
        self.model, self.checksum, self.curve, self.served_as = model, checksum, curve, served_as
        self.note = note
        self.loaded = datetime.now(UTC)
        self.items: list[Any] = model.items_.tolist()
        self.titles: list[str] | None = None if model.titles_ is None else model.titles_.tolist()
        self.index = model._item_index
        names = self.titles if self.titles is not None else [str(item) for item in self.items]
        self.catalogue = Catalogue(names, model.item_counts_)
        self.example = self.known(example)[0] or sorted(self.catalogue.find("", 3)[0])
        self._everything = np.ones(len(self.items), bool)
        self._ruled: OrderedDict[RuleOverrides, Recommender] = OrderedDict()
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path, *, verify: bool = True, **known: Any) -> ServingModel:
        """The model of a file; what else is known about it goes to the constructor."""
        model = load(path, verify=verify)
        return cls(model, checksum(path), **known)

    def name(self, column: int) -> dict[str, Any]:
        """An item for machines: its id, and its title if it has one."""
        if self.titles is None:
            return {"item": self.items[column]}
        return {"item": self.items[column], "title": self.titles[column]}

    def known(self, history: Sequence[Any]) -> tuple[list[int], list[float], list[Any]]:
        """The columns of a history's items, their weights, and the items that the model does not know.

        An item is an id, or has one and a weight: ``{"item": "tea", "weight": 2.5}``. If any has, those without weigh
        1, and the weights of one item add up.
        """
        if not any(isinstance(item, dict) for item in history):
            return known_columns(history, self.index)
        pairs = ((item["item"], item["weight"]) if isinstance(item, dict) else (item, 1.0) for item in history)
        return weighted_columns(pairs, self.index)

    def column_called(self, text: str) -> int | None:
        """Where an item is whose id came as text, in an address; None if the model does not know it."""
        if isinstance(self.items[0], int):
            whole = re.fullmatch("0|-?[1-9][0-9]{0,30}", text)
            return None if whole is None else self.index.get(int(text))
        return self.index.get(text)

    def allowed(
        self, exclude: Sequence[Any] | None, candidates: Sequence[Any] | None, strict: bool
    ) -> tuple[NDArray[np.bool_] | None, list[Any]]:
        """Which items may come, None for all; and unknown candidates, which are an error if all are, or if strict."""
        if exclude is None and candidates is None:
            return None, []
        if strict:
            return allowed_items(len(self.items), self.index, exclude, candidates, strict), []
        allowed, unknown = allowed_columns(len(self.items), self.index, exclude, candidates)
        return allowed, unknown["candidates"]

    @property
    def rule(self) -> dict[str, Any] | None:
        """The model's own rule; None if its weights cannot be changed without another fit."""
        if not isinstance(self.model, LinearAutoencoder):
            return None
        own = self.model
        rule = {
            "b": own._kept_weight, "zero_diagonal": own._zero_diagonal, "popularity_power": own.popularity_power,
        }  # fmt: skip
        return rule if own.prior_ is None else rule | {"prior_weight": own.prior_weight}

    @property
    def prior(self) -> str | None:
        """The prior that the model was fitted with, in words; None if there was none."""
        if not isinstance(self.model, LinearAutoencoder) or self.model.prior_ is None:
            return None
        prior = as_prior(self.model.fitted_params_["prior"])
        return prior_spec(prior) if isinstance(prior, SavedPrior) else repr(prior)

    @property
    def updated(self) -> str | None:
        """When the model was last updated since its fit; None if never."""
        state = getattr(self.model, "updated_", None)
        try:
            return None if state is None else datetime.fromtimestamp(state.time, UTC).isoformat(timespec="seconds")
        except (OverflowError, ValueError, OSError):  # a file may say any number
            return None

    def ruled(self, rule: RuleOverrides) -> Recommender:
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
        if rule.prior_weight is not None and self.model.prior_ is None:
            raise ApiError(
                422, "no_prior", "this model was fitted without a prior, so it has no prior_weight to change"
            )
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

    def rank(self, queries: Sequence[Query]) -> list[RankedColumns]:
        """Lists for many histories: those that agree in all else in one pass over P."""
        order = sorted(range(len(queries)), key=lambda q: hash(queries[q].together))
        lists: dict[int, RankedColumns] = {}
        for _, group in groupby(order, key=lambda q: queries[q].together):
            members = list(group)
            lists.update(zip(members, self._rank_alike([queries[q] for q in members]), strict=True))
        return [lists[q] for q in range(len(queries))]

    def _rank_alike(self, queries: list[Query]) -> list[RankedColumns]:
        first = queries[0]
        sizes = [len(query.columns) for query in queries]
        indptr = np.cumsum([0, *sizes], dtype=np.int32)
        indices = np.array([column for query in queries for column in query.columns], np.int32)
        values = shortest_float(np.array([weight for query in queries for weight in query.weights], np.float64))
        matrix = csr_array((values, indices, indptr), shape=(len(queries), len(self.items)))
        allowed = self._everything if first.allowed is None else first.allowed
        columns, scores, cold = self.ruled(first.rule)._best(
            matrix, max(query.k for query in queries), first.exclude_seen, allowed
        )
        filled = np.sum(columns >= 0, axis=1)
        return [
            RankedColumns(columns[row, :end].tolist(), scores[row, :end].tolist(), bool(cold[row]))
            for row, end in enumerate(np.minimum(filled, [query.k for query in queries]).tolist())
        ]

    def summary(self) -> dict[str, Any]:
        """What kind of model this is and what it learned from."""
        model = self.model
        return {
            "name": self.served_as, "model": type(model).__name__,
            "parameters": model._to_config(model.fitted_params_),
            "data": {
                "users": model.n_users_, "items": len(self.items), "interactions": int(model.item_counts_.sum()),
                "titles": self.titles is not None, "ids": "integers" if isinstance(self.items[0], int) else "text",
            },
            "checksum": self.checksum, "loaded": self.loaded.isoformat(timespec="seconds"), "updated": self.updated,
            "rule": self.rule,
            "prior": self.prior,
            "example": [self.name(column) for column in self.example], "note": self.note,
            "curve": self.curve is not None,
        }  # fmt: skip

    def short_summary(self) -> dict[str, Any]:
        """What tells it from others."""
        return {
            "name": self.served_as, "model": type(self.model).__name__, "checksum": self.checksum,
            "users": self.model.n_users_, "items": len(self.items), "rule": self.rule, "curve": self.curve is not None,
        }  # fmt: skip


class ModelHolder:
    """Holds the models that are served now, by name, each of which may be another one a moment later.

    A request takes its model once and keeps to it, so that a swap in between changes nothing for it.

    Parameters
    ----------
    *models : ServingModel
        The first is that of requests that name none.
    reload : async callable, optional
        Has the files read again, by every worker; returns what to answer, raises ReloadError.
    update : async callable, optional
        Has a batch applied to the model of a name, and that served by every worker; likewise, raises ApiError.
    """

    def __init__(
        self,
        *models: ServingModel,
        reload: Callable[[], Awaitable[dict[str, Any]]] | None = None,
        update: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]] | None = None,
    ) -> None:
        self._models = {model.served_as: model for model in models}
        self.reload, self.update = reload or _no_reload, update or _no_update

    @property
    def current(self) -> ServingModel | None:
        """The first model; None until it is loaded."""
        return next(iter(self._models.values()), None)

    @property
    def models(self) -> list[ServingModel]:
        """All of them, the first one first."""
        return list(self._models.values())

    def get(self, name: str | None = None) -> ServingModel:
        """The model of this name, or the first; ApiError if there is none.

        Examples
        --------
        >>> ModelHolder().get()
        Traceback (most recent call last):
        deql.serve.schemas.ApiError: the model is being loaded: try again in a moment
        """
        found = self.current if name is None else self._models.get(name)
        if self.current is None:
            raise ApiError(503, "not_ready", "the model is being loaded: try again in a moment")
        if found is None:
            known = name_some(list(self._models))
            raise ApiError(404, "unknown_model", f"there is no model {name_some([name])} here, but {known}")
        return found

    def swap(self, new: ServingModel) -> None:
        """Serve another model of this name; the old one goes once the last request has answered from it.

        To give back its gigabytes takes a second, which must not be one of the event loop's, where that last request
        ends: so the arrays have one more owner, a thread, which lets go of them last.
        """
        old = self._models.get(new.served_as)
        if old is not None:
            weakref.finalize(old, _release_later, [old.model]).atexit = False
        self._models[new.served_as] = new


def _release_later(held: list[Recommender]) -> None:
    timer = threading.Timer(_RELEASE_SECONDS, held.clear)
    timer.daemon = True
    timer.start()


async def _no_reload() -> dict[str, Any]:
    raise ReloadError("this server was not started from a model file, so it has none to reload")


async def _no_update(name: str, batch: dict[str, Any]) -> dict[str, Any]:
    raise ApiError(409, "model_rejected", "this server was not started from a model file, so it has none to update")
