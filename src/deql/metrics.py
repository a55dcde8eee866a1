"""Metrics, each by its formula (docs/metrics.md has them side by side, with worked examples).

A metric of lists takes ``hits`` (users × K booleans: is the item at this rank one of the held-out ones?),
the number of held-out items of each user, and k ≤ K; it returns one value for each user. The metrics
beyond accuracy take what was recommended instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql.errors import ParameterError
from deql.ranking.rank import NO_ITEM

__all__ = [
    "LIST_METRICS",
    "METRICS",
    "as_names",
    "average_precision",
    "coverage",
    "gini",
    "hit_rate",
    "ndcg",
    "novelty",
    "parse_metric",
    "parse_metrics",
    "precision",
    "recall",
    "recall_capped",
    "reciprocal_rank",
]

Hits = NDArray[np.bool_]
Counts = NDArray[np.int64]
Values = NDArray[np.float64]


def recall(hits: Hits, held_out: Counts, k: int) -> Values:
    """Hits among the first k ÷ number of held-out items.

    Examples
    --------
    >>> recall(np.array([[True, False, True]]), np.array([4]), 3)
    array([0.5])
    """
    return np.asarray(hits[:, :k].sum(axis=1) / held_out)


def recall_capped(hits: Hits, held_out: Counts, k: int) -> Values:
    """Hits among the first k ÷ min(k, number of held-out items): 1 is always attainable.

    Examples
    --------
    >>> recall_capped(np.array([[True, False, True]]), np.array([4]), 3).round(3)
    array([0.667])
    """
    return np.asarray(hits[:, :k].sum(axis=1) / np.minimum(held_out, k))


def precision(hits: Hits, held_out: Counts, k: int) -> Values:
    """Hits among the first k ÷ k, also where fewer than k items could be recommended.

    Examples
    --------
    >>> precision(np.array([[True, False, True]]), np.array([4]), 4)
    array([0.5])
    """
    return np.asarray(hits[:, :k].sum(axis=1) / k)


def hit_rate(hits: Hits, held_out: Counts, k: int) -> Values:
    """1 if there is a hit among the first k, else 0.

    Examples
    --------
    >>> hit_rate(np.array([[True, False, True], [False, False, True]]), np.array([4, 1]), 2)
    array([1., 0.])
    """
    return np.asarray(hits[:, :k].any(axis=1), np.float64)


def reciprocal_rank(hits: Hits, held_out: Counts, k: int) -> Values:
    """1 ÷ rank of the first hit, 0 if there is none among the first k. Its mean is the MRR.

    Examples
    --------
    >>> reciprocal_rank(np.array([[False, True, True], [False, False, False]]), np.array([4, 1]), 3)
    array([0.5, 0. ])
    """
    near = hits[:, :k]
    return np.asarray(near.any(axis=1) / (near.argmax(axis=1) + 1))


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


def coverage(times: Counts) -> float:
    """Share of the catalogue that is in anyone's first k, given how many lists each item is in.

    Examples
    --------
    >>> coverage(np.array([3, 0, 1, 0]))
    0.5
    """
    return float(np.count_nonzero(times) / len(times))


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


LIST_METRICS: dict[str, Callable[[Hits, Counts, int], Values]] = {
    "recall": recall,
    "recall_capped": recall_capped,
    "ndcg": ndcg,
    "precision": precision,
    "hit_rate": hit_rate,
    "mrr": reciprocal_rank,
    "map": average_precision,
}

METRICS = (*LIST_METRICS, "coverage", "gini", "novelty", "mse")
"""Every name that a metric can have; all but mse are followed by @ and k."""


def parse_metric(text: str) -> tuple[str, int]:
    """Split ``"ndcg@20"`` into its name and k, which is 0 for ``"mse"``.

    Examples
    --------
    >>> parse_metric("ndcg@20")
    ('ndcg', 20)
    """
    if text == "mse":
        return "mse", 0
    match = re.fullmatch(r"([a-z_]+)@([1-9][0-9]{0,8})", str(text))
    if match is None or match[1] not in METRICS or match[1] == "mse":
        known = ", ".join(f"{name}@20" for name in METRICS[:-1])
        raise ParameterError(f"unknown metric {text!r}: say {known}, with any k from 1 up, or mse")
    return match[1], int(match[2])


def as_names(metrics: Any) -> tuple[str, ...]:
    """One metric or several, each once."""
    if isinstance(metrics, str):
        return (metrics,)
    if not isinstance(metrics, Iterable):
        raise ParameterError(f"metrics must be a name such as ndcg@20 or a list of them, got {metrics!r}")
    return tuple(dict.fromkeys(metrics))


def parse_metrics(metrics: Any) -> dict[str, tuple[str, int]]:
    """One metric or several, each with its name and k.

    Examples
    --------
    >>> parse_metrics(["ndcg@20", "mse"])
    {'ndcg@20': ('ndcg', 20), 'mse': ('mse', 0)}
    """
    wanted = {text: parse_metric(text) for text in as_names(metrics)}
    if not wanted:
        raise ParameterError("name at least one metric, such as ndcg@20")
    return wanted
