"""Results of searches, put together by hand."""

import numpy as np
import polars as pl

from deql import DEQL
from deql.models import RDLAE
from deql.tuning.prior_space import PRIOR_PARAMETERS
from deql.tuning.space import Space
from deql.tuning.tuning_result import BaselineComparison, BCurve, Tuning

PARAMETERS = ["l2", "dropout", "user_power", "b", "xi", "popularity_power"]
B = [0.0, 0.5, 1.0, 2.0]


def made(rows, space=None, looks=(), metric="ndcg@20", **more):
    """A search with these rows, best first: parameters, then the metric, then recall@20."""
    metrics = list(dict.fromkeys([metric, "recall@20"]))
    table = pl.DataFrame([list(row) for row in rows], [*PARAMETERS, *metrics], orient="row").cast(pl.Float64)
    table = table.with_columns(*(pl.lit(None, pl.Float64).alias(name) for name in ("half_life", *PRIOR_PARAMETERS)))
    seen = pl.DataFrame([list(row) for row in looks], [*PARAMETERS, metric], orient="row") if looks else table.head(0)
    seen = seen.with_columns(*(pl.lit(None, pl.Float64).alias(name) for name in ("half_life", *PRIOR_PARAMETERS)))
    best = table.row(0, named=True)
    parameters = {name: best[name] for name in PARAMETERS if best[name] is not None}
    model = (DEQL if best["xi"] is None else RDLAE)(**parameters)
    model.gram_diagonal_ = np.array([5.0, 15.0])
    values = {"recall@20": [0.3, 0.4, 0.35, 0.2], "ndcg@20": [0.2, 0.25, 0.3, 0.1]}
    values.setdefault(metric, [0.2, 0.25, 0.1, 0.3])
    columns = {name: [row[name] for row in table.to_dicts()] for name in PARAMETERS}
    tried = {name: tuple(dict.fromkeys(v for v in column if v is not None)) for name, column in columns.items()}
    tuning = {
        "model": model, "table": table, "metric": metric, "best": best,
        "curve": BCurve(B, values, {name: [0.01, 0.02, 0.03, 0.04] for name in values}),
        "rival": BaselineComparison(parameters | {"b": 0.0}, True, 0.2, 0.1, 0.01), "space": space or Space(**tried),
        "looks": seen, "judged": 1234, "how": "the split has 1,234 validation users", "complete": True,
        "ridges": tuple(sorted({row[0] for row in [*rows, *looks] if row[2] == rows[0][2]})),
        "points": len({row[:3] for row in rows}), "inverses": len({row[:3] for row in rows}), "seconds": 12.3,
        "left_out": 0, "failures": [], "journal": None,
    }  # fmt: skip
    return Tuning(**tuning | more)


def row(l2=10.0, dropout=0.5, user_power=0.0, b=1.0, xi=None, popularity_power=0.0, value=0.3, recall=0.4):
    return l2, dropout, user_power, b, xi, popularity_power, value, recall


GRID = [
    row(l2=10.0, dropout=0.2, value=0.35, recall=0.40),
    row(l2=10.0, dropout=0.8, value=0.34, recall=0.45),
    row(l2=0.0, dropout=0.2, value=0.33),
    row(l2=30.0, dropout=0.2, value=0.32, b=0.5),
    row(l2=30.0, dropout=0.8, value=0.31),
    row(l2=30.0, dropout=0.2, value=0.30),
]
BETWEEN = [row(l2=3.79, dropout=0.61, user_power=0.7), row(l2=0.4, dropout=0.83, user_power=0.1, value=0.2)]
