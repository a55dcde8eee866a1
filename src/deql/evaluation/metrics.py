"""Ranking metrics, each by its formula.

A metric takes ``hits`` (users × K booleans: is the item at this rank one of the held-out ones?), the
number of held-out items of each user, and k ≤ K; it returns one value for each user.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from deql.errors import ParameterError

__all__ = ["METRICS", "ndcg", "parse_metric", "recall", "recall_capped"]

Values = NDArray[np.float64]


def recall(hits: NDArray[np.bool_], held_out: NDArray[np.int64], k: int) -> Values:
    """Hits among the first k ÷ number of held-out items.

    Examples
    --------
    >>> recall(np.array([[True, False, True]]), np.array([4]), 3)
    array([0.5])
    """
    return np.asarray(hits[:, :k].sum(axis=1) / held_out)


def recall_capped(hits: NDArray[np.bool_], held_out: NDArray[np.int64], k: int) -> Values:
    """Hits among the first k ÷ min(k, number of held-out items): 1 is always attainable.

    Examples
    --------
    >>> recall_capped(np.array([[True, False, True]]), np.array([4]), 3).round(3)
    array([0.667])
    """
    return np.asarray(hits[:, :k].sum(axis=1) / np.minimum(held_out, k))


def ndcg(hits: NDArray[np.bool_], held_out: NDArray[np.int64], k: int) -> Values:
    """Σ hit_r / log₂(r + 1) over ranks r = 1 … k ÷ the same sum for a perfect list.

    Examples
    --------
    >>> ndcg(np.array([[False, True]]), np.array([1]), 2).round(4)
    array([0.6309])
    """
    discount = 1.0 / np.log2(np.arange(2, k + 2))
    best = np.concatenate([[0.0], np.cumsum(discount)])
    return np.asarray(hits[:, :k] @ discount[: hits.shape[1]] / best[np.minimum(held_out, k)])


METRICS: dict[str, Callable[[NDArray[np.bool_], NDArray[np.int64], int], Values]] = {
    "recall": recall,
    "recall_capped": recall_capped,
    "ndcg": ndcg,
}


def parse_metric(text: str) -> tuple[str, int]:
    """Split ``"ndcg@20"`` into its name and k.

    Examples
    --------
    >>> parse_metric("ndcg@20")
    ('ndcg', 20)
    """
    match = re.fullmatch(r"([a-z_]+)@([1-9][0-9]*)", str(text))
    if match is None or match[1] not in METRICS:
        known = ", ".join(f"{name}@20" for name in METRICS)
        raise ParameterError(f"unknown metric {text!r}: say one such as {known}")
    return match[1], int(match[2])
