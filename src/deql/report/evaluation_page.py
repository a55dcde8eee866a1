"""The page of ``deql evaluate --report``: how good each model is, for whom, and at which length of list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deql._system.tables import Grid, number
from deql.evaluation.evaluation_result import Evaluation
from deql.evaluation.panels import history_panel
from deql.evaluation.result_tables import evaluation_grid, evaluation_legend
from deql.plotting import plots
from deql.plotting.plots import Labels
from deql.report import page
from deql.report.page import Figure
from deql.split import HeldOut

__all__ = ["curve_metrics", "evaluation_page"]

Bounds = Mapping[str, Mapping[str, tuple[float, float]]]
"""For each model and metric the ends of an interval."""

_CURVES = ("recall", "ndcg")


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
        What the models were evaluated on.
    metrics : sequence of str
        What was asked for.
    """
    short = page.short_names(models)
    models = {short[name]: parameters for name, parameters in models.items()}
    results = {short[name]: result for name, result in results.items()}
    per_user = [metric for metric in metrics if all(metric in one.per_user for one in results.values())]
    bounds = {name: {metric: one.interval(metric) for metric in per_user} for name, one in results.items()}
    measured = next(iter(results.values())).means
    drawn = [
        *(_intervals(results, bounds, metric) for metric in per_user),
        *(_shares(results, metric) for metric in per_user[:2]),
        *(Figure.of(*history_panel(results, metric, target)) for metric in per_user[:2]),
        *(_by_length(results, name) for name in _CURVES if {f"{name}@1", f"{name}@2"} <= set(measured)),
    ]
    return page.render(
        "evaluation", title, about=about, models=page.parameter_grid(models), results=evaluation_grid(results, metrics),
        legend=evaluation_legend(results), intervals=_interval_grid(bounds) if per_user else None, names=list(results),
        drawn=drawn,
    )  # fmt: skip


def _interval_grid(bounds: Bounds) -> Grid:
    rows = [
        [name, *(f"{number(low)} to {number(high)}" for low, high in intervals.values())]
        for name, intervals in bounds.items()
    ]
    return page.plain_grid("Intervals", ["95 % interval", *next(iter(bounds.values()))], rows)


def _intervals(results: Mapping[str, Evaluation], bounds: Bounds, metric: str) -> Figure:
    values = {name: (result.means[metric], *bounds[name][metric]) for name, result in results.items()}
    labels = Labels(f"interval-{page.anchor(metric)}", f"{metric} by model, with 95 % intervals", metric)
    return Figure(plots.intervals(labels, values), f"{metric}: mean and 95 % bootstrap interval.")


def _shares(results: Mapping[str, Evaluation], metric: str) -> Figure:
    values = {name: result.per_user[metric] for name, result in results.items()}
    title = f"Share of users who reach each value of {metric}"
    labels = Labels(f"shares-{page.anchor(metric)}", title, f"at least this {metric}", "share of users")
    told = f"How {metric} is spread over users: the share of them with at least the value below."
    return Figure(plots.shares(labels, values), told)


def _by_length(results: Mapping[str, Evaluation], name: str) -> Figure:
    metrics = [metric for metric in next(iter(results.values())).means if metric.startswith(f"{name}@")]
    lengths = sorted(int(metric.partition("@")[2]) for metric in metrics)
    values = {model: [result.means[f"{name}@{k}"] for k in lengths] for model, result in results.items()}
    labels = Labels(f"length-{name}", f"{name}@k by k", "k", f"{name}@k")
    drawn = plots.lines(labels, [float(k) for k in lengths], values)
    return Figure(drawn, f"{name}@k for lists of 1 to {lengths[-1]} items.")
