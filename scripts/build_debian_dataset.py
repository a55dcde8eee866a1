"""Build the bundled data set from a Debian ``Packages`` index.

A "user" is a binary package and its "items" are the packages it names in Depends, Pre-Depends,
Recommends and Suggests: the first of each set of alternatives, without version or architecture.
Packages that name, and names that occur in, fewer than five are left out until none is left (5-core).

    python scripts/build_debian_dataset.py Packages src/deql/datasets/debian-bookworm.parquet

``Packages`` is the uncompressed index of bookworm main for amd64, as found on any Debian mirror under
dists/bookworm/main/binary-amd64; compressed .gz and .xz files are read too.
"""

from __future__ import annotations

import gzip
import lzma
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

FIELDS = ("Depends", "Pre-Depends", "Recommends", "Suggests")
CORE = 5


def read_text(path: Path) -> str:
    """The index as text, decompressed by its suffix."""
    opener: Any = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with opener(path, "rt", encoding="utf-8") as file:
        return str(file.read())


def named_packages(index: str) -> Iterator[tuple[str, str]]:
    """Pairs of a package and a package it names.

    >>> list(named_packages("Package: a\\nDepends: b (>= 1) | c, d:any\\nSuggests: e [amd64]\\n"))
    [('a', 'b'), ('a', 'd'), ('a', 'e')]
    """
    for stanza in index.split("\n\n"):
        unfolded = re.sub(r"\n[ \t]+", " ", stanza)
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", unfolded, flags=re.MULTILINE))
        for field in FIELDS:
            for clause in fields.get(field, "").split(","):
                name = re.match(r"[a-z0-9][a-z0-9+.-]*", clause.strip())
                if name:
                    yield fields["Package"], name[0]


def core(pairs: pl.DataFrame, least: int) -> pl.DataFrame:
    """Drop rows until every package and every item occurs at least ``least`` times."""
    while True:
        kept = pairs.filter(
            (pl.len().over("package") >= least) & (pl.len().over("names") >= least),
        )
        if len(kept) == len(pairs):
            return kept
        pairs = kept


def main(source: str, target: str) -> None:
    """Read the index, write the Parquet file and say what is in it."""
    rows = list(named_packages(read_text(Path(source))))
    pairs = pl.DataFrame(rows, schema=["package", "names"], orient="row").unique()
    pairs = core(pairs, CORE).sort("package", "names")
    pairs.write_parquet(target, compression="zstd", compression_level=22)
    size = Path(target).stat().st_size
    print(
        f"{pairs['package'].n_unique():,} packages × {pairs['names'].n_unique():,} names, "
        f"{len(pairs):,} interactions, {size / 1e6:.2f} MB"
    )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: build_debian_dataset.py PACKAGES TARGET.parquet")
    main(*sys.argv[1:])
