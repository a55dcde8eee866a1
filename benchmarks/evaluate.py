"""Recall@20 and NDCG@20 of every Gowalla test user: deql.evaluate against X @ W, mask and argpartition in NumPy.

NumPy gets W ready and dense in float32, X sparse, and batches of users that keep argpartition in cache. Data:
$DEQL_DATA/gowalla, LightGCN's split (a line is a user, then its items). The model is EASE(l2=80), fitted
once and kept in ``--model``; with ``--synthetic`` its P is random, which tries the script without the fit.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, load_npz, save_npz

from _measure import Task, measure, measure_all, serve, show

K = 20
BATCH = 256
TARGETS = {"speedup": 5.0, "deql_mib_beyond_model": 2048.0}
LARGEST_DIFFERENCE = 1e-4
PARTS = ("train", "test")


def read_lists(path: Path) -> list[list[int]]:
    """The items of each user of a LightGCN file, in the order of users."""
    lists: dict[int, list[int]] = {}
    for line in path.read_text().splitlines():
        user, *items = map(int, line.split())
        lists[user] = sorted(set(items))
    return [lists.get(user, []) for user in range(max(lists) + 1)]


def save_data(folder: str, model_file: str, synthetic: str) -> Task:
    """Write both parts as matrices, and the model unless it is there already."""
    import deql

    def work() -> dict[str, Any]:
        source = Path(os.environ["DEQL_DATA"], "gowalla")
        lists = {part: read_lists(source / f"{part}.txt") for part in PARTS}
        n = 1 + max(item for rows in lists.values() for row in rows for item in row)
        for part, rows in lists.items():
            indices = np.concatenate([np.array(row, np.int32) for row in rows])
            indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
            matrix = csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(len(rows), n))
            save_npz(Path(folder, f"{part}.npz"), matrix, compressed=False)
        if not Path(model_file).exists():
            train = load_npz(Path(folder, "train.npz"))
            (random_model(train) if int(synthetic) else deql.EASE(l2=80.0).fit(train)).save(model_file)
        return {"users": len(lists["test"]), "items": n}

    return Task(work, lambda facts: facts)


def random_model(train: csr_array) -> Any:
    """A model of the right size whose P is noise: for trying this script."""
    import deql
    from deql.linalg.packed import PackedSymmetric
    from deql.linalg.tiling import choose_tile

    n = train.shape[1]
    model = deql.EASE(l2=80.0).fit(train[:, :2])
    packed = PackedSymmetric(n, choose_tile(n))
    generator = np.random.default_rng(0)
    for _, block in packed.blocks():
        block[:] = generator.standard_normal(block.shape, np.float32)
        top = block[: block.shape[1]]
        top[:] = np.tril(top) + np.tril(top, -1).T
    model.precision_, model.items_, model.gram_diagonal_ = packed, np.arange(n), np.ones(n)
    model.gain_, model.shift_ = -generator.uniform(0.5, 2.0, n), np.zeros(n)
    model.item_counts_ = np.bincount(train.indices, minlength=n)
    return model


def evaluate_deql(folder: str, model_file: str) -> Task:
    import deql
    from deql.split import HeldOut

    model = deql.load(model_file)  # its checksum is verified, so all of it is in memory
    seen, held_out = (deql.Interactions.from_csr(load_npz(Path(folder, f"{part}.npz"))) for part in PARTS)
    target = HeldOut(seen, held_out)
    few = np.arange(2)
    deql.evaluate(model, HeldOut(seen.take_users(few), held_out.take_users(few)))  # loads the kernels
    return Task(lambda: deql.evaluate(model, target, [f"recall@{K}", f"ndcg@{K}"]).means, lambda means: means)


def evaluate_numpy(folder: str, model_file: str) -> Task:
    import deql

    W = deql.load(model_file).weights()
    X, T = (load_npz(Path(folder, f"{part}.npz")) for part in PARTS)
    return Task(lambda: numpy_means(X, T, W), lambda means: means)


def numpy_means(X: csr_array, T: csr_array, W: NDArray[np.float32]) -> dict[str, float]:
    """Mean recall and NDCG of the users who have something held out."""
    discount = 1 / np.log2(np.arange(2, K + 2))
    ideal = np.cumsum(discount)
    recalls, gains = [], []
    for first in range(0, X.shape[0], BATCH):
        rows, truth = X[first : first + BATCH], T[first : first + BATCH]
        scores = rows @ W
        scores[rows.nonzero()] = -np.inf
        np.negative(scores, out=scores)
        best = np.argpartition(scores, K - 1, axis=1)[:, :K]
        order = np.take_along_axis(scores, best, axis=1).argsort(axis=1)
        best = np.take_along_axis(best, order, axis=1)
        held_out = np.diff(truth.indptr)
        evaluated = held_out > 0
        wanted = np.zeros(scores.shape, bool)
        wanted[truth.nonzero()] = True
        hits = np.take_along_axis(wanted, best, axis=1)[evaluated]
        recalls.append(hits.sum(axis=1) / held_out[evaluated])
        gains.append(hits @ discount / ideal[np.minimum(held_out[evaluated], K) - 1])
    return {f"recall@{K}": float(np.concatenate(recalls).mean()), f"ndcg@{K}": float(np.concatenate(gains).mean())}


TASKS: dict[str, Callable[..., Task]] = {"data": save_data, "deql": evaluate_deql, "numpy": evaluate_numpy}


def main() -> int:
    """Measure, print the table and the ratios; 1 if the metrics disagree."""
    parser = argparse.ArgumentParser(description="Time and measure deql's evaluate on Gowalla ($DEQL_DATA/gowalla).")
    parser.add_argument("--repeats", type=int, default=2, help="repeats of each entry; the best counts")
    parser.add_argument("--model", type=Path, help="model file to use; fitted and written there if absent")
    parser.add_argument("--synthetic", action="store_true", help="a random P in place of the fit")
    options = parser.parse_args()
    if "DEQL_DATA" not in os.environ:
        parser.error("set DEQL_DATA to the folder that holds gowalla/train.txt and gowalla/test.txt")
    with TemporaryDirectory() as folder:
        model = options.model or Path(folder, "model.deql")
        size = measure(__file__, "data", folder, model, int(options.synthetic)).facts
        # A first run, not counted: where kernels are not compiled yet, that takes memory too.
        measure(__file__, "deql", folder, model)
        label = f"numpy, {BATCH} users at a time"
        found = measure_all(
            __file__, {"deql": ("deql", folder, model), label: ("numpy", folder, model)}, options.repeats
        )
    show(
        f"Recall@{K} and NDCG@{K} of {size['users']:,} users among {size['items']:,} items",
        ("entry", "seconds", "cores", "peak MiB", "MiB beyond imports, data and model", *found["deql"].facts),
        (
            (name, one.seconds, one.cores, one.peak_mib, one.beyond_mib, *(f"{v:.5f}" for v in one.facts.values()))
            for name, one in found.items()
        ),
    )
    ours, theirs = found["deql"], found[label]
    difference = max(abs(ours.facts[metric] - theirs.facts[metric]) for metric in ours.facts)
    result = {
        "targets": TARGETS,
        **size,
        "synthetic": options.synthetic,
        "speedup": theirs.seconds / ours.seconds,
        "deql_mib_beyond_model": ours.beyond_mib,
        "largest_difference": difference,
        "means": ours.facts,
    }
    print(json.dumps(result))
    return 0 if difference <= LARGEST_DIFFERENCE else 1


if __name__ == "__main__":
    serve(TASKS)
    sys.exit(main())
