"""Progress bars in a notebook: a piece of HTML that is written over as the work goes on; no widgets needed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from importlib import import_module
from typing import Any

from deql._system.formatting import show_seconds

__all__ = ["Bar", "ProgressCallback", "bars_html", "in_notebook", "notebook_stages"]

ProgressCallback = Callable[[int, int], None]

_WORTH_TELLING = 0.5
"""Seconds from which on a line says what took them."""

_EVERY = 0.2
"""Seconds between drawings: each is a message to the browser."""


@dataclass
class Bar:
    """One stage of the work.

    Attributes
    ----------
    label : str
    done, total : int
        Steps; a total of 0 is not known yet.
    began, seconds : float
        When it began, and how long it has taken.
    """

    label: str
    done: int = 0
    total: int = 0
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0


@dataclass
class _Cell:
    """What is shown below one cell, however often something long begins in it."""

    number: int
    display: Any
    bars: list[Bar] = field(default_factory=list)
    took: dict[str, float] = field(default_factory=dict)
    drawn: float = 0.0

    def draw(self, often: float = 0.0) -> None:
        """The bars that are going on; if there are none, what everything took."""
        if time.monotonic() - self.drawn < often:
            return
        self.drawn = time.monotonic()
        words = ", ".join(f"{escape(label)} {seconds:.1f} s" for label, seconds in self.took.items())
        slow = sum(self.took.values()) >= _WORTH_TELLING
        done = f'<span style="opacity:.6;font-size:12px">{words}</span>' if slow else ""
        self.display.update(_as_html(bars_html(self.bars) if self.bars else done), raw=True)


_last: _Cell | None = None


def in_notebook() -> bool:
    """Whether this is a notebook's kernel, which shows HTML; IPython in a terminal has none.

    Examples
    --------
    >>> in_notebook()
    False
    """
    return hasattr(_shell(), "kernel")


@contextmanager
def notebook_stages() -> Iterator[Callable[[str], ProgressCallback]]:
    """Show bars below the cell; each call of what it yields starts one. In the end a line says how long each took."""
    cell, mine = _current_cell(), []

    def stage(label: str) -> ProgressCallback:
        bar = Bar(label)
        mine.append(bar)
        cell.bars.append(bar)
        cell.draw()

        def report(done: int, total: int) -> None:
            bar.done, bar.total, bar.seconds = done, total, time.monotonic() - bar.began
            cell.draw(_EVERY)

        return report

    try:
        yield stage
    finally:
        for bar in mine:
            cell.bars.remove(bar)
            cell.took[bar.label] = cell.took.get(bar.label, 0.0) + bar.seconds
        cell.draw()


def _current_cell() -> _Cell:
    global _last
    number = _shell().execution_count
    if _last is None or _last.number != number:
        show = import_module("IPython.display").display
        _last = _Cell(number, show(_as_html(""), raw=True, display_id=True))
    return _last


def _shell() -> Any:
    """What runs the cells; None outside IPython."""
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def bars_html(bars: list[Bar]) -> str:
    """The bars one below the other, each with the time that it has taken and that it may still take.

    Examples
    --------
    >>> print(bars_html([Bar("Inverse", 1, 4, seconds=2.0)]))
    <div style="font-size:12px">Inverse <progress value="1" max="4"></progress> 25 %, 2.0 s, about 6 s left</div>
    """
    lines = []
    for bar in bars:
        value = f' value="{bar.done}" max="{bar.total}"' if bar.total else ""
        share = f" {100 * bar.done / bar.total:.0f} %," if bar.total else ""
        left = bar.seconds / bar.done * (bar.total - bar.done) if bar.done else 0.0
        rest = f", {show_seconds(left)} left" if bar.done < bar.total and bar.done else ""
        words = f"{escape(bar.label)} <progress{value}></progress>{share} {bar.seconds:.1f} s{rest}"
        lines.append(f'<div style="font-size:12px">{words}</div>')
    return "".join(lines)


def _as_html(text: str) -> dict[str, Any]:
    return {"text/html": text, "text/plain": ""}
