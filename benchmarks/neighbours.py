"""The engine of neighbourhoods in accuracy: beside the exact model, that one pruned to as many weights, and SANSA.

    python benchmarks/neighbours.py [bundled beauty gowalla] [--sansa PYTHON]

Every fit has a process of its own; only pruned models share that of the exact one they are made of. All have the same
hyper-parameters: those of the paper's tables for Gowalla, elsewhere the best NDCG@20 of exact fits on users or
interactions held out of the training part. On the smaller data also several ways to select the items of a
neighbourhood, made with NumPy: what is measured there is accuracy, not time.

SANSA (glami/sansa) is fitted by another Python that has it, and knows EASE alone. It holds W as a product of two sparse
factors and is told their density: k / n, so that each factor has as many numbers as Neighbours(k) has in all, and half
of that, so that both together do. Its incomplete factorisation (ICF) scales the data, so that there is no l2 equal to
ours: the same number is tried, and 1, and the better one on the test part counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csc_array, csr_matrix, load_npz, save_npz

from _measure import Measurement, Task, measure, measure_all, serve, show

METRICS = ("ndcg@20", "recall@20")
SETS: dict[str, dict[str, dict[str, float]]] = {
    "bundled": {"EASE": {"l2": 10.0}, "EDLAE": {"l2": 10.0, "dropout": 0.3}},
    "beauty": {"EASE": {"l2": 100.0}, "EDLAE": {"l2": 100.0, "dropout": 0.6}},
    "gowalla": {"EASE": {"l2": 80.0}, "EDLAE": {"l2": 60.0, "dropout": 0.8}},
}
SIZES = (50, 100, 200, 400)
WAYS = ("counts", "cosine", "correlation", "pursuit in 2", "pursuit in 4", "exact support")
SMALL = 10_000
"""Items up to which ways to select are compared, and SANSA's exact factorisation is tried."""
HEADER = ("entry", "N@20", "R@20", "of exact N@20", "seconds", "CPU s", "peak MiB", "beyond data", "1e6 numbers")
TARGETS = {"kept_ndcg": 0.985, "against_pruned": 1.0, "against_sansa": 1.0, "speedup_over_sansa": 1.0}

SANSA_FIT = """
import json, logging, sys, time
import numpy as np, scipy.sparse as sp
from sansa import *
logging.disable(logging.WARNING)
data, out, method, l2, density = sys.argv[1:]
X = sp.csr_matrix(sp.load_npz(data)).astype(np.float32)
def model(l2, density):
    factorizer = CHOLMODGramianFactorizerConfig() if method == "cholmod" else ICFGramianFactorizerConfig()
    return SANSA(SANSAConfig(l2, density, factorizer, UMRUnitLowerTriangleInverterConfig()))
def memory(gauge):
    line = next(line for line in open("/proc/self/status") if line.startswith(gauge))
    return int(line.split()[1]) / 1024
model(1.0, 0.05).fit(sp.random(300, 120, 0.1, format="csr", random_state=0, dtype=np.float32))  # compiles
open("/proc/self/clear_refs", "w").write("5")
before, start, cpu = memory("VmRSS"), time.perf_counter(), time.process_time()
factors = model(float(l2), float(density)).fit(X).weights
seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
found = {"seconds": seconds, "cpu_seconds": cpu, "peak_mib": memory("VmHWM"), "before_mib": before}
for name, factor in zip("01", factors):
    sp.save_npz(out + name, factor, compressed=False)
print(json.dumps(found | {"facts": {"numbers": sum(factor.nnz for factor in factors)}}))
"""


def load(data: str) -> Any:
    """A split: the test users of the bundled data are new ones, those of the others known."""
    import deql
    from deql.split import read_lightgcn_split

    if data == "bundled":
        return deql.split_strong(deql.datasets.debian())
    return read_lightgcn_split(Path(os.environ["DEQL_DATA"], {"beauty": "amazon-beauty"}.get(data, data)))


