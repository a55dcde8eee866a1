"""How a notebook shows a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from deql._system import html
from deql._system.tables import Cell, Grid, counted, number
from deql.tuning.summary import leaderboard_grid, summary_sentences

if TYPE_CHECKING:
    from deql.tuning.tuning_result import BCurve, Tuning

__all__ = ["curve_html", "search_html", "tuning_html", "tuning_repr"]


def tuning_repr(found: Tuning) -> str:
    """The winner, and among how many."""
    models, inverses = counted(found.table.height, "model", "models"), counted(found.inverses, "inverse", "inverses")
    return f"Tuning(best of {models} on {inverses}: {found.model!r}, {found.metric} {number(found.best[found.metric])})"


def tuning_html(found: Tuning) -> str:
    """What was found in words, the winner to be pasted, and the leaderboard."""
    return search_html(found.spec, summary_sentences(found), leaderboard_grid(found))


def search_html(spec: str, sentences: Sequence[str], leaderboard: Grid) -> str:
    """A winner as it can be typed, what to say of it, and what else was measured."""
    first, *others = sentences
    return html.block(
        html.heading("Tuning", spec), html.paragraph(first), *(html.paragraph(one, quiet=True) for one in others),
        html.paragraph(leaderboard.title + ".", quiet=True), html.table(leaderboard, ranked=True),
    )  # fmt: skip


def curve_html(curve: BCurve) -> str:
    """The best b of each metric, and what that is worth."""
    rows = []
    for metric, values in curve.values.items():
        b = curve.best(metric)
        place = curve.b.index(b)
        rows.append(([metric], [Cell(f"{b:g}"), Cell(number(values[place]), number(curve.errors[metric][place]))]))
    grid = Grid("Best b", ["metric", "best b", "value there"], rows)
    said = f"{len(curve.b)} values of b from {min(curve.b):g} to {max(curve.b):g}, all else as the winner has it"
    return html.block(html.heading("BCurve", said), html.table(grid))
