"""How a notebook shows a search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deql._system import html
from deql._system.tables import Cell, Grid, counted, number

if TYPE_CHECKING:
    from deql.tuning.tuning_result import BCurve, Tuning

__all__ = ["curve_html", "tuning_html", "tuning_repr"]


def tuning_repr(found: Tuning) -> str:
    """The winner, and among how many."""
    models, inverses = counted(found.table.height, "model", "models"), counted(found.inverses, "inverse", "inverses")
    return f"Tuning(best of {models} on {inverses}: {found.model!r}, {found.metric} {number(found.best[found.metric])})"


def tuning_html(found: Tuning, leaderboard: Grid) -> str:
    """What was found in words, and the leaderboard."""
    notes = [html.paragraph(note, quiet=True) for note in found.notes]
    return html.block(
        html.heading("Tuning"), html.paragraph(found.sentence), *notes,
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
