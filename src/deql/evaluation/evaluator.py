"""One pass over the judged users, all metrics at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql.errors import DataError, ParameterError
from deql.evaluation.metrics import METRICS, parse_metric
from deql.models.base import Recommender
from deql.recommend import NO_ITEM, encode_histories
from deql.split import HeldOut

__all__ = ["Evaluation", "evaluate"]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Metric values.

    Attributes
    ----------
    means : dict of str to float
        Mean over users.
    per_user : dict of str to ndarray
        One value for each user, in the order of ``users``.
    users : ndarray
        Ids of the users who have something held out.
    """

    means: dict[str, float]
    per_user: dict[str, NDArray[np.float64]]
    users: NDArray[np.object_]


def evaluate(
    model: Recommender, target: HeldOut, metrics: str | Sequence[str] = ("recall@20", "ndcg@20")
) -> Evaluation:
    """Judge a model on held-out interactions.

    Parameters
    ----------
    model : fitted model
    target : HeldOut
        ``split.test`` or ``split.validation``.
    metrics : str or sequence of str
        ``recall@k`` divides by the number of held-out items, ``recall_capped@k`` by at most k of
        them, ``ndcg@k`` has binary relevance.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> import deql
    >>> split = deql.split_strong(deql.datasets.debian())
    >>> result = deql.evaluate(deql.Popularity().fit(split.train), split.test)
    >>> {name: round(value, 3) for name, value in result.means.items()}
    {'recall@20': 0.302, 'ndcg@20': 0.23}
    """
    wanted = {text: parse_metric(text) for text in ([metrics] if isinstance(metrics, str) else metrics)}
    if not wanted:
        raise ParameterError("name at least one metric, such as ndcg@20")
    depth = max(k for _, k in wanted.values())
    sizes = np.diff(target.held_out.matrix.indptr)
    judged = np.flatnonzero(sizes > 0)
    if not judged.size:
        raise DataError("no user has anything held out, so there is nothing to evaluate")
    columns, _, _ = model._top(target.seen.take_users(judged), depth)
    truth = encode_histories(target.held_out.take_users(judged), model._item_index, model.items_, strict=False)
    hits = _hits(columns, truth)
    counts = sizes[judged].astype(np.int64)
    per_user = {text: METRICS[name](hits, counts, k) for text, (name, k) in wanted.items()}
    means = {text: float(values.mean()) for text, values in per_user.items()}
    return Evaluation(means, per_user, target.held_out.users[judged])


def _hits(columns: NDArray[np.int32], truth: csr_array) -> NDArray[np.bool_]:
    """Which of the ranked columns are in the same row of ``truth``."""
    n = truth.shape[1]
    rows = np.repeat(np.arange(truth.shape[0], dtype=np.int64), np.diff(truth.indptr))
    ranked = np.arange(len(columns), dtype=np.int64)[:, None] * n + columns
    return np.asarray(np.isin(ranked, rows * n + truth.indices) & (columns != NO_ITEM))