def model_of(data: str, name: str, engine: Any) -> Any:
    import deql

    return getattr(deql, name)(**SETS[data][name], engine=engine)


def fit_neighbours(data: str, name: str, k: str) -> Task:
    """A fit on neighbourhoods and its metrics."""
    import deql

    split, engine = load(data), deql.engines.Neighbours(k=int(k))
    few = split.train.take_items(slice(0, 50))
    warm = model_of(data, name, deql.engines.Neighbours(k=10)).fit(few)  # loads the kernels
    assert warm.engine_ == "neighbours"

    def finish(model: Any) -> dict[str, Any]:
        return dict(deql.evaluate(model, split.test, METRICS).means) | {"numbers": len(model.precision_.data)}

    return Task(lambda: model_of(data, name, engine).fit(split.train), finish)


def fit_exact(data: str, name: str, *sizes: str) -> Task:
    """An exact fit, its metrics, and those of its weights pruned to the k largest of each column."""
    import deql

    split = load(data)
    model_of(data, name, deql.engines.Memory()).fit(split.train.take_items(slice(0, 50)))

    def finish(model: Any) -> dict[str, Any]:
        facts: dict[str, Any] = dict(deql.evaluate(model, split.test, METRICS).means)
        facts |= {"numbers": len(model.precision_.data), "users": split.train.n_users, "items": split.train.n_items}
        print(facts, file=sys.stderr, flush=True)
        kept = largest_weights(model, max(map(int, sizes)))
        for k in sizes:
            pruned = deql.CustomLinear(_first_of_columns(*kept, int(k))).fit(split.train)
            facts[k] = dict(deql.evaluate(pruned, split.test, METRICS).means)
            print(k, facts[k], file=sys.stderr, flush=True)
        return facts

    return Task(lambda: model_of(data, name, deql.engines.Memory()).fit(split.train), finish)


