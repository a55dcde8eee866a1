"""The page of ``deql compare --report``: values on every split, their differences, and what is significant."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from deql._system.tables import Grid, p_value
from deql.evaluation.comparison import Comparison
from deql.evaluation.result_tables import comparison_grid, comparison_legend, significance_grids
from deql.metrics import lower_is_better
from deql.plotting import plots
from deql.plotting.plots import Labels
from deql.report import page
from deql.report.page import Figure

__all__ = ["comparison_page", "mean_interval"]


def comparison_page(title: str, about: Mapping[str, str], comparison: Comparison) -> str:
    """The whole page; ``about`` tells of the data, in words."""
    numbers, star = comparison_legend(comparison)
    return page.render(
        "comparison", title, about=about, numbers=numbers, star=star, names=comparison.names,
        models=page.parameter_grid({name: model["parameters"] for name, model in comparison.models.items()}),
        results=comparison_grid(comparison), splits=_split_grid(comparison),
        drawn=[draw(comparison, metric) for metric in comparison.metrics for draw in (_values, _differences)],
        tests=[*significance_grids(comparison), *_pair_grids(comparison)],
    )  # fmt: skip


def _values(comparison: Comparison, metric: str) -> Figure:
    name, by_split = f"values-{page.anchor(metric)}", comparison.values[metric]
    if comparison.over == "splits":
        values = dict(zip(comparison.names, by_split.T, strict=True))
        drawn = plots.splits(Labels(name, f"{metric} of each model on each split", metric), values)
        return Figure(drawn, f"{metric} on each of {len(by_split)} splits; the stroke is the mean.")
    means, errors = comparison.means, comparison.standard_errors
    halves = {model: 1.96 * errors[model][metric] for model in comparison.names}
    ranges = {
        model: (mean, mean - half, mean + half)
        for model in comparison.names
        for mean, half in [(means[model][metric], np.nan_to_num(halves[model]))]
    }
    known = not np.isnan(list(halves.values())).any()
    told = "mean ± 1.96 standard errors" if known else "one value of all users, so no error is known"
    return Figure(plots.intervals(Labels(name, f"{metric} of each model", metric), ranges), f"{metric}: {told}.")


def _differences(comparison: Comparison, metric: str) -> Figure:
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
    labels = Labels(f"differences-{page.anchor(metric)}", f"{metric}: {what}", f"difference of {metric}")
    how = f"on the same {comparison.over}, with the mean and its 95 % interval (Student's t)"
    if len(values) < 2:
        how = "one value of all users, so no interval is known"
    return Figure(plots.differences(labels, rows), f"{metric}: {what}, {how}.{lower}")


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


def _pair_grids(comparison: Comparison) -> list[Grid]:
    """For each metric all pairs at once, not corrected: row better than column."""
    grids = []
    for metric in comparison.metrics:
        p_values = comparison.p_values(metric)
        rows = [
            [name, *("" if math.isnan(value) else p_value(value) for value in values)]
            for name, values in zip(comparison.names, p_values, strict=True)
        ]
        title = f"{metric}: p-values of “row is better than column”, t-test over {comparison.over}, not corrected"
        if not np.isnan(p_values).all():
            grids.append(page.plain_grid(title, ["", *comparison.names], rows))
    return grids


def _split_grid(comparison: Comparison) -> Grid:
    rows = [
        [
            "–" if split["seed"] is None else str(split["seed"]),
            *(f"{split['train'][part]:,}" for part in ("users", "items", "interactions")),
            f"{split['judged']:,}", f"{split['skipped']:,}",
            ", ".join(f"{count:,} {what}" for what, count in split["dropped"].items()),
        ]
        for split in comparison.splits
    ]  # fmt: skip
    header = ["seed", "training users", "items", "interactions", "users evaluated", "skipped", "dropped"]
    return page.plain_grid("Splits", header, rows)
