"""What mattered in a search: how far the best that can be had moves with each parameter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from deql._system.tables import counted
from deql.metrics import lower_is_better
from deql.plotting import plots
from deql.plotting.drawing import Panel
from deql.plotting.plots import Labels
from deql.tuning.space import PARAMETERS

if TYPE_CHECKING:
    from deql.tuning.tuning_result import Tuning

__all__ = ["Effect", "effect_panel", "effects"]

_MOST_VALUES = 15
"""With more values than these the search went between them, as Optuna does; then they are taken in groups."""

_GROUPS = 6
_LINES = ("EASE", "popularity")


@dataclass(frozen=True)
class Effect:
    """The best that was measured at each value of a parameter, whatever the others were.

    Attributes
    ----------
    parameter : str
    values : tuple of float
        Those that were measured, ascending.
    best : tuple of float
        The metric of the best model with each.
    importance : float
        How far ``best`` moves from its smallest to its largest; where there are very many values, between six groups
        of them.
    """

    parameter: str
    values: tuple[float, ...]
    best: tuple[float, ...]
    importance: float

    @property
    def is_between_values(self) -> bool:
        """Whether there are so many values that they form no curve."""
        return len(self.values) > _MOST_VALUES


def effects(tuning: Tuning) -> list[Effect]:
    """For each parameter with several values what it does, the most important first.

    Examples
    --------
    >>> import deql
    >>> split = deql.split_strong(deql.datasets.debian().take_users(slice(0, 2000)))
    >>> space = {"l2": [3, 3000], "dropout": 0.3, "user_power": 0, "b": [0.9, 1], "popularity_power": 0}
    >>> [effect.parameter for effect in effects(deql.tune(split, space, prior="none"))]
    ['l2', 'b']
    """
    rows = tuning.table.to_dicts()
    found = [_effect(name, rows, tuning.metric) for name in PARAMETERS]
    # Python's sort keeps the order of the parameters where two matter alike.
    return sorted((one for one in found if len(one.values) > 1), key=lambda one: -one.importance)


def _effect(name: str, rows: list[dict[str, Any]], metric: str) -> Effect:
    better = min if lower_is_better(metric) else max
    at: dict[float, float] = {}
    for row in rows:
        if row[name] is not None:
            at[row[name]] = better(at.get(row[name], row[metric]), row[metric])
    values = sorted(at)
    best = [at[value] for value in values]
    groups = np.array_split(np.array(best), min(_GROUPS, len(best))) if len(best) > _MOST_VALUES else best
    tops = [better(np.atleast_1d(group).tolist()) for group in groups]
    return Effect(name, tuple(values), tuple(best), float(max(tops) - min(tops)) if tops else 0.0)


def effect_panel(tuning: Tuning, effect: Effect, shown: list[Effect]) -> tuple[Panel, str]:
    """One parameter's curve on the scale of all that are shown, and what is drawn in words."""
    metric, name = tuning.metric, effect.parameter
    known = {key: float(tuning.baselines[key][metric]) for key in _LINES if key in tuning.baselines}
    lines = {key: value for key, value in known.items() if not np.isnan(value)}
    every = [value for one in shown for value in one.best]
    winner = tuning.best[name]
    star = None if winner is None else (winner, tuning.best[metric])
    title = f"{name} moves {metric} by {effect.importance:.4f}"
    drawn = plots.effect.panel(
        Labels(f"effect-{name.replace('_', '-')}", title, name, metric),
        dict(zip(effect.values, effect.best, strict=True)), star, (min(every), max(every)), lines,
        log=name in ("l2", "half_life"), line=not effect.is_between_values,
    )  # fmt: skip
    models = counted(tuning.table.height, "model", "models")
    told = f"{title}: the best of {models} at each {name}, whatever the others were."
    return drawn, told + (" Star: the winner." if star else "")
