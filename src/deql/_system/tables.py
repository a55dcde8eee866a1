"""Tables of numbers as plain text, Markdown and LaTeX."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "Cell", "Grid", "counted", "latex_escape", "latex_table", "markdown_escape", "markdown_table", "number", "one_line",
    "p_value", "text_table", "value_cell",
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
    """A table before it has a format: each row has names, which stand to the left, and then cells, to the right."""

    title: str
    header: list[str]
    rows: list[tuple[list[str], list[Cell]]]

    @property
    def alignment(self) -> list[str]:
        """Left or right, for each column."""
        names = len(self.rows[0][0])
        return ["left"] * names + ["right"] * (len(self.header) - names)


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


def value_cell(value: float, spread: float = math.nan, best: bool = False, marked: bool = False) -> Cell:
    """A number as a cell.

    Examples
    --------
    >>> str(value_cell(0.25, 0.01)), str(value_cell(0.25))
    ('0.2500 ± 0.0100', '0.2500')
    """
    return Cell(number(value), "" if math.isnan(spread) else number(spread), best, marked)


def counted(count: int, one: str, several: str) -> str:
    """So many of something.

    Examples
    --------
    >>> counted(1, "point", "points"), counted(1000, "point", "points")
    ('1 point', '1,000 points')
    """
    return f"{count:,} {one if count == 1 else several}"


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

    widths = [max(map(len, map(marks, column))) for column in zip(*(cells for _, cells in grid.rows), strict=True)]

    def shown(cell: Cell, width: int) -> str:
        return f"{cell} {marks(cell):<{width}}" if width else str(cell)

    rows = [[*map(one_line, names), *map(shown, cells, widths)] for names, cells in grid.rows]
    return _lay_out([grid.header, *rows], grid.alignment, ("", "  ", ""), rule=("", "─", "──", ""))


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

    rows = [[*map(markdown_escape, names), *map(shown, cells)] for names, cells in grid.rows]
    rule = "|" + "".join("---:|" if side == "right" else "---|" for side in grid.alignment)
    # Not padded: a row that changes is then the only one that changes in a file.
    return _lay_out([grid.header, *rows], [""] * len(grid.header), ("| ", " | ", " |"), rule=(rule, "", "", ""))


def latex_table(grid: Grid, caption: str) -> str:
    """A floating booktabs table; ``caption`` is LaTeX already."""

    def shown(cell: Cell) -> str:
        text = cell.text.replace("<", "$<$").replace("–", "--").replace("-0", "$-$0")
        mean = f"\\textbf{{{text}}}" if cell.best else text
        return mean + (f" {{\\scriptsize$\\pm$ {cell.spread}}}" if cell.spread else "") + "$^{*}$" * cell.marked

    rows = [[*map(latex_escape, names), *map(shown, cells)] for names, cells in grid.rows]
    columns = "".join(side[0] for side in grid.alignment)
    header = [latex_escape(name) for name in grid.header]
    body = _lay_out([header, *rows], grid.alignment, ("", " & ", r" \\"), rule=(r"\midrule", "", "", ""))
    return "\n".join([
        r"\begin{table}[htbp]", r"\centering", f"\\caption{{{caption}}}", f"\\begin{{tabular}}{{{columns}}}",
        r"\toprule", body, r"\bottomrule", r"\end{tabular}", r"\end{table}", "",
    ])  # fmt: skip


def _lay_out(
    lines: Sequence[Sequence[str]], alignment: Sequence[str], row: tuple[str, str, str], rule: tuple[str, str, str, str]
) -> str:
    """Columns side by side and a rule below the first line; padded where they are aligned.

    Parameters
    ----------
    lines : list of list of str
        The header first.
    alignment : list of {"left", "right", ""}
    row : tuple
        What stands before, between and after the cells of a line.
    rule : tuple
        What the rule has at its start, along a column, between columns and at its end.
    """
    # Imported here, because it takes 40 ms that only those pay who print a table.
    from tabulate import SEPARATING_LINE, DataRow, Line, TableFormat, tabulate

    look = TableFormat(None, Line(*rule), None, None, DataRow(*row), DataRow(*row), padding=0, with_header_hide=None)
    # The header is a row like others: what tabulate takes for one gets two columns of extra width.
    table = [lines[0], SEPARATING_LINE, *lines[1:]]
    return str(tabulate(table, tablefmt=look, colalign=alignment, disable_numparse=True, preserve_whitespace=True))


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
    return "".join(_LATEX.get(sign, sign) for sign in one_line(text))


def markdown_escape(text: str) -> str:
    """Text as Markdown shows it, whatever it holds.

    Examples
    --------
    >>> print(markdown_escape("<b> a|b"))
    &lt;b> a\\|b
    """
    text = "".join("\\" + sign if sign in "\\`*_|[]" else sign for sign in one_line(text))
    return text.replace("&", "&amp;").replace("<", "&lt;")


def one_line(text: str) -> str:
    """Text without line breaks and other control characters, which a cell cannot hold.

    Examples
    --------
    >>> one_line("two\\nlines")
    'two lines'
    """
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
