"""What is drawn of evaluations and comparisons, on pages and in notebooks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from deql.metrics import lower_is_better
from deql.plotting import plots
from deql.plotting.drawing import Panel
from deql.plotting.plots import Labels
from deql.split import HeldOut

if TYPE_CHECKING:
    from deql.evaluation.comparison_result import Comparison
    from deql.evaluation.evaluation_result import Evaluation

__all__ = [
    "difference_panel", "distribution_panel", "group_lengths", "history_panel", "mean_interval", "value_panel",
]  # fmt: skip

_GROUPS = 6


def distribution_panel(found: Evaluation, metric: str) -> Panel:
    """How a metric is spread over users."""
    labels = Labels(
        f"distribution-{_anchor(metric)}", f"{metric} of {len(found.users):,} users", metric, "share of users"
    )
    return plots.distribution.panel(labels, found.per_user[metric].tolist())


def history_panel(results: Mapping[str, Evaluation], metric: str, target: HeldOut) -> tuple[Panel, str]:
    """A metric by how many items a user's history has, and what is drawn in words."""
    sizes = dict(zip(target.seen.users.tolist(), np.diff(target.seen.matrix.indptr).tolist(), strict=True))
    lengths = np.array([sizes[user] for user in next(iter(results.values())).users.tolist()])
    ranges, groups = group_lengths(lengths)
    means, errors = {}, {}
    for name, result in results.items():
        samples = [result.per_user[metric][groups == group] for group in range(len(ranges))]
        means[name] = [float(sample.mean()) for sample in samples]
        errors[name] = [
            float(sample.std(ddof=1) / math.sqrt(len(sample))) if len(sample) > 1 else 0.0 for sample in samples
        ]
    labels = Labels(
        f"history-{_anchor(metric)}", f"{metric} by length of history", "items in the history", metric
    )  # fmt: skip
    counts = ", ".join(f"{count:,}" for count in np.bincount(groups).tolist())
    told = f"{metric} by how much of a user is known, ± standard error; users in each group: {counts}."
    return plots.lines.panel(labels, ranges, means, errors), told


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


def value_panel(comparison: Comparison, metric: str) -> tuple[Panel, str]:
    """The values of each model, on every split if there are several, and what is drawn in words."""
    name, by_split = f"values-{_anchor(metric)}", comparison.values[metric]
    if comparison.over == "splits":
        values = dict(zip(comparison.names, by_split.T, strict=True))
        drawn = plots.splits.panel(Labels(name, f"{metric} of each model on each split", metric), values)
        return drawn, f"{metric} on each of {len(by_split)} splits; the stroke is the mean."
    means, errors = comparison.means, comparison.standard_errors
    halves = {model: 1.96 * errors[model][metric] for model in comparison.names}
    ranges = {
        model: (mean, mean - half, mean + half)
        for model in comparison.names
        for mean, half in [(means[model][metric], np.nan_to_num(halves[model]))]
    }
    known = not np.isnan(list(halves.values())).any()
    told = "mean ± 1.96 standard errors" if known else "one value of all users, so no error is known"
    return plots.intervals.panel(Labels(name, f"{metric} of each model", metric), ranges), f"{metric}: {told}."


def difference_panel(comparison: Comparison, metric: str) -> tuple[Panel, str]:
    """How far each model is from the best one, or from the baseline, and what is drawn in words."""
    pairs = comparison.values if comparison.over == "splits" else comparison.per_user
    values = pairs.get(metric, comparison.values[metric])
    rows = {}
    question = "best" if comparison.baseline is None else "baseline"
    for test in (test for test in comparison.tests(metric) if test.against == question):
        better, other = comparison.names.index(test.better), comparison.names.index(test.other)
        sample = values[:, better] - values[:, other]
        dots = sample if comparison.over == "splits" else sample[:0]
        name, colour = (test.other, other) if question == "best" else (test.better, better)
        rows[name] = (colour, dots, mean_interval(sample))
    what = (
        f"{comparison.best(metric)} less each other model"
        if question == "best"
        else f"each model less the baseline {comparison.baseline}"
    )
    lower = " Below zero is better." if lower_is_better(metric) else ""
    labels = Labels(f"differences-{_anchor(metric)}", f"{metric}: {what}", f"difference of {metric}")
    how = f"on the same {comparison.over}, with the mean and its 95 % interval (Student's t)"
    if len(values) < 2:
        how = "one value of all users, so no interval is known"
    return plots.differences.panel(labels, rows), f"{metric}: {what}, {how}.{lower}"


def mean_interval(sample: NDArray[np.float64]) -> plots.Interval:
    """The mean and its 95 % interval by Student's t; for one value the value alone.

    Examples
    --------
    >>> [round(value, 3) for value in mean_interval(np.array([0.01, 0.02, 0.03]))]
    [0.02, -0.005, 0.045]
    """
    n, mean = len(sample), float(sample.mean())
    half = float(stdtrit(n - 1, 0.975) * sample.std(ddof=1) / math.sqrt(n)) if n > 1 else 0.0
    return mean, mean - half, mean + half


def _anchor(metric: str) -> str:
    """A metric's name as part of an element's id."""
    return metric.replace("@", "-")
