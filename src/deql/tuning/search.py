"""Which points to measure: those of a walk, all of a grid or the best of it, or those that Optuna asks for.

Screening measures a point on a sample of the items first, a cheap trial of low fidelity. The walk finds its start so,
by a walk among screenings; a grid, like one round of successive halving, gives a full inverse to the best quarter of
its points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from deql._system.progress import ProgressCallback, stages
from deql.errors import DeqlError
from deql.tuning.space import Point, Space, ridges_around
from deql.tuning.trials import TrialStore
from deql.tuning.walk import PointGrid, walk

if TYPE_CHECKING:
    import optuna

__all__ = ["KEPT", "SEARCHES", "kept_count", "need_optuna", "search_grid", "search_optuna", "search_walk"]

SEARCHES = ("walk", "grid", "optuna")

KEPT = 1 / 4
"""Share of the points that go on to a full inverse after screening."""

_LEAST_KEPT = 6
_MOST_REPEATS = 50
_GOLDEN = (math.sqrt(5) - 1) / 2


def search_walk(store: TrialStore, grid: PointGrid, patience: int) -> None:
    """Walk over the grid from the best point that a walk among screenings finds.

    Neighbours with better screenings come first, so that it may end where so many in a row (``patience``; 0 for no
    such end) are no better than a tie: those that are left promise less.
    """
    start = grid.start()
    best, idle = -math.inf, 0
    if store.small is not None:
        with stages(store.full.progress) as stage:
            start = _walk_screened(store, grid, stage("Screening"))
        store.small.release()

    def neighbours(point: Point) -> list[Point]:
        found = grid.neighbours(point)
        return sorted(found, key=lambda one: -store.screen(one) if one in store.screened else math.inf)

    def measure(point: Point, here: Point) -> float | None:
        nonlocal best, idle
        if is_idle():
            return None
        ahead = [one for one in {point, *neighbours(here)} if one not in store.trials]
        store.left_out = len(ahead)
        store.planned, store.guessed = len(store.trials) + min(len(ahead), patience - idle or len(ahead)), True
        if not store.may_measure(point):
            return None
        value = store.measure(point)
        best, idle = (value, 0) if value > best + store.least_gain(point) else (best, idle + 1)
        return value

    def is_idle() -> bool:
        return bool(store.screened) and 0 < patience <= idle

    end = walk(start, neighbours, measure, store.least_gain)
    store.left_out = 0 if is_idle() else sum(one not in store.trials for one in neighbours(end))


def _walk_screened(store: TrialStore, grid: PointGrid, report: ProgressCallback | None) -> Point:
    """Where a walk among screenings ends, or as far as the budget lets it come."""

    def screen(point: Point, here: Point) -> float | None:
        if report is not None:
            ahead = sum(one not in store.screened for one in grid.neighbours(here))
            report(len(store.screened), len(store.screened) + ahead + 1)
        return store.screen(point) if store.may_screen(point) else None

    return walk(grid.start(), grid.neighbours, screen)


def search_grid(store: TrialStore, points: Sequence[Point]) -> None:
    """Measure the points; after screening only the best quarter of them, and within the budget.

    Where a budget may end it early, the points come from all over the grid, and after screening the best come first.
    """
    chosen = list(points)
    if store.budget.limited:
        chosen = [points[place] for place in spread_order(len(points))]
    if store.small is not None:
        with stages(store.full.progress) as stage:
            screened = _screen(store, chosen, stage("Screening"))
        store.small.release()
        if store.screened:
            chosen = kept_after_screening(screened, [store.screen(point) for point in screened], len(points))
    store.left_out = len(chosen)
    chosen = chosen[: store.affordable]
    store.planned = len(chosen)
    for point in chosen if store.budget.seconds is not None else by_gram(chosen):
        if store.may_measure(point):
            store.measure(point)
            store.left_out -= 1


def _screen(store: TrialStore, points: Sequence[Point], report: ProgressCallback | None) -> list[Point]:
    """Screen points, as many as the budget allows; those that gave a model."""
    found = []
    for done, point in enumerate(points):
        if report is not None:
            report(done, len(points))
        if store.may_screen(point) and store.screen(point) > -math.inf:
            found.append(point)
    return found


def search_optuna(store: TrialStore, space: Space, seed: int) -> None:
    """Measure what Optuna's TPE sampler asks for, between the smallest and the largest value of each axis.

    A trial that is not in the best quarter of those screened so far is pruned.
    """
    optuna = need_optuna()
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # else a line tells that there is a study
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed), pruner=optuna.pruners.NopPruner()
    )
    optuna.logging.set_verbosity(verbosity)
    screened: list[float] = []
    asked: set[Point] = set()
    nothing_new = 0
    store.planned = store.budget.inverses
    while nothing_new < _MOST_REPEATS:
        trial = study.ask()
        point = _suggest(trial, space, store.full.mean_diagonal)
        nothing_new = nothing_new + 1 if point in asked else 0
        asked.add(point)
        if not store.may_measure(point):
            break
        if store.small is not None and store.may_screen(point):
            worth = store.screen(point)
            if worth > -math.inf:
                trial.report(worth, step=0)
                # Optuna's own pruners compare with trials that were not pruned, so that their bar would only rise.
                below = len(screened) >= _LEAST_KEPT and worth < np.quantile(screened, 1 - KEPT)
                screened.append(worth)
                if below:
                    study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                    continue
        worth = store.measure(point)
        if worth > -math.inf:
            study.tell(trial, worth)
        else:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)


def need_optuna() -> Any:
    """Optuna, or what to install."""
    try:
        import optuna
    except ImportError:
        raise DeqlError('this search needs Optuna: pip install "deql[tune]", or search by grid') from None
    return optuna


def _suggest(trial: optuna.Trial, space: Space, mean_diagonal: Callable[[float, float], float]) -> Point:
    """A point in round numbers, so that people can type it."""

    def between(name: str, values: Sequence[float], form: str, log: bool = False) -> float:
        low, high = min(values), max(values)
        if low == high:
            return low
        return min(max(float(f"{trial.suggest_float(name, low, high, log=log):{form}}"), low), high)

    user_power = between("user_power", space.user_power, ".1f")
    dropout = between("dropout", space.dropout, ".2f")
    lengths = space.lengths
    half_life = lengths[0] if len(lengths) == 1 else float(trial.suggest_categorical("half_life", lengths))
    # Around the mean diagonal the series moves with both, and Optuna wants one range: that around 1.
    ridges = [l2 for l2 in space.l2 or ridges_around(1.0) if l2 > 0] or [0.0]
    l2 = between("l2", ridges, ".3g", log=True)
    if not space.l2:
        l2 = float(f"{l2 * mean_diagonal(user_power, half_life):.3g}")
    return Point(l2, dropout, user_power, half_life)


def kept_after_screening(points: Sequence[Point], worth: Sequence[float], of: int) -> list[Point]:
    """The best of the points, best first: as many as a quarter of ``of``, how many there were to screen.

    Examples
    --------
    >>> points = [Point(float(l2), 0.0, 0.0) for l2 in range(30)]
    >>> [int(point.l2) for point in kept_after_screening(points, [-abs(l2 - 7.2) for l2 in range(30)], 30)]
    [7, 8, 6, 9, 5, 10, 4, 11]
    """
    order = sorted(range(len(points)), key=lambda place: -worth[place])
    return [points[place] for place in order[: kept_count(of)]]


def kept_count(points: int) -> int:
    """How many of so many points are kept after screening."""
    return max(_LEAST_KEPT, math.ceil(KEPT * points))


def spread_order(count: int) -> list[int]:
    """All numbers below ``count``, so that the first few lie apart, as multiples of the golden ratio do.

    Examples
    --------
    >>> spread_order(8)
    [0, 5, 2, 7, 4, 1, 6, 3]
    """
    return sorted(range(count), key=lambda place: place * _GOLDEN % 1)


def by_gram(points: Sequence[Point]) -> list[Point]:
    """The points, those of one user_power and half-life together: they share a Gram matrix."""
    first: dict[tuple[float, ...], int] = {}
    for place, point in enumerate(points):
        first.setdefault(point[2:], place)
    return sorted(points, key=lambda point: first[point[2:]])
