"""Fuzzes for as long as one likes, and says what it found and how to see it again.

python -m tests.fuzz --minutes 30
python -m tests.fuzz --minutes 5 --seed 7 model table
python -m tests.fuzz --case model/7/1234
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from random import Random

from tests.fuzz.runner import Session, try_case
from tests.fuzz.targets import TARGETS, make_case


def main() -> int:
    """The exit status is 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("targets", nargs="*", default=list(TARGETS), help=", ".join(TARGETS))
    parser.add_argument("--minutes", type=float, default=30.0, help="for all targets together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", help="only this one, with its traceback; --keep has its file kept")
    parser.add_argument("--keep", type=Path, help="a folder for the file of --case")
    given = parser.parse_args()
    if given.case:
        return _one(given.case, given.keep)
    found: dict[str, int] = {}
    total = 0
    for target in given.targets:
        session = Session(target, given.seed, seconds=60 * given.minutes / len(given.targets))
        for finding in session.run():
            kind = f"{target}: {finding.what.partition(': ')[0]}"
            found[kind] = found.get(kind, 0) + 1
            if found[kind] <= 3:
                print(f"{finding.name}: {finding.what}", flush=True)
        total += session.tried
        ended = f", {session.ended} of which ended polars" if session.ended else ""
        print(f"{target}: {session.tried:,} cases{ended}", flush=True)
    print(f"in all: {total:,} cases, seed {given.seed}; did harm: {sum(found.values()):,}")
    for kind, count in found.items():
        print(f"  {count:,} × {kind}")
    return int(bool(found))


def _one(name: str, keep: Path | None) -> int:
    target, seed, number = name.split("/")
    with tempfile.TemporaryDirectory() as folder:
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            print(make_case(target, Random(name), keep))
        finding = try_case(target, int(seed), int(number), Path(folder) / "case")
    print("nothing wrong" if finding is None else f"{finding.what}\n{finding.trace}")
    return int(finding is not None)


if __name__ == "__main__":
    sys.exit(main())
