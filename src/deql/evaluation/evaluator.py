"""One pass over the judged users, all metrics and all k at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.progress import Report, stages
from deql.data.interactions import masked
from deql.errors import DataError, ParameterError
from deql.evaluation.accumulator import Tally
from deql.evaluation.evaluation_result import Evaluation
from deql.evaluation.hits import find_hits
from deql.evaluation.ranking_pass import Ranked, group_models, ranked_slices, squared_errors
from deql.metrics import as_names, parse_metric, parse_metrics
from deql.models.base import Recommender
from deql.models.linear import LinearAutoencoder
from deql.models.stored import StoredWeights
from deql.ranking.histories import encode_histories
from deql.split import HeldOut

__all__ = ["Evaluation", "as_names", "check_metrics", "evaluate"]


@overload
def evaluate(model: Recommender, target: HeldOut, metrics: str | Sequence[str] = ...) -> Evaluation: ...
@overload
def evaluate(
    model: Mapping[str, Recommender], target: HeldOut, metrics: str | Sequence[str] = ...
) -> dict[str, Evaluation]: ...
@overload
def evaluate(model: Sequence[Recommender], target: HeldOut, metrics: str | Sequence[str] = ...) -> list[Evaluation]: ...
def evaluate(model: Any, target: HeldOut, metrics: str | Sequence[str] = ("recall@20", "ndcg@20")) -> Any:
    """Judge one model or several on held-out interactions.

    Users are ranked slice by slice, so memory does not grow with them. Models that share P (see
    :meth:`~deql.models.linear.LinearAutoencoder.with_rule`) are ranked in the same pass.

    Parameters
    ----------
    model : fitted model, list of them, or dict of them by name
    target : HeldOut
        ``split.test`` or ``split.validation``. Users with nothing held out are left out and counted.
        A held-out item that a model does not know counts as missed.
    metrics : str or sequence of str
        ``recall@k`` divides by the number of held-out items, ``recall_capped@k`` by at most k of
        them; ``ndcg@k`` (binary), ``precision@k``, ``hit_rate@k``, ``mrr@k``, ``map@k``;
        ``coverage@k``, ``gini@k``, ``novelty@k``; ``mse``, the paper's held-out error. docs/metrics.md
        has the formulas.

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
    several = isinstance(model, Sequence) and not isinstance(model, str)
    models = list(model.values()) if isinstance(model, Mapping) else list(model) if several else [model]
    check_metrics(models, wanted)
    for one in models:
        one._check_fitted()
    if not isinstance(target, HeldOut):
        raise ParameterError(f"expected what is held out, such as split.test, got {type(target).__name__}")
    sizes = np.diff(target.held_out.matrix.indptr)
    judged = sizes > 0
    if not judged.any():
        raise DataError("no user has anything held out, so there is nothing to evaluate")
    skipped = int(np.count_nonzero(~judged))
    if skipped:
        target = HeldOut(target.seen.take_users(judged), target.held_out.take_users(judged))
    found: dict[int, Evaluation] = {}
    with stages(any(one.progress for one in models)) as stage:
        for group in group_models(models):
            report = stage("Evaluate")
            for position, (means, per_user) in zip(
                group, _judge([models[position] for position in group], target, wanted, report), strict=True
            ):
                found[position] = Evaluation(means, per_user, target.held_out.users, skipped)
    results = [found[position] for position in range(len(models))]
    if isinstance(model, Mapping):
        return dict(zip(model, results, strict=True))
    return results if several else results[0]


def check_metrics(models: Iterable[Any], metrics: Iterable[str]) -> None:
    """Refuse, before any work, what is no model or no metric, and a metric that a model cannot have."""
    names = {parse_metric(text)[0] for text in metrics}
    for model in models:
        if not isinstance(model, Recommender):
            raise ParameterError(f"expected a model, a list of models or a dict of models, got {model!r}")
        if "mse" in names and not isinstance(model, LinearAutoencoder | StoredWeights):
            raise ParameterError(f"mse needs a model whose scores are X @ W, which {type(model).__name__} has not")


def _judge(
    models: list[Recommender], target: HeldOut, wanted: Mapping[str, tuple[str, int]], report: Report | None
) -> list[tuple[dict[str, float], dict[str, NDArray[np.float64]]]]:
    """Means and users' values under each model of a group, in the order of the models."""
    first = models[0]
    seen = encode_histories(target.seen, first._item_index, first.items_, strict=False)
    truth = encode_histories(
        target.held_out, first._item_index, first.items_, strict=False, where="what is held out, and counted as missed"
    )
    counts = np.diff(target.held_out.matrix.indptr).astype(np.int64)
    tallies = [Tally(wanted, counts, model.item_counts_, model.n_users_) for model in models]
    depth = max(1, *(k for _, k in wanted.values()))
    for ranked in ranked_slices(models, seen, depth, "mse" in wanted, report):
        rows = slice(ranked.first, ranked.last)
        hits = find_hits(ranked.columns, truth[rows])
        for m, (model, tally) in enumerate(zip(models, tallies, strict=True)):
            tally.add(rows, ranked.columns[m], hits[m])
            if "mse" in wanted:
                tally.add_errors(rows, _errors(model, m, ranked, target, seen[rows], truth[rows]))
    return [tally.finish(target.seen.matrix.nnz) for tally in tallies]


def _errors(
    model: Recommender, m: int, ranked: Ranked, target: HeldOut, seen: csr_array, truth: csr_array
) -> NDArray[np.float64]:
    """Numerators of eq:2.1; an item that the model does not know is predicted as 0."""
    assert isinstance(model, LinearAutoencoder | StoredWeights)  # else check_metrics would have refused
    assert ranked.squares is not None
    rows = slice(ranked.first, ranked.last)
    known = _without(truth, seen)
    unseen = _without(target.held_out.matrix[rows], target.seen.matrix[rows])
    return squared_errors(model, ranked.squares[m], seen, known) + _squares(unseen) - _squares(known)


def _squares(matrix: csr_array) -> NDArray[np.float64]:
    """Σ of squared values of each row."""
    values = matrix.data.astype(np.float64)
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return np.asarray(np.bincount(rows, values * values, minlength=matrix.shape[0]))


def _keys(matrix: csr_array) -> NDArray[np.int64]:
    """Each stored entry as row · columns + column, in order."""
    rows = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
    return np.asarray(rows * matrix.shape[1] + matrix.indices)


def _without(matrix: csr_array, other: csr_array) -> csr_array:
    """``matrix`` without the entries that ``other`` has too."""
    kept = ~np.isin(_keys(matrix), _keys(other))
    return matrix if kept.all() else masked(matrix, kept)
