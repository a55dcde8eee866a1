"""Neighbourhoods whose sizes follow the items' popularity, beside equal ones: accuracy at equally many weights.

    python benchmarks/neighbourhood_sizes.py [bundled beauty gowalla] [--powers 0 0.25 0.5] [--k 400]

Item i gets k_i neighbours in proportion to popularity^power, at most 4·k of them, and n·k all items together. The
engine of the library has equal ones, power 0. Hyper-parameters and data are those of neighbours.py; metrics are of test
users, or of validation users with ``--validation``, which only the bundled data have.
"""

from __future__ import annotations

import argparse
import json
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _measure import Task, measure, serve, show
from neighbours import METRICS, load, model_of

SPANS = 60
"""Runs of items, the most popular first, that have one size each."""


def sizes_of(popularity: NDArray[np.int64], k: int, power: float) -> NDArray[np.float64]:
    """k_i of each item, of k on average."""
    raw = np.maximum(popularity, 1.0) ** power
    low, high = 0.0, 4.0 * k * float((raw.max() / raw).max())
    for _ in range(100):
        middle = (low + high) / 2
        mean = np.clip(raw * middle / raw.max(), 1.0, 4.0 * k).mean()
        low, high = (middle, high) if mean < k else (low, middle)
    return np.clip(raw * low / raw.max(), 1.0, 4.0 * k)


def columns_by_popularity(power: float) -> Any:
    """What takes the place of the engine's function for columns on one machine."""
    from deql.linalg.engines import neighbours
    from deql.linalg.neighbourhoods import NeighbourColumns, solve_columns

    def columns(problem: Any, k: int, items: Any, places: Any, prior: Any, stage: Any) -> NeighbourColumns:
        assert prior is None
        S = neighbours.sum_parts(problem.parts(), places, np.dtype(problem.dtype))
        added, n = problem.added[items], problem.n
        wanted = sizes_of(neighbours.item_counts(problem)[items], k, power)
        # Narrow spans where sizes fall fast.
        cuts = np.unique(np.concatenate([np.geomspace(1, n, SPANS // 2), np.linspace(0, n, SPANS // 2)]).astype(int))
        widest = min(n - 1, int(wanted.max()) + 1)
        lists = neighbours.strongest_pairs(S, S.diagonal + added, widest)
        whole = NeighbourColumns(
            np.zeros(n, np.int32), np.zeros((n, widest + 1), np.int32), np.zeros((n, widest + 1), S.values.dtype),
            np.empty((0, widest + 1), S.values.dtype), np.zeros(n),
        )  # fmt: skip
        for first, last in pairwise(cuts.tolist()):
            found = solve_columns(S, added, round(float(wanted[first:last].mean())), lists, span=(first, last))
            width = found.rows.shape[1]
            whole.counts[first:last], whole.residuals[first:last] = found.counts, found.residuals
            whole.rows[first:last, :width], whole.values[first:last, :width] = found.rows, found.values
        return whole

    return columns


def fit(data: str, name: str, k: str, power: str, validation: str) -> Task:
    """A fit and its metrics."""
    import deql
    from deql.linalg.engines import neighbours

    split = load(data)
    target = split.validation if validation == "True" else split.test
    model_of(data, name, deql.engines.Neighbours(k=10)).fit(split.train.take_items(slice(0, 50)))  # loads the kernels
    if float(power):
        neighbours._columns_here = columns_by_popularity(float(power))
    model = model_of(data, name, deql.engines.Memory() if k == "exact" else deql.engines.Neighbours(k=int(k)))

    def finish(fitted: Any) -> dict[str, Any]:
        return dict(deql.evaluate(fitted, target, METRICS).means) | {"numbers": len(fitted.precision_.data)}

    return Task(lambda: model.fit(split.train), finish)


TASKS = {"fit": fit}


def main() -> None:
    """Print a table for each data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="*", default=["bundled"])
    parser.add_argument("--powers", nargs="+", type=float, default=[0.0, 0.25, 0.5])
    parser.add_argument("--k", type=int, default=400)
    parser.add_argument("--models", nargs="+", default=["EASE", "EDLAE"])
    parser.add_argument("--validation", action="store_true")
    parser.add_argument("--exact", nargs="*", type=float, help="NDCG@20 of the exact models, if it is known")
    given = parser.parse_args()
    kept: dict[str, dict[str, float]] = {}
    for data in given.data:
        rows = []
        for place, name in enumerate(given.models):
            if given.exact:
                exact = given.exact[place]
            else:
                exact = measure(__file__, "fit", data, name, "exact", 0, given.validation).facts[METRICS[0]]
            for power in given.powers:
                one = measure(__file__, "fit", data, name, given.k, power, given.validation)
                share = one.facts[METRICS[0]] / exact
                kept.setdefault(f"{data} {name}", {})[str(power)] = share
                rows.append((name, power, f"{one.facts[METRICS[0]]:.5f}", f"{share:.2%}", one.seconds,
                             one.cpu_seconds, one.facts["numbers"] / 1e6))  # fmt: skip
        header = ("model", "power", "N@20", "of exact", "seconds", "CPU s", "1e6 numbers")
        show(f"{data}, k = {given.k}", header, rows)
    print(json.dumps({"k": given.k, "kept_ndcg": kept}))


if __name__ == "__main__":
    serve(TASKS)
    main()
