"""What the search of one model found, in words and as a table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from deql._system.specs import written
from deql._system.tables import Cell, Grid, counted, number, value_cell
from deql.evaluation.model_groups import describe
from deql.metrics import lower_is_better
from deql.tuning.model_space import setting_words
from deql.tuning.notebook import search_html
from deql.tuning.summary import search_notes, varying

if TYPE_CHECKING:
    from deql.tuning.model_tuning import ModelTuning

__all__ = ["model_grid", "model_html", "model_repr", "model_sentences"]

_LEAST = {"epochs": 1, "layers": 1, "rank": 1, "batch_size": 1, "negatives": 1}
"""Where parameters end downwards if not at 0."""


def model_sentences(found: ModelTuning) -> list[str]:
    """The result, what to know before believing it, and where to search on."""
    users = counted(found.judged, "validation user", "validation users")
    error = "" if math.isnan(found.error) else f" ± {number(found.error)}"
    value = f"{found.metric} {number(found.best[found.metric])}{error}"
    told = [f"Best: {describe(found.model, shown=found.axes)}, {value} on {users}."]
    if found.left_out:
        left = counted(found.left_out, "more setting was", "more settings were")
        go_on = ", and a larger --budget goes on" if found.complete else ""
        told.append(f"The search ended early: {left} to be measured{go_on}.")
    return [*told, *search_notes(found.failures, ("setting", "settings"), found.judged), *_edges(found)]


def _edges(found: ModelTuning) -> list[str]:
    """A sentence for each parameter whose best value is the smallest or largest tried, so that more may lie beyond."""
    told = []
    for name, values in found.axes.items():
        best = found.best[name]
        if len(values) < 2 or not isinstance(best, int | float) or isinstance(best, bool):
            continue
        at_most = found.model.item_counts_.size if name == "rank" else math.inf
        if best == values[0] and best > _LEAST.get(name, 0):
            told.append(f"The best {setting_words({name: best})} is the smallest tried: widen {name} downwards.")
        if best == values[-1] and best < at_most:
            told.append(f"The best {setting_words({name: best})} is the largest tried: widen {name} upwards.")
    return told


def model_grid(found: ModelTuning, rows: int = 10) -> Grid:
    """The best settings: the parameters that were searched, and metrics; what all share is said in the title."""
    every = found.table.to_dicts()
    shown = every[:rows]
    metrics = [name for name in found.table.columns if name not in found.axes]
    best = {metric: (min if lower_is_better(metric) else max)(row[metric] for row in every) for metric in metrics}
    columns, shared = varying(shown, list(found.axes))
    lines = []
    for place, row in enumerate(shown, start=1):
        cells = [Cell(written(row[name])) for name in columns]
        cells += [value_cell(row[metric], best=row[metric] == best[metric]) for metric in metrics]
        lines.append(([str(place)], cells))
    of = f"Best {len(shown)} of " if len(shown) < len(every) else "All " * (len(every) > 1)
    title = f"{of}{counted(len(every), 'setting', 'settings')} of {type(found.model).__name__}"
    return Grid(title + (f"; these have {setting_words(shared)}" if shared else ""), ["#", *columns, *metrics], lines)


def model_repr(found: ModelTuning) -> str:
    """The winner, and among how many."""
    settings = counted(found.table.height, "setting", "settings")
    return f"ModelTuning(best of {settings}: {found.model!r}, {found.metric} {number(found.best[found.metric])})"


def model_html(found: ModelTuning) -> str:
    """What was found in words, the winner to be pasted, and the leaderboard."""
    return search_html(found.spec, found.sentences, model_grid(found))
