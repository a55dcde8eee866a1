"""Updating a fitted model, by few columns of P and by a fit of the changed data.

    python benchmarks/update.py                    # 12,000 made-up items
    python benchmarks/update.py --gowalla DIR      # Gowalla's 40,981 items, the last 1 % of its interactions

Every measurement is a process of its own: it opens the model file, which has its data, and times ``model.update``,
with all that belongs to it (what changes in the data, P, its residual, the rule). EASE has no dropout, so that a user
changes A by one column; with EDLAE's the diagonal of every item of hers changes too, so that T counts. The crossover is
the share of the items that a batch may touch before a fit takes less time: one new user with so many items.

Of Gowalla, three parts of its train file are taken as what came last: its last lines, 1 % of the interactions, of users
who are new; the ends of lines, the last item of as many users; and a tenth of these. The model is fitted without all of
them, and updated by one at a time. Where a refit would be chosen that is said, and not done again.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from _measure import Measurement, Task, measure, measure_all, serve, show
from chronology import lines_of
from fit import synthetic

MODELS = {"EASE": {"l2": 50.0}, "EDLAE": {"l2": 50.0, "dropout": 0.3}}
CASES = ("50 new users", "forget one user", "one item more")
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6)
TARGETS = {"50 new users": 10.0, "forget one user": 50.0}
HISTORY = 60
"""Items of the user who is forgotten, and of her who gets one more."""

GOWALLA = {"l2": 700.0, "dropout": 0.7, "b": 0.5}
LAST = 0.01


def save_model(folder: str, name: str, n: str) -> Task:
    """Fit a model of made-up data and keep it in a file, with its data."""
    import deql

    matrix = synthetic(int(n))
    data = deql.Interactions(matrix, np.arange(matrix.shape[0]), np.arange(int(n)))
    model = getattr(deql, name)(**MODELS[name]).fit(data, keep_data=True)
    return Task(lambda: model.save(_file(folder, name)))


def update(folder: str, name: str, case: str, method: str) -> Task:
    """One update of a model that was saved."""
    import deql

    model = deql.load(_file(folder, name))
    data = model.data_
    model.precision_.matvec(np.ones(len(model.items_)))  # a file is read before it is timed
    _compile(deql)
    batch = _batch(deql, data, case)
    return Task(
        lambda: model.update(**batch, method=method),
        lambda report: {"rank": report.plan.rank, "touched": report.plan.touched, "residual": report.residual},
    )


def _batch(deql: Any, data: Any, case: str) -> dict[str, Any]:
    """The arguments of an update."""
    generator = np.random.default_rng(1)
    lengths = np.diff(data.matrix.indptr)
    someone = int(np.argmin(np.abs(lengths - HISTORY)))
    n = data.n_items
    if case == "50 new users":
        rows = data.matrix[generator.choice(data.n_users, 50, replace=False)]
    elif case == "forget one user":
        return {"forget_users": [data.users[someone].item()]}
    elif case == "one item more":
        unseen = np.setdiff1d(np.arange(n), data.matrix[[someone]].indices)
        return {"added": deql.Interactions.from_pairs(data.users[[someone]], data.items[unseen[[n // 2]]])}
    else:
        history = np.zeros((1, n), np.float32)
        history[0, generator.choice(n, round(float(case) * n), replace=False)] = 1
        rows = csr_array(history)
    return {"added": deql.Interactions(rows, np.arange(rows.shape[0]) + data.n_users, data.items)}


def save_gowalla(folder: str, source: str) -> Task:
    """Fit on Gowalla's train file without what came last; that is kept beside the model."""
    import deql

    users, items, parts = _gowalla(Path(source))
    stay = ~np.logical_or.reduce([*parts.values()])
    before = deql.Interactions.from_pairs(users[stay], items[stay])
    for part, last in parts.items():
        np.savez(Path(folder, f"{part}.npz"), users=users[last], items=items[last])
    model = deql.DEQL(**GOWALLA).fit(before, keep_data=True)
    return Task(lambda: model.save(_file(folder, "gowalla")))


def update_gowalla(folder: str, part: str, method: str) -> Task:
    """The update by what came last; where a refit would be taken, only that is said."""
    import deql

    model = deql.load(_file(folder, "gowalla"))
    model.precision_.matvec(np.ones(len(model.items_)))
    _compile(deql)
    with np.load(Path(folder, f"{part}.npz")) as last:
        added = deql.Interactions.from_pairs(last["users"], last["items"])
    plan = model.plan_update(added)
    if method == "auto" and plan.method == "refit":
        return Task(lambda: None, lambda _: _facts(plan, "refit", 0.0))
    return Task(
        lambda: model.update(added, method=method), lambda report: _facts(report.plan, report.method, report.residual)
    )


def _facts(plan: Any, method: str, residual: float) -> dict[str, Any]:
    return {
        "method": method, "rank": plan.rank, "touched": plan.touched, "changes": str(plan.changes),
        "predicted": plan.seconds, "residual": residual,
    }  # fmt: skip


