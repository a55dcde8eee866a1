"""How a notebook shows evaluations and comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deql._system import html
from deql._system.tables import Grid, counted, number, value_cell
from deql.evaluation.result_tables import comparison_grid, comparison_legend, significance_grids

if TYPE_CHECKING:
    from deql.evaluation.comparison_result import Comparison
    from deql.evaluation.evaluation_result import Evaluation

__all__ = ["comparison_html", "comparison_repr", "evaluation_html", "evaluation_repr"]

_METRICS = 6


def evaluation_repr(found: Evaluation) -> str:
    """The first means, and over how many users they are."""
    shown = [f"{metric} {number(mean)}" for metric, mean in list(found.means.items())[:_METRICS]]
    shown += ["…"] * (len(found.means) > _METRICS)
    return f"Evaluation({', '.join(shown)}; {counted(len(found.users), 'user', 'users')})"


def evaluation_html(found: Evaluation) -> str:
    """A row for each metric."""
    errors = found.standard_errors
    nothing = float("nan")
    rows = [([metric], [value_cell(mean, errors.get(metric, nothing))]) for metric, mean in found.means.items()]
    users = counted(len(found.users), "user", "users")
    left_out = f"; {found.skipped:,} more had nothing held out" if found.skipped else ""
    return html.block(
        html.heading("Evaluation", f"mean ± standard error over {users}{left_out}"),
        html.table(Grid("Evaluation", ["metric", "mean"], rows), most=30),
    )


def comparison_repr(found: Comparison) -> str:
    """The models, and which of them did best."""
    metric = found.metrics[0]
    best = found.best(metric)
    over = f"{len(found.splits)} splits" if found.over == "splits" else "1 split"
    value = number(found.means[best][metric])
    return f"Comparison({len(found.names)} models on {over}; best {metric}: {html.shorten(best, 60)}, {value})"


def comparison_html(found: Comparison) -> str:
    """Values of all models, and the tests folded."""
    numbers, star = comparison_legend(found)
    tests = [part for grid in significance_grids(found) for part in (html.paragraph(grid.title), html.table(grid, 40))]
    return html.block(
        html.heading("Comparison"), html.table(comparison_grid(found), most=40),
        html.paragraph(f"{numbers} Highlighted: best. * {star}", quiet=True),
        *([html.folded("tests", *tests)] if tests else []),
    )  # fmt: skip
