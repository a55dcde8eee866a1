"""The page of ``deql evaluate --report``: how good each model is, for whom, and at which length of list."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql.evaluation.comparison import lower_is_better
from deql.evaluation.evaluator import Evaluation
from deql.report import page, plots
from deql.report.tables import Cell, Grid, number
from deql.split import HeldOut

__all__ = ["curve_metrics", "evaluation_grid", "evaluation_page"]

_CURVES = ("recall", "ndcg")
_GROUPS = 6


def curve_metrics(metrics: Sequence[str]) -> list[str]:
    """Recall and NDCG at lengths 1 … the largest k asked for: what the curves over k need.

    Examples
    --------
    >>> curve_metrics(["recall@3", "mse"])
    ['recall@1', 'ndcg@1', 'recall@2', 'ndcg@2', 'recall@3', 'ndcg@3']
    """
    longest = max((int(metric.partition("@")[2] or 0) for metric in metrics), default=0)
    lengths = (
        np.unique(np.geomspace(1, max(longest, 1), 40).round().astype(int)) if longest > 40 else range(1, longest + 1)
    )
    return [f"{name}@{k}" for k in lengths for name in _CURVES]


def evaluation_grid(results: Mapping[str, Evaluation], metrics: Sequence[str]) -> Grid:
    """A row for each model, a column for each metric: mean ± standard error, best ones marked as such."""
    best = {}
    for metric in metrics:
        means = {name: result.means[metric] for name, result in results.items()}
        best[metric] = (min if lower_is_better(metric) else max)(means.values()) if len(means) > 1 else None
    rows = [
        (
            [name],
            [
                Cell(number(mean := result.means[metric]), _spread(result, metric), mean == best[metric])
                for metric in metrics
            ],
        )
        for name, result in results.items()
    ]
    return Grid("Results", ["model", *metrics], rows)


def evaluation_page(
    title: str,
    about: Mapping[str, str],
    models: Mapping[str, Mapping[str, Any]],
    results: Mapping[str, Evaluation],
    target: HeldOut,
    metrics: Sequence[str],
) -> str:
    """The whole page.

    Parameters
    ----------
    title : str
    about : dict of str to str
        The data and the split, in words.
    models : dict of str to dict
        Hyper-parameters of each model.
    results : dict of str to Evaluation
        For each model; if the metrics of :func:`curve_metrics` are among theirs, they are drawn.
    target : HeldOut
        What the models were judged on.
    metrics : sequence of str
        What was asked for.
    """
    per_user = [metric for metric in metrics if all(metric in one.per_user for one in results.values())]
    bounds = {name: {metric: one.interval(metric) for metric in per_user} for name, one in results.items()}
    first = next(iter(results.values()))
    left_out = f"; {first.skipped:,} with nothing held out are left out" if first.skipped else ""
    return page.page(
        title,
        page.facts(about),
        page.heading("Models"),
        page.model_table(models),
        page.heading("Results"),
        page.grid_table(evaluation_grid(results, metrics)),
        page.paragraph(f"Mean ± standard error over {len(first.users):,} users{left_out}. Highlighted: best."),
        _interval_table(bounds),
        page.heading("Figures"),
        page.key(results),
        page.figures([
            *(_intervals(results, bounds, metric) for metric in per_user),
            *(_shares(results, metric) for metric in per_user[:2]),
            *(_by_history(results, metric, target) for metric in per_user[:2]),
            *(_by_length(results, name) for name in _CURVES if {f"{name}@1", f"{name}@2"} <= set(first.means)),
        ]),
    )  # fmt: skip


def _spread(result: Evaluation, metric: str) -> str:
    error = result.standard_errors.get(metric, math.nan)
    return "" if math.isnan(error) else number(error)


def _interval_table(bounds: Mapping[str, Mapping[str, tuple[float, float]]]) -> str:
    metrics = list(next(iter(bounds.values())))
    if not metrics:
        return ""
    rows = [
        [name, *(f"{number(low)} to {number(high)}" for low, high in intervals.values())]
        for name, intervals in bounds.items()
    ]
    note = "95 % of the means lie within these when users are drawn again at random (bootstrap)."
    return page.plain_table(["95 % interval", *metrics], rows, "Intervals") + page.paragraph(note)


def _intervals(
    results: Mapping[str, Evaluation], bounds: Mapping[str, Mapping[str, tuple[float, float]]], metric: str
) -> tuple[str, str]:
    values = {name: (result.means[metric], *bounds[name][metric]) for name, result in results.items()}
    title = f"{metric} by model, with 95 % intervals"
    drawn = plots.intervals(f"interval-{page.anchor(metric)}", title, values, metric)
    return drawn, f"{metric}: mean and 95 % bootstrap interval."


def _shares(results: Mapping[str, Evaluation], metric: str) -> tuple[str, str]:
    values = {name: result.per_user[metric] for name, result in results.items()}
    return plots.shares(
        f"shares-{page.anchor(metric)}",
        f"Share of users who reach each value of {metric}",
        values,
        f"at least this {metric}",
    ), f"How {metric} is spread over users: the share of them with at least the value below."


def _by_history(results: Mapping[str, Evaluation], metric: str, target: HeldOut) -> tuple[str, str]:
    sizes = dict(zip(target.seen.users.tolist(), np.diff(target.seen.matrix.indptr).tolist(), strict=True))
    lengths = np.array([sizes[user] for user in next(iter(results.values())).users.tolist()])
    labels, groups = group_lengths(lengths)
    means, errors = {}, {}
    for name, result in results.items():
        samples = [result.per_user[metric][groups == group] for group in range(len(labels))]
        means[name] = [float(sample.mean()) for sample in samples]
        errors[name] = [
            float(sample.std(ddof=1) / math.sqrt(len(sample))) if len(sample) > 1 else 0.0 for sample in samples
        ]
    drawn = plots.lines(
        f"history-{page.anchor(metric)}", f"{metric} by length of history", labels, means,
        "items in the history", metric, errors,
    )  # fmt: skip
    counts = ", ".join(f"{count:,}" for count in np.bincount(groups).tolist())
    return drawn, f"{metric} by how much of a user is known, ± standard error; users in each group: {counts}."


def group_lengths(lengths: NDArray[np.int64]) -> tuple[list[str], NDArray[np.int64]]:
    """Up to six groups of about as many users each: their labels, and the group of each user.

    Examples
    --------
    >>> import numpy as np
    >>> labels, groups = group_lengths(np.array([1, 1, 2, 5, 9, 9, 30]))
    >>> labels, groups.tolist()
    (['1', '2–4', '5–8', '9–30'], [0, 0, 1, 2, 3, 3, 3])
    """
    starts = np.unique(np.quantile(lengths, np.linspace(0, 1, _GROUPS + 1), method="higher")[:-1])
    ends = np.append(starts[1:] - 1, lengths.max())
    labels = [f"{low}" if low == high else f"{low}–{high}" for low, high in zip(starts, ends, strict=True)]
    return labels, np.searchsorted(starts, lengths, side="right") - 1


def _by_length(results: Mapping[str, Evaluation], name: str) -> tuple[str, str]:
    metrics = [metric for metric in next(iter(results.values())).means if metric.startswith(f"{name}@")]
    lengths = sorted(int(metric.partition("@")[2]) for metric in metrics)
    values = {model: [result.means[f"{name}@{k}"] for k in lengths] for model, result in results.items()}
    drawn = plots.lines(f"length-{name}", f"{name}@k by k", [float(k) for k in lengths], values, "k", f"{name}@k")
    return drawn, f"{name}@k for lists of 1 to {lengths[-1]} items."
