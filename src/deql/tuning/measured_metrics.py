"""What a search measures: the metric that decides, and what is shown beside it."""

from __future__ import annotations

from collections.abc import Sequence

from deql.errors import ParameterError
from deql.metrics import METRICS, parse_metric

__all__ = ["metrics_for"]

_CURVE_K = 20


def metrics_for(metric: str | Sequence[str]) -> list[str]:
    """What is measured: the metric that decides, others that were asked for, then recall and NDCG for the curve over b.

    Examples
    --------
    >>> metrics_for("map@10")
    ['map@10', 'recall@10', 'ndcg@10']
    >>> metrics_for(["ndcg@20", "ndcg@5"])
    ['ndcg@20', 'ndcg@5', 'recall@20']
    """
    wanted = [metric] if isinstance(metric, str) else metric
    if not isinstance(wanted, list | tuple) or not wanted or not all(isinstance(one, str) for one in wanted):
        raise ParameterError(f"metric must be a name such as ndcg@20, got {metric!r}", parameter="metric")
    parsed = [parse_metric(one) for one in wanted]
    for one, (name, _) in zip(wanted, parsed, strict=True):
        if METRICS[name].of not in ("hits", "errors"):
            raise ParameterError(
                f"{one} does not say how good recommendations are: choose by one such as ndcg@20", parameter="metric"
            )
    k = parsed[0][1] or _CURVE_K
    return list(dict.fromkeys([*wanted, f"recall@{k}", f"ndcg@{k}"]))
