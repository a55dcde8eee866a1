"""What larger problems would take: a model of time, memory and network, calibrated here and checked against other runs.

    python benchmarks/scale.py --calibrate rates.json     # fits on this machine, about 10 minutes
    python benchmarks/scale.py --tables rates.json --growth growth.json    # and the tables of docs/scale.md

An exact fit on a cluster of W single-thread workers is predicted as

    start + flops·n³/rate + byte·(received + summed) + task·tasks + pair·Σ|u|²

where tasks, and what each worker receives of the panels, are counted on the very layout that the engine would take.
``rate`` is that of large products by as many threads as there are cores, and ``pair`` what one thread takes for a pair
of the Gram matrix, both measured before; the others are fitted by least squares to a few fits, and the fits that the
table calls "not used" are predicted from them. A fit on neighbourhoods is read + pairs + columns, by laws fitted to all
sizes that neighbours_growth.py measured but the largest, which they predict.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from _measure import Task, measure, serve, show
from fit import synthetic

CALIBRATED = ((5_000, 2), (8_000, 4), (11_000, 2), (14_000, 4))
CHECKED = ((9_000, 3), (12_000, 4), (16_000, 2), (20_000, 4))
"""Items and workers of fits that rates are fitted to, and of others that they must predict."""

NODE_CORES, NODE_GIB, NODE_GBIT = 16, 128, 10
"""What a node of the tables is: its cores as fast as those that were measured."""

ITEMS = (100_000, 300_000, 1_000_000, 10_000_000)
INTERACTIONS = (10**9, 10**10, 10**11)
NODES = (1, 10, 100)


@dataclass(frozen=True)
class Counted:
    """What an exact fit does, by its layout: nothing of this is measured.

    Attributes
    ----------
    tasks : int
        That the scheduler hands out.
    received : float
        Bytes of panels that the busiest worker gets from others.
    summed : float
        Bytes of partial sums of the Gram matrix that each worker sends on.
    tiles : float
        Bytes of P on all workers together.
    most : float
        The largest share of them on one worker.
    beside : float
        Bytes that each worker needs beside its tiles and interactions.
    """

    tasks: int
    received: float
    summed: float
    tiles: float
    most: float
    beside: float


@lru_cache(maxsize=64)
def count(n: int, workers: int, threads: int = 1) -> Counted:
    """Count the work of a fit on so many workers with so many threads each."""
    from deql.linalg.engines.dask_layout import choose_layout, place_groups
    from deql.linalg.engines.dask_needs import FitNeeds

    layout = choose_layout(n, workers * threads)
    placed = place_groups(layout, {str(worker): threads for worker in range(workers)})
    sizes = [last - first for first, last in zip(layout.bounds, layout.bounds[1:], strict=False)]
    held: dict[str, float] = dict.fromkeys(map(str, range(workers)), 0.0)
    needed: dict[str, set[int]] = {worker: set() for worker in held}
    for group, worker in placed.items():
        held[worker] += layout.numbers(group)
        needed[worker] |= {*group}
    # X of a segment is made where A_ik is; a worker receives those that it needs and did not make.
    rows = {worker: sum(sizes[segment] for segment in segments) for worker, segments in needed.items()}
    made = dict.fromkeys(held, 0.0)
    for segment in range(layout.segments):
        for own in range(layout.segments):
            made[placed[max(segment, own), min(segment, own)]] += sizes[segment] * sizes[own] / n
    received = max(max(0.0, rows[worker] - made[worker]) for worker in held) * n * 4
    pivots, groups, strips = len(layout.pivots), len(layout.groups), sum(map(len, map(layout.strips, layout.groups)))
    tasks = pivots * (groups + layout.segments + 2) + strips * (2 * workers)
    total = float(layout.stored)
    summed = total * 4 * (workers - 1) / workers
    beside = FitNeeds(layout, "float32").for_each
    return Counted(tasks, received, summed, total * 4, max(held.values()) / total, beside)


def fit_dask(n: str, workers: str) -> Task:
    """One fit on a LocalCluster, its Gram matrix timed apart."""
    from distributed import Client, LocalCluster

    import deql

    data = deql.Interactions.from_csr(synthetic(int(n)))
    cluster = LocalCluster(n_workers=int(workers), threads_per_worker=1, dashboard_address=":0", silence_logs=50)
    client = Client(cluster)
    engine = deql.engines.Dask(client)
    deql.EASE(l2=50.0, engine=engine).fit(synthetic(600, users=200, interactions=5000))
    model = deql.EASE(l2=50.0, engine=engine)
    pairs = int((np.diff(data.matrix.indptr).astype(np.int64) ** 2).sum())

    def finish(fitted: Any) -> dict[str, Any]:
        received = client.run(lambda dask_worker: sum(one["total"] for one in dask_worker.transfer_incoming_log))
        client.close()
        cluster.close()
        return {"pairs": pairs, "received": max(received.values()), "residual": fitted.residual_}

    return Task(lambda: model.fit(data), finish)


def pair_seconds() -> float:
    """What one thread takes for a pair of the Gram matrix, where users have many items."""
    from deql._system.threads import set_threads
    from deql.linalg.gram import gram

    set_threads(1)
    matrix = synthetic(20_000, users=20_000, interactions=4_000_000)
    gram(matrix[:100])  # compiles
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        gram(matrix)
        seconds.append(time.perf_counter() - begin)
    set_threads(None)
    return min(seconds) / float((np.diff(matrix.indptr).astype(np.int64) ** 2).sum())


def terms(rates: dict[str, Any], n: int, workers: int) -> list[float]:
    """What the seconds of a fit, without its pairs, are a sum of once each is multiplied with its factor."""
    counted, running = count(n, workers), min(workers, rates["cores"])
    moved = (counted.received + counted.summed) * workers / running
    return [n**3 / rates["rate"], moved, counted.tasks / running, 1.0]


def of_pairs(rates: dict[str, Any], workers: int, pairs: float) -> float:
    """Seconds that the pairs of the Gram matrix take."""
    return float(rates["pair"] * pairs / min(workers, rates["cores"]))


def fitted_factors(rates: dict[str, Any]) -> dict[str, float]:
    """The factors of :func:`terms`, by least squares of relative errors on the runs that they are fitted to."""
    from scipy.optimize import nnls

    known = [run for run in rates["runs"] if run["used"]]
    matrix = np.array([terms(rates, run["n"], run["workers"]) for run in known])
    seconds = np.array([run["seconds"] for run in known])  # relative, so that large fits do not outweigh small ones
    rest = np.array([1 - of_pairs(rates, run["workers"], run["pairs"]) / run["seconds"] for run in known])
    found, _ = nnls(matrix / seconds[:, None], rest)
    return dict(zip(("flops", "byte", "task", "start"), found.tolist(), strict=True))


def calibrate(out: Path) -> None:
    """Measure the rates and all fits, and keep them."""
    from deql.linalg.planner.calibration import product_rate

    cores = os.cpu_count() or 1
    rate = max(product_rate("float32", 384, seconds=2.0) for _ in range(3))
    runs = []
    for used, several in ((True, CALIBRATED), (False, CHECKED)):
        for n, workers in several:
            one = min((measure(__file__, "dask", n, workers) for _ in range(2)), key=lambda found: found.seconds)
            runs.append({"n": n, "workers": workers, "used": used, "seconds": one.seconds, **one.facts})
            print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
    result = {
        "date": time.strftime("%Y-%m-%d"), "machine": f"{cores} cores, {platform.machine()}", "cores": cores,
        "rate": rate, "pair": pair_seconds(), "runs": runs,
    }  # fmt: skip
    out.write_text(json.dumps(result, indent=1))


def predicted(rates: dict[str, Any], n: int, workers: int, pairs: float) -> float:
    """Seconds of a fit on this machine, by the model."""
    parts = terms(rates, n, workers)
    return float(np.dot(parts, list(rates["factors"].values()))) + of_pairs(rates, workers, pairs)


def show_runs(rates: dict[str, Any]) -> dict[str, float]:
    """Measured and predicted, those that the rates were fitted to first."""
    rows, worst = [], 0.0
    for run in rates["runs"]:
        guess = predicted(rates, run["n"], run["workers"], run["pairs"])
        counted = count(run["n"], run["workers"])
        ratio = guess / run["seconds"]
        worst = worst if run["used"] else max(worst, abs(ratio - 1))
        role = "calibrated" if run["used"] else "not used"
        rows.append((f"{run['n']:,}", run["workers"], role, run["seconds"], guess, ratio, run["received"] / 2**20,
                     (counted.received + counted.summed) / 2**20))  # fmt: skip
    header = ("items", "workers", "", "seconds", "predicted", "of it", "received MiB", "counted")
    show(f"Fits on {rates['machine']}, {rates['date']}", header, rows)
    return {"worst_prediction": worst}


USERS = {10**9: 5 * 10**7, 10**10: 3 * 10**8, 10**11: 2 * 10**9}
"""Users who have so many interactions: 20, 33 and 50 each."""

SPREAD = 1.9
"""Mean of |u|² over the square of the mean of |u|, as with log-normal activity of deviation 0.8."""


def pairs_of(interactions: int) -> float:
    """Σ|u|²."""
    return interactions * (interactions / USERS[interactions]) * SPREAD


def exact_on(rates: dict[str, Any], n: int, interactions: int, nodes: int) -> dict[str, float]:
    """An exact fit on nodes of :data:`NODE_CORES` cores, a worker each: bytes on a node and over its wire, seconds."""
    cores, factors, wire = NODE_CORES * nodes, rates["factors"], NODE_GBIT * 1e9 / 8
    counted = count(n, nodes, NODE_CORES)
    moved = counted.received + counted.summed if nodes > 1 else 0.0
    products = factors["flops"] * n**3 / (rates["rate"] / rates["cores"] * cores)
    gram = rates["pair"] * pairs_of(interactions) / cores
    handing_out = factors["task"] * counted.tasks  # by one scheduler, whatever the number of nodes
    seconds = {"products": products, "Gram": gram, "network": moved / wire, "scheduler": handing_out}
    node = counted.tiles * counted.most + counted.beside + 16 * interactions / nodes  # R by user and by item
    return {"node": node, "moved": moved, "P": counted.tiles, **seconds}


def neighbours_on(growth: list[dict[str, float]], n: int, interactions: int, nodes: int) -> dict[str, float]:
    """A fit on neighbourhoods, as it grew here: S on every node, columns shared out."""
    pairs, share = pairs_of(interactions), 2 / (NODE_CORES * nodes)  # of what two cores took
    seconds = {name: share * one for name, one in neighbour_seconds(growth, n, interactions, pairs).items()}
    S = min(pairs / 2, n * n / 2) * 8  # at most: pairs that many users share are one
    return {"seconds": sum(seconds.values()), "S": S, "W": 401 * n * 8.0, **seconds}


def neighbour_seconds(
    growth: list[dict[str, float]], items: float, interactions: float, pairs: float
) -> dict[str, float]:
    """Seconds of two cores, by laws that all sizes but the largest, which is to be predicted, were fitted to.

    Reading is in proportion to rows. Pairs and columns are powers of Σ|u|² and of the number of items: the more pairs
    there are, the fewer of those that are asked for are in a processor's caches.
    """
    used = growth[:-1] or growth
    found = {"read": interactions * float(np.mean([one["read_s"] / one["interactions"] for one in used]))}
    for name, of, size in (("pairs", "pairs", pairs), ("columns", "items", items)):
        x, y = (np.log([one[key] for one in used]) for key in (of, f"{name}_s"))
        power = float(np.polyfit(x, y, 1)[0]) if len(used) > 1 else 1.0
        found[name] = float(np.exp((y - power * x).mean() + power * np.log(size)))
    return found


def show_growth(growth: list[dict[str, float]]) -> dict[str, float]:
    """Fits on neighbourhoods, and what is predicted of the largest from the others."""
    rows, ratio = [], 1.0
    for one in growth:
        guess = sum(neighbour_seconds(growth, one["items"], one["interactions"], one["pairs"]).values())
        ratio = guess / one["total_s"]
        used = "not used" if one is growth[-1] and len(growth) > 1 else "calibrated"
        rows.append((f"{one['items']:,}", f"{one['interactions']:,}", used, one["total_s"], guess, ratio,
                     one["peak_gib"]))  # fmt: skip
    header = ("items", "interactions", "", "seconds", "predicted", "of it", "peak GiB")
    show("Fits on neighbourhoods, k = 400", header, rows)
    return {"worst_neighbours_prediction": abs(ratio - 1)}


def show_tables(rates: dict[str, Any], growth: list[dict[str, float]]) -> None:
    """The tables of docs/scale.md, as Markdown."""
    grams = " | ".join(f"Gram, {interactions:.0e}" for interactions in INTERACTIONS)
    print(f"\n| items | flops | P | nodes | on a node | received by it | products | network | scheduler | {grams} |")
    print("|---" * (9 + len(INTERACTIONS)) + "|")
    for n in ITEMS[:3]:
        for nodes in NODES:
            several = [exact_on(rates, n, interactions, nodes) for interactions in INTERACTIONS]
            one = several[0]
            times = [one["products"], one["network"], one["scheduler"], *(each["Gram"] for each in several)]
            print(f"| {n:,} | {n**3:.0e} | {size(one['P'])} | {nodes} | {room(one['node'])} | {size(one['moved'])} | "
                  f"{' | '.join(map(duration, times))} |")  # fmt: skip
    nodes = " | ".join(f"{one} node{'s' * (one > 1)}" for one in NODES)
    print(f"\n| items | interactions | pairs, at most | W | read | sum pairs | columns | in all, {nodes} |")
    print("|---" * (7 + len(NODES)) + "|")
    for n in ITEMS:
        for interactions in INTERACTIONS:
            several = [neighbours_on(growth, n, interactions, count) for count in NODES]
            one = several[0]
            times = [one["read"], one["pairs"], one["columns"], *(each["seconds"] for each in several)]
            print(f"| {n:,} | {interactions:.0e} | {room(one['S'])} | {size(one['W'])} | "
                  f"{' | '.join(map(duration, times))} |")  # fmt: skip


def room(number: float) -> str:
    """Bytes, marked where a node has fewer."""
    return size(number) + ("" if number <= NODE_GIB * 2**30 else " ✗")


def size(number: float) -> str:
    """Bytes as people write them."""
    for unit in ("MB", "GB", "TB"):
        number /= 1e6 if unit == "MB" else 1e3
        if number < 1000 or unit == "TB":
            return f"{number:,.0f} {unit}"
    raise AssertionError


def duration(seconds: float) -> str:
    """Seconds as people write them."""
    for unit, length in (("s", 60), ("min", 60), ("h", 48)):
        if seconds < length * 2:
            return f"{seconds:,.0f} {unit}" if seconds >= 10 else f"{seconds:.1f} {unit}"
        seconds /= length
    return f"{seconds * 2:,.0f} d"


TASKS = {"dask": fit_dask}


def main() -> None:
    """Calibrate, or print what was predicted and the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calibrate", type=Path, metavar="FILE", help="fit here, and write the rates to a file")
    parser.add_argument("--tables", type=Path, metavar="FILE", help="such a file")
    parser.add_argument("--growth", type=Path, metavar="FILE", help="the last line of neighbours_growth.py")
    given = parser.parse_args()
    if given.calibrate:
        calibrate(given.calibrate)
    file = given.calibrate or given.tables
    if file is None:
        parser.error("name a file to write with --calibrate or to read with --tables")
    rates = json.loads(file.read_text())
    rates["factors"] = fitted_factors(rates)
    found: dict[str, Any] = show_runs(rates) | {"factors": rates["factors"], "pair": rates["pair"]}
    found["gflops"] = rates["rate"] / 1e9
    if given.growth:
        growth = json.loads(given.growth.read_text().splitlines()[-1])["sizes"]
        found |= show_growth(growth)
        show_tables(rates, growth)
    print(json.dumps(found))


if __name__ == "__main__":
    serve(TASKS)
    main()
