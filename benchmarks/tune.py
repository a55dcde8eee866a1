"""Tuning by grid: one inverse for many models, against a fit for each of them, on the bundled data.

Parts, each entry in a process of its own:

- ``grid``: the paper's grid (9 b × 4 p × 5 l2). ``deql.tune``, the refit of the winner and its curve included, against
  ``DEQL(...).fit`` and ``deql.evaluate`` for each of the 180 models (same library, same kernels), and against the
  paper's Fast Algorithm (benchmarks/fit.py, plain and tuned) with a batched NumPy evaluation, extrapolated from ten
  models: none of its steps depends on the parameters.
- ``b``: 20 and 50 values of b against one: Gram matrix, inverse and evaluation together, and evaluation alone.
- ``looks``: the default space with and without pruning by screening: is the winner kept, and what is saved? With
  three samples of the items, and where $DEQL_DATA has amazon-beauty also on that.
- ``kill``: the grid killed (SIGKILL) at ten random moments, and gone on with.
- ``test``: the winner of the default space against EASE(l2=250) on the test users, which the search did not read; and
  against the best EASE and the best model with b = 0 of the same leaderboard.

The walk, which is the default, is measured by walk.py.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from _measure import Measurement, Task, measure, measure_all, serve, show

METRICS = ("ndcg@20", "recall@20")
B = (0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
DROPOUT = (0.1, 0.3, 0.5, 0.8)
L2 = (10.0, 50.0, 100.0, 300.0, 500.0)
GRID = {"l2": L2, "dropout": DROPOUT, "user_power": 0.0, "b": B, "popularity_power": 0.0}
MODELS = list(product(L2, DROPOUT, B))
PAPER_MODELS = 10
KILLS = 10
LARGEST_DIFFERENCE = 1e-6
FROM_PAPER = 1e-3  # float32 against float64 reorders items whose scores are nearly equal
TARGETS = {"speedup_vs_separate": 5.0, "speedup_vs_paper": 50.0, "time_of_20_b_over_one": 1.3, "p_value": 0.05}

POINT = ("l2", "dropout", "user_power")

Key = tuple[float, float, float]


def tune_grid(folder: str) -> Task:
    import deql

    split = read_split()
    warm(split)
    return Task(
        lambda: deql.tune(split, GRID, search="grid", prune=False),
        lambda found: _keep(folder, "grid", _values(found.table)),
    )


def fit_each(folder: str) -> Task:
    import deql

    split = read_split()
    warm(split)

    def work() -> dict[Key, list[float]]:
        values = {}
        for l2, dropout, b in MODELS:
            model = deql.DEQL(l2, dropout, b).fit(split.train)
            means = deql.evaluate(model, split.validation, METRICS).means
            values[l2, dropout, b] = [means[metric] for metric in METRICS]
        return values

    return Task(work, lambda values: _keep(folder, "separate", values))


def fit_paper(folder: str, tuned: str = "") -> Task:
    """Ten models spread over the grid by the paper's algorithm, float64, evaluated with NumPy."""
    from deql.rules import paper_l2
    from fit import paper_weights, tuned_paper_weights

    weights = tuned_paper_weights if tuned else paper_weights
    split = read_split()
    R = split.train.matrix.astype(np.float64)

    def work() -> dict[Key, list[float]]:
        values = {}
        for place in np.linspace(0, len(MODELS) - 1, PAPER_MODELS).astype(int):
            l2, p, b = MODELS[place]
            W = weights(R, lam=paper_l2(l2, p, b), p=p, a=1.0, b=b)
            values[l2, p, b] = _numpy_metrics(W, split.validation)
            del W
        return values

    return Task(work, lambda values: _keep(folder, "paper", values))


def evaluate_b(count: str, alone: str = "") -> Task:
    import deql
    from deql.tuning.space import Point
    from deql.tuning.trainer import Trainer
    from deql.tuning.tuning_data import hold_out_validation

    split = read_split()
    warm(split)
    rules = [{"b": float(b), "popularity_power": 0.0} for b in np.linspace(0, 2, int(count))]
    trainer = Trainer(hold_out_validation(split, seed=0), "float32", progress=False)
    point = Point(10.0, 0.2, 0.0)
    if alone:
        model = trainer.fit(point)
        models = [model.with_rule(**rule) for rule in rules]
        return Task(lambda: deql.evaluate(models, split.validation, METRICS))
    return Task(lambda: trainer.evaluate(point, rules, METRICS))


