"""Reading a CSV of MovieLens' shape: deql against pandas.read_csv and factorize, and against polars alone.

The table has the columns userId, movieId, rating, timestamp, in random order. deql gives a sparse
matrix with repeated pairs merged; so do the entries called polars, with its reader, its own encoding of ids
and SciPy. Pandas gives only the numbers of users and items, so it has less to do.
Pandas is given both ways: the whole table, and only the columns that are needed. The last rows read the
rating and the time too, a table with text for ids, and, with --large, one of 100 million rows.

With --parts each kernel of reading is set against polars instead, in CPU seconds of one thread: a kernel that
is not twice as fast is not worth its lines.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from _measure import Measurement, Task, measure, measure_all, serve, show

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


def read_polars(path: str, kind: str) -> Task:
    import polars as pl
    from scipy.sparse import csr_array

    def encode(column: pl.Series) -> tuple[pl.Series, Any]:
        """Sorted ids and the place of each row's among them, the fastest way that polars has for their kind."""
        if kind == "texts":
            column = column.cast(pl.Categorical)
        ids = column.unique()
        texts = ids.cast(pl.String) if kind == "texts" else ids
        order = texts.arg_sort()
        places = pl.DataFrame({"id": ids.gather(order).to_physical(), "place": np.arange(len(ids), dtype=np.int32)})
        rows = column.to_physical().to_frame("id").join(places, on="id", how="left", maintain_order="left")
        return texts.gather(order), rows["place"].to_numpy()

    def work() -> Any:
        frame = pl.scan_csv(path).select(COLUMNS).collect(engine="streaming")
        (users, rows), (items, columns) = (encode(frame[name]) for name in COLUMNS)
        matrix = csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=(len(users), len(items)))
        matrix.sum_duplicates()
        matrix.data[:] = 1
        return users, items, matrix, len(rows)

    return Task(work, lambda found: {"users": len(found[0]), "items": len(found[1]), "rows": found[3]})


def parse_numbers(path: str, who: str) -> Task:
    import polars as pl

    from deql.data.readers.blocks import blocks
    from deql.data.readers.delimited import read_text
    from deql.data.readers.ids import as_whole_numbers
    from deql.data.readers.numeric_csv import ITEM, SKIP, USER, parse_numbers
    from deql.data.readers.sniff import layout_of

    layout, raw = layout_of(Path(path)), Path(path).read_bytes()
    parts = list(blocks(Path(path), header=True))
    fields = np.array([USER, ITEM, SKIP, SKIP], np.int8)
    parse_numbers(parts[0].text, b",", fields, parts[0].lines)  # loads the kernel

    def deql() -> Any:
        return [parse_numbers(part.text, b",", fields, part.lines) for part in parts]

    def polars() -> Any:  # 007 stays 007, and a field too many is seen
        return [[as_whole_numbers(frame[place]) for place in "01"] for frame in (read_text(p, layout) for p in parts)]

    def unchecked() -> Any:
        return pl.read_csv(raw, columns=COLUMNS, schema_overrides=dict.fromkeys(COLUMNS, pl.Int64))

    return Task({"deql": deql, "polars": polars, "polars, unchecked": unchecked}[who])


def rank_ids(path: str, who: str) -> Task:
    import polars as pl

    from deql.data.readers.ids import IdEncoder

    users = pl.read_csv(path, columns=COLUMNS[:1], schema_overrides={COLUMNS[0]: pl.Int32}).to_series()
    parts = np.array_split(users.to_numpy(), 100)

    def deql() -> Any:
        column = IdEncoder()
        for part in parts:
            column.add(part)
        return column.finish()

    def polars() -> Any:
        ids = users.unique().sort()
        places = pl.DataFrame({"id": ids, "place": np.arange(len(ids), dtype=np.int32)})
        return users.to_frame("id").join(places, on="id", how="left", maintain_order="left")

    deql()
    return Task(polars if who == "polars" else deql)


def build_csr(path: str, who: str, full: str = "") -> Task:
    import polars as pl
    from scipy.sparse import csr_array

    from deql.data.readers.coo_to_csr import coo_to_csr

    frame = pl.read_csv(path)
    codes = {"users": COLUMNS[0], "items": COLUMNS[1]}
    rows = {name: (frame[column].rank("dense") - 1).cast(pl.Int32).to_numpy() for name, column in codes.items()}
    shape = tuple(int(column.max()) + 1 for column in rows.values())
    rows |= {"weights": None, "times": None}
    if full:
        rows |= {"weights": frame["rating"].to_numpy(), "times": frame["timestamp"].cast(float).to_numpy()}

    def deql() -> Any:
        return coo_to_csr(dict(rows), *shape)

    def scipy() -> Any:
        ones = np.ones(len(rows["users"]), np.float32)
        matrix = csr_array((ones, (rows["users"], rows["items"])), shape=shape)
        matrix.sum_duplicates()
        return matrix

    def polars() -> Any:
        table = pl.DataFrame({name: column for name, column in rows.items() if column is not None})
        cells = table.group_by("users", "items").agg(pl.col("^weights$").sum(), pl.col("^times$").max())
        cells = cells.sort("users", "items")
        begins = np.searchsorted(cells["users"].to_numpy(), np.arange(shape[0] + 1))
        values = cells["weights"].to_numpy() if full else np.ones(len(cells), np.float32)
        return csr_array((values, cells["items"].to_numpy(), begins), shape=shape)

    def polars_keys() -> Any:
        cells = pl.Series(rows["users"]).cast(pl.Int64) * shape[1] + pl.Series(rows["items"])
        users, items = np.divmod(cells.unique().sort().to_numpy(), shape[1])
        begins = np.searchsorted(users, np.arange(shape[0] + 1))
        return csr_array((np.ones(len(users), np.float32), items, begins), shape=shape)

    deql()
    return Task({"deql": deql, "scipy": scipy, "polars": polars if full else polars_keys}[who])


