"""What people know already, measured on the same validation users: popularity, the best EASE, the best EDLAE.

EASE and EDLAE are points of the search (b = 0, no powers), so what the search measured of them is used as it is; only
what it did not come by is measured for them alone.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from deql.evaluation import evaluate
from deql.metrics import METRICS, parse_metric
from deql.models import Popularity
from deql.tuning.space import PARAMETERS, PLAIN, WITHOUT_PRIOR, Point, Space
from deql.tuning.trial import tie
from deql.tuning.trials import COMPARED, TrialStore
from deql.tuning.walk import PointGrid, walk

__all__ = ["baseline_rows", "measure_baselines", "popularity_row", "popularity_values"]


def measure_baselines(store: TrialStore, space: Space) -> None:
    """Tune l2 of EASE by a walk along the ridges of the space, and give EDLAE that l2 with the best point's dropout.

    The walk begins near what holds items back as much as at the best point, where p/(1−p) of the diagonal is added to
    the Gram matrix beside l2; half of that, as EASE's best ridge was never above it on the data it was measured on.
    """
    best = store.best_so_far()
    if best is None:
        return
    own, mean = store.full.mean_diagonal(best.user_power, best.half_life), store.full.mean_diagonal(0.0)
    held_back = (best.l2 / own if own > 0 else 1.0) + best.dropout / (1 - best.dropout)
    grid = PointGrid([Point(l2, 0.0, 0.0) for l2 in space.ridges(mean)], store.full.mean_diagonal)
    start = Point(grid.nearest_ridge(0.0, held_back / 2 * mean), 0.0, 0.0)
    end = walk(start, grid.neighbours, lambda point, _: store.measure_plain(point, "EASE"), partial(_tie, store))
    if store.plain(end) is not None:
        store.measure_plain(end._replace(dropout=best.dropout), "EDLAE")


def baseline_rows(store: TrialStore) -> dict[str, dict[str, Any]]:
    """The best EASE and the best EDLAE that were measured, by name, as rows of the leaderboard."""
    places = [*store.trials, *store.baselines]
    known = [(point, trial) for point in places if (trial := store.plain(point)) is not None and trial.values]
    found = {}
    for name in ("EASE", "EDLAE"):
        mine = [(point, trial) for point, trial in known if COMPARED[name](point, PLAIN)]
        if mine:
            # Of equal ones the smaller parameters, as on the leaderboard.
            point, trial = min(mine, key=lambda one: (-store.worth(one[1]), one[0]))
            values = {metric: several[0] for metric, several in trial.values.items()}
            without = WITHOUT_PRIOR | ({} if store.prior is None else {"prior_weight": 0.0})
            found[name] = point.row() | {"b": None, "xi": None} | PLAIN | without | values
    return found


def popularity_values(store: TrialStore) -> dict[str, float]:
    """What popularity is worth, by metric; NaN for errors, which need scores on the scale of the data."""
    data = store.full.data
    wanted = [metric for metric in store.metrics if METRICS[parse_metric(metric)[0]].of != "errors"]
    means = evaluate(Popularity().fit(data.train), data.validation, wanted).means
    return dict.fromkeys(store.metrics, math.nan) | means


def popularity_row(values: dict[str, float]) -> dict[str, Any]:
    """Popularity as a row of the leaderboard: it has no parameters."""
    return dict.fromkeys(PARAMETERS) | values


def _tie(store: TrialStore, point: Point) -> float:
    trial = store.plain(point)
    return 0.0 if trial is None else tie(trial.error)
