"""Writes the small files that fuzzing begins with, all made by this library: python -m tests.fuzz.write_corpus

Files under ``found`` are kept: each was damage that once did harm, and is tried by every run of the tests.
"""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import numpy as np

import deql
from deql.data.write import write_table
from tests.fixtures.write_files import interactions
from tests.fuzz.tiles import begun_fit

CORPUS = Path(__file__).with_name("corpus")

BODIES = {
    "recommend": {"histories": [["tea"], ["jam", "rye"], []], "k": 3, "explain": True},
    "recommend-rule": {"histories": [["tea"]], "k": 2, "b": 0.5, "popularity_power": 0.1, "exclude": ["egg"]},
    "recommend-some": {"histories": [["tea"]], "candidates": ["jam", "oat"], "exclude_seen": False, "strict": True},
    "recommend-weights": {
        "histories": [[{"item": "tea", "weight": 2.5}, "jam", {"item": "rye", "weight": -1}]],
        "k": 3,
    },
    "explain": {"history": ["tea", "jam"], "item": "egg", "k": 1},
}


def main() -> None:
    """Write all of them anew."""
    for name in ("model", "split", "table", "http", "tiles"):
        shutil.rmtree(CORPUS / name, ignore_errors=True)
        (CORPUS / name).mkdir(parents=True)
    data = interactions()
    titled = deql.Interactions(data.matrix, data.users, np.arange(10, 16), titles=np.array([*"abcdeé"], object))
    deql.EASE(l2=1.0).fit(data).save(CORPUS / "model/rows.deql", quantized_rows=True)
    deql.EASE(l2=1.0).fit(titled).save(CORPUS / "model/titles.deql")
    kept = deql.Interactions(data.matrix * 2.5, data.users, data.items, np.arange(data.n_interactions, dtype=float))
    deql.EASE(l2=1.0).fit(kept, keep_data=True).save(CORPUS / "model/kept.deql")
    deql.Popularity().fit(kept, keep_data="hashed").save(CORPUS / "model/hashed.deql")
    times = deql.Interactions(data.matrix, data.users, data.items, np.arange(data.n_interactions, dtype=float))
    deql.split_leave_last(times).save(CORPUS / "split/times.split")
    deql.split_strong(titled, test_users=0.3, validation_users=0.2).save(CORPUS / "split/titles.split")
    for ending in (".csv", ".tsv", ".parquet", ".ndjson", ".inter", ".npz"):
        write_table(times, CORPUS / f"table/times{ending}")
    weighted = deql.Interactions(data.matrix * 2.5, np.arange(data.n_users), np.arange(data.n_items))
    for ending in (".csv", ".parquet", ".ndjson"):
        write_table(weighted, CORPUS / f"table/numbers{ending}")
    text = (CORPUS / "table/numbers.csv").read_bytes()
    (CORPUS / "table/packed.csv.gz").write_bytes(gzip.compress(text, mtime=0))
    (CORPUS / "table/quoted.csv").write_bytes('user,item\nann,"tea, gr""een"\nbob,"jam\n"\ncid,é\n'.encode())
    (CORPUS / "table/escaped.csv").write_bytes(
        '"User-ID";"ISBN";"Book-Rating"\r\n"1";"0\\"3\\"X";"5"\r\n"2";"C:\\n\\\\";"0"\r\n"";"Kü\\"";"3"\r\n'.encode(
            "latin-1"
        )
    )
    (CORPUS / "table/wide.csv").write_bytes("user,item\nann,thé\nbob,お茶\nNA,jam\n".encode("utf-16"))
    (CORPUS / "table/bare.csv").write_bytes(b"1::2::5::978300760\n1::3::4::978300761\n2::3::1::978300762\n")
    (CORPUS / "table/lists.txt").write_bytes(b"0 1 2 3\n1 2\n2 0 3\n")
    (CORPUS / "table/films.txt").write_bytes(
        b"1:\n1488844,3,2005-09-06\n822109,5,2005-05-13\n2:\n1488844,4,2005-10-19\n"
    )
    for name, body in BODIES.items():
        (CORPUS / f"http/{name}.json").write_text(json.dumps(body))
    begun_fit(CORPUS / "tiles")
    (CORPUS / "tiles/deql-tiles.lock").unlink()


def tuning_split() -> deql.Split:
    """A few users, so that a search takes no time."""
    from tests.tuning.common import market

    return deql.split_strong(market(40, 8, seed=41), 0.2, 0.4)


SPACE = {"l2": [2, 20], "dropout": 0.3, "user_power": 0, "b": [0, 2], "popularity_power": 0, "prior": None}


if __name__ == "__main__":
    main()
