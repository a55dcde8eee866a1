"""Low rank: the sparse engine against the dense one on the bundled data, and a million items.

Entries, each in a process of its own:

- ``dense`` and ``sparse``: ``LowRankDEQL(rank, l2, dropout, solver=…).fit`` on the bundled data.
- ``million``: the sparse engine on a million items and ten million interactions, made up: users have a taste
  among 2,000 and take seven of ten items from it, popularity is Zipf-like within tastes and overall.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy.sparse import csr_array, load_npz, save_npz

from _measure import Measurement, Task, measure, measure_all, serve, show

L2, DROPOUT = 60.0, 0.3
TARGETS = {"loss_above_dense": 1e-3, "million_gib": 8.0}


def made_up(
    items: int = 1_000_000, users: int = 1_000_000, interactions: int = 10_000_000, tastes: int = 2000
) -> csr_array:
    """Random interactions with structure, at least one for each item."""
    rng = np.random.default_rng(0)
    order = rng.permutation(items)  # the place in this order is popularity; every tastes-th item is of one taste
    of_user = rng.integers(tastes, size=users)
    activity = np.cumsum(rng.lognormal(0.0, 1.0, users))
    drawn = int(interactions * 1.1)  # some pairs are drawn twice
    who = np.searchsorted(activity, rng.random(drawn) * activity[-1]).astype(np.int32)
    by_taste = rng.random(drawn) < 0.7
    # Zipf by inversion: places are spread evenly on a logarithmic scale.
    within = (items // tastes + 1.0) ** rng.random(drawn) - 1.0
    overall = (items + 1.0) ** rng.random(drawn) - 1.0
    place = np.where(by_taste, within.astype(np.int64) * tastes + of_user[who], overall.astype(np.int64))
    place[:items] = np.arange(items)
    matrix = csr_array(
        (np.ones(drawn, np.float32), (who, order[np.minimum(place, items - 1)].astype(np.int32))), shape=(users, items)
    )
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def fit(solver: str, rank: str, path: str) -> Task:
    """A fit, compiled kernels loaded beforehand; its loss and file size afterwards."""
    import deql

    data = load_npz(path)
    small = csr_array(np.random.default_rng(0).random((40, 30)).astype(np.float32))
    deql.LowRankDEQL(2, solver=solver).fit(small)

    model = deql.LowRankDEQL(int(rank), L2, DROPOUT, solver=solver)
    return Task(lambda: model.fit(data), lambda fitted: {"loss": fitted.loss_, "iterations": fitted.iterations_})


def main() -> int:
    serve({"fit": fit})
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--rank", type=int, default=256)
    parser.add_argument("--parts", nargs="+", choices=["dense", "million"], default=["dense", "million"])
    options = parser.parse_args()
    ratios: dict[str, float | None] = {}
    rows = []
    with TemporaryDirectory() as folder:
        if "dense" in options.parts:
            import deql

            path = str(Path(folder) / "bundled.npz")
            bundled = deql.split_strong(deql.datasets.debian()).train.matrix
            save_npz(path, bundled)
            runs = {engine: ["fit", engine, options.rank, path] for engine in ("dense", "sparse")}
            found = measure_all(__file__, runs, options.repeats)
            for engine, sample in found.items():
                rows.append([f"bundled, {engine}", *_cells(sample, bundled)])
            dense, sparse = found["dense"], found["sparse"]
            ratios |= {
                "loss_above_dense": sparse.facts["loss"] / dense.facts["loss"] - 1,
                "dense_over_sparse_seconds": dense.seconds / sparse.seconds,
                "dense_over_sparse_memory": dense.beyond_mib / sparse.beyond_mib,
            }
        if "million" in options.parts:
            path = str(Path(folder) / "million.npz")
            matrix = made_up()
            save_npz(path, matrix, compressed=False)
            sample = measure(__file__, "fit", "sparse", options.rank, path)
            rows.append(["a million items, sparse", *_cells(sample, matrix)])
            ratios |= {"million_gib": sample.peak_mib / 1024, "million_seconds": sample.seconds}
    show(
        f"LowRankDEQL, rank {options.rank}",
        ["", "users", "items", "interactions", "seconds", "cores", "peak MiB", "beyond data", "loss", "iterations"],
        rows,
    )
    met = {name: ratios[name] <= most for name, most in TARGETS.items() if name in ratios}
    print(json.dumps({"ratios": ratios, "targets": TARGETS, "met": met}))
    return 0 if all(met.values()) else 1


def _cells(sample: Measurement, matrix: csr_array) -> list[object]:
    facts = sample.facts
    return [
        f"{matrix.shape[0]:,}", f"{matrix.shape[1]:,}", f"{matrix.nnz:,}", sample.seconds,
        sample.cpu_seconds / sample.seconds, sample.peak_mib, sample.beyond_mib, facts["loss"], facts["iterations"],
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
