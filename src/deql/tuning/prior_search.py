"""The stages of a search that are about a prior, after the one that found the best point without.

At that point the prior's variants, by steps to a better neighbour: each is a pass over the users, and the first of each
power a product with P. If one of them may come out clearly better, a short walk around the point with it, as l2,
dropout and user_power move with a prior; and in the end every b with the best weight and power_out.
"""

from __future__ import annotations

import math

from deql.tuning.prior_space import Variant
from deql.tuning.prior_trials import PriorKey, PriorTrials
from deql.tuning.space import Point
from deql.tuning.trials import TrialStore
from deql.tuning.walk import PointGrid, walk

__all__ = ["SHORT_PATIENCE", "search_prior"]

SHORT_PATIENCE = 2
"""Inverses in a row that bring nothing, after which the walk with a prior ends."""

_LEAST_LEAD = 2
"""Ties: a tie is one standard error of a difference where that is small, and below two a prior is not taken."""


def search_prior(store: TrialStore, grid: PointGrid | None, patience: int) -> None:
    """Measure what a prior adds to the best point, and around it on the grid if it adds enough."""
    trials, best = store.prior, store.best_so_far()
    if trials is None or best is None or best not in store.trials:
        return
    alone = store.trials[best]
    rule = store.rules[store.best_rule(alone)]
    fixed = {name: value for name, value in rule.items() if name in ("b", "xi")}

    def measure(variant: Variant, _: Variant) -> float | None:
        return trials.measure(best, variant, fixed) if trials.may_measure(best) else None

    def tie_of(variant: Variant) -> float:
        return trials.least_gain(PriorKey(best, variant, tuple(sorted(fixed.items()))))

    walk(trials.grid.start(), trials.grid.neighbours, measure, tie_of)
    found = trials.best()
    least = store.worth(alone) + _LEAST_LEAD * store.least_gain(best)
    if found is None or not store.worth(trials.trials[found.key]) > least:
        return
    variant = found.key.variant
    if grid is not None:
        _walk_around(store, trials, grid, best, variant, fixed, min(patience, SHORT_PATIENCE) or math.inf)
        found = trials.best()
        assert found is not None
    if trials.may_measure(found.key.point):
        free = {name: value for name, value in found.rule.items() if name in ("prior_weight", "prior_power_out")}
        trials.measure(found.key.point, found.key.variant, free)


def _walk_around(
    store: TrialStore, trials: PriorTrials, grid: PointGrid, start: Point, variant: Variant,
    fixed: dict[str, float], patience: float,
) -> None:  # fmt: skip
    """Walk with the variant kept; what was better without a prior comes first."""
    idle = 0

    def neighbours(point: Point) -> list[Point]:
        known = {one: store.worth(trial) for one, trial in store.trials.items()}
        return sorted(grid.neighbours(point), key=lambda one: -known.get(one, -math.inf))

    def measure(point: Point, here: Point) -> float | None:
        nonlocal idle
        if idle >= patience or not trials.may_measure(point):
            return None
        value = trials.measure(point, variant, fixed)
        stands = trials.measure(here, variant, fixed)
        idle = 0 if value > stands + tie_of(here) else idle + (point != start)
        return value

    def tie_of(point: Point) -> float:
        return trials.least_gain(PriorKey(point, variant, tuple(sorted(fixed.items()))))

    walk(start, neighbours, measure, tie_of)
