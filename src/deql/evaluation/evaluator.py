"""``deql.evaluate``: one pass over the users, all metrics and all k at once."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from deql._system.callers import levels_to_the_caller
from deql._system.progress import ProgressCallback, stages
from deql.data import Interactions
from deql.data.interactions import InteractionsLike, is_frame
from deql.data.matrices import entry_rows, has_entries, masked
from deql.errors import DataError, ParameterError
from deql.evaluation.evaluation_result import Evaluation
from deql.metrics import METRICS, Metric, parse_metric, parse_metrics
from deql.models.base import Recommender
from deql.ranking import NO_ITEM
from deql.ranking.histories import encode_histories
from deql.ranking.hits import find_hits
from deql.split import HeldOut, Split
from deql.split.new_users import hold_out_items

__all__ = [
    "MetricAccumulator",
    "Models",
    "RankedSlice",
    "Target",
    "accumulate",
    "check_metrics",
    "encode_target",
    "evaluate",
    "group_models",
    "ranked_slices",
    "users_to_evaluate",
]

_LIST_ENTRIES = 2**24
_LEAST_USERS, _MOST_USERS = 2**10, 2**16
"""Users of a slice: as many as their lists, of all models, take entries; each slice reads all of P."""

Models: TypeAlias = Recommender | Sequence[Recommender] | Mapping[str, Recommender]
"""One model, several, or several by name."""

Target: TypeAlias = HeldOut | InteractionsLike
"""What is held out, or users of whom something is to be held out."""


@overload
def evaluate(model: Recommender, target: Target, metrics: str | Sequence[str] = ...) -> Evaluation: ...
@overload
def evaluate(
    model: Mapping[str, Recommender], target: Target, metrics: str | Sequence[str] = ...
) -> dict[str, Evaluation]: ...
@overload
def evaluate(model: Sequence[Recommender], target: Target, metrics: str | Sequence[str] = ...) -> list[Evaluation]: ...
def evaluate(
    model: Models, target: Target, metrics: str | Sequence[str] = ("recall@20", "ndcg@20")
) -> Evaluation | list[Evaluation] | dict[str, Evaluation]:
    """Evaluate one model or several on held-out interactions.

    Users are ranked slice by slice, so memory does not grow with them. Models that share P (see
    :meth:`~deql.models.linear.LinearAutoencoder.with_rule`) are ranked in the same pass.

    Parameters
    ----------
    model : fitted model, list of them, or dict of them by name
    target : HeldOut, Interactions, sparse matrix or frame
        ``split.test`` or ``split.validation``. Users with nothing held out are left out and counted.
        A held-out item that a model does not know counts as missed. Of a table of users whom the models have not
        met, a fifth of each one's items is held out; those with fewer than two are left out.
    metrics : str or sequence of str
        Names of :data:`deql.metrics.METRICS`, each but mse followed by @ and k. docs/metrics.md has the formulas.

    Returns
    -------
    Evaluation
        For a list of models a list of them, for a dict a dict.

    Examples
    --------
    >>> import deql
    >>> split = deql.split_strong(deql.datasets.debian())
    >>> result = deql.evaluate(deql.Popularity().fit(split.train), split.test)
    >>> {name: round(value, 3) for name, value in result.means.items()}
    {'recall@20': 0.302, 'ndcg@20': 0.23}
    """
    wanted = parse_metrics(metrics)
    if isinstance(model, Mapping):
        models = list(model.values())
    elif isinstance(model, Sequence) and not isinstance(model, str):
        models = list(model)
    else:
        models = [model]
    check_metrics(models, wanted)
    for one in models:
        one._check_fitted()
    target, skipped = users_to_evaluate(models, target)
    found: dict[int, Evaluation] = {}
    with stages(any(one.progress for one in models)) as stage:
        for group in group_models(models):
            results = _evaluate_group([models[position] for position in group], target, wanted, stage("Evaluate"))
            for position, (means, per_user) in zip(group, results, strict=True):
                found[position] = Evaluation(means, per_user, target.held_out.users, skipped)
    in_order = [found[position] for position in range(len(models))]
    if isinstance(model, Mapping):
        return dict(zip(model, in_order, strict=True))
    return in_order if isinstance(model, Sequence) else in_order[0]


def users_to_evaluate(models: Sequence[Recommender], target: Target) -> tuple[HeldOut, int]:
    """The users who have something held out, and how many others there are."""
    if not isinstance(target, HeldOut):
        target = _new_users(models, target)
    evaluated = np.diff(target.held_out.matrix.indptr) > 0
    if not evaluated.any():
        raise DataError("no user has anything held out, so there is nothing to evaluate")
    skipped = int(np.count_nonzero(~evaluated))
    if skipped:
        target = HeldOut(target.seen.take_users(evaluated), target.held_out.take_users(evaluated))
    return target, skipped


def _new_users(models: Sequence[Recommender], data: InteractionsLike) -> HeldOut:
    """A table of users with a share of their items held out; a warning if the models were fitted on it."""
    if isinstance(data, Split) or not (isinstance(data, Interactions | np.ndarray) or issparse(data) or is_frame(data)):
        raise ParameterError(
            f"expected a table of new users, or what is held out, such as split.test, got {type(data).__name__}",
            parameter="target",
        )
    users = models[0]._with_ids(data)
    counts = np.bincount(users.matrix.indices, minlength=users.n_items)
    for model in models:
        if model.n_users_ == users.n_users and np.array_equal(model.item_counts_, counts):
            warnings.warn(
                "these look like the data that the model was fitted on, on which every model does too well: evaluate "
                "on others, such as deql.split_strong(data).test",
                stacklevel=levels_to_the_caller(),
            )
            break
    return hold_out_items(users)


def check_metrics(models: Iterable[Recommender], metrics: Iterable[str]) -> None:
    """Refuse, before any work, what is no model or no metric, and a metric that a model cannot have."""
    names = {parse_metric(text, "metrics")[0] for text in metrics}
    for model in models:
        if not isinstance(model, Recommender):
            raise ParameterError(
                f"expected a model, a list of models or a dict of models, got {model!r}", parameter="model"
            )
        for name in names:
            if METRICS[name].of == "errors" and not model._is_linear:
                raise ParameterError(
                    f"{name} needs a model whose scores are X @ W, which {type(model).__name__} has not",
                    parameter="metrics",
                )


def _evaluate_group(
    models: list[Recommender],
    target: HeldOut,
    wanted: Mapping[str, tuple[Metric, int]],
    report: ProgressCallback | None,
) -> list[tuple[dict[str, float], dict[str, NDArray[np.float64]]]]:
    """Means and users' values under each model of a group, in the order of the models."""
    return [one.result(target.seen.matrix.nnz) for one in accumulate(models, target, wanted, report)]


