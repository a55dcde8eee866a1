"""Fits on a machine that has other things to do: beside spinning processes, and two fits at once.

Entries, each fit in a process of its own, compiled kernels loaded beforehand:

- ``idle``: ``DEQL(l2, dropout, b).fit(data)`` alone.
- ``busy``: beside ``--spinning`` processes that never sleep.
- ``two``: two such fits begun at the same time; the slower one counts.
- ``bound`` (with ``--bound N``): the inverse of an N × N matrix alone, against n³ flops at the rate of large products
  of all threads together, timed for five seconds before and after it in the same process.

What the cores left over allow: a fit with T threads beside S others on C cores gets C·T/(T + S) of them from a fair
scheduler, if all of them are busy; the work is the CPU time of the idle fit. Two fits at once share: twice the
idle time. ``plan`` is what ``deql.plan`` said just before the fit, under the same load.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from _measure import Measurement, Task, measure, serve, show
from fit import DROPOUT, L2, B, synthetic

TARGETS = {"busy_over_left": 1.5, "two_over_left": 1.5, "plan_idle": 1.5, "bound": 1.2}


def fit(items: str) -> Task:
    import deql

    data = deql.datasets.debian().matrix if items == "bundled" else synthetic(int(items))
    model = deql.DEQL(l2=L2, dropout=DROPOUT, b=B, engine="memory")
    model.fit(synthetic(600, users=200, interactions=5000))  # kernels are compiled and libraries loaded
    planned = deql.plan(data, engine="memory").seconds
    return Task(lambda: model.fit(data), lambda fitted: {"plan": planned, "residual": fitted.residual_})


def bound(items: str) -> Task:
    from deql.linalg.engines.memory import invert_in_memory
    from deql.linalg.packed import PackedSymmetric
    from deql.linalg.planner.calibration import product_rate
    from deql.linalg.tiling import choose_tile

    n = int(items)
    store = PackedSymmetric(n, choose_tile(n))
    rng = np.random.default_rng(0)
    for _, block in store.blocks():
        block[:] = rng.random(block.shape, dtype=np.float32) * 1e-3
    store.mirror_diagonal_tiles()
    store.add_to_diagonal(np.full(n, n * 1e-3 + 1))

    def rate() -> float:
        return float(np.mean([product_rate("float32", 1024) for _ in range(20)]))  # as in long work, warm

    before = rate()
    return Task(lambda: invert_in_memory(store), lambda residual: {"rates": [before, rate()], "residual": residual})


@contextmanager
def spinning(count: int) -> Any:
    """So many processes that never sleep."""
    with ExitStack() as stack:
        for _ in range(count):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(process.wait)
            stack.callback(process.kill)
        time.sleep(0.5)
        yield


def two_at_once(items: str) -> Measurement:
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(measure, __file__, "fit", items) for _ in range(2)]
        return max((one.result() for one in both), key=lambda one: one.seconds)


def compare(items: str, repeats: int, others: int) -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0))
    samples: dict[str, list[Measurement]] = {"idle": [], "busy": [], "two": []}
    for _ in range(repeats):
        samples["idle"].append(measure(__file__, "fit", items))
        with spinning(others):
            samples["busy"].append(measure(__file__, "fit", items))
        samples["two"].append(two_at_once(items))
    best = {name: min(several, key=lambda one: one.seconds) for name, several in samples.items()}
    idle = best["idle"]
    left = {
        "idle": idle.cpu_seconds / cores,
        "busy": idle.cpu_seconds / (cores * cores / (cores + others)),
        "two": 2 * idle.seconds,
    }
    rows = [
        (name, one.seconds, one.cpu_seconds, left[name], one.seconds / left[name], one.facts["plan"], one.peak_mib)
        for name, one in best.items()
    ]
    header = ("", "seconds", "CPU seconds", "cores left allow", "ratio", "plan said", "peak MiB")
    show(f"Fits of {items} items beside {others} spinning processes, {cores} cores", header, rows)
    return {
        "idle_seconds": idle.seconds,
        "idle_cpu_over_wall": idle.cpu_seconds / idle.seconds,
        "busy_over_left": best["busy"].seconds / left["busy"],
        "two_over_left": best["two"].seconds / left["two"],
        "plan_idle": _apart(idle.facts["plan"], idle.seconds),
        "plan_busy": _apart(best["busy"].facts["plan"], best["busy"].seconds),
    }


def _apart(one: float, other: float) -> float:
    """How many times the smaller is in the larger."""
    return max(one, other) / min(one, other)


def main() -> None:
    serve({"fit": fit, "bound": bound})
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", nargs="*", default=["bundled"], help='"bundled" or a number of made-up items')
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--spinning", type=int, default=4, help="processes that never sleep")
    parser.add_argument("--bound", type=int, metavar="N", help="also invert an N × N matrix")
    options = parser.parse_args()
    result: dict[str, Any] = {items: compare(items, options.repeats, options.spinning) for items in options.items}
    if options.bound:
        alone = measure(__file__, "bound", options.bound)
        least = options.bound**3 / max(alone.facts["rates"])
        show(
            f"The inverse of {options.bound:,} columns",
            ("seconds", "CPU seconds", "n³ flops alone", "ratio", "peak MiB", "residual"),
            [(alone.seconds, alone.cpu_seconds, least, alone.seconds / least, alone.peak_mib, alone.facts["residual"])],
        )
        result["bound"] = alone.seconds / least
    print(json.dumps({"targets": TARGETS, **result}))


if __name__ == "__main__":
    main()
