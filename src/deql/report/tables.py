"""Results as tables: plain text, Markdown and LaTeX."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deql.evaluation.comparison import Comparison, Over, PairedTest

__all__ = [
    "Cell", "Grid", "comparison_grid", "comparison_latex", "comparison_legend", "comparison_markdown",
    "comparison_text", "latex_escape", "latex_table", "markdown_escape", "markdown_table", "number", "p_value",
    "significance_grids", "text_table",
]  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One value as a reader sees it.

    Attributes
    ----------
    text : str
        The mean.
    spread : str
        What follows ±, if anything.
    best, marked : bool
        Best of its column; marked with a star.
    """

    text: str
    spread: str = ""
    best: bool = False
    marked: bool = False

    def __str__(self) -> str:
        return self.text + (f" ± {self.spread}" if self.spread else "")


@dataclass(frozen=True)
class Grid:
    """A table before it has a format: the first column holds names, the others cells."""

    title: str
    header: list[str]
    rows: list[tuple[list[str], list[Cell]]]


def number(value: float) -> str:
    """Four decimals, which is what the differences between recommenders need.

    Examples
    --------
    >>> number(0.25), number(float("nan"))
    ('0.2500', '–')
    """
    return "–" if math.isnan(value) else f"{value:.4f}"


def p_value(value: float) -> str:
    """A p-value to four decimals.

    Examples
    --------
    >>> p_value(0.03125), p_value(0.00000001)
    ('0.0312', '<0.0001')
    """
    return "<0.0001" if value < 0.0001 else number(value)