def encode_target(model: Recommender, target: HeldOut) -> tuple[csr_array, csr_array]:
    """What is seen and what is held out in a model's columns, with a warning of what it does not know."""
    index, items = model._item_index, model.items_
    missed = "what is held out, and counted as missed"
    return (
        model._personal(encode_histories(target.seen, index, items, strict=False), target.seen.users),
        encode_histories(target.held_out, index, items, strict=False, where=missed),
    )


def accumulate(
    models: list[Recommender],
    target: HeldOut,
    wanted: Mapping[str, tuple[Metric, int]],
    report: ProgressCallback | None,
) -> list[MetricAccumulator]:
    """The metrics of each model of a group on users who all have something held out."""
    seen, truth = encode_target(models[0], target)
    counts = np.diff(target.held_out.matrix.indptr).astype(np.int64)
    accumulators = [MetricAccumulator(wanted, counts, model.item_counts_, model.n_users_) for model in models]
    depth = max(1, *(k for _, k in wanted.values()))
    with_errors = any(metric.of == "errors" for metric, _ in wanted.values())
    for ranked in ranked_slices(models, seen, depth, with_errors, report):
        rows = ranked.rows
        hits = find_hits(ranked.columns, truth[rows])
        errors: Sequence[NDArray[np.float64] | None] = [None] * len(models)
        if ranked.squares is not None:
            errors = _squared_errors(models, ranked.squares, target, rows, seen[rows], truth[rows])
        for accumulator, columns, hit, error in zip(accumulators, ranked.columns, hits, errors, strict=True):
            accumulator.add(rows, columns, hit, error)
    return accumulators