TASKS: dict[str, Callable[..., Task]] = {
    "table": write_table, "deql": read_deql, "pandas": read_pandas, "polars": read_polars,
    "parse plain numbers": parse_numbers, "rank number ids": rank_ids, "build the matrix": build_csr,
    "build it with weights and times": partial(build_csr, full="yes"),
}  # fmt: skip
PARTS = {
    "parse plain numbers": ("polars", "polars, unchecked"),
    "rank number ids": ("polars",),
    "build the matrix": ("polars", "scipy"),
    "build it with weights and times": ("polars",),
}


def compare_parts(path: str, rows: int, repeats: int) -> int:
    """Each kernel against polars (and SciPy), one thread each."""
    os.environ |= {"DEQL_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    runs = {(part, who): (part, path, who) for part, others in PARTS.items() for who in ("deql", *others)}
    found = measure_all(__file__, runs, repeats)
    show(
        f"Kernels of reading, {rows:,} rows, one thread",
        ("part", "who", "CPU seconds", "times deql's"),
        ((*key, one.cpu_seconds, one.cpu_seconds / found[key[0], "deql"].cpu_seconds) for key, one in found.items()),
    )
    print(json.dumps({" by ".join(key): one.cpu_seconds for key, one in found.items()}))
    return 0


def main() -> int:
    """Measure, print the table and the ratios; 1 if the counts disagree."""
    parser = argparse.ArgumentParser(description="Time and measure reading a CSV file.")
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--repeats", type=int, default=3, help="repeats of each entry; the best counts")
    parser.add_argument("--parts", action="store_true", help="the kernels of reading one by one instead")
    parser.add_argument("--large", action="store_true", help="also 100 million rows, 2.6 GB on disk")
    options = parser.parse_args()
    whole, needed = "pandas, all columns", "pandas, needed columns"
    with TemporaryDirectory() as folder:
        numbers, texts, large = (str(Path(folder, f"{name}.csv")) for name in ("numbers", "texts", "large"))
        size = measure(__file__, "table", numbers, options.rows, "numbers").facts
        if options.parts:
            return compare_parts(numbers, options.rows, options.repeats)
        measure(__file__, "table", texts, options.rows, "texts")
        measure(__file__, "deql", numbers, "rating", "timestamp")  # not counted: compiles the kernels
        runs: dict[str, tuple[object, ...]] = {
            "deql": ("deql", numbers, "", ""),
            whole: ("pandas", numbers, "all"),
            needed: ("pandas", numbers, "needed"),
            "polars": ("polars", numbers, "numbers"),
            "deql, weights and times": ("deql", numbers, "rating", "timestamp"),
            "deql, text ids": ("deql", texts, "", ""),
            "pandas, text ids, needed columns": ("pandas", texts, "needed"),
            "polars, text ids": ("polars", texts, "texts"),
        }
        found = measure_all(__file__, runs, options.repeats)
        if options.large:
            measure(__file__, "table", large, 100_000_000, "numbers")
            found["deql, 100 million rows, weights and times"] = measure(__file__, "deql", large, "rating", "timestamp")
    show(
        f"Reading {size['rows']:,} rows of CSV ({size['mib']:,.0f} MiB)",
        ("entry", "seconds", "CPU seconds", "cores", "peak MiB", "MiB beyond imports"),
        (
            (label, one.seconds, one.cpu_seconds, one.cores, one.peak_mib, one.beyond_mib)
            for label, one in found.items()
        ),
    )
    text_pandas = found["pandas, text ids, needed columns"]
    result = {
        "targets": TARGETS,
        "rows": size["rows"],
        "speedup": found[whole].seconds / found["deql"].seconds,
        "speedup_needed_columns": found[needed].seconds / found["deql"].seconds,
        "speedup_text_ids": text_pandas.seconds / found["deql, text ids"].seconds,
        "speedup_over_polars": found["polars"].seconds / found["deql"].seconds,
        "speedup_over_polars_text_ids": found["polars, text ids"].seconds / found["deql, text ids"].seconds,
        "memory_ratio": found[whole].peak_mib / found["deql"].peak_mib,
        "memory_ratio_needed_columns": found[needed].peak_mib / found["deql"].peak_mib,
        "peak_mib": {label: one.peak_mib for label, one in found.items()},
    }
    print(json.dumps(result))
    return 0 if _agree(found) else 1


def _agree(found: dict[str, Measurement]) -> bool:
    """Whether all counted the same users and items in the same table."""
    counts = {(one.facts["users"], one.facts["items"]) for label, one in found.items() if "million" not in label}
    return len(counts) == 1


if __name__ == "__main__":
    serve(TASKS)
    sys.exit(main())
