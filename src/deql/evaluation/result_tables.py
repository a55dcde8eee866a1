"""What evaluations and comparisons found, as tables with a legend."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from deql._system.tables import (
    Cell,
    Grid,
    latex_escape,
    latex_table,
    markdown_escape,
    markdown_table,
    p_value,
    text_table,
    value_cell,
)
from deql.metrics import lower_is_better

if TYPE_CHECKING:
    from deql.evaluation.comparison_result import Comparison, Over, PairedTest
    from deql.evaluation.evaluation_result import Evaluation

__all__ = [
    "comparison_grid", "comparison_latex", "comparison_legend", "comparison_markdown", "comparison_text",
    "evaluation_grid", "evaluation_legend", "significance_grids",
]  # fmt: skip


def evaluation_grid(results: Mapping[str, Evaluation], metrics: Sequence[str]) -> Grid:
    """A row for each model, a column for each metric: mean ± standard error, best ones marked as such."""
    best = {}
    for metric in metrics:
        means = [result.means[metric] for result in results.values()]
        best[metric] = (min if lower_is_better(metric) else max)(means) if len(means) > 1 else None
    rows = []
    for name, result in results.items():
        spreads = result.standard_errors
        cells = [
            value_cell(mean, spreads.get(metric, math.nan), best=mean == best[metric])
            for metric in metrics
            for mean in [result.means[metric]]
        ]
        rows.append(([name], cells))
    return Grid("Results", ["model", *metrics], rows)


def evaluation_legend(results: Mapping[str, Evaluation]) -> str:
    """What the numbers of an evaluation are."""
    first = next(iter(results.values()))
    left_out = f"; {first.skipped:,} with nothing held out are left out" if first.skipped else ""
    return f"Mean ± standard error over {len(first.users):,} users{left_out}."


def comparison_grid(comparison: Comparison) -> Grid:
    """A row for each model, a column for each metric."""
    spread = comparison.deviations if comparison.over == "splits" else comparison.standard_errors
    best = {metric: comparison.means[comparison.best(metric)][metric] for metric in comparison.metrics}
    marked = {metric: comparison.significant(metric) for metric in comparison.metrics}
    rows = [
        (
            [name],
            [
                value_cell(means[metric], spread[name][metric], means[metric] == best[metric], name in marked[metric])
                for metric in comparison.metrics
            ],
        )
        for name, means in comparison.means.items()
    ]
    return Grid("Results", ["model", *comparison.metrics], rows)


def comparison_legend(comparison: Comparison) -> tuple[str, str]:
    """What the numbers are, and what the star says."""
    several = comparison.over == "splits"
    seeds = [split["seed"] for split in comparison.splits]
    evaluated = [split["judged"] for split in comparison.splits]
    users = f"{min(evaluated):,}" if min(evaluated) == max(evaluated) else f"{min(evaluated):,} to {max(evaluated):,}"
    drawn = f"seed {seeds[0]}" if seeds[0] == seeds[-1] else f"seeds {seeds[0]} to {seeds[-1]}"
    numbers = (
        f"Mean ± standard deviation over {len(seeds)} splits ({comparison.protocol}, {drawn}, "
        f"{users} users evaluated in each)."
        if several
        else f"Mean ± standard error over {users} users ({comparison.protocol} split"
        + (f", seed {seeds[0]})." if seeds[0] is not None else ").")
    )
    claim = (
        "the best model is better than this one"
        if comparison.baseline is None
        else f"better than the baseline {comparison.baseline}"
    )
    return numbers, f"{claim} (one-sided paired t-test over {comparison.over}, Holm's correction, p < 0.05)."


def significance_grids(comparison: Comparison) -> list[Grid]:
    """The tests over splits, where there are several, and over users."""
    both: tuple[Over, ...] = ("splits", "users")
    made = [
        [test for metric in comparison.metrics for test in comparison.tests(metric, over) if test.pairs]
        for over in both[both.index(comparison.over) :]
    ]
    return [_significance_grid(tests) for tests in made if tests]


def _significance_grid(tests: Sequence[PairedTest]) -> Grid:
    header = ["metric", "model", "better than", "difference", "t", "t Holm", "Wilcoxon", "W. Holm"]
    rows = [
        (
            [test.metric, test.better, test.other],
            [
                Cell("tied" if test.tied else f"{test.difference:+.4f}"),
                Cell(p_value(test.t)),
                Cell(p_value(test.t_holm), marked=test.significant),
                Cell(p_value(test.wilcoxon)),
                Cell(p_value(test.wilcoxon_holm), marked=test.wilcoxon_holm < 0.05 and not test.tied),
            ],
        )
        for test in tests
    ]
    pairs = " or ".join(f"{count:,}" for count in sorted({test.pairs for test in tests}))
    tied = "; tied: the difference is below one standard error, or 0.0000" if any(one.tied for one in tests) else ""
    return Grid(f"One-sided p-values, paired over {pairs} {tests[0].over}{tied}", header, rows)


def comparison_text(comparison: Comparison) -> str:
    """Plain text, as ``print(comparison)`` shows it."""
    numbers, star = comparison_legend(comparison)
    parts = [text_table(comparison_grid(comparison)), f"{numbers}\n← best.  * {star}"]
    parts += [f"{grid.title}\n{text_table(grid)}" for grid in significance_grids(comparison)]
    return "\n\n".join(parts)


def comparison_markdown(comparison: Comparison) -> str:
    """Markdown, as GitHub renders it."""
    numbers, star = comparison_legend(comparison)
    parts = [markdown_table(comparison_grid(comparison)), f"{numbers} Bold: best. \\* {markdown_escape(star)}"]
    parts += [f"{grid.title}:\n\n{markdown_table(grid)}" for grid in significance_grids(comparison)]
    return "\n\n".join(parts) + "\n"


def comparison_latex(comparison: Comparison) -> str:
    """LaTeX tables; the preamble needs ``\\usepackage{booktabs}``."""
    numbers, star = comparison_legend(comparison)
    caption = latex_escape(numbers) + " Bold: best. $^{*}$ " + latex_escape(star)
    parts = [latex_table(comparison_grid(comparison), caption)]
    parts += [latex_table(grid, latex_escape(grid.title) + ".") for grid in significance_grids(comparison)]
    return "\n".join(parts)
