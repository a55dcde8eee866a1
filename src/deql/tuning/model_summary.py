"""What the search of one model found, in words and as a table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from deql._system import html
from deql._system.tables import Cell, Grid, counted, number, value_cell
from deql.evaluation.model_groups import describe
from deql.metrics import lower_is_better
from deql.tuning.model_trials import words_of

if TYPE_CHECKING:
    from deql.tuning.model_tuning import ModelTuning

__all__ = ["model_grid", "model_html", "model_repr", "model_sentences"]

_FEW_USERS = 30


def model_sentences(found: ModelTuning) -> list[str]:
    """The result, what to know before believing it, and where to search on."""
    users = counted(found.judged, "validation user", "validation users")
    error = "" if math.isnan(found.error) else f" ± {number(found.error)}"
    told = [
        f"Best: {describe(found.model, shown=found.axes)}, {found.metric} {number(found.best[found.metric])}{error} on "
        f"{users}."
    ]
    if found.left_out:
        left = counted(found.left_out, "more setting was", "more settings were")
        told.append(f"The search ended early: {left} to be measured, and a larger --budget goes on.")
    if found.failures:
        failed = counted(len(found.failures), "setting", "settings")
        told.append(f"{failed} gave no model, such as {found.failures[0]}.")
    if found.judged < _FEW_USERS:
        told.append(
            f"{counted(found.judged, 'validation user is', 'validation users are')} too few to tell luck from skill."
        )
    return [*told, *_edges(found)]


def _edges(found: ModelTuning) -> list[str]:
    """A sentence for each parameter whose best value is the smallest or largest tried, so that more may lie beyond."""
    told = []
    for name, values in found.axes.items():
        best = found.best[name]
        if len(values) < 2 or not isinstance(best, int | float) or isinstance(best, bool):
            continue
        where = {values[0]: ("smallest", "downwards"), values[-1]: ("largest", "upwards")}.get(best)
        limit = best == values[0] and best == int(isinstance(best, int))  # 0 of numbers, 1 of counts
        if where is not None and not limit:
            told.append(f"The best {words_of({name: best})} is the {where[0]} tried: widen {name} {where[1]}.")
    return told


def model_grid(found: ModelTuning, rows: int = 10) -> Grid:
    """The best settings: the parameters that were searched, and metrics; what all share is said in the title."""
    every = found.table.to_dicts()
    shown = every[:rows]
    metrics = [name for name in found.table.columns if name not in found.axes]
    best = {metric: (min if lower_is_better(metric) else max)(row[metric] for row in every) for metric in metrics}
    columns = [name for name in found.axes if len({row[name] for row in every}) > 1]
    shared = {name: every[0][name] for name in found.axes if name not in columns}
    lines = []
    for place, row in enumerate(shown, start=1):
        cells = [Cell(words_of({name: row[name]}).partition("=")[2]) for name in columns]
        cells += [value_cell(row[metric], best=row[metric] == best[metric]) for metric in metrics]
        lines.append(([str(place)], cells))
    of = f"Best {len(shown)} of " if len(shown) < len(every) else "All " * (len(every) > 1)
    title = f"{of}{counted(len(every), 'setting', 'settings')} of {type(found.model).__name__}"
    return Grid(title + (f"; these have {words_of(shared)}" if shared else ""), ["#", *columns, *metrics], lines)


def model_repr(found: ModelTuning) -> str:
    """The winner, and among how many."""
    settings = counted(found.table.height, "setting", "settings")
    return f"ModelTuning(best of {settings}: {found.model!r}, {found.metric} {number(found.best[found.metric])})"


def model_html(found: ModelTuning) -> str:
    """What was found in words, the winner to be pasted, and the leaderboard."""
    first, *others = found.sentences
    grid = model_grid(found)
    told = [html.paragraph(first), *(html.paragraph(one, quiet=True) for one in others)]
    return html.block(
        html.heading("Tuning", found.spec), *told, html.paragraph(f"{grid.title}.", quiet=True),
        html.table(grid, ranked=True),
    )  # fmt: skip
