"""Tries every fault during every operation, or those named, and counts them.

python -m tests.faults
python -m tests.faults "disk fit" reload
python -m tests.faults --quick
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.faults.injection import KINDS, Outcome, Shim, build, try_every_fault

_HERE = "DEQL_FAULTS_IN"


def main(names: list[str]) -> int:
    """Preload the shim into a process of its own, which does the rest; the exit status is 1 if something was wrong."""
    if _HERE in os.environ:
        return _try_all(names, Path(os.environ[_HERE]))
    with tempfile.TemporaryDirectory(prefix="deql-faults-") as folder:
        library = build(Path(folder))
        known = os.environ | {_HERE: folder, "LD_PRELOAD": str(library), "DEQL_THREADS": "1", "POLARS_MAX_THREADS": "1"}
        return subprocess.run([sys.executable, "-m", "tests.faults", *names], env=known).returncode


def _try_all(names: list[str], folder: Path) -> int:
    from tests.faults.operations import operations

    quick = "--quick" in names
    names = [name for name in names if name != "--quick"]
    every = operations()
    shim = Shim()
    total: Counter[str] = Counter()
    wrong = 0
    for name in names or every:
        begin = time.perf_counter()
        outcome = try_every_fault(every[name], folder / "work", shim, quick)
        print(f"{name}: {_counted(outcome.points)} ({time.perf_counter() - begin:.1f} s)", flush=True)
        for line in outcome.wrong:
            print(f"WRONG {line}", flush=True)
        total += outcome.points
        wrong += len(outcome.wrong)
    print(f"in all: {_counted(total)}; wrong: {wrong}")
    return int(bool(wrong))


def _counted(points: Counter[str]) -> str:
    parts = ", ".join(f"{kind} {points[kind]}" for kind in KINDS if points[kind])
    return f"{points.total()} faults ({parts})"


__all__ = ["Outcome", "main"]

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
