"""``deql.compare``: several models on several splits, and which of their differences are more than chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql._system.checks import check_whole
from deql.data import as_interactions
from deql.errors import ParameterError
from deql.evaluation.comparison_result import Comparison
from deql.evaluation.evaluation_result import Evaluation
from deql.evaluation.evaluator import check_metrics
from deql.evaluation.model_groups import LogCallback, fit_and_evaluate, name_models, parameters
from deql.metrics import as_names
from deql.models.base import Recommender
from deql.split import TIMED, Split, make_splits
from deql.split.parts import SplitOrInteractions

__all__ = ["compare"]


def compare(
    models: Sequence[Recommender] | Mapping[str, Recommender],
    data: SplitOrInteractions,
    splits: int = 5,
    metrics: str | Sequence[str] = ("recall@20", "ndcg@20"),
    protocol: str = "strong",
    baseline: str | None = None,
    seed: int = 0,
    *,
    tell: LogCallback | None = None,
    **split_options: Any,
) -> Comparison:
    """Fit every model on several seeded splits and test which differences are more than chance.

    Parameters
    ----------
    models : list of models, or dict of name to model
        Not fitted, and left as they are. Those that share the inverse are fitted together.
    data : Interactions, sparse matrix, frame or Split
        A Split stands as it is, for instance a published one: users are then the pairs of every test.
    splits : int, default 5
        How many splits of the data, with seeds from ``seed`` on.
    metrics : str or sequence of str
    protocol : {"strong", "weak", "leave-last", "time", "k-fold"}, default "strong"
        How to split. Those by time are the same for every seed, so they are done once; of k-fold there are as many
        folds as splits, and every user is tested once.
    baseline : str, optional
        Name of the model that the others are to beat.
    seed : int, default 0
    tell : callable, optional
        The log callback: called with a line for every fit.
    **split_options
        For :func:`~deql.split_strong`, :func:`~deql.split_weak`, :func:`~deql.split_leave_last`,
        :func:`~deql.split_time` or :func:`~deql.k_fold`.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> import deql
    >>> data = deql.datasets.debian().take_users(slice(0, 800)).without_empty()
    >>> found = deql.compare([deql.Popularity(), deql.EASE(10.0)], data, splits=3, baseline="Popularity")
    >>> found.best("ndcg@20"), found.tests("ndcg@20")[0].significant
    ('EASE l2=10', True)
    """
    named = name_models(models)
    wanted = as_names(metrics)
    seed = check_whole("seed", seed, least=0)
    if baseline is not None and baseline not in named:
        raise ParameterError(
            f"the baseline {baseline!r} is not one of the models: {', '.join(named)}", parameter="baseline"
        )
    if len(named) < 2:
        raise ParameterError("a comparison needs at least two models", parameter="models")
    check_metrics(named.values(), wanted)
    check_whole("splits", splits)
    if tell is not None and not callable(tell):
        raise ParameterError(f"tell must be a function that takes a line, got {tell!r}", parameter="tell")
    if isinstance(data, Split):
        if split_options:
            raise ParameterError(f"a split is given, so {', '.join(split_options)} cannot be chosen")
        protocol, splits, made = data.protocol, 1, iter([data])
    else:
        splits = 1 if protocol in TIMED else splits
        made = make_splits(as_interactions(data, time=protocol in TIMED), splits, protocol, seed, split_options)
    results, about = [], []
    for number, split in enumerate(made, start=1):
        label = f"split {number} of {splits}: " if splits > 1 else ""
        on_fit = None if tell is None else partial(_tell_fit, tell, label)
        results.append(fit_and_evaluate(named, split.train, split.test, wanted, on_fit))
        about.append(_about(split, next(iter(results[-1].values()))))
    return Comparison(
        models={name: {"model": type(model).__name__, "parameters": parameters(model)}
                for name, model in named.items()},
        metrics=wanted,
        values={metric: np.array([[one.means[metric] for one in result.values()] for result in results])
                for metric in wanted},
        per_user=_pool_users(results, wanted),
        baseline=baseline, splits=about, protocol=protocol,
    )  # fmt: skip


def _tell_fit(tell: LogCallback, label: str, names: str) -> None:
    tell(f"{label}fitting {names}")


def _about(split: Split, evaluated: Evaluation) -> dict[str, Any]:
    """What a reader of the results needs to know of a split."""
    return {
        "seed": split.seed,
        "train": {
            "users": split.train.n_users, "items": split.train.n_items, "interactions": split.train.n_interactions
        },
        "judged": len(evaluated.users), "skipped": evaluated.skipped, "dropped": dict(split.dropped),
    }  # fmt: skip


def _pool_users(results: Sequence[Mapping[str, Evaluation]], metrics: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Users × models: each user's mean over the splits that evaluated them, so that every user counts once."""
    places: dict[Any, int] = {}
    first = [next(iter(result.values())) for result in results]
    rows = np.array([places.setdefault(user, len(places)) for one in first for user in one.users.tolist()])
    counts = np.bincount(rows)
    return {
        metric: np.stack([
            np.bincount(rows, np.concatenate([result[name].per_user[metric] for result in results])) / counts
            for name in results[0]
        ], axis=1)
        for metric in metrics
        if metric in first[0].per_user
    }  # fmt: skip