def _gowalla(folder: Path) -> tuple[Any, Any, dict[str, Any]]:
    """Users and items of all interactions, and which of them came last: lines, ends of lines, a tenth of these."""
    lines = lines_of(folder / "train.txt")
    lengths = np.array([len(line) - 1 for line in lines])
    users = np.repeat([line[0] for line in lines], lengths)
    items = np.concatenate([np.array(line[1:], np.int64) for line in lines])
    count = round(LAST * len(items))
    ends = np.random.default_rng(0).permutation(np.cumsum(lengths)[lengths > 1] - 1)[:count]
    numbers = np.arange(len(items))
    return users, items, {
        "last lines": numbers >= len(items) - count,
        "ends of lines": np.isin(numbers, ends),
        "a tenth of the ends": np.isin(numbers, ends[: count // 10]),
    }  # fmt: skip


def _compile(deql: Any) -> None:
    """A small update each way: kernels and libraries are loaded before anything is timed."""
    data = deql.Interactions.from_pairs([0, 0, 1, 1, 2], [0, 1, 1, 2, 2])
    for method in ("low rank", "refit"):
        model = deql.EDLAE(l2=1.0, dropout=0.3).fit(data, keep_data=True)
        model.update(deql.Interactions.from_pairs([3, 3], [0, 2]), method=method)


def _file(folder: str, name: str) -> Path:
    return Path(folder, f"{name}.deql")


def crossover(shares: list[float], low_rank: list[float], refit: float) -> float | None:
    """The share of the items at which both take as long, between those measured; None if one is always faster."""
    slower = np.flatnonzero(np.array(low_rank) >= refit)
    if not len(slower) or slower[0] == 0:
        return None
    first = int(slower[0])
    low, high = low_rank[first - 1], low_rank[first]
    return shares[first - 1] + (shares[first] - shares[first - 1]) * (refit - low) / (high - low)


def made_up(n: int, repeats: int) -> dict[str, Any]:
    """The cases of made-up data, and the crossover."""
    result: dict[str, Any] = {"items": n, "targets": TARGETS}
    rows: list[tuple[object, ...]] = []
    with TemporaryDirectory() as folder:
        for name in MODELS:
            measure(__file__, "save", folder, name, n)
            runs = {case: ("update", folder, name, case, "low rank") for case in CASES}
            runs["refit"] = ("update", folder, name, CASES[0], "refit")
            found = measure_all(__file__, runs, repeats)
            rows += [(name, label, *_row(one), found["refit"].seconds / one.seconds) for label, one in found.items()]
            result[name] = {case: found["refit"].seconds / found[case].seconds for case in CASES}
        runs = {share: ("update", folder, "EDLAE", share, "low rank") for share in SHARES}
        curve = measure_all(__file__, {**runs, "refit": ("update", folder, "EDLAE", SHARES[-1], "refit")}, 1)
    refit = curve.pop("refit").seconds
    rows += [(f"EDLAE, |T|/n = {share}", "low rank", *_row(one), refit / one.seconds) for share, one in curve.items()]
    seconds = [one.seconds for one in curve.values()]
    result["crossover"] = {
        "touched": list(SHARES), "low_rank": seconds, "refit": refit, "at": crossover([*SHARES], seconds, refit),
    }  # fmt: skip
    header = ("model", "update", "rank", "seconds", "cores", "peak MiB", "MiB beyond", "residual", "refit / this")
    show(f"Updates of {n:,} items", header, rows)
    return result


def gowalla(source: str, repeats: int) -> dict[str, Any]:
    """Gowalla's last interactions: the way that is chosen beside a refit."""
    rows: list[tuple[object, ...]] = []
    result: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        measure(__file__, "save-gowalla", folder, source)
        runs = {
            part: ("gowalla", folder, part, "auto") for part in ("last lines", "ends of lines", "a tenth of the ends")
        }
        found = measure_all(__file__, {**runs, "refit": ("gowalla", folder, "last lines", "refit")}, repeats)
    refit = found["refit"].seconds
    for part, one in found.items():
        by_rank = one.facts["method"] == "low rank"
        rows.append((part, one.facts["method"], *_row(one), refit / one.seconds if by_rank else 1.0))
        result[part] = one.facts | {"seconds": one.seconds if by_rank or part == "refit" else None}
        result[part] |= {"refit_over_this": rows[-1][-1]}
    header = ("part", "method", "rank", "seconds", "cores", "peak MiB", "MiB beyond", "residual", "refit / this")
    show("Gowalla's last 1 %", header, rows)
    return result


def _row(one: Measurement) -> tuple[object, ...]:
    residual = f"{one.facts['residual']:.0e}"
    return one.facts["rank"], one.seconds, one.cores, one.peak_mib, one.beyond_mib, residual


TASKS = {"save": save_model, "update": update, "save-gowalla": save_gowalla, "gowalla": update_gowalla}


def main() -> int:
    """Measure and print tables; 1 if a case of the made-up data misses its target."""
    parser = argparse.ArgumentParser(description="Time updates of fitted models beside refits.")
    parser.add_argument("--repeats", type=int, default=3, help="repeats of each entry; the best counts")
    parser.add_argument("--n", type=int, default=12_000, help="items of the made-up data")
    parser.add_argument("--gowalla", metavar="DIR", help="measure Gowalla instead: the folder of LightGCN's files")
    options = parser.parse_args()
    if options.gowalla:
        print(json.dumps(gowalla(options.gowalla, options.repeats)))
        return 0
    result = made_up(options.n, options.repeats)
    print(json.dumps(result))
    return int(any(result[name][case] < least for name in MODELS for case, least in TARGETS.items()))


if __name__ == "__main__":
    serve(TASKS)
    sys.exit(main())
