"""Every model under contract: one entry in ``CASES`` for each that is exported, more where a model has several kinds.

A model joins by an entry here, and the tests in ``test_contract.py`` then ask it what they ask every other one.
``unregistered`` finds those that have none.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array

import deql
from deql.models import Recommender
from deql.priors import LowPass, Prior, PriorWeights

N = 12
IDS = {
    "text": [f"item {i}" for i in range(N)],
    "unicode": ["Café", "日本", "🎈", "", " ", "a\nb", 'quo"te', "naïve\u0301", "x" * 1000, "1", "İ", "\U0010ffff"],
    "integers": [-5, 0, 7, 2**40, 3, 1, 2, 99, -(2**62), 12, 11, 10],
}


def scores_by_weights(model: Any, X: np.ndarray) -> np.ndarray:
    """What a linear model's scores must be: column i of W predicts item i."""
    return X @ model.weights().astype(float)


def scores_by_popularity(model: Any, X: np.ndarray) -> np.ndarray:
    return np.tile(model.item_counts_ / model.n_users_, (len(X), 1))


@dataclass(frozen=True)
class Case:
    """A model, and what the contract cannot know of it.

    ``make`` gives it unfitted, with hyper-parameters for which W differs from its transpose. ``other`` and ``wrong``
    are hyper-parameters with another value and with one out of range. ``scores`` computes the scores of X from what
    the model shows. ``needs`` names an optional module without which it cannot be fitted.
    """

    make: Callable[[], Any]
    other: dict[str, Any]
    wrong: dict[str, Any]
    scores: Callable[[Any, np.ndarray], np.ndarray] = scores_by_weights
    needs: str | None = None

    @property
    def is_linear(self) -> bool:
        return self.scores is scores_by_weights


def co_occurrence(data: deql.Interactions) -> np.ndarray:
    """How often two items go together, less for a popular item i: far from symmetric, and without ties."""
    S = (data.matrix.T @ data.matrix).toarray()
    return S / (1.0 + S.diagonal()[:, None]) ** 0.7


def frequent_co_occurrence(data: deql.Interactions) -> csc_array:
    W = co_occurrence(data)
    return csc_array(np.where(np.median(W) < W, W, 0.0))


def family(kind: Callable[..., Any], **params: Any) -> Case:
    """One of the models that share P."""
    return Case(lambda: kind(l2=2.0, **params), {"l2": 30.0}, {"l2": -1.0})


@dataclass(frozen=True)
class CoOccurrence(Prior):
    """A prior of one's own, n × n."""

    def weights(self, data: deql.Interactions, *, device: Any = None, report: Any = None) -> PriorWeights:
        n = data.n_items
        return PriorWeights(co_occurrence(data).astype(np.float32), None, np.ones(n), np.zeros(n))

    @property
    def config(self) -> dict[str, Any]:
        return {"prior": "co-occurrence"}


def with_prior(kind: Callable[..., Any], prior: Prior, **params: Any) -> Case:
    """One of the models that share P, pulled towards a prior."""
    make = partial(kind, l2=2.0, prior=prior, prior_weight=0.6, **params)
    return Case(make, {"prior_weight": 0.9}, {"prior_weight": -1.0})


def network(kind: Callable[..., Any], **params: Any) -> Case:
    """A network. Its W is that of histories without a name; that and its file are all that there is of it here."""
    make = partial(kind, rank=4, epochs=3, batch_size=64, **params)
    return Case(make, {"rank": 2}, {"epochs": 0}, needs="torch")


