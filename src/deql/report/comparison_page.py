"""The page of ``deql compare --report``: values on every split, their differences, and what is significant."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from deql._system.tables import Grid, p_value
from deql.evaluation.comparison_result import Comparison
from deql.evaluation.panels import difference_panel, value_panel
from deql.evaluation.result_tables import comparison_grid, comparison_legend, significance_grids
from deql.report import page
from deql.report.page import Figure

__all__ = ["comparison_page"]


def comparison_page(title: str, about: Mapping[str, str], comparison: Comparison) -> str:
    """The whole page; ``about`` tells of the data, in words."""
    comparison = _with_short_names(comparison)
    numbers, star = comparison_legend(comparison)
    return page.render(
        "comparison", title, about=about, numbers=numbers, star=star, names=comparison.names,
        models=page.parameter_grid({name: model["parameters"] for name, model in comparison.models.items()}),
        results=comparison_grid(comparison), splits=_split_grid(comparison),
        drawn=[
            Figure.of(*make(comparison, metric))
            for metric in comparison.metrics for make in (value_panel, difference_panel)
        ],
        tests=[*significance_grids(comparison), *_pair_grids(comparison)],
    )  # fmt: skip


def _with_short_names(comparison: Comparison) -> Comparison:
    short = page.short_names({name: model["parameters"] for name, model in comparison.models.items()})
    models = {short[name]: model for name, model in comparison.models.items()}
    return replace(comparison, models=models, baseline=comparison.baseline and short[comparison.baseline])


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
