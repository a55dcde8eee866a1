"""Reading a CSV of MovieLens' shape: deql against pandas.read_csv and factorize.

The table has the columns userId, movieId, rating, timestamp, in random order. deql gives a sparse
matrix with repeated pairs merged; pandas only the numbers of users and items, so it has less to do.
Pandas is given both ways: the whole table, and only the columns that are needed. The last rows read the
rating and the time too, a table with text for ids, and, with --large, one of 100 million rows.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from _measure import Sample, Task, measure, measure_all, serve, show

TARGETS = {"speedup": 3.0, "large_gib": 8.0}
USERS, ITEMS = 138_493, 27_278
COLUMNS = ["userId", "movieId"]


def write_table(path: str, rows: str, kind: str) -> Task:
    """Write a table of random interactions, skewed as such tables are."""
    import polars as pl

    def work() -> int:
        generator = np.random.default_rng(0)
        with open(path, "wb") as file:
            for begin in range(0, int(rows), 5_000_000):
                count = min(5_000_000, int(rows) - begin)
                users = generator.integers(1, USERS + 1, count)
                items = 5 * (ITEMS * generator.random(count) ** 2.5).astype(np.int64) + 1
                frame = pl.DataFrame({
                    "userId": users if kind == "numbers" else pl.Series(users).cast(pl.String) + "-ab",
                    "movieId": items if kind == "numbers" else "B" + pl.Series(items).cast(pl.String),
                    "rating": generator.integers(1, 11, count) / 2,
                    "timestamp": generator.integers(789_652_009, 1_427_784_002, count),
                })  # fmt: skip
                frame.write_csv(file, include_header=begin == 0)
        return Path(path).stat().st_size

    return Task(work, lambda size: {"rows": int(rows), "mib": size / 2**20})


def read_deql(path: str, weight: str, time: str) -> Task:
    import deql

    options = {"weight": weight or None, "time": time or None}
    for row in ("1,2", "a1,b2"):  # loads the kernels
        tiny = Path(path).with_name("tiny.csv")
        tiny.write_text(f"userId,movieId,rating,timestamp\n{row},3.5,4\n")
        deql.read_interactions(tiny, *COLUMNS, **options)
    return Task(
        lambda: deql.read_interactions(path, *COLUMNS, **options),
        lambda data: {"users": data.n_users, "items": data.n_items, "rows": data.steps[0].interactions},
    )


def read_pandas(path: str, columns: str) -> Task:
    import pandas as pd

    def work() -> Any:
        frame = pd.read_csv(path, usecols=COLUMNS if columns == "needed" else None)
        return [pd.factorize(frame[column]) for column in COLUMNS]

    return Task(work, lambda found: {"users": len(found[0][1]), "items": len(found[1][1]), "rows": len(found[0][0])})


TASKS: dict[str, Callable[..., Task]] = {"table": write_table, "deql": read_deql, "pandas": read_pandas}


def main() -> int:
    """Measure, print the table and the ratios; 1 if the counts disagree."""
    parser = argparse.ArgumentParser(description="Time and measure reading a CSV file.")
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each contestant; the best counts")
    parser.add_argument("--large", action="store_true", help="also 100 million rows, 2.6 GB on disk")
    options = parser.parse_args()
    whole, needed = "pandas, all columns", "pandas, needed columns"
    with TemporaryDirectory() as folder:
        numbers, texts, large = (str(Path(folder, f"{name}.csv")) for name in ("numbers", "texts", "large"))
        size = measure(__file__, "table", numbers, options.rows, "numbers").facts
        measure(__file__, "table", texts, options.rows, "texts")
        measure(__file__, "deql", numbers, "rating", "timestamp")  # not counted: compiles the kernels
        runs: dict[str, tuple[object, ...]] = {
            "deql": ("deql", numbers, "", ""),
            whole: ("pandas", numbers, "all"),
            needed: ("pandas", numbers, "needed"),
            "deql, weights and times": ("deql", numbers, "rating", "timestamp"),
            "deql, text ids": ("deql", texts, "", ""),
            "pandas, text ids, needed columns": ("pandas", texts, "needed"),
        }
        found = measure_all(__file__, runs, options.repeats)
        if options.large:
            measure(__file__, "table", large, 100_000_000, "numbers")
            found["deql, 100 million rows, weights and times"] = measure(__file__, "deql", large, "rating", "timestamp")
    show(
        f"Reading {size['rows']:,} rows of CSV ({size['mib']:,.0f} MiB)",
        ("contestant", "seconds", "cores", "peak MiB", "MiB beyond imports"),
        ((label, one.seconds, one.cores, one.peak_mib, one.beyond_mib) for label, one in found.items()),
    )
    text_pandas = found["pandas, text ids, needed columns"]
    result = {
        "targets": TARGETS,
        "rows": size["rows"],
        "speedup": found[whole].seconds / found["deql"].seconds,
        "speedup_needed_columns": found[needed].seconds / found["deql"].seconds,
        "speedup_text_ids": text_pandas.seconds / found["deql, text ids"].seconds,
        "memory_ratio": found[whole].peak_mib / found["deql"].peak_mib,
        "memory_ratio_needed_columns": found[needed].peak_mib / found["deql"].peak_mib,
        "peak_mib": {label: one.peak_mib for label, one in found.items()},
    }
    print(json.dumps(result))
    return 0 if _agree(found) else 1


def _agree(found: dict[str, Sample]) -> bool:
    """Whether all counted the same users and items in the same table."""
    counts = {(one.facts["users"], one.facts["items"]) for label, one in found.items() if "million" not in label}
    return len(counts) == 1


if __name__ == "__main__":
    serve(TASKS)
    sys.exit(main())