# LAE and ELSA have a symmetric W, but for a popularity_power.
CASES = {
    "EASE": family(deql.EASE),
    "EASE, float64": family(deql.EASE, dtype="float64", user_power=0.3, popularity_power=0.2),
    "LAE": family(deql.LAE, popularity_power=0.3),
    "DLAE": family(deql.DLAE, dropout=0.4),
    "EDLAE": family(deql.EDLAE, dropout=0.4),
    "RLAE": family(deql.RLAE, xi=0.3),
    "RDLAE": family(deql.RDLAE, dropout=0.4, xi=0.3),
    "DEQL": family(deql.DEQL, b=1.5),
    "DEQL, zero diagonal": family(deql.DEQL, b=2.0, zero_diagonal=True),
    "DEQL, b = inf": family(deql.DEQL, b=float("inf"), dtype="float64"),
    "DEQL, thin prior": with_prior(deql.DEQL, LowPass(rank=4, power_in=0.2), b=1.5),
    "EASE, dense prior": with_prior(deql.EASE, CoOccurrence(), dtype="float64", user_power=0.3, popularity_power=0.2),
    "EASE, neighbours": family(deql.EASE, engine=deql.engines.Neighbours(k=4)),
    "DEQL, neighbours, thin prior": with_prior(
        deql.DEQL, LowPass(rank=4, power_in=0.2), b=1.5, engine=deql.engines.Neighbours(k=4)
    ),
    "LowRankDEQL": Case(lambda: deql.LowRankDEQL(rank=5, l2=1.0, dropout=0.4), {"rank": 2}, {"rank": 0}),
    "SLIM": Case(lambda: deql.SLIM(l1=0.1, l2=1.0), {"l1": 0.3}, {"l1": -0.1}),
    "ELSA": Case(
        lambda: deql.ELSA(rank=4, epochs=3, batch_size=32, popularity_power=0.3),
        {"rank": 2}, {"epochs": 0}, needs="torch",
    ),
    "LightGCN": network(deql.neural.LightGCN),
    "SSM": network(deql.neural.SSM, temperature=0.5),
    "SSM, matrix factorisation": network(deql.neural.SSM, backbone="mf", popularity_power=0.3),
    "SGL": network(deql.neural.SGL, edge_dropout=0.3, contrast_weight=0.5),
    "CustomLinear": Case(
        lambda: deql.CustomLinear(co_occurrence), {"popularity_power": 0.7}, {"popularity_power": float("nan")}
    ),
    "CustomLinear, sparse": Case(
        lambda: deql.CustomLinear(frequent_co_occurrence), {"popularity_power": 0.7}, {"W": np.eye(2)}
    ),
    "Popularity": Case(deql.Popularity, {"progress": True}, {}, scores_by_popularity),
}  # fmt: skip


def cases(wanted: Callable[[Case], bool] = lambda case: True) -> list[Any]:
    """Parameters for pytest; those that cannot be fitted here are skipped with the reason."""
    return [pytest.param(case, id=name, marks=_marks(case)) for name, case in CASES.items() if wanted(case)]


def _marks(case: Case) -> list[pytest.MarkDecorator]:
    if case.needs is None or importlib.util.find_spec(case.needs):
        return []
    return [pytest.mark.skip(reason=f"{case.needs} is not installed")]


def unregistered(registered: dict[str, Case] = CASES) -> set[str]:
    """Models that the library has, exported or not, and no case does."""
    exported = {getattr(deql, name) for name in deql.__all__}
    models = {kind for kind in exported | set(_below(Recommender)) if _is_model(kind)}
    return {kind.__name__ for kind in models - {type(case.make()) for case in registered.values()}}


def _is_model(kind: Any) -> bool:
    return (
        inspect.isclass(kind)
        and issubclass(kind, Recommender)
        and not inspect.isabstract(kind)
        and not kind.__name__.startswith("_")
        and kind.__module__.startswith("deql.")
    )


def _below(kind: type) -> Iterator[type]:
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)


def interactions(users: int = 80, items: int = N, seed: int = 0, ids: Any = None) -> deql.Interactions:
    """Weighted, each item as popular as no other, liked by one half of the users more than the other; with titles."""
    generator = np.random.default_rng(seed)
    tastes = np.where(np.arange(users)[:, None] % 2 == np.arange(items) % 2, 1.5, 0.3)
    chance = generator.permutation(np.linspace(0.1, 0.6, items)) * tastes
    R = (generator.random((users, items)) < chance) * generator.integers(1, 4, (users, items))
    R[np.arange(users), generator.integers(0, items, users)] = 1
    names = [f"item {i}" for i in range(items)] if ids is None else ids
    # Ids that no others have: a network knows the users that it was trained on.
    ids_of_users = [f"user {u} of {seed}" for u in range(users)]
    data = deql.Interactions.from_csr(csr_array(R.astype(float)), users=ids_of_users, items=names)
    return replace(data, titles=np.array([f"Item No. {i}" for i in range(items)], object))
