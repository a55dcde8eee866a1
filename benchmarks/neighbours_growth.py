"""A catalogue of very many items fitted on neighbourhoods, from Parquet: time, memory, growth, and top-20 lists.

    python benchmarks/neighbours_growth.py 100000 300000 1000000

Each size has ten users and a hundred interactions for an item, seeded, and a process of its own. The files are made
before the clock starts; reading them is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

from _large import write_events

K, USERS = 400, 10_000


def measure(folder: Path, scratch: Path) -> dict[str, float]:
    """Read, fit and recommend, with a line on standard error whenever half a minute has passed."""
    import deql
    from deql._system import progress

    begun = time.perf_counter()

    def say(*what: object) -> None:
        peak = (getrusage(RUSAGE_SELF).ru_maxrss * 1024) / 2**30
        print(f"{time.perf_counter() - begun:8.0f} s  peak {peak:5.2f} GiB ", *what, file=sys.stderr, flush=True)

    def stages(_show: bool) -> object:
        class Stages:
            def __enter__(self) -> object:
                return stage

            def __exit__(self, *_error: object) -> None: ...

        return Stages()

    begins: dict[str, float] = {}

    def stage(label: str) -> object:
        say(label)
        begins[label] = time.perf_counter()
        told = [time.perf_counter()]

        def report(done: int, total: int) -> None:
            if time.perf_counter() - told[0] > 30:
                told[0] = time.perf_counter()
                say(f"{label}: {done:,} of {total:,}")

        return report

    data = deql.read_partitions(folder, "user", "item", folder=scratch / "parts")
    read = time.perf_counter() - begun
    say(data)
    from deql.linalg.engines import neighbours
    from deql.models import linear

    assert linear.stages is progress.stages
    linear.stages = stages  # lines with the time, for a log, instead of bars
    shared = [0]
    strongest = neighbours.strongest_pairs

    def counted(S: object, *rest: object) -> object:
        shared[0] = len(S.values)
        say(f"{shared[0]:,} pairs of items share users")
        return strongest(S, *rest)

    neighbours.strongest_pairs = counted
    model = deql.EDLAE(dropout=0.3, l2=20.0, engine=deql.engines.Neighbours(K)).fit(data)
    fitted, cpu = time.perf_counter() - begun, time.process_time()
    columns = begun + fitted - begins["Neighbourhoods"]
    say(f"fitted; residual of the worst column {model.residual_:.1e}, W has {len(model.precision_.data):,} entries")
    histories = data.parts[0].load()[:USERS]
    model.recommend(histories[:100], k=20)  # compiles
    clock = time.perf_counter()
    lists = model.recommend(histories, k=20)
    rate = USERS / (time.perf_counter() - clock)
    assert lists.scores.shape == (USERS, 20)
    say(f"top-20 of {USERS:,} users: {rate:,.0f} users/s")
    return {
        "users": data.n_users, "items": data.n_items, "interactions": data.n_interactions, "pairs": data.pairs,
        "shared": shared[0], "read_s": read, "pairs_s": fitted - read - columns, "columns_s": columns,
        "fit_s": fitted - read, "total_s": fitted, "cpu_s": cpu, "peak_gib": getrusage(RUSAGE_SELF).ru_maxrss / 2**20,
        "users_per_s": rate,
    }  # fmt: skip


def main() -> None:
    """Measure each size in its own process and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("items", type=int, nargs="+")
    parser.add_argument("--files", type=Path, help="folder that keeps the Parquet files, one folder for each size")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if given.measure:
            print(json.dumps(measure(given.files, Path(scratch))))
            return
        rows = []
        for items in given.items:
            folder = (given.files or Path(scratch)) / str(items)
            if not folder.is_dir():
                write_events(folder, 10 * items, items, 100 * items)
            command = [sys.executable, __file__, str(items), "--measure", "--files", str(folder)]
            ended = subprocess.run(command, stdout=subprocess.PIPE, check=True, env={**os.environ})
            rows.append(json.loads(ended.stdout.splitlines()[-1]))
    print(f"{'items':>10} {'interactions':>13} {'read':>7} {'fit':>8} {'µs/item':>8} {'peak':>9} {'users/s':>8}")
    for row in rows:
        each = 1e6 * row["fit_s"] / row["items"]
        print(
            f"{row['items']:10,} {row['interactions']:13,} {row['read_s']:6.0f}s {row['fit_s']:7.0f}s {each:8.0f} "
            f"{row['peak_gib']:5.2f} GiB {row['users_per_s']:8,.0f}"
        )
    print(json.dumps({"sizes": rows}))


if __name__ == "__main__":
    main()
