"""Lists of two million made-up users written to a file: as they are made, and all at once.

The model has 2,000 items and the users 10 of them each on average, with text as ids. One entry calls
``write_recommendations``; the other asks ``recommend`` for everything, makes a frame of it and has polars write that,
as ``deql recommend`` did before. Both begin with the histories in memory. The two files must hold the same rows.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.sparse import csr_array, load_npz, save_npz

from _measure import Task, measure, measure_all, serve, show

K = 20
ITEMS = 2_000
LEARNED_FROM = 20_000
TARGETS = {"memory": 5.0}


def make_histories(users: int, seed: int = 0) -> csr_array:
    """Users × items: popular items more often, one to nineteen draws for each user."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, 20, users)
    chance = 1.0 / np.arange(1, ITEMS + 1) ** 0.8
    columns = generator.choice(ITEMS, lengths.sum(), p=chance / chance.sum()).astype(np.int32)
    rows = np.repeat(np.arange(users, dtype=np.int32), lengths)
    matrix = csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=(users, ITEMS))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def save_data(folder: str, users: str) -> Task:
    """Fit once; write histories and the model for the entries to load."""
    import deql

    def work() -> csr_array:
        matrix = make_histories(int(users))
        items = [f"item-{i}" for i in range(ITEMS)]
        known = deql.Interactions.from_csr(matrix[:LEARNED_FROM], items=items)
        deql.DEQL(l2=50.0, dropout=0.3, b=0.5).fit(known).save(Path(folder, "model.deql"))
        save_npz(Path(folder, "histories.npz"), matrix, compressed=False)
        return matrix

    return Task(work, lambda matrix: {"users": matrix.shape[0], "items": matrix.shape[1], "k": K})


def write_lists(folder: str, ending: str, streamed: str) -> Task:
    import deql

    model = deql.load(Path(folder, "model.deql"))
    matrix = load_npz(Path(folder, "histories.npz"))
    users = np.array([f"user-{i}" for i in range(matrix.shape[0])], object)
    data = deql.Interactions(csr_array(matrix), users, model.items_)
    model.recommend(data[:2], k=K)  # loads the kernels
    path = Path(folder, f"lists-{streamed}.{ending}")

    def whole() -> int:
        frame = model.recommend(data, k=K).to_frame("polars")
        getattr(frame, f"write_{ending}")(path)
        return len(frame)

    def stream() -> int:
        return model.write_recommendations(path, data, k=K).rows

    def finish(rows: int) -> dict[str, Any]:
        return {"rows": rows, "file_mib": path.stat().st_size / 2**20}

    return Task(stream if streamed == "streamed" else whole, finish)


def same_rows(folder: str, ending: str) -> bool:
    """Whether both files hold the same rows in the same order, read a million at a time."""
    import polars as pl

    scans = [getattr(pl, f"scan_{ending}")(Path(folder, f"lists-{how}.{ending}")) for how in ("streamed", "whole")]
    lengths = [scan.select(pl.len()).collect().item() for scan in scans]
    if lengths[0] != lengths[1]:
        return False
    step = 2**20
    return all(
        scans[0].slice(first, step).collect().equals(scans[1].slice(first, step).collect())
        for first in range(0, lengths[0], step)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--users", type=int, default=2_000_000)
    parser.add_argument("--endings", nargs="+", default=["parquet"], choices=["parquet", "csv", "ndjson"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--streamed-only", action="store_true", help="where all at once does not fit into memory")
    given = parser.parse_args()
    ways = ["streamed"] if given.streamed_only else ["streamed", "whole"]
    with TemporaryDirectory() as folder:
        run = partial(measure, __file__)
        facts = run("save_data", folder, given.users).facts
        tasks = {(ending, way): ("write_lists", folder, ending, way) for ending in given.endings for way in ways}
        found = measure_all(__file__, tasks, given.repeats)
        agree = given.streamed_only or all(same_rows(folder, ending) for ending in given.endings)
    show(
        f"Top {K} of {facts['items']:,} items for {facts['users']:,} users",
        ["file", "how", "seconds", "users/s", "file MiB", "peak MiB", "MiB beyond model and histories"],
        [
            (ending, way, one.seconds, given.users / one.seconds, one.facts["file_mib"], one.peak_mib, one.beyond_mib)
            for (ending, way), one in found.items()
        ],
    )
    ratios = {}
    if not given.streamed_only:
        ratios = {
            f"memory, {ending}": found[ending, "whole"].beyond_mib / found[ending, "streamed"].beyond_mib
            for ending in given.endings
        }
    print(json.dumps({"ratios": ratios, "targets": TARGETS, "same_rows": agree}))
    return int(not agree)


if __name__ == "__main__":
    serve({"save_data": save_data, "write_lists": write_lists})
    sys.exit(main())