def _squared_errors(
    models: Sequence[Recommender],
    squares: NDArray[np.float64],
    target: HeldOut,
    rows: slice,
    seen: csr_array,
    truth: csr_array,
) -> list[NDArray[np.float64]]:
    """Each user's Σ (r_i − s_i)² over the items i that are not seen, under each model: the numerators of eq. 36.

    With s² summed over all of those already, what is held out adds r² − 2·r·s. An item that the models do not know
    is predicted as 0.
    """
    known = _without(truth, seen)
    values = known.data.astype(np.float64)
    unseen = _without(target.held_out.matrix[rows], target.seen.matrix[rows])
    held_out = _row_sums(unseen, unseen.data.astype(np.float64) ** 2)
    return [
        own + held_out - 2 * _row_sums(known, values * model._pair_scores(seen, known))
        for model, own in zip(models, squares, strict=True)
    ]


def _row_sums(matrix: csr_array, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums by rows of values that stand for the stored entries."""
    return np.asarray(np.bincount(entry_rows(matrix), values, minlength=matrix.shape[0]))


def _without(matrix: csr_array, other: csr_array) -> csr_array:
    """``matrix`` without the entries that ``other`` has too."""
    kept = ~has_entries(other, matrix)
    return matrix if kept.all() else masked(matrix, kept)


@dataclass(frozen=True)
class RankedSlice:
    """The lists of some users: models × users × k columns, and squared scores, models × users, if asked for."""

    rows: slice
    columns: NDArray[np.int32]
    squares: NDArray[np.float64] | None


def group_models(models: Sequence[Recommender]) -> list[list[int]]:
    """Positions of the models that share a fit, together; every other model alone.

    Examples
    --------
    >>> import deql
    >>> first = deql.EASE(l2=1.0).fit(deql.Interactions.from_pairs(list("aab"), list("xyx")))
    >>> group_models([first, deql.Popularity(), first.with_rule(b=2.0)])
    [[0, 2], [1]]
    """
    groups: dict[tuple[Any, ...], list[int]] = {}
    for position, model in enumerate(models):
        shared = model._shared_fit
        groups.setdefault(("alone", position) if shared is None else ("shared", *map(id, shared)), []).append(position)
    return list(groups.values())


def ranked_slices(
    models: Sequence[Recommender], matrix: csr_array, k: int, squares: bool, report: ProgressCallback | None
) -> Iterator[RankedSlice]:
    """Best unseen columns of every user under every model of a group, in slices of users.

    Parameters
    ----------
    models : sequence of fitted models
        A group of :func:`group_models`.
    matrix : csr_array
        Histories in the models' columns. One that is empty, or speaks for no other item, is a cold start and gets the
        popularity fallback.
    k : int
        Length of the lists.
    squares : bool
        Whether Σ score² over the items a user does not have is wanted too; it is 0 for users without
        a history.
    report : callable, optional
        Called as ``report(done, total)``.
    """
    model, users = models[0], matrix.shape[0]
    k, everything = min(k, len(model.items_)), np.ones(len(model.items_), bool)
    per_slice = max(_LEAST_USERS, min(_MOST_USERS, _LIST_ENTRIES // (k * len(models))))
    slices = -(-users // per_slice)
    bounds = np.linspace(0, users, slices + 1).astype(int).tolist()
    for number, (first, last) in enumerate(pairwise(bounds)):
        part = matrix if slices == 1 else matrix[first:last]

        def tell(done: int, total: int, before: int = number) -> None:
            if report is not None:
                report(before * total + done, slices * total)

        sums = np.zeros((len(models), last - first)) if squares else None
        columns = model._rank_group(models, part, k, sums, None if report is None else tell)
        for ruled, listed in zip(models, columns, strict=True):
            cold = ruled._cold(part.indptr, part.indices)
            if cold.any():
                listed[cold] = ruled._popular_lists(part[cold], k, True, everything)[0]
        yield RankedSlice(slice(first, last), columns, sums)


class MetricAccumulator:
    """One model's metrics so far.

    Parameters
    ----------
    wanted : dict of str to (Metric, int)
        The metrics, as :func:`~deql.metrics.parse_metrics` gives them.
    held_out : ndarray of int64
        How many items of each user are held out.
    item_counts : ndarray of int64
        How many training users have each item.
    n_users : int
        How many training users there are.

    Examples
    --------
    >>> from deql.metrics import parse_metrics
    >>> metrics = MetricAccumulator(parse_metrics("recall@2"), np.array([2, 1]), np.array([3, 1, 1]), 3)
    >>> metrics.add(slice(0, 1), np.array([[2, 0]]), np.array([[True, False]]))
    >>> metrics.add(slice(1, 2), np.array([[1, 2]]), np.array([[True, False]]))
    >>> metrics.result(seen=4)
    ({'recall@2': 0.75}, {'recall@2': array([0.5, 1. ])})
    """

    def __init__(
        self,
        wanted: Mapping[str, tuple[Metric, int]],
        held_out: NDArray[np.int64],
        item_counts: NDArray[np.int64],
        n_users: int,
    ) -> None:
        self._wanted, self._held_out, self._item_counts, self._n_users = wanted, held_out, item_counts, n_users
        self._per_user = {text: np.empty(len(held_out)) for text, (metric, _) in wanted.items() if metric.of_users}
        self._times = {
            text: np.zeros(len(item_counts), np.int64) for text, (metric, _) in wanted.items() if not metric.of_users
        }

    def add(
        self,
        rows: slice,
        columns: NDArray[np.int32],
        hits: NDArray[np.bool_],
        errors: NDArray[np.float64] | None = None,
    ) -> None:
        """The lists of the users in ``rows``, which of their items were held out, and squared errors if wanted."""
        for text, (metric, k) in self._wanted.items():
            if metric.of == "hits":
                self._per_user[text][rows] = metric.function(hits, self._held_out[rows], k)
            elif metric.of == "lists":
                self._per_user[text][rows] = metric.function(columns, self._item_counts, self._n_users, k)
            elif metric.of == "catalogue":
                near = columns[:, :k]
                self._times[text] += np.bincount(near[near != NO_ITEM], minlength=len(self._item_counts))
            else:
                self._per_user[text][rows] = errors

    def sums(self) -> tuple[dict[str, NDArray[np.float64]], dict[str, NDArray[np.int64]]]:
        """What :meth:`join` takes: users' values so far, and how often each item was listed."""
        return self._per_user, self._times

    def join(
        self, rows: slice, per_user: Mapping[str, NDArray[np.float64]], times: Mapping[str, NDArray[np.int64]]
    ) -> None:
        """The users in ``rows``, as another one of the same metrics has their :meth:`sums`."""
        for text, values in per_user.items():
            self._per_user[text][rows] = values
        for text, counts in times.items():
            self._times[text] += counts

    def result(self, seen: int) -> tuple[dict[str, float], dict[str, NDArray[np.float64]]]:
        """Means and users' values; ``seen`` is the number of seen interactions."""
        means = {}
        for text, (metric, _) in self._wanted.items():
            if metric.of == "errors":
                self._per_user[text] = metric.function(self._per_user[text], seen)
            means[text] = float(self._per_user[text].mean()) if metric.of_users else metric.function(self._times[text])
        return means, self._per_user
