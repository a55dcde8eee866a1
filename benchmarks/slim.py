"""All columns of SLIM on the bundled data: deql against scikit-learn, and ten values of l1 with warm starts or cold.

scikit-learn runs in both of its ways, on a sparse X and on a precomputed Gram matrix (which needs a dense X), and the
faster one counts. It has all cores (its descent lets other threads run), and inputs are checked and copied as little
as it allows.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, hstack, load_npz, save_npz

from _measure import Task, measure, measure_all, serve, show

L1, L2 = 0.1, 10.0
PATH = np.geomspace(3.0, 0.03, 10).tolist()
TOLERANCE = 1e-7
TARGETS = {"speedup": 20.0, "largest_difference": 1e-5}


def fit_deql(folder: str) -> Task:
    import deql
    from deql.models.slim.slim import SLIM

    data = deql.datasets.debian()
    SLIM(L1, L2).fit(data.matrix[:100])  # loads the kernels

    def finish(model: SLIM) -> dict[str, Any]:
        save_npz(Path(folder, "deql.npz"), model.weights_)
        return {"users": data.n_users, "items": data.n_items, "entries": model.weights_.nnz}

    return Task(lambda: SLIM(L1, L2).fit(data), finish)


def fit_path(folder: str, warm: str) -> Task:
    import deql
    from deql.models.slim.slim import SLIM

    data = deql.datasets.debian()
    model = SLIM(L1, L2, warm_start=warm == "warm")
    model.fit(data.matrix[:100])  # loads the kernels
    del model.weights_

    def work() -> list[csc_array]:
        return [model.set_params(l1=l1).fit(data).weights_ for l1 in PATH]

    def finish(path: list[csc_array]) -> dict[str, Any]:
        save_npz(Path(folder, f"{warm}.npz"), hstack(path, format="csc"))
        return {}

    return Task(work, finish)


def fit_sparse(folder: str) -> Task:
    """One elastic net for each column on a sparse X, of which every thread has its own."""
    from sklearn.linear_model import ElasticNet

    import deql

    X = csc_array(deql.datasets.debian().matrix, dtype=np.float64)
    users, items = X.shape

    def fit(columns: range) -> list[NDArray[np.float64]]:
        others = X.copy()
        net = ElasticNet(**_penalty(users), fit_intercept=False, copy_X=False)
        found = []
        for j in columns:
            own = slice(X.indptr[j], X.indptr[j + 1])
            y = np.zeros(users)
            y[X.indices[own]] = X.data[own]
            others.data[own] = 0.0
            found.append(net.fit(others, y).coef_)
            others.data[own] = X.data[own]
        return found

    return _in_threads(fit, items, Path(folder, "sparse.npz"))


def fit_gram(folder: str) -> Task:
    """The same on a precomputed Gram matrix, in which row and column j are made zero while j is fitted."""
    from sklearn.linear_model import enet_path

    import deql

    X = np.asfortranarray(deql.datasets.debian().matrix.toarray(), np.float64)
    users, items = X.shape
    gram = X.T @ X
    penalty = _penalty(users)
    alphas = [penalty.pop("alpha")]

    def fit(columns: range) -> list[NDArray[np.float64]]:
        S = gram.copy()
        found = []
        for j in columns:
            S[j] = S[:, j] = 0.0
            target = gram[j].copy()
            target[j] = 0.0
            _, weights, _ = enet_path(
                X, X[:, j], alphas=alphas, **penalty, precompute=S, Xy=target, copy_X=False, check_input=False
            )
            S[j] = S[:, j] = gram[j]
            found.append(weights[:, 0])
        return found

    return _in_threads(fit, items, Path(folder, "gram.npz"))


def _penalty(users: int) -> dict[str, Any]:
    return {
        "alpha": (L1 + L2) / users, "l1_ratio": L1 / (L1 + L2),
        "positive": True, "tol": TOLERANCE, "max_iter": 10_000,
    }  # fmt: skip


def _in_threads(fit: Callable[[range], list[NDArray[np.float64]]], items: int, path: Path) -> Task:
    """Every thread fits its share of the columns, popular and rare ones alike."""
    from deql._system.threads import thread_count

    threads = thread_count()

    def work() -> csc_array:
        with ThreadPoolExecutor(threads) as pool:
            parts = list(pool.map(lambda first: fit(range(first, items, threads)), range(threads)))
        return csc_array(np.column_stack([parts[j % threads][j // threads] for j in range(items)]))

    def finish(W: csc_array) -> dict[str, Any]:
        save_npz(path, W)
        return {"entries": W.nnz}

    return Task(work, finish)


def _difference(folder: str, one: str, other: str) -> float:
    """The largest difference of two saved results."""
    first, second = (load_npz(Path(folder, f"{name}.npz")) for name in (one, other))
    return float(abs(first - second).max())


TASKS: dict[str, Callable[..., Task]] = {"deql": fit_deql, "path": fit_path, "sparse": fit_sparse, "gram": fit_gram}


def main() -> int:
    """Measure, print the table and the ratios; 1 if a weight differs by more than 1e-5."""
    parser = argparse.ArgumentParser(description="Time and measure SLIM.")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each of deql's; the best counts")
    parser.add_argument("--rival-repeats", type=int, default=1, help="runs of scikit-learn, which takes minutes")
    options = parser.parse_args()
    ours, cold, warm = "deql", f"deql, {len(PATH)} values of l1", f"deql, {len(PATH)} values of l1, warm starts"
    sparse, gram = "scikit-learn, sparse X", "scikit-learn, Gram matrix"
    with TemporaryDirectory() as folder:
        measure(__file__, "deql", folder)  # not counted: kernels may have to be compiled
        runs = {ours: ("deql", folder), cold: ("path", folder, "cold"), warm: ("path", folder, "warm")}
        found = measure_all(__file__, runs, options.repeats)
        rivals = {sparse: ("sparse", folder), gram: ("gram", folder)}
        found |= measure_all(__file__, rivals, options.rival_repeats)
        differences = {label: _difference(folder, "deql", label) for label in ("sparse", "gram")}
        path_difference = _difference(folder, "cold", "warm")
    size = found[ours].facts
    show(
        f"SLIM, l1 = {L1:g}, l2 = {L2:g}: {size['items']:,} columns, {size['users']:,} users",
        ("entry", "seconds", "cores", "peak MiB", "MiB beyond imports and inputs"),
        ((label, one.seconds, one.cores, one.peak_mib, one.beyond_mib) for label, one in found.items()),
    )
    fastest = min((found[sparse], found[gram]), key=lambda one: one.seconds)
    result = {
        "targets": TARGETS,
        **size,
        "speedup": fastest.seconds / found[ours].seconds,
        "speedup_in_processor_time": min(found[sparse].cpu_seconds, found[gram].cpu_seconds) / found[ours].cpu_seconds,
        "warm_starts_speedup": found[cold].seconds / found[warm].seconds,
        "warm_starts_speedup_in_processor_time": found[cold].cpu_seconds / found[warm].cpu_seconds,
        "largest_difference": differences,
        "largest_difference_warm": path_difference,
        "peak_mib": {label: one.peak_mib for label, one in found.items()},
    }
    print(json.dumps(result))
    return 0 if max(*differences.values(), path_difference) <= TARGETS["largest_difference"] else 1


if __name__ == "__main__":
    serve(TASKS)
    sys.exit(main())
