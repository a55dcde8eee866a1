"""Metrics: one function each, registered with all that the rest of the package knows of it.

To add one, write its function here under :func:`_register`, and its row in docs/metrics.md. Evaluation, comparison,
tuning, the command line and the pages of results find it in :data:`METRICS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from deql.errors import DataError, ParameterError
from deql.ranking import NO_ITEM

__all__ = ["METRICS", "Metric", "as_names", "lower_is_better", "parse_metric", "parse_metrics"]

Hits = NDArray[np.bool_]
Counts = NDArray[np.int64]
Values = NDArray[np.float64]
Source = Literal["hits", "lists", "catalogue", "errors"]
_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Metric:
    """A metric as it is registered.

    Attributes
    ----------
    name : str
        What people type, before ``@k``.
    of : {"hits", "lists", "catalogue", "errors"}
        What the function is given, and what it returns:

        - *hits*: users × K booleans (is the item at this rank held out?), the number of held-out items of each user,
          and k ≤ K; one value for each user. Only these and *errors* say how good recommendations are.
        - *lists*: users × K columns, the training users of each item, the number of training users, and k; one value
          for each user.
        - *catalogue*: how many users' first k each item is in; one value for all of them together.
        - *errors*: each user's squared error, and the number of seen interactions; one value for each user, and no k.
    function : callable
    lower_is_better : bool
    """

    name: str
    of: Source
    function: Callable[..., Any]
    lower_is_better: bool

    @property
    def takes_k(self) -> bool:
        """Whether its name is followed by @ and k."""
        return self.of != "errors"

    @property
    def of_users(self) -> bool:
        """Whether each user has a value of their own."""
        return self.of != "catalogue"


METRICS: dict[str, Metric] = {}
"""Every metric by its name."""


def _register(name: str, of: Source = "hits", lower_is_better: bool = False) -> Callable[[_Function], _Function]:
    def registered(function: _Function) -> _Function:
        METRICS[name] = Metric(name, of, function, lower_is_better)
        return function

    return registered


@_register("recall")
def recall(hits: Hits, held_out: Counts, k: int) -> Values:
    """Hits among the first k ÷ number of held-out items.

    Examples
    --------
    >>> recall(np.array([[True, False, True]]), np.array([4]), 3)
    array([0.5])
    """
    return np.asarray(hits[:, :k].sum(axis=1) / held_out)


@_register("recall_capped")
def recall_capped(hits: Hits, held_out: Counts, k: int) -> Values:
    """Hits among the first k ÷ min(k, number of held-out items): 1 is always attainable.

    Examples
    --------
    >>> recall_capped(np.array([[True, False, True]]), np.array([4]), 3).round(3)
    array([0.667])
    """
    return np.asarray(hits[:, :k].sum(axis=1) / np.minimum(held_out, k))


@_register("ndcg")
def ndcg(hits: Hits, held_out: Counts, k: int) -> Values:
    """Σ hit_r / log₂(r + 1) over ranks r = 1 … k ÷ the same sum for a perfect list.

    Examples
    --------
    >>> ndcg(np.array([[False, True]]), np.array([1]), 2).round(4)
    array([0.6309])
    """
    discount = 1.0 / np.log2(np.arange(2, k + 2))
    best = np.concatenate([[0.0], np.cumsum(discount)])
    near = hits[:, :k]
    # Not a matrix product: BLAS adds up a row in an order that depends on how many rows there are.
    return np.asarray((near * discount[: near.shape[1]]).sum(axis=1) / best[np.minimum(held_out, k)])


@_register("precision")
def precision(hits: Hits, held_out: Counts, k: int) -> Values:
    """Hits among the first k ÷ k, also where fewer than k items could be recommended.

    Examples
    --------
    >>> precision(np.array([[True, False, True]]), np.array([4]), 4)
    array([0.5])
    """
    return np.asarray(hits[:, :k].sum(axis=1) / k)


@_register("hit_rate")
def hit_rate(hits: Hits, held_out: Counts, k: int) -> Values:
    """1 if there is a hit among the first k, else 0.

    Examples
    --------
    >>> hit_rate(np.array([[True, False, True], [False, False, True]]), np.array([4, 1]), 2)
    array([1., 0.])
    """
    return np.asarray(hits[:, :k].any(axis=1), np.float64)


@_register("mrr")
def reciprocal_rank(hits: Hits, held_out: Counts, k: int) -> Values:
    """1 ÷ rank of the first hit, 0 if there is none among the first k. Its mean is the MRR.

    Examples
    --------
    >>> reciprocal_rank(np.array([[False, True, True], [False, False, False]]), np.array([4, 1]), 3)
    array([0.5, 0. ])
    """
    near = hits[:, :k]
    return np.asarray(near.any(axis=1) / (near.argmax(axis=1) + 1))


@_register("map")
def average_precision(hits: Hits, held_out: Counts, k: int) -> Values:
    """Σ over hits at rank r ≤ k of (hits among the first r) / r ÷ min(k, number of held-out items).

    Its mean is MAP@k. TREC's divides by the number of held-out items, however small k is.

    Examples
    --------
    >>> average_precision(np.array([[True, False, True]]), np.array([4]), 3).round(4)
    array([0.5556])
    """
    near = hits[:, :k]
    precisions = near.cumsum(axis=1) / np.arange(1, near.shape[1] + 1)
    return np.asarray((precisions * near).sum(axis=1) / np.minimum(held_out, k))


@_register("coverage", of="catalogue")
def coverage(times: Counts) -> float:
    """Share of the catalogue that is in anyone's first k, given how many lists each item is in.

    Examples
    --------
    >>> coverage(np.array([3, 0, 1, 0]))
    0.5
    """
    return float(np.count_nonzero(times) / len(times))


@_register("gini", of="catalogue", lower_is_better=True)
def gini(times: Counts) -> float:
    """How unevenly the catalogue is recommended, given how many lists each item is in.

    Σ_i (2i − n − 1)·c_i ÷ (n·Σ c_i) with the counts c_1 ≤ … ≤ c_n: 0 if all items are in equally many
    lists, (n − 1)/n if all lists hold the same single item.

    Examples
    --------
    >>> gini(np.array([1, 0, 0, 3]))
    0.625
    """
    n = len(times)
    return float((2 * np.arange(1, n + 1) - n - 1) @ np.sort(times) / (n * max(1, times.sum())))


@_register("novelty", of="lists")
def novelty(columns: NDArray[np.int32], item_counts: Counts, n_users: int, k: int) -> Values:
    """Mean over a user's first k items of −log₂(share of the training users who have the item).

    An item that no training user has counts as if one had it.

    Examples
    --------
    >>> novelty(np.array([[0, 1, 2]], np.int32), np.array([4, 2, 1]), n_users=4, k=2)
    array([0.5])
    """
    bits = np.log2(max(1, n_users) / np.maximum(item_counts, 1))
    near = columns[:, :k]
    there = near != NO_ITEM
    return np.asarray(np.where(there, bits[near], 0.0).sum(axis=1) / np.maximum(there.sum(axis=1), 1))


@_register("mse", of="errors", lower_is_better=True)
def held_out_error(errors: Values, seen: int) -> Values:
    """Squared errors · users ÷ number of seen interactions: the mean over users is the paper's eq. 36.

    Examples
    --------
    >>> held_out_error(np.array([1.0, 49.0]), seen=4)
    array([ 0.5, 24.5])
    """
    if not seen:
        raise DataError("mse divides by the number of seen interactions, and nobody has any")
    return errors * (len(errors) / seen)


def parse_metric(text: str, parameter: str = "metric") -> tuple[str, int]:
    """Split ``"ndcg@20"`` into its name and k, which is 0 for a metric without one.

    ``parameter`` is where the text was given, for the error.

    Examples
    --------
    >>> parse_metric("ndcg@20"), parse_metric("mse")
    (('ndcg', 20), ('mse', 0))
    """
    match = re.fullmatch(r"([a-z0-9_]+?)(?:@([1-9][0-9]{0,8}))?", str(text))
    metric = METRICS.get(match[1]) if match else None
    if match is None or metric is None or metric.takes_k != bool(match[2]):
        with_k = ", ".join(f"{name}@20" for name, metric in METRICS.items() if metric.takes_k)
        without = ", ".join(name for name, metric in METRICS.items() if not metric.takes_k)
        raise ParameterError(
            f"unknown metric {text!r}: say {with_k}, with any k from 1 up, or {without}", parameter=parameter
        )
    return metric.name, int(match[2] or 0)


def as_names(metrics: Any) -> tuple[str, ...]:
    """One metric or several, each once."""
    if isinstance(metrics, str):
        return (metrics,)
    if not isinstance(metrics, Iterable):
        raise ParameterError(
            f"metrics must be a name such as ndcg@20 or a list of them, got {metrics!r}", parameter="metrics"
        )
    return tuple(dict.fromkeys(metrics))


def parse_metrics(metrics: Any) -> dict[str, tuple[Metric, int]]:
    """One metric or several as they are written, each with its registration and k.

    Examples
    --------
    >>> {text: (metric.of, k) for text, (metric, k) in parse_metrics(["ndcg@20", "mse"]).items()}
    {'ndcg@20': ('hits', 20), 'mse': ('errors', 0)}
    """
    wanted = {text: parse_metric(text, "metrics") for text in as_names(metrics)}
    if not wanted:
        raise ParameterError("name at least one metric, such as ndcg@20", parameter="metrics")
    return {text: (METRICS[name], k) for text, (name, k) in wanted.items()}


def lower_is_better(text: str) -> bool:
    """Whether a small value of the metric is a good one.

    Examples
    --------
    >>> lower_is_better("mse"), lower_is_better("ndcg@20")
    (True, False)
    """
    name = text.partition("@")[0]
    return name in METRICS and METRICS[name].lower_is_better
