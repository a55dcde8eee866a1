"""Top-20 lists for every user of the bundled data: deql against X @ W and argpartition in NumPy.

NumPy gets its best chance: W ready and dense in float32, X sparse, scores negated in place, and both
ways of going about it, all users at once and 1,000 at a time. The last rows repeat the users 4 and
16 times: what deql needs beyond its inputs and outputs does not grow with them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, load_npz, save_npz, vstack

from _measure import Measurement, Task, measure, measure_all, serve, show

K = 20
BATCH = 1_000
COPIES = (1, 4, 16)
TARGETS = {"speedup": 5.0}
SMALLEST_AGREEMENT = 0.99


def numpy_top(X: csr_array, W: NDArray[np.float32], batch: int) -> NDArray[np.int64]:
    """The K best unseen columns of X @ W for each row, best first."""
    lists = np.empty((X.shape[0], K), np.int64)
    for first in range(0, X.shape[0], batch):
        rows = X[first : first + batch]
        scores = rows @ W
        scores[rows.nonzero()] = -np.inf
        np.negative(scores, out=scores)
        best = np.argpartition(scores, K - 1, axis=1)[:, :K]
        order = np.take_along_axis(scores, best, axis=1).argsort(axis=1)
        lists[first : first + batch] = np.take_along_axis(best, order, axis=1)
    return lists


def save_data(folder: str) -> Task:
    """Fit once; write histories, the model and its dense W for the entries to load."""
    import deql

    def work() -> csr_array:
        matrix = deql.datasets.debian().matrix
        model = deql.DEQL(l2=50.0, dropout=0.3, b=0.5).fit(matrix)
        save_npz(Path(folder, "histories.npz"), matrix, compressed=False)
        np.save(Path(folder, "weights.npy"), model.weights())
        model.save(Path(folder, "model.deql"))
        return matrix

    return Task(work, lambda matrix: {"users": matrix.shape[0], "items": matrix.shape[1], "k": K})


def recommend_deql(folder: str, copies: str) -> Task:
    import deql

    histories = load_npz(Path(folder, "histories.npz"))
    matrix = vstack([histories] * int(copies), format="csr")
    model = deql.load(Path(folder, "model.deql"))  # its checksum is verified, so all of it is in memory
    model.recommend(matrix[:2], k=K)  # loads the kernels

    def finish(found: Any) -> dict[str, Any]:
        np.save(_lists(folder, "deql"), found.ids[: histories.shape[0]])
        outputs = (found.ids, found.scores, found.from_popularity)
        return {"users": matrix.shape[0], "output_mib": sum(part.nbytes for part in outputs) / 2**20}

    return Task(lambda: model.recommend(matrix, k=K), finish)


def recommend_numpy(folder: str, batch: str) -> Task:
    X = load_npz(Path(folder, "histories.npz"))
    W = np.load(Path(folder, "weights.npy"))
    work = partial(numpy_top, X, W, int(batch) or X.shape[0])

    def finish(lists: NDArray[np.int64]) -> dict[str, Any]:
        np.save(_lists(folder, "numpy"), lists)
        return {"users": X.shape[0], "output_mib": lists.nbytes / 2**20}

    return Task(work, finish)


def _lists(folder: str, entry: str) -> Path:
    return Path(folder, f"{entry}-lists.npy")


def _agreement(folder: str) -> float:
    """Share of users for whom both found the same items."""
    ours, theirs = (np.sort(np.load(_lists(folder, entry)), axis=1) for entry in ("deql", "numpy"))
    return float((ours == theirs).all(axis=1).mean())


def _extra_mib(sample: Measurement) -> float:
    return sample.beyond_mib - float(sample.facts["output_mib"])


TASKS: dict[str, Callable[..., Task]] = {"data": save_data, "deql": recommend_deql, "numpy": recommend_numpy}


def main() -> int:
    """Measure, print the table and the ratios; 1 if the lists disagree."""
    parser = argparse.ArgumentParser(description="Time and measure deql's recommend.")
    parser.add_argument("--repeats", type=int, default=3, help="repeats of each entry; the best counts")
    options = parser.parse_args()
    ours = {copies: f"deql, {copies} × users" if copies > 1 else "deql" for copies in COPIES}
    at_once, batched = "numpy, all at once", f"numpy, {BATCH:,} users at a time"
    with TemporaryDirectory() as folder:
        size = measure(__file__, "data", folder).facts
        # A first run, not counted: where kernels are not compiled yet, that takes memory too.
        measure(__file__, "deql", folder, 1)
        runs = {at_once: ("numpy", folder, 0), batched: ("numpy", folder, BATCH)}
        found = measure_all(
            __file__, runs | {label: ("deql", folder, copies) for copies, label in ours.items()}, options.repeats
        )
        agreement = _agreement(folder)
    show(
        f"Top {K} of {size['items']:,} items for {size['users']:,} users",
        ("entry", "seconds", "cores", "peak MiB", "MiB beyond imports and inputs", "of which not outputs"),
        (
            (label, one.seconds, one.cores, one.peak_mib, one.beyond_mib, _extra_mib(one))
            for label, one in found.items()
        ),
    )
    print(f"The lists agree for {agreement:.2%} of the users")
    numpy_best = min(found[at_once].seconds, found[batched].seconds)
    result = {
        "targets": TARGETS,
        **size,
        "speedup_vs_faster_numpy": numpy_best / found[ours[1]].seconds,
        "same_lists": agreement,
        "extra_mib": {label: _extra_mib(one) for label, one in found.items()},
        "peak_mib": {label: one.peak_mib for label, one in found.items()},
    }
    print(json.dumps(result))
    return 0 if agreement > SMALLEST_AGREEMENT else 1


if __name__ == "__main__":
    serve(TASKS)
    sys.exit(main())