def comparison_grid(comparison: Comparison) -> Grid:
    """A row for each model, a column for each metric."""
    spread = comparison.deviations if comparison.over == "splits" else comparison.standard_errors
    best = {metric: comparison.means[comparison.best(metric)][metric] for metric in comparison.metrics}
    marked = {metric: comparison.significant(metric) for metric in comparison.metrics}
    rows = [
        (
            [name],
            [
                Cell(
                    number(means[metric]),
                    "" if math.isnan(spread[name][metric]) else number(spread[name][metric]),
                    means[metric] == best[metric],
                    name in marked[metric],
                )
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
    judged = [split["judged"] for split in comparison.splits]
    users = f"{min(judged):,}" if min(judged) == max(judged) else f"{min(judged):,} to {max(judged):,}"
    numbers = (
        f"Mean ± standard deviation over {len(seeds)} splits ({comparison.protocol}, seeds {seeds[0]} to {seeds[-1]}, "
        f"{users} users judged in each)."
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
    return [
        grid
        for over in both[both.index(comparison.over) :]
        if (
            grid := _significance_grid(
                [test for metric in comparison.metrics for test in comparison.tests(metric, over)]
            )
        )
    ]


def _significance_grid(tests: Sequence[PairedTest]) -> Grid | None:
    made = [test for test in tests if test.pairs]
    if not made:
        return None
    header = ["metric", "model", "better than", "difference", "t", "t Holm", "Wilcoxon", "W. Holm"]
    rows = [
        (
            [test.metric, test.better, test.other],
            [
                Cell(f"{test.difference:+.4f}"),
                Cell(p_value(test.t)),
                Cell(p_value(test.t_holm), marked=test.significant),
                Cell(p_value(test.wilcoxon)),
                Cell(p_value(test.wilcoxon_holm), marked=test.wilcoxon_holm < 0.05),
            ],
        )
        for test in made
    ]
    counts = sorted({test.pairs for test in made})
    pairs = " or ".join(f"{count:,}" for count in counts)
    return Grid(f"One-sided p-values, paired over {pairs} {made[0].over}", header, rows)


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


def text_table(grid: Grid) -> str:
    """Columns in line, names to the left and values to the right.

    Examples
    --------
    >>> print(text_table(Grid("", ["model", "ndcg@20"], [(["EASE"], [Cell("0.2500", "0.0100", best=True)])])))
    model            ndcg@20
    ────────────────────────
    EASE   0.2500 ± 0.0100 ←
    """

    def marks(cell: Cell) -> str:
        return ("←" if cell.best else "") + ("*" if cell.marked else "")

    rooms = [max(map(len, map(marks, column))) for column in zip(*(cells for _, cells in grid.rows), strict=True)]

    def shown(cell: Cell, room: int) -> str:
        return f"{cell} {marks(cell):<{room}}" if room else str(cell)

    lines = [
        grid.header,
        *([_one_line(name) for name in names] + list(map(shown, cells, rooms)) for names, cells in grid.rows),
    ]
    widths = [max(len(line[place]) for line in lines) for place in range(len(grid.header))]
    named = len(grid.rows[0][0])
    laid = [
        "  ".join(
            entry.ljust(width) if place < named else entry.rjust(width)
            for place, (entry, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join([laid[0], "─" * max(map(len, laid)), *laid[1:]])


def markdown_table(grid: Grid) -> str:
    """A pipe table, best values bold.

    Examples
    --------
    >>> print(markdown_table(Grid("", ["model", "ndcg@20"], [(["a|b"], [Cell("0.25", best=True)])])))
    | model | ndcg@20 |
    |---|---:|
    | a\\|b | **0.25** |
    """

    def shown(cell: Cell) -> str:
        return (f"**{cell.text}**" if cell.best else cell.text) + str(cell)[len(cell.text) :] + " \\*" * cell.marked

    named = len(grid.rows[0][0])
    rule = "|" + "---|" * named + "---:|" * (len(grid.header) - named)
    lines = [[markdown_escape(name) for name in names] + [shown(c) for c in cells] for names, cells in grid.rows]
    return "\n".join([_pipes(grid.header), rule, *map(_pipes, lines)])


def latex_table(grid: Grid, caption: str) -> str:
    """A floating booktabs table; ``caption`` is LaTeX already."""

    def shown(cell: Cell) -> str:
        text = cell.text.replace("<", "$<$").replace("–", "--").replace("-0", "$-$0")
        mean = f"\\textbf{{{text}}}" if cell.best else text
        return mean + (f" {{\\scriptsize$\\pm$ {cell.spread}}}" if cell.spread else "") + "$^{*}$" * cell.marked

    named = len(grid.rows[0][0])
    lines = [[latex_escape(name) for name in names] + [shown(c) for c in cells] for names, cells in grid.rows]

    def row(line: Sequence[str]) -> str:
        return " & ".join(line) + r" \\"

    return "\n".join([
        r"\begin{table}[htbp]", r"\centering", f"\\caption{{{caption}}}",
        f"\\begin{{tabular}}{{{'l' * named}{'r' * (len(grid.header) - named)}}}", r"\toprule",
        row([latex_escape(name) for name in grid.header]), r"\midrule", *map(row, lines),
        r"\bottomrule", r"\end{tabular}", r"\end{table}", "",
    ])  # fmt: skip


_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$", "±": r"$\pm$", "–": "--",
    "|": r"\textbar{}", "[": "{[}", "*": "{*}",  # the latter two would be read as arguments after a line's end
}  # fmt: skip


def latex_escape(text: str) -> str:
    """Text as LaTeX prints it, whatever it holds.

    Examples
    --------
    >>> print(latex_escape("50% of a_b"))
    50\\% of a\\_b
    """
    return "".join(_LATEX.get(sign, sign) for sign in _one_line(text))


def markdown_escape(text: str) -> str:
    """Text as Markdown shows it, whatever it holds.

    Examples
    --------
    >>> print(markdown_escape("<b> a|b"))
    &lt;b> a\\|b
    """
    text = "".join("\\" + sign if sign in "\\`*_|[]" else sign for sign in _one_line(text))
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _pipes(line: Sequence[str]) -> str:
    return "| " + " | ".join(line) + " |"


def _one_line(text: str) -> str:
    """No line breaks or other control characters, which a cell cannot hold."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
