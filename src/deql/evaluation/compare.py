"""Several models on several splits: fitted, judged and set side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql.data import Interactions, as_interactions
from deql.errors import ParameterError
from deql.evaluation.comparison import Comparison
from deql.evaluation.evaluator import Evaluation, as_names, check_metrics
from deql.evaluation.model_groups import Tell, judge, name_models, parameters
from deql.models.base import Recommender
from deql.split import PROTOCOLS, Split
from deql.split.draw import check_seed

__all__ = ["compare", "make_splits"]


def compare(
    models: Sequence[Recommender] | Mapping[str, Recommender],
    data: Any,
    splits: int = 5,
    metrics: str | Sequence[str] = ("recall@20", "ndcg@20"),
    protocol: str = "strong",
    baseline: str | None = None,
    seed: int = 0,
    *,
    tell: Tell | None = None,
    **split_options: Any,
) -> Comparison:
    """Fit every model on several seeded splits and test which differences are more than chance.

    Parameters
    ----------
    models : list of models, or dict of name to model
        Not fitted, and left as they are. Those that share the inverse are fitted together.
    data : Interactions, sparse matrix or Split
        A Split stands as it is, for instance a published one: users are then the pairs of every test.
    splits : int, default 5
        How many splits of the data, with seeds from ``seed`` on.
    metrics : str or sequence of str
    protocol : {"strong", "weak", "leave-last"}, default "strong"
        How to split. The last one is the same for every seed, so it is done once.
    baseline : str, optional
        Name of the model that the others are to beat.
    seed : int, default 0
    tell : callable, optional
        Called with a line for every fit.
    **split_options
        For :func:`~deql.split_strong`, :func:`~deql.split_weak` or :func:`~deql.split_leave_last`.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> import deql
    >>> data = deql.datasets.debian().take_users(slice(0, 3000))
    >>> found = deql.compare([deql.Popularity(), deql.EASE(10.0)], data, splits=3, baseline="Popularity")
    >>> found.best("ndcg@20"), found.tests("ndcg@20")[0].significant
    ('EASE l2=10', True)
    """
    named = name_models(models)
    wanted = as_names(metrics)
    seed = check_seed(seed)
    if baseline is not None and baseline not in named:
        raise ParameterError(f"the baseline {baseline!r} is not one of the models: {', '.join(named)}")
    if len(named) < 2:
        raise ParameterError("a comparison needs at least two models")
    check_metrics(named.values(), wanted)
    if isinstance(splits, bool) or not isinstance(splits, int | np.integer) or splits < 1:
        raise ParameterError(f"splits must be a whole number from 1 up, got {splits!r}")
    if isinstance(data, Split):
        if split_options:
            raise ParameterError(f"a split is given, so {', '.join(split_options)} cannot be chosen")
        protocol, splits, made = data.protocol, 1, iter([data])
    else:
        splits = 1 if protocol == "leave-last" else splits
        made = make_splits(as_interactions(data), splits, protocol, seed, split_options)
    results, about = [], []
    for number, split in enumerate(made, start=1):
        label = f"split {number} of {splits}: " if splits > 1 else ""
        judged = judge(named, split.train, split.test, wanted, _labelled(tell, label))
        results.append(judged)
        about.append(_about(split, next(iter(judged.values()))))
    return Comparison(
        models={name: {"model": type(model).__name__, "parameters": parameters(model)}
                for name, model in named.items()},
        metrics=wanted,
        values={metric: np.array([[one.means[metric] for one in judged.values()] for judged in results])
                for metric in wanted},
        per_user=_pool_users(results, wanted),
        baseline=baseline, splits=about, protocol=protocol,
    )  # fmt: skip


def make_splits(data: Interactions, splits: int, protocol: str, seed: int, options: dict[str, Any]) -> Iterator[Split]:
    """Splits with seeds from ``seed`` on, one after the other: only one is in memory at a time."""
    make = PROTOCOLS.get(protocol)
    if make is None:
        raise ParameterError(f"protocol must be one of {', '.join(PROTOCOLS)}, got {protocol!r}")
    known = set(signature(make).parameters) - {"data", "seed"}
    for name in options:
        if name not in known:
            raise ParameterError(f"a {protocol} split takes {', '.join(sorted(known))}, not {name}")
    if protocol == "leave-last":
        yield make(data, **options)
    else:
        for number in range(splits):
            yield make(data, seed=seed + number, **options)


def _labelled(tell: Tell | None, label: str) -> Tell | None:
    return None if tell is None else lambda names: tell(f"{label}fitting {names}")


def _about(split: Split, judged: Evaluation) -> dict[str, Any]:
    """What a reader of the results needs to know of a split."""
    return {
        "seed": split.seed,
        "train": {
            "users": split.train.n_users, "items": split.train.n_items, "interactions": split.train.n_interactions
        },
        "judged": len(judged.users), "skipped": judged.skipped, "dropped": dict(split.dropped),
    }  # fmt: skip


def _pool_users(results: Sequence[Mapping[str, Evaluation]], metrics: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Users × models: each user's mean over the splits that judged them, so that every user counts once."""
    places: dict[Any, int] = {}
    judged = [next(iter(result.values())) for result in results]
    rows = np.array([places.setdefault(user, len(places)) for one in judged for user in one.users.tolist()])
    counts = np.bincount(rows)
    return {
        metric: np.stack([
            np.bincount(rows, np.concatenate([result[name].per_user[metric] for result in results])) / counts
            for name in results[0]
        ], axis=1)
        for metric in metrics
        if metric in judged[0].per_user
    }  # fmt: skip