def tune_default(folder: str, data: str, prune: str, seed: str = "0") -> Task:
    import polars as pl

    import deql

    split = read_split(data)
    warm(split)

    def finish(found: Any) -> dict[str, Any]:
        table = found.table
        per_point = table.group_by(POINT).agg(value=pl.col(METRICS[0]).max())
        ease = table.filter((pl.col("dropout") == 0) & (pl.col("b") == 0) & (pl.col("user_power") == 0)
                            & (pl.col("popularity_power") == 0))  # fmt: skip
        Path(folder, f"{data}-{prune}-{seed}.json").write_text(json.dumps({
            "points": [list(row) for row in per_point.select(*POINT, "value").rows()],
            "looks": [list(row) for row in found.looks.select(*POINT, METRICS[0]).rows()],
            "best": table.row(0, named=True), "zero": table.filter(pl.col("b") == 0).row(0, named=True),
            "ease": ease.row(0, named=True) if ease.height else None,
        }))  # fmt: skip
        words = " ".join(f"{value:g}" for name, value in found.best.items() if value is not None and "@" not in name)
        return {"best": words, "inverses": found.inverses, "models": table.height, "sentence": found.sentence}

    return Task(lambda: deql.tune(split, search="grid", prune=prune == "pruned", seed=int(seed)), finish)


def resume_grid(journal: str, out: str) -> Task:
    """What is killed and started again: it does the grid with a journal, then writes the leaderboard."""
    import deql

    split = read_split()

    def work() -> Any:
        return deql.tune(split, GRID, search="grid", prune=False, journal=journal)

    def finish(found: Any) -> dict[str, Any]:
        Path(out).write_text(json.dumps({"table": found.table.rows(), "sentence": found.sentence}))
        return {}

    return Task(work, finish)


def test_winner(folder: str) -> Task:
    import deql
    from deql.evaluation.significance import paired_t

    split = read_split()
    rows = json.loads(Path(folder, "debian-whole-0.json").read_text())
    names = ("l2", "dropout", "b", "user_power", "popularity_power")
    rows["tuned"] = json.loads(Path(folder, "debian-pruned-0.json").read_text())["best"]

    def work() -> Any:
        models = {
            name: deql.DEQL(**{field: rows[name][field] for field in names}) for name in ("tuned", "zero", "ease")
        }
        models["EASE, l2=250"] = deql.EASE(250.0)
        return {name: deql.evaluate(model.fit(split.train), split.test, METRICS) for name, model in models.items()}

    def finish(evaluated: Any) -> dict[str, Any]:
        tuned = evaluated["tuned"].per_user[METRICS[0]]
        return {
            name: one.means | {"p_value": paired_t(tuned, one.per_user[METRICS[0]]), "users": len(one.users)}
            for name, one in evaluated.items()
        }

    return Task(work, finish)


def read_split(data: str = "debian") -> Any:
    import deql

    if data == "debian":
        return deql.split_strong(deql.datasets.debian())
    from deql.split import read_lightgcn_split

    return read_lightgcn_split(Path(os.environ["DEQL_DATA"], data))


def warm(split: Any) -> None:
    """Load the kernels for the types of these data; compiling them is not what is timed."""
    import deql
    from deql.split import HeldOut

    few = slice(0, 50)
    model = deql.DEQL().fit(split.train.take_items(few))
    target = split.validation or split.test
    parts = (target.seen.take_items(few), target.held_out.take_items(few))
    deql.evaluate([model, model.with_rule(b=2.0)], HeldOut(*parts), METRICS)


def _numpy_metrics(W: np.ndarray, target: Any, k: int = 20, batch: int = 500) -> list[float]:
    """NDCG and recall of dense scores, the seen left out, some users at a time."""
    seen, held_out = target.seen.matrix, target.held_out.matrix
    discount = 1 / np.log2(np.arange(k) + 2)
    ideal = np.cumsum(discount)
    gains, recalls = [], []
    for first in range(0, seen.shape[0], batch):
        X, truth = seen[first : first + batch], held_out[first : first + batch].toarray() > 0
        scores = X @ W
        scores[csr_array(X).nonzero()] = -np.inf
        top = np.argpartition(-scores, k, axis=1)[:, :k]
        top = np.take_along_axis(top, np.argsort(-np.take_along_axis(scores, top, axis=1), axis=1), axis=1)
        hits = np.take_along_axis(truth, top, axis=1)
        counts = truth.sum(axis=1)
        gains.append(hits @ discount / ideal[np.minimum(counts, k) - 1])
        recalls.append(hits.sum(axis=1) / counts)
    return [float(np.concatenate(values).mean()) for values in (gains, recalls)]


def _values(table: Any) -> dict[Key, list[float]]:
    return {row[:3]: list(row[3:]) for row in table.select("l2", "dropout", "b", *METRICS).rows()}


