"""Data and the slow way of searching, which the tests of the tuner compare with."""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy import stats
from scipy.sparse import csr_array

import deql
from deql import DEQL, RDLAE, Interactions
from deql.tuning.space import PARAMETERS, WITHOUT_PRIOR, as_space

SMALL = {"l2": [2, 20], "dropout": [0.0, 0.5], "user_power": 0, "b": [0, 0.5, 2], "popularity_power": 0, "prior": None}
"""Four inverses, twelve models."""


def market(users=160, items=24, seed=0, weighted=False):
    """Customers with tastes: each likes some groups of goods, and goods differ in popularity."""
    generator = np.random.default_rng(seed)
    groups = 4
    liking = generator.dirichlet(np.full(groups, 0.4), users)
    fits = generator.dirichlet(np.full(groups, 0.4), items)
    chance = 4.0 * (liking @ fits.T) * generator.permutation(np.linspace(0.1, 0.6, items))
    values = (generator.random((users, items)) < chance).astype(float)
    values[np.arange(users), generator.integers(0, items, users)] = 1
    if weighted:
        values *= generator.uniform(0.5, 3.0, values.shape)
    return Interactions.from_csr(csr_array(values))


def separate(space, train, validation, metrics, dtype="float32"):
    """Every model of the space fitted and judged on its own: a row each, best first by the first metric.

    Of equal ones the smaller l2, dropout and user_power come first, then the order of the space.
    """
    space = as_space(space)
    rows = []
    for l2, dropout, user_power in product(space.l2, space.dropout, space.user_power):
        for place, rule in enumerate(space.rules()):
            kind = RDLAE if "xi" in rule else DEQL
            model = kind(l2, dropout, user_power=user_power, dtype=dtype, **rule).fit(train)
            found = deql.evaluate(model, validation, metrics)
            means = found.means | {"users": found.per_user[metrics[0]]}
            parameters = {"l2": l2, "dropout": dropout, "user_power": user_power, "b": None, "xi": None} | rule
            parameters |= WITHOUT_PRIOR | {"half_life": None}
            rows.append((parameters | means, place))
    sign = 1 if metrics[0] == "mse" else -1
    rows.sort(key=lambda row: (sign * row[0][metrics[0]], *(row[0][name] for name in PARAMETERS[:3]), row[1]))
    return [row for row, _ in rows]


def simplest_tied(rows, metric):
    """The winner: of the models on the best one's inverse that are tied with it the one with the fewest parameters.

    Rows are those of ``separate``. No winner is worse than the best plain model, which is EASE or EDLAE.
    """
    sign = -1 if metric == "mse" else 1
    plain = [row for row in rows if row["b"] == row["popularity_power"] == row["user_power"] == 0]
    floor = max((sign * row[metric] for row in plain), default=-np.inf)
    best = rows[0]
    found = []
    for place, row in enumerate(rows):
        lead = np.abs(np.mean(best["users"] - row["users"]))
        small = lead < stats.sem(best["users"] - row["users"]) * (1 - 1e-9) or lead < 0.00005
        same = all(row[name] == best[name] for name in PARAMETERS[:3])
        if place == 0 or (same and small and sign * row[metric] >= floor):
            found.append((sum(bool(row[name]) for name in PARAMETERS[3:]), place))
    return rows[min(found)[1]]


def parameters_of(row):
    return {name: row[name] for name in PARAMETERS if name not in WITHOUT_PRIOR or row[name] is not None}


def findings(tuning):
    """All that a search found, but for the time it took and where it is written: equal for equal searches."""
    found = tuning.to_dict()
    for name in ("seconds", "journal"):
        del found[name]
    model = tuning.model
    fitted = [model.precision_.data, model.gain_, model.shift_, model.items_]
    return found | {"model": (type(model).__name__, model.get_params(), [array.tobytes() for array in fitted])}


def steps(path):
    """(step, l2, dropout, user_power) of each line of a journal but the first and those of the end; and of a prior's
    lines what else tells them apart."""
    import json

    records = [json.loads(line) for line in path.read_bytes().splitlines()[1:]]
    names = ("step", "l2", "dropout", "user_power")
    return [
        tuple(record[name] for name in names)
        + (() if record["step"] != "prior" else (record["prior_rank"], record["prior_power_in"], str(record["fixed"])))
        for record in records
        if record["step"] != "end"
    ]