def largest_weights(model: Any, k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Rows and values of the k largest |W_ji|, j ≠ i, of each column i, largest first."""
    P, gain = model.precision_, model.gain_
    rows, values = np.empty((P.n, k), np.int32), np.empty((P.n, k), np.float32)
    for first, panel in _panels(P):
        for at in range(len(panel)):
            i, column = first + at, panel[at]
            column[i] = 0.0
            best = np.argpartition(-np.abs(column), k)[:k]
            rows[i] = best[np.argsort(-np.abs(column[best]), kind="stable")]
            values[i] = column[rows[i]] * gain[i]
    return rows, values


def _panels(P: Any) -> Iterator[tuple[int, NDArray[np.floating]]]:
    """Some whole columns of P at a time, as rows."""
    for index, (first, block) in enumerate(P.blocks()):
        panel = np.empty((block.shape[1], P.n), P.dtype)
        panel[:, first:] = block.T
        for earlier in range(index):
            begin = earlier * P.tile
            part = P.block(earlier)[first - begin : first - begin + len(panel)]
            panel[:, begin : begin + part.shape[1]] = part
        yield first, panel


def _first_of_columns(rows: NDArray[np.int32], values: NDArray[np.float32], k: int) -> csc_array:
    n = len(rows)
    indptr = np.arange(n + 1) * k
    W = csc_array((values[:, :k].ravel(), rows[:, :k].ravel(), indptr), shape=(n, n))
    W.sort_indices()
    return W


def select(data: str, name: str, way: str, *sizes: str) -> Task:
    """Neighbourhoods of each size, chosen in some way and solved with NumPy one after the other."""
    import deql
    from deql._system.threads import blas_limited

    split = load(data)
    settings = SETS[data][name]
    X, dropout = split.train.matrix.astype(np.float32), settings.get("dropout", 0.0)
    S = (X.T @ X).toarray()
    own = S.diagonal().copy()
    A = S + np.diag(dropout / (1 - dropout) * own + settings["l2"]).astype(np.float32)
    np.fill_diagonal(S, 0.0)
    support = None
    if way == "exact support":
        exact = model_of(data, name, deql.engines.Memory()).fit(split.train)
        support = largest_weights(exact, max(map(int, sizes)))[0]

    def work() -> dict[str, csc_array]:
        with blas_limited(1):
            return {k: _solved(S, A, own, way, int(k), support) for k in sizes}

    def finish(found: dict[str, csc_array]) -> dict[str, Any]:
        models = {k: deql.CustomLinear(W).fit(split.train) for k, W in found.items()}
        return {k: dict(deql.evaluate(model, split.test, METRICS).means) for k, model in models.items()}

    return Task(work, finish)


Matrix = NDArray[np.float32]


def _solved(S: Matrix, A: Matrix, own: Matrix, way: str, k: int, support: NDArray[np.int32] | None) -> csc_array:
    """W, of which each column is solved on the k members of its neighbourhood; S has no diagonal, A has all of it."""
    n = len(S)
    size = np.sqrt(own if way == "cosine" else A.diagonal()).clip(1e-6)
    rows, values = np.empty((n, k), np.int32), np.empty((n, k), np.float32)
    for i in range(n):
        if support is not None:
            members = support[i, :k].astype(np.int64)
        elif way == "counts":
            members = _largest(S[i], k)
        elif way.startswith("pursuit"):
            members = _pursued(S, A, size, i, k, int(way.removeprefix("pursuit in ")))
        else:
            members = _largest(S[i] / size, k)
        rows[i], values[i] = members, _solve(A, members, S[i])
    return _first_of_columns(rows, values, k)


def _pursued(S: Matrix, A: Matrix, size: Matrix, i: int, k: int, rounds: int) -> NDArray[np.int64]:
    """In each round the items whose correlation with what is left of i is largest, of whatever sign."""
    members, left = np.empty(0, np.int64), S[i]
    for done in range(1, rounds + 1):
        strength = np.abs(left) / size
        strength[members] = strength[i] = -1.0
        members = np.concatenate([members, _largest(strength, k * done // rounds - len(members))])
        if done < rounds:
            left = S[i] - _solve(A, members, S[i]) @ S[members]
    return members


def _largest(strength: Matrix, k: int) -> NDArray[np.int64]:
    return np.argpartition(-strength, k)[:k]


def _solve(A: Matrix, members: NDArray[np.int64], target: Matrix) -> Matrix:
    """Weights of the members: −P_ji/P_ii of the inverse on them and i."""
    factor = cho_factor(A[np.ix_(members, members)], overwrite_a=True, check_finite=False)
    return cho_solve(factor, target[members], check_finite=False)  # type: ignore[no-any-return]


def fit_sansa(python: str, data: str, method: str, l2: float, density: float) -> Measurement | str:
    """SANSA's fit in its own Python and its metrics here, or why there are none."""
    split = load(data)
    with TemporaryDirectory() as folder:
        matrix = Path(folder, "X.npz")
        save_npz(matrix, csr_matrix(split.train.matrix.astype(np.float32)), compressed=False)
        arguments = [str(matrix), str(Path(folder, "W")), method, str(l2), str(density)]
        done = subprocess.run([python, "-c", SANSA_FIT, *arguments], capture_output=True, text=True)
        if done.returncode:
            return (done.stderr.strip().splitlines() or [f"ended by signal {-done.returncode}"])[-1]
        found = Measurement(**json.loads(done.stdout.splitlines()[-1]))
        factors = [load_npz(Path(folder, f"W{which}.npz")) for which in "01"]
    found.facts.update(evaluate_product(factors[0].tocsr(), factors[1].tocsc(), split))
    return found


def evaluate_product(left: Any, right: Any, split: Any, k: int = 20, width: int = 2048) -> dict[str, float]:
    """Metrics of X·(left·right), some columns of W at a time: its product may be almost full."""
    import deql
    from deql.evaluation.evaluator import encode_target, users_to_evaluate
    from deql.metrics import METRICS as FORMULAS
    from deql.ranking.hits import find_hits

    known = deql.Popularity().fit(split.train)
    target, _ = users_to_evaluate([known], split.test)
    seen, truth = encode_target(known, target)
    seen.data[:] = 1.0
    users, n = seen.shape
    by_columns = csc_array(seen)
    best, scores = np.zeros((users, k), np.int32), np.full((users, k), -np.inf, np.float32)
    for first in range(0, n, width):
        panel = (left @ right[:, first : first + width]).toarray()
        for begin in range(0, users, 4096):
            part = slice(begin, begin + 4096)
            made = seen[part].astype(np.float32) @ panel
            made[by_columns[part, first : first + width].nonzero()] = -np.inf
            joined = np.concatenate([scores[part], made], axis=1)
            places = _top(joined, k)
            columns = np.concatenate([best[part], np.tile(np.arange(first, first + made.shape[1]), (len(made), 1))], 1)
            best[part] = np.take_along_axis(columns, places, 1)
            scores[part] = np.take_along_axis(joined, places, 1)
    hits = find_hits(best[None], truth)[0]
    held_out = np.diff(target.held_out.matrix.indptr)
    return {name: float(FORMULAS[name.split("@")[0]].function(hits, held_out, k).mean()) for name in METRICS}


def _top(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    places = np.argpartition(-scores, k, axis=1)[:, :k]
    order = np.argsort(-np.take_along_axis(scores, places, 1), axis=1, kind="stable")
    return np.take_along_axis(places, order, 1)


TASKS: dict[str, Callable[..., Task]] = {"exact": fit_exact, "neighbours": fit_neighbours, "select": select}


def measure_set(data: str, options: argparse.Namespace) -> dict[str, Any]:
    """All contenders on a data set: its tables, and the ratios."""
    ratios: dict[str, Any] = {}
    for name in options.models:
        exact = measure(__file__, "exact", data, name, *options.sizes)
        truth = exact.facts["ndcg@20"]
        runs = {k: ("neighbours", data, name, k) for k in options.sizes}
        found = measure_all(__file__, runs, options.repeats)
        rows: list[tuple[object, ...]] = [_row("exact", exact, exact.facts, truth)]
        rows += [_row(f"Neighbours({k})", one, one.facts, truth) for k, one in found.items()]
        rows += [_row(f"exact, pruned to {k}", None, exact.facts[str(k)], truth) for k in options.sizes]
        kept = {k: one.facts["ndcg@20"] / truth for k, one in found.items()}
        pruned = {k: exact.facts[str(k)]["ndcg@20"] / truth for k in options.sizes}
        ratios[name] = {"kept": kept, "pruned_kept": pruned, "speedup": _speedups(exact, found)}
        if name == "EASE" and options.sansa:
            more, ratios["SANSA"] = _sansa_rows(data, exact.facts["items"], found, truth, options)
            rows += more
        settings = ", ".join(f"{key} {value:g}" for key, value in SETS[data][name].items())
        title = f"{data}: {name}, {settings}; {exact.facts['items']:,} items, {exact.facts['users']:,} users"
        header = (
            "entry",
            "N@20",
            "R@20",
            "of exact N@20",
            "seconds",
            "CPU s",
            "peak MiB",
            "beyond data",
            "1e6 numbers",
        )
        show(title, header, rows)
        if exact.facts["items"] <= SMALL and options.ways:
            ratios[name]["ways"] = _ways(data, name, truth, options)
    return ratios


def _speedups(exact: Measurement, found: dict[int, Measurement]) -> dict[int, float]:
    return {k: exact.seconds / one.seconds for k, one in found.items()}


def _row(label: str, one: Measurement | None, facts: dict[str, Any], truth: float) -> tuple[object, ...]:
    ndcg, recall = facts["ndcg@20"], facts["recall@20"]
    accuracy = (label, f"{ndcg:.4f}", f"{recall:.4f}", f"{ndcg / truth:.2%}")
    if one is None:
        return (*accuracy, "", "", "", "", "")
    return (*accuracy, one.seconds, one.cpu_seconds, one.peak_mib, one.beyond_mib, f"{facts['numbers'] / 1e6:.2f}")


def _sansa_rows(
    data: str, items: int, ours: dict[int, Measurement], truth: float, options: argparse.Namespace
) -> tuple[list[tuple[object, ...]], dict[str, Any]]:
    """SANSA at each density, by each of its factorisations that the data are small enough for."""
    rows: list[tuple[object, ...]] = []
    ratios: dict[str, Any] = {}
    same = SETS[data]["EASE"]["l2"]
    for k in options.sansa_sizes or options.sizes:
        for share, what in ((1.0, "each"), (0.5, "both")):
            for method in ("cholmod", "icf") if items <= SMALL else ("icf",):
                tried = [
                    fit_sansa(options.sansa, data, method, l2, share * k / items)
                    for l2 in ((same,) if method == "cholmod" else (same, 1.0))
                ]
                made = [one for one in tried if isinstance(one, Measurement)]
                label = f"SANSA {method}, {k} in {what}"
                if not made:
                    rows.append((label, tried[0], *[""] * 7))
                    continue
                one = max(made, key=lambda one: one.facts["ndcg@20"])
                rows.append(_row(label, one, one.facts, truth))
                ratios[f"{method} {k} {what}"] = {
                    "kept": one.facts["ndcg@20"] / truth,
                    "ours_against": ours[k].facts["ndcg@20"] / one.facts["ndcg@20"],
                    "speedup": one.seconds / ours[k].seconds,
                    "speedup_in_processor_time": one.cpu_seconds / ours[k].cpu_seconds,
                }
                print(*rows[-1], file=sys.stderr, flush=True)
    return rows, ratios


def _ways(data: str, name: str, truth: float, options: argparse.Namespace) -> dict[str, dict[int, float]]:
    kept: dict[str, dict[int, float]] = {}
    for way in options.ways:
        found = measure(__file__, "select", data, name, way, *options.sizes).facts
        kept[way] = {k: found[str(k)]["ndcg@20"] / truth for k in options.sizes}
        print(data, name, way, kept[way], file=sys.stderr, flush=True)
    show(
        f"{data}, {name}: N@20 of exact, by how the members are selected",
        ("way", *(f"k = {k}" for k in options.sizes)),
        ((way, *(f"{kept[way][k]:.2%}" for k in options.sizes)) for way in kept),
    )
    return kept


def main() -> int:
    """Measure, print the tables and the ratios; 1 if less than 98.5 % of an exact NDCG@20 is kept at the largest k."""
    parser = argparse.ArgumentParser(description="Neighbourhoods in accuracy.")
    parser.add_argument("data", nargs="*", default=["bundled", "beauty"], help="bundled, beauty, gowalla")
    parser.add_argument("--sansa", help="a Python that has SANSA")
    parser.add_argument("--sansa-sizes", nargs="+", type=int, help="k of SANSA, if not the same")
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="k")
    parser.add_argument("--models", nargs="+", default=["EASE", "EDLAE"])
    parser.add_argument("--ways", nargs="*", default=WAYS, help="to select members, on the smaller data")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each fit on neighbourhoods; the best counts")
    options = parser.parse_args()
    result = {data: measure_set(data, options) for data in options.data}
    print(json.dumps({"targets": TARGETS, **result}))
    k = max(options.sizes)
    kept = [result[data][name]["kept"][k] for data in options.data for name in options.models]
    return 0 if min(kept) >= TARGETS["kept_ndcg"] else 1


if __name__ == "__main__":
    serve(TASKS)
    sys.exit(main())