def _keep(folder: str, name: str, values: dict[Key, list[float]]) -> dict[str, Any]:
    """Metrics of each model into a file; the models and the winner are the facts."""
    Path(folder, f"{name}.json").write_text(json.dumps([[*key, *value] for key, value in values.items()]))
    winner = max(values, key=lambda key: values[key][0])
    return {"models": len(values), "winner": winner, METRICS[0]: values[winner][0]}


def _kept(folder: str, name: str) -> dict[Key, list[float]]:
    rows = json.loads(Path(folder, f"{name}.json").read_text())
    return {(row[0], row[1], row[2]): row[3:] for row in rows}


def _difference(folder: str, name: str, other: str) -> float:
    one, two = _kept(folder, name), _kept(folder, other)
    return max(abs(a - b) for key in two for a, b in zip(one[key], two[key], strict=True))


def grid_part(folder: str, repeats: int) -> tuple[dict[str, Any], bool]:
    found = measure_all(__file__, {"deql.tune": ("tune", folder), "a fit for each": ("each", folder)}, repeats)
    found["the paper's algorithm"] = measure(__file__, "paper", folder)
    difference_from_paper = _difference(folder, "grid", "paper")
    found["the paper's, tuned"] = measure(__file__, "paper", folder, "tuned")
    whole = {name: one.seconds / one.facts["models"] * len(MODELS) for name, one in found.items()}
    ours = whole["deql.tune"]
    rows = [
        (name, one.facts["models"], one.seconds, one.cores, whole[name], whole[name] / ours, one.peak_mib,
         str(one.facts["winner"]) if one.facts["models"] == len(MODELS) else "")
        for name, one in found.items()
    ]  # fmt: skip
    header = ("entry", "models", "seconds", "cores", "for 180 models", "ratio", "peak MiB", "winner (l2, p, b)")
    show("The paper's grid: 9 b × 4 p × 5 l2", header, rows)
    difference = _difference(folder, "grid", "separate")
    same = found["deql.tune"].facts["winner"] == found["a fit for each"].facts["winner"]
    result = {
        "speedup_vs_separate": whole["a fit for each"] / ours,
        "speedup_vs_paper": whole["the paper's algorithm"] / ours,
        "speedup_vs_paper_tuned": whole["the paper's, tuned"] / ours,
        "same_winner": same, "largest_difference": difference, "largest_difference_from_paper": difference_from_paper,
        "memory_vs_paper": found["the paper's algorithm"].peak_mib / found["deql.tune"].peak_mib,
    }  # fmt: skip
    return result, same and difference <= LARGEST_DIFFERENCE and difference_from_paper <= FROM_PAPER


def b_part(repeats: int) -> tuple[dict[str, Any], bool]:
    counts = (1, 20, 50)
    runs = {(count, alone): ("b", count, *alone) for alone in ((), ("alone",)) for count in counts}
    found: dict[Any, Measurement] = measure_all(__file__, runs, repeats + 2)
    rows = [
        (f"{count} b", *(value for alone in ((), ("alone",)) for value in (
            found[count, alone].seconds, found[count, alone].seconds / found[1, alone].seconds)))
        for count in counts
    ]  # fmt: skip
    show("Values of b", ("", "Gram, inverse, evaluation: s", "ratio", "evaluation alone: s", "ratio"), rows)
    return {
        f"{what}_of_{count}_b_over_one": found[count, alone].seconds / found[1, alone].seconds
        for what, alone in (("time", ()), ("evaluation", ("alone",))) for count in counts[1:]
    }, True  # fmt: skip


def looks_part(folder: str) -> tuple[dict[str, Any], bool]:
    """Pruned searches against the whole grid; a lost winner is reported, and a failure if it costs 1 %."""
    from scipy.stats import spearmanr

    sets = ["debian"] + ["amazon-beauty"] * Path(os.environ.get("DEQL_DATA", "."), "amazon-beauty").is_dir()
    rows, results, good = [], {}, True
    for data in sets:
        whole = measure(__file__, "default", folder, data, "whole")
        measured = {tuple(row[:3]): row[3] for row in _file(folder, data, "whole", 0)["points"]}
        best = max(measured.values())
        rows.append((data, "whole", whole.facts["inverses"], whole.seconds, f"{best:.5f}", "", "", whole.facts["best"]))
        for seed in range(3) if data == "debian" else range(1):
            pruned = measure(__file__, "default", folder, data, "pruned", seed)
            file = _file(folder, data, "pruned", seed)
            # Without a validation part the seed decides what is held out too, so that only seed 0 is comparable.
            looks = {tuple(row[:3]): row[3] for row in file["looks"]}
            kept = max(row[3] for row in file["points"])
            correlation = float(spearmanr([looks[key] for key in measured], list(measured.values())).statistic)
            place = sorted(looks.values(), reverse=True).index(looks[max(measured, key=measured.__getitem__)]) + 1
            rows.append((data, f"looks, sample {seed}", pruned.facts["inverses"], pruned.seconds, f"{kept:.5f}",
                         f"{correlation:.2f}", place, pruned.facts["best"]))  # fmt: skip
            results[f"{data}-{seed}"] = {
                "speedup": whole.seconds / pruned.seconds, "regret": best - kept, "spearman": correlation,
                "place_of_the_winner": place, "looks": len(looks),
            }  # fmt: skip
            good &= best - kept <= 0.01 * best
    header = ("data", "", "inverses", "seconds", METRICS[0], "rank corr.", "winner's place", "winner (l2 p γ b α)")
    show("The default space, with and without screening", header, rows)
    return {"looks": results}, good


