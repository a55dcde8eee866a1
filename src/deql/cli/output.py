"""What people see in the terminal: notes, tables and bars; and JSON for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from deql._system.formatting import as_json
from deql._system.tables import Cell, Grid, counted, text_table
from deql.errors import did_you_mean, printable

if TYPE_CHECKING:
    from deql.data.partitions import TrainingData
    from deql.ranking.explanations import Explanation

__all__ = [
    "bar", "console", "curve_table", "did_you_mean", "explanation_table", "file_size", "option_name", "print_grid",
    "print_json", "print_words", "progress_wanted", "rich_table", "say", "sizes",
]  # fmt: skip


_LONGEST_WORD = 1000


def say(text: str) -> None:
    """One line to the person, on standard error; of words without end the beginning."""
    words = (word if len(word) < _LONGEST_WORD else f"{word[:60]}…" for word in str(text).split())
    print(f"deql: {printable(' '.join(words))}", file=sys.stderr)


def progress_wanted() -> bool:
    """Bars are for people: only when standard error is a terminal."""
    return sys.stderr.isatty()


def option_name(parameter: str) -> str:
    """How a parameter is typed.

    Examples
    --------
    >>> option_name("held_out")
    '--held-out'
    """
    return f"--{parameter.replace('_', '-')}"


def sizes(data: TrainingData) -> str:
    """How large a table is.

    Examples
    --------
    >>> import deql
    >>> sizes(deql.Interactions.from_pairs(["a", "a"], ["tea", "jam"]))
    '1 user, 2 items, 2 interactions'
    """
    users, items = counted(data.n_users, "user", "users"), counted(data.n_items, "item", "items")
    return f"{users}, {items}, {counted(data.n_interactions, 'interaction', 'interactions')}"


def print_json(value: Any) -> None:
    """One JSON document on standard output; numbers that JSON lacks become null.

    Examples
    --------
    >>> print_json({"item": "tea", "score": float("nan")})
    {"item": "tea", "score": null}
    """
    print(json.dumps(as_json(value), ensure_ascii=False))


def print_words(text: str) -> None:
    """A paragraph on standard output: in a terminal no word is broken, elsewhere no line."""
    console().print(f"{text}\n", markup=False, soft_wrap=not sys.stdout.isatty())


def console(*, stderr: bool = False) -> Console:
    """A terminal as rich knows it, on standard output or standard error."""
    return Console(stderr=stderr, highlight=False)


def rich_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table | Group:
    """A titled table: text to the left, numbers (columns with a name, after the first) to the right.

    Cells are never read as markup, so an item may be named anything.
    """
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(columns):
        grid.add_column(name, justify="right" if place and name else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(cell if isinstance(cell, Text) else Text(printable(str(cell))) for cell in row))
    return Group(Text(title, "bold"), grid) if title else grid


def print_grid(grid: Grid) -> None:
    """A table of results: best values bold in a terminal, in plain lines of any width elsewhere."""
    plain = text_table(grid)
    screen = console()
    # Rich would break words and numbers in a table that is too wide; the terminal breaks lines at least.
    if not sys.stdout.isatty() or max(map(len, plain.splitlines())) + 4 * len(grid.header) > screen.width:
        print(f"{grid.title}\n{plain}")
        return

    def shown(cell: Cell) -> Text:
        rest = str(cell)[len(cell.text) :] + " *" * cell.marked
        return Text.assemble((cell.text, "bold green" if cell.best else ""), rest)

    rows = [[*(Text(name, justify="left") for name in names), *map(shown, cells)] for names, cells in grid.rows]
    screen.print(rich_table(grid.title, grid.header, rows))


def curve_table(
    title: str, metric: str, curve: Sequence[tuple[float, float]], best: float, mark: str = "best"
) -> Table | Group:
    """A metric over b as bars, on an axis that starts just below the lowest value; ``mark`` stands beside the best."""
    values = [value for _, value in curve]
    low = min(values) - 0.02 * (max(values) - min(values))

    def drawn(b: float, value: float) -> Text:
        return Text.assemble((bar(value, low, max(values), 40), "cyan"), f" ← {mark}" if b == best else "")

    return rich_table(title, ["b/a", metric, ""], [(f"{b:g}", f"{value:.4f}", drawn(b, value)) for b, value in curve])


def explanation_table(why: Explanation, called: Callable[[Any], str] = str) -> Table | Group:
    """The parts of a score as a table with bars; ``called`` gives the title of an item."""
    largest, shares = max((abs(part.value) for part in why), default=0.0), any(part.shared for part in why)

    def drawn(value: float) -> Text:
        return Text(
            bar(abs(value), 0.0, largest, 12 if shares else 24) if value else "", "green" if value >= 0 else "red"
        )

    rows: list[tuple[str | Text, ...]] = [
        (called(part.item), f"{part.value:+.4f}", drawn(part.value), _shares(part.shared)) for part in why
    ]
    if why.rest:
        rows.append(("everything else", f"{why.rest:+.4f}", Text(""), ""))
    rows.append((f"score of {called(why.item)}", f"{why.score:+.4f}", Text(""), ""))
    columns = ["because of", "adds", "", ""]
    if not shares:
        columns, rows = columns[:3], [row[:3] for row in rows]
    return rich_table(f"Why {called(why.item)}?", columns, rows)


def _shares(names: Sequence[str]) -> str:
    """What two items have in common.

    Examples
    --------
    >>> _shares(["genre Comedy", "similar plot"]), _shares([])
    ('shares genre Comedy, similar plot', '')
    """
    return f"shares {', '.join(names)}" if names else ""


def file_size(path: Path) -> str:
    """How large a file or a model in shards is, in MiB, or in KiB where that would be 0.0."""
    from deql.io.model_file import model_bytes  # not where a command shows no file

    size = model_bytes(path)
    return f"{size / 2**20:,.1f} MiB" if size >= 0.05 * 2**20 else f"{size / 2**10:,.1f} KiB"


def bar(value: float, low: float, high: float, width: int) -> str:
    """A horizontal bar from ``low`` to ``value`` on an axis that ends at ``high``, in eighths of a cell.

    Examples
    --------
    >>> bar(0.75, 0.0, 1.0, 4)
    '███'
    >>> bar(0.2, 0.0, 1.0, 4)
    '▊'
    """
    eighths = round(8 * width * (value - low) / (high - low)) if high > low else 8 * width
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]
