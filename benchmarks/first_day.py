"""What a newcomer gets: ``deql fit --auto`` and ``deql tune`` beside EASE with a tuned l2 and popularity.

For each data set five strong splits (seeds 0 to 4), and on each, in a process of its own:

- ``auto``: what ``deql fit --auto`` does with a split, ``deql.tune`` over the space ``quick``;
- ``tune``: what ``deql tune`` does, ``deql.tune`` as it is;
- ``EASE``: l2 from a tenth of the Gram matrix's mean diagonal to a hundred times as much, 13 values, chosen on the same
  validation users by the same metric;
- ``popularity``.

All learn from the training part alone. Differences are paired: over splits (± standard deviation) and, with a t-test,
over all test users. Data: ``debian`` (bundled); from $DEQL_DATA ``amazon-beauty``, the union of its published parts,
and ``ml-latest-small``, ratings from 4 up as ones, with a fifth of the users each to validate and to test on.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from _measure import Measurement, Task, measure, serve, show
from tune import warm

SETS = ("debian", "amazon-beauty", "ml-latest-small")
ENTRIES = ("auto", "tune", "EASE", "popularity")
METRICS = ("ndcg@20", "recall@20")
EASE_VALUES = 13


def load(data: str, seed: int) -> Any:
    """A strong split of a data set."""
    import deql

    if data == "debian":
        return deql.split_strong(deql.datasets.debian(), seed=seed)
    folder = Path(os.environ["DEQL_DATA"])
    if data == "amazon-beauty":
        from deql.split import read_lightgcn_split

        published = read_lightgcn_split(folder / data)
        matrix = csr_array(published.train.matrix + published.test.held_out.matrix)
        return deql.split_strong(deql.Interactions.from_csr(_ones(matrix)), seed=seed)
    ratings = deql.read_interactions(
        folder / data / "ratings.csv", user="userId", item="movieId", weight="rating", min_weight=4
    )
    return deql.split_strong(deql.Interactions.from_csr(_ones(ratings.matrix)), 0.2, 0.2, seed=seed)


def _ones(matrix: csr_array) -> csr_array:
    return csr_array((np.ones(matrix.nnz, np.float32), matrix.indices, matrix.indptr), shape=matrix.shape)


def run(data: str, seed: str, entry: str) -> Task:
    """One model on one split: what it costs, and each test user's values."""
    import deql

    split = load(data, int(seed))
    warm(split)
    mean = split.train.matrix.sum() / split.train.n_items
    ridges = [float(f"{mean * 10 ** (step / 4 - 1):.3g}") for step in range(EASE_VALUES)]
    plain = {"l2": ridges, "dropout": 0, "user_power": 0, "b": 0, "popularity_power": 0}
    work = {
        "auto": lambda: deql.tune(split, "quick"),
        "tune": lambda: deql.tune(split),
        "EASE": lambda: deql.tune(split, plain, search="grid", prune=False),
        "popularity": lambda: deql.Popularity().fit(split.train),
    }[entry]

    def finish(found: Any) -> dict[str, Any]:
        model = getattr(found, "model", found)
        tested = deql.evaluate(model, split.test, list(METRICS))
        facts: dict[str, Any] = {"items": split.train.n_items, "users": len(tested.users)}
        if entry != "popularity":
            fits = 1  # of the winner, in the end
            facts |= {"inverses": found.inverses + found.baseline_inverses + fits, "screenings": found.looks.height,
                      "spec": found.spec, "validation": found.best[METRICS[0]]}  # fmt: skip
        return facts | {metric: tested.per_user[metric].tolist() for metric in METRICS}

    return Task(work, finish)


def tables(found: dict[tuple[str, int, str], Measurement], sets: Sequence[str], seeds: int) -> dict[str, Any]:
    """Print a table for each data set; the numbers as facts."""
    from deql.evaluation.significance import paired_t

    result: dict[str, Any] = {}
    for data in sets:
        rows = []
        for entry in ENTRIES:
            runs = [found[data, seed, entry] for seed in range(seeds)]
            ease = [found[data, seed, "EASE"] for seed in range(seeds)]
            facts: dict[str, Any] = {"seconds": float(np.mean([one.seconds for one in runs]))}
            facts |= {
                name: float(np.mean([one.facts.get(name, 0) for one in runs])) for name in ("inverses", "screenings")
            }
            cells: list[object] = [entry]
            for metric in METRICS:
                values = np.array([np.mean(one.facts[metric]) for one in runs])
                beside = np.array([np.mean(one.facts[metric]) for one in ease])
                mine, theirs = (np.concatenate([one.facts[metric] for one in several]) for several in (runs, ease))
                gain = values - beside
                facts[metric] = {
                    "mean": values.mean(), "sd": values.std(ddof=1), "over_ease": gain.mean(),
                    "over_ease_sd": gain.std(ddof=1), "relative": gain.mean() / beside.mean(),
                    "p_value": paired_t(mine, theirs), "wins": int((gain > 0).sum()),
                }  # fmt: skip
                cells += [f"{values.mean():.4f} ± {values.std(ddof=1):.4f}"]
                cells += ["" if entry == "EASE" else f"{gain.mean():+.4f} ± {gain.std(ddof=1):.4f}"]
            rows.append((*cells, f"{facts['inverses']:.1f}", f"{facts['screenings']:.1f}", facts["seconds"]))
            result.setdefault(data, {})[entry] = facts | {"specs": [one.facts.get("spec") for one in runs]}
        header = (
            "",
            *(word for metric in METRICS for word in (metric, "less EASE")),
            "inverses",
            "screenings",
            "seconds",
        )
        items, users = (found[data, 0, "EASE"].facts[name] for name in ("items", "users"))
        show(f"{data}: {seeds} splits, {items:,} items, {users:,} test users each", header, rows)
    return result


def main() -> int:
    """Measure, print the tables and the numbers; 1 if a tuned model is worse than EASE beyond one standard error."""
    parser = argparse.ArgumentParser(description="fit --auto and tune against EASE with a tuned l2, on the test part.")
    parser.add_argument("--data", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--splits", type=int, default=5)
    options = parser.parse_args()
    keys = [(data, seed, entry) for data in options.data for seed in range(options.splits) for entry in ENTRIES]
    found = {key: measure(__file__, "run", *key) for key in keys}
    result = tables(found, options.data, options.splits)
    worse = [
        (data, entry)
        for data, entries in result.items()
        for entry in ("auto", "tune")
        for one in [entries[entry][METRICS[0]]]
        if one["over_ease"] < -one["over_ease_sd"] / np.sqrt(options.splits)
    ]
    print(json.dumps(result | {"worse_than_ease": worse}))
    return 1 if worse else 0


if __name__ == "__main__":
    serve({"run": run})
    sys.exit(main())