def _file(folder: str, data: str, prune: str, seed: int) -> dict[str, Any]:
    return dict(json.loads(Path(folder, f"{data}-{prune}-{seed}.json").read_text()))


def kill_part(folder: str) -> tuple[dict[str, Any], bool]:
    """Start, kill at a random moment, start again …; in the end the leaderboard must be that of a quiet run.

    A search that is done before it was killed often enough is checked too, and another one is begun.
    """
    quiet_out = Path(folder, "quiet.json")
    quiet = measure(__file__, "resume", Path(folder, "quiet.jsonl"), quiet_out)
    moments = random.Random(0)
    rows, kills, same = [("quiet", quiet.seconds, 0, len(L2) * len(DROPOUT), 0, "")], 0, True
    while kills < KILLS:
        series = len(rows)
        journal, out = Path(folder, f"killed-{series}.jsonl"), Path(folder, f"killed-{series}.json")
        command = [sys.executable, __file__, "--child", "resume", str(journal), str(out)]
        begin, here = time.perf_counter(), 0
        while not out.exists():
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            try:
                process.wait(None if kills == KILLS else 1 + moments.uniform(0, quiet.seconds / 6))
                if process.returncode:
                    raise RuntimeError(f"the search that goes on ended with {process.returncode}")
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                kills, here = kills + 1, here + 1
        alike = out.read_text() == quiet_out.read_text()
        steps = [json.loads(line) for line in journal.read_text().splitlines()[1:]]
        measured = [(step["l2"], step["dropout"]) for step in steps if step["step"] == "point"]
        twice = len(measured) - len(set(measured))
        rows.append((f"killed, {series}", time.perf_counter() - begin, here, len(measured), twice, str(alike)))
        same &= alike and twice == 0
    header = ("search", "seconds, starts included", "kills", "points measured", "measured twice", "same leaderboard")
    show("Killed and gone on with", header, rows)
    return {"kills": kills, "same_leaderboard": same}, same


def test_part(folder: str) -> tuple[dict[str, Any], bool]:
    facts = measure(__file__, "test", folder).facts
    words = {"zero": "best with b = 0, by validation", "ease": "best EASE, by validation"}
    rows = [
        (words.get(name, name), *(f"{one[metric]:.4f}" for metric in METRICS),
         "" if name == "tuned" else f"{one['p_value']:.2g}")
        for name, one in facts.items()
    ]  # fmt: skip
    header = ("model", *METRICS, "p: tuned is better")
    show(f"On {facts['tuned']['users']:,} test users, NDCG tested", header, rows)
    return {"test": facts, "p_value": facts["EASE, l2=250"]["p_value"]}, True


TASKS: dict[str, Callable[..., Task]] = {
    "tune": tune_grid, "each": fit_each, "paper": fit_paper, "b": evaluate_b, "default": tune_default,
    "resume": resume_grid, "test": test_winner,
}  # fmt: skip


def main() -> int:
    """Measure, print the tables and the ratios; 1 if anything that must be the same is not."""
    parser = argparse.ArgumentParser(description="Time and check deql.tune on the bundled data.")
    parts = ("grid", "b", "looks", "kill", "test")
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts, help="test needs looks")
    parser.add_argument("--repeats", type=int, default=2, help="repeats of each entry; the best counts")
    options = parser.parse_args()
    result: dict[str, Any] = {"targets": TARGETS}
    good = True
    with TemporaryDirectory() as folder:
        run: dict[str, Callable[[], tuple[dict[str, Any], bool]]] = {
            "grid": lambda: grid_part(folder, options.repeats),
            "b": lambda: b_part(options.repeats),
            "looks": lambda: looks_part(folder),
            "kill": lambda: kill_part(folder),
            "test": lambda: test_part(folder),
        }
        for part in parts:
            if part in options.parts:
                found, fine = run[part]()
                result |= found
                good &= fine
    print(json.dumps(result))
    return 0 if good else 1


if __name__ == "__main__":
    serve(TASKS)
    sys.exit(main())
