"""What people see in the terminal: notes, tables and bars; and JSON for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from deql._system.strict_json import as_json
from deql.errors import printable

__all__ = ["bar", "console", "curve_table", "print_json", "print_words", "progress_wanted", "say", "table"]


def say(text: str) -> None:
    """One line to the person, on standard error."""
    print(f"deql: {printable(' '.join(str(text).split()))}", file=sys.stderr)


def progress_wanted() -> bool:
    """Bars are for people: only when standard error is a terminal."""
    return sys.stderr.isatty()


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


def console() -> Any:
    """A rich console on standard output."""
    from rich.console import Console

    return Console(highlight=False)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Any:
    """A titled table: text to the left, numbers (columns with a name, after the first) to the right.

    Cells are never read as markup, so an item may be named anything.
    """
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(columns):
        grid.add_column(name, justify="right" if place and name else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(cell if isinstance(cell, Text) else Text(printable(str(cell))) for cell in row))
    return Group(Text(title, "bold"), grid) if title else grid


def curve_table(title: str, metric: str, curve: Sequence[tuple[float, float]], best: float) -> Any:
    """A metric over b as bars, on an axis that starts just below the lowest value."""
    from rich.text import Text

    values = [value for _, value in curve]
    low = min(values) - 0.02 * (max(values) - min(values))

    def drawn(b: float, value: float) -> Text:
        return Text.assemble((bar(value, low, max(values), 40), "cyan"), " ← best" if b == best else "")

    return table(title, ["b/a", metric, ""], [(f"{b:g}", f"{value:.4f}", drawn(b, value)) for b, value in curve])


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
