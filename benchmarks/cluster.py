"""The Dask engine with the memory engine at equal cores: time, where it goes, what workers hold, and a lost worker.

Entries, each in a process of its own, on made-up data of ``--n`` items:

- ``memory``: a fit by the memory engine.
- ``dask``: the same by a LocalCluster of ``--workers`` processes with one thread each, P gathered here at the end.
- ``shards``: the same with a shared folder: checkpoints, and P written by the workers.
- ``killed``: the same, with SIGKILL for one worker when half of the pivots are done.

``computing`` and ``moving`` are seconds of all workers together by Dask's own record of their tasks. Moving goes on
beside computing. ``most tiles`` is the largest share of the tiles' bytes that one worker was seen with.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from _measure import Measurement, Task, measure, measure_all, serve, show
from fit import DROPOUT, L2, B, synthetic

TARGETS = {"dask_over_memory": 2.0, "difference": 1e-5, "most_tiles": 0.45}


def new_model(engine: Any) -> Any:
    import deql

    return deql.DEQL(l2=L2, dropout=DROPOUT, b=B, engine=engine)


def fit_memory(n: str) -> Task:
    import deql

    data = deql.Interactions.from_csr(synthetic(int(n)))
    model = new_model("memory")
    model.fit(synthetic(600, users=200, interactions=5000))  # kernels are compiled and libraries loaded
    return Task(lambda: model.fit(data), lambda fitted: {"residual": fitted.residual_})


def fit_dask(n: str, workers: str, how: str) -> Task:
    from distributed import Client, LocalCluster

    import deql

    data = deql.Interactions.from_csr(synthetic(int(n)))
    cluster = LocalCluster(n_workers=int(workers), threads_per_worker=1, dashboard_address=":0", silence_logs=50)
    client = Client(cluster)
    folder = None if how == "dask" else tempfile.mkdtemp(prefix="deql-cluster-")
    model = new_model(deql.engines.Dask(client, folder=folder))
    model.fit(synthetic(600, users=200, interactions=5000))
    facts: dict[str, Any] = {}

    def work() -> Any:
        from distributed import get_task_stream

        with get_task_stream(client) as stream, _watched(client, int(n), facts, how == "killed"):
            fitted = model.fit(data)
        facts.update(_spent(stream.data))
        return fitted

    def finish(fitted: Any) -> dict[str, Any]:
        facts["moved_gib"] = sum(client.run(_received).values()) / 2**30
        facts["worker_peak_gib"] = max(client.run(_peak).values()) / 2**30
        client.close()
        cluster.close()
        exact, ours = new_model("memory").fit(data).precision_.to_dense(), fitted.precision_.to_dense()
        facts["difference"] = float(np.abs(ours - exact).max() / np.abs(exact).max())
        if folder is not None:
            shutil.rmtree(folder)
        return facts | {"residual": fitted.residual_}

    return Task(work, finish)


def _received(dask_worker: Any) -> int:
    return int(sum(entry["total"] for entry in dask_worker.transfer_incoming_log))


def _peak() -> int:
    from resource import RUSAGE_SELF, getrusage

    return getrusage(RUSAGE_SELF).ru_maxrss * 1024


def _held(dask_worker: Any) -> int:
    # Tiles are swept in place, so that the results of several tasks are the same object.
    held = getattr(dask_worker.data, "fast", dask_worker.data)
    tiles = {id(value): sys.getsizeof(value) for value in list(held.values()) if type(value).__name__ == "TileGroup"}
    return sum(tiles.values())


def _spent(stream: list[dict[str, Any]]) -> dict[str, Any]:
    """Seconds of all workers, by what tasks are called and by what was done for them."""
    spent: Counter[str] = Counter()
    for task in stream:
        kind = task["key"].split("-")[1]
        for part in task["startstops"]:
            what = kind if part["action"] == "compute" else part["action"]
            spent[what] += part["stop"] - part["start"]
    moving = sum(seconds for what, seconds in spent.items() if what in ("transfer", "disk-read", "disk-write"))
    return {"computing": sum(spent.values()) - moving, "moving": moving, "spent": dict(spent)}


@contextmanager
def _watched(client: Any, n: int, facts: dict[str, Any], kill: bool) -> Iterator[None]:
    """Note what workers hold, a few times a second, and kill one of them when half of the pivots are done."""
    from deql.linalg.engines import dask_sweep

    tiles, most, ended = n * n / 2 * 4, 0.0, threading.Event()
    handed_out = dask_sweep._Fit._positive

    def positive(fit: Any, pivot: int, flag: Any) -> None:
        handed_out(fit, pivot, flag)
        if kill and "killed_at" not in facts and pivot >= len(fit.layout.pivots) // 2:
            facts["killed_at"] = pivot
            os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)

    def look() -> None:
        nonlocal most
        while not ended.wait(0.3):
            try:
                held = client.run(_held, on_error="ignore")
            except Exception:  # a worker is gone, or the cluster is
                continue
            most = max(most, *(size / tiles for size in held.values()))

    dask_sweep._Fit._positive = positive  # type: ignore[method-assign]
    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        dask_sweep._Fit._positive = handed_out  # type: ignore[method-assign]
        facts["most_tiles"] = most


TASKS = {"memory": fit_memory, "dask": fit_dask}


def main() -> None:
    """Measure each entry and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=12_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    runs: dict[str, Any] = {"memory": ("memory", given.n)}
    runs |= {how: ("dask", given.n, given.workers, how) for how in ("dask", "shards")}
    found: dict[str, Measurement] = measure_all(__file__, runs, given.repeats)
    found["killed"] = measure(__file__, "dask", given.n, given.workers, "killed")
    base = found["memory"].seconds
    rows = [
        (name, one.seconds, one.seconds / base, one.facts.get("computing", ""), one.facts.get("moving", ""),
         one.facts.get("moved_gib", ""), one.facts.get("most_tiles", ""), one.facts.get("worker_peak_gib", ""),
         f"{one.facts['difference']:.1e}" if "difference" in one.facts else "")
        for name, one in found.items()
    ]  # fmt: skip
    header = ("fit", "seconds", "of memory's", "computing s", "moving s", "moved GiB", "most tiles", "worker GiB", "ΔP")
    show(
        f"{given.n:,} items, {given.workers} workers on {os.cpu_count()} cores, {time.strftime('%Y-%m-%d')}",
        header,
        rows,
    )
    print(json.dumps({
        "n": given.n,
        "dask_over_memory": found["dask"].seconds / base,
        "shards_over_memory": found["shards"].seconds / base,
        "killed_over_memory": found["killed"].seconds / base,
        "most_tiles": max(found[how].facts["most_tiles"] for how in ("dask", "shards")),
        "difference": max(found[how].facts["difference"] for how in ("dask", "shards", "killed")),
        "spent": found["dask"].facts["spent"],
        "targets": TARGETS,
    }))  # fmt: skip


if __name__ == "__main__":
    serve(TASKS)
    main()
