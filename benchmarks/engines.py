"""Engines: how long P takes and what is held meanwhile, in memory, on disk and on a device.

``--memory``: a whole fit, Gram matrix included, of Yelp2018 (real data, $DEQL_DATA) or of synthetic data of
Amazon-Book's shape, beside the time that n³ flops take at the sgemm rate measured right before and after it.
``--disk``: data of ML-20M's shape on disk with a budget of 512 MiB, against the same in memory; then killed at three
random moments and gone on with.
``--gram``: the Gram matrix of the same data, against SciPy's ``X.T @ X``.
``--torch``: Yelp2018 and Amazon-Book's shape on a CUDA device, in each precision.
``--agree``: Yelp2018 by every engine there is, P and the users' first twenty items compared.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import sgemm
from scipy.sparse import csr_array, load_npz, save_npz

from _measure import Task, measure, measure_all, serve, show

SHAPES = {"amazon-book": (52_643, 91_599, 2_984_108), "ml-20m": (136_677, 20_108, 10_000_000)}
SKEW = {"amazon-book": (50.0, 1.0, 1.0), "ml-20m": (150.0, 1.6, 1.12)}
"""Popularity falls as (rank + first)^−second; the logarithm of users' activity has the third as its deviation."""

L2, DROPOUT, B = 300.0, 0.7, 2.0
BUDGET = "512MiB"
ARITHMETICS = ("float32", "fp16x3", "bf16x3", "tf32x3", "tf32", "float64")


def synthetic(name: str) -> csr_array:
    """Random interactions of a public data set's shape: skewed popularity and activity, at least one for each item."""
    users, items, interactions = SHAPES[name]
    offset, power, deviation = SKEW[name]
    rng = np.random.default_rng(0)
    popularity = (np.arange(items) + offset) ** -power
    activity = rng.lognormal(0.0, deviation, users)
    keys = np.arange(items, dtype=np.int64) + items * rng.integers(0, users, items)
    while len(keys) < interactions:  # pairs drawn twice count once, so a few rounds are needed
        missing = interactions - len(keys)
        who = rng.choice(users, 2 * missing, p=activity / activity.sum())
        what = rng.choice(items, 2 * missing, p=popularity / popularity.sum())
        fresh = np.setdiff1d(who * np.int64(items) + what, keys)
        keys = np.concatenate([keys, rng.permutation(fresh)[:missing]])
    places = rng.permutation(items)[keys % items]
    pairs = ((keys // items).astype(np.int32), places.astype(np.int32))
    return csr_array((np.ones(len(keys), np.float32), pairs), shape=(users, items))


def load(name: str) -> csr_array:
    """Training interactions of a data set; hosts with a device may lack what the library reads files with."""
    if name in SHAPES:
        return synthetic(name)
    lines = Path(os.environ["DEQL_DATA"], name, "train.txt").read_text().splitlines()
    rows = [np.array(line.split(), np.int32) for line in lines]
    users = np.repeat([row[0] for row in rows], [len(row) - 1 for row in rows])
    items = np.concatenate([row[1:] for row in rows])
    matrix = csr_array((np.ones(len(items), np.float32), (users, items)))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def stored(file: str) -> csr_array:
    """Data that the parent process wrote."""
    return csr_array(load_npz(file))


def save_data(name: str, file: str) -> Task:
    return Task(lambda: save_npz(file, load(name), compressed=False))


def new_model(**where: Any) -> Any:
    import deql

    warm = csr_array((np.ones(2, np.float32), np.array([0, 1]), np.array([0, 1, 2])), shape=(2, 2))
    deql.DEQL(l2=L2, dropout=DROPOUT, b=B, engine="memory").fit(warm)  # loads the kernels
    return deql.DEQL(l2=L2, dropout=DROPOUT, b=B, **where)


def sgemm_rate(size: int = 4096, repeats: int = 5) -> float:
    """Flops of a large matrix product in a second, the best of a few."""
    a = np.asfortranarray(np.random.default_rng(0).random((size, size), np.float32))
    c = np.zeros((size, size), np.float32, order="F")
    seconds = []
    for _ in range(repeats):
        start = perf_counter()
        sgemm(1.0, a, a, 0.0, c, overwrite_c=True)
        seconds.append(perf_counter() - start)
    return 2 * size**3 / min(seconds)


def fit_memory(name: str) -> Task:
    """A fit in memory, its stages timed, with a line of log every minute."""
    from deql.linalg.engines import memory

    matrix = load(name)
    before = sgemm_rate()
    model = new_model(engine="memory")
    seconds: dict[str, float] = {}
    whole, begin = memory.invert_in_memory, perf_counter()

    def timed(store: Any, report: Any = None) -> float:
        seconds["gram"] = perf_counter() - begin
        told = [perf_counter()]

        def log(done: int, total: int) -> None:
            if perf_counter() - told[0] > 60 or done == total:
                told[0] = perf_counter()
                print(f"{name}: pivot {done} of {total} after {told[0] - begin:,.0f} s", file=sys.stderr, flush=True)

        residual = whole(store, log)
        seconds["inverse"] = perf_counter() - begin - seconds["gram"]
        return residual

    memory.invert_in_memory = timed

    def work() -> Any:
        nonlocal begin
        begin = perf_counter()
        return model.fit(matrix)

    def finish(fitted: Any) -> dict[str, Any]:
        n = matrix.shape[1]
        rates = (before, sgemm_rate())
        facts = {"users": matrix.shape[0], "items": n, "values": int(matrix.nnz), "residual": fitted.residual_}
        return facts | seconds | {"sgemm_gflops": [rate / 1e9 for rate in rates], "floor": n**3 / max(rates)}

    return Task(work, finish)


def fit_stored(file: str, engine: str, folder: str = "") -> Task:
    """A fit of stored data; on disk within the budget, in a folder of its own if one is named."""
    from deql.engines import Disk
    from deql.linalg.engines.tile_folder import remove_tiles

    matrix = stored(file)
    model = new_model(engine=Disk(BUDGET, folder or None) if engine == "disk" else engine)

    def finish(fitted: Any) -> dict[str, Any]:
        if folder:  # else the next fit there would find it done
            remove_tiles(folder)
        return {"digest": digest_of(fitted.precision_.data)}

    return Task(lambda: model.fit(matrix), finish)


def digest_of(data: NDArray[Any]) -> str:
    import xxhash

    whole = xxhash.xxh3_128()
    for first in range(0, len(data), 2**24):
        whole.update(np.ascontiguousarray(data[first : first + 2**24]))
    return whole.hexdigest()


def make_gram(file: str, by: str) -> Task:
    matrix = stored(file)
    if by == "scipy":
        return Task(lambda: matrix.T @ matrix, lambda product: {"sum": float(product.sum(dtype=np.float64))})
    from deql.linalg.gram import gram

    new_model()

    def total(packed: Any) -> dict[str, Any]:
        return {"sum": float(packed.matvec(np.ones(packed.n)).sum())}

    return Task(lambda: gram(matrix), total)


def invert_torch(file: str, arithmetic: str) -> Task:
    """Gram matrix and inverse on a device; the second run counts, the first loads the libraries."""
    import torch

    from deql.linalg.engines.torch_gram import gram_on_device
    from deql.linalg.engines.torch_invert import invert_on_device
    from deql.linalg.engines.torch_packed import open_device

    matrix, device = stored(file), open_device()
    kind = torch.float64 if arithmetic == "float64" else torch.float32
    facts: dict[str, Any] = {}

    def work() -> None:
        for _ in range(2):
            torch.cuda.empty_cache()
            torch.cuda.synchronize()
            start = perf_counter()
            parts = (matrix.indptr, matrix.indices, matrix.data)
            store = gram_on_device(parts, matrix.shape[1], device, dtype=kind)
            torch.cuda.synchronize()
            facts["gram"] = perf_counter() - start
            store.add_to_diagonal(DROPOUT / (1 - DROPOUT) * store.diagonal() + L2)
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
            start, swept = perf_counter(), []

            def mark(done: int, total: int, swept: list[float] = swept, start: float = start) -> None:
                if done == total:
                    torch.cuda.synchronize()
                    swept.append(perf_counter() - start)

            facts["residual"] = invert_on_device(store, arithmetic, mark)
            torch.cuda.synchronize()
            facts["seconds"] = perf_counter() - start  # with its safety net: two products with vectors
            facts["sweep"] = swept[0]
            facts["gib"] = torch.cuda.max_memory_allocated() / 2**30
            del store

    return Task(work, lambda _: facts | {"device": torch.cuda.get_device_name()})


def rank_all(file: str, out: str, engine: str, arithmetic: str = "") -> Task:
    """A fit by one engine, P and the first twenty items of every user, who are ranked twice: the second time counts."""
    from deql.engines import Disk, Memory, Torch

    matrix = stored(file)
    engines = {"memory": Memory(), "disk": Disk("2GiB"), "torch": Torch(arithmetic=arithmetic or None)}
    model = new_model(engine=engines[engine], dtype="float64" if arithmetic == "float64" else "float32")
    facts: dict[str, Any] = {}

    def finish(fitted: Any) -> dict[str, Any]:
        for _ in range(2):
            start = perf_counter()
            items, _ = fitted._top(matrix, 20)[:2]
            facts["rank"] = perf_counter() - start
        np.save(f"{out}.items.npy", items)
        np.save(f"{out}.precision.npy", fitted.precision_.to_dense()[:: max(1, matrix.shape[1] // 4000)])
        return facts | {"residual": fitted.residual_}

    return Task(lambda: model.fit(matrix), finish)


TASKS: dict[str, Callable[..., Task]] = {
    "data": save_data,
    "memory": fit_memory,
    "stored": fit_stored,
    "gram": make_gram,
    "torch": invert_torch,
    "rank": rank_all,
}


def show_memory(names: list[str]) -> dict[str, Any]:
    """Fit each data set once."""
    rows, result = [], {}
    for name in names:
        one = measure(__file__, "memory", name)
        facts = one.facts
        ratio = {
            "fit_over_floor": one.seconds / facts["floor"],
            "inverse_over_floor": facts["inverse"] / facts["floor"],
        }
        result[name] = {"seconds": one.seconds, "peak_gib": one.peak_mib / 1024, "cores": one.cores} | ratio | facts
        rows.append((name, facts["items"], one.seconds, facts["gram"], facts["inverse"], facts["floor"],
                     *ratio.values(), one.cores, one.peak_mib / 1024))  # fmt: skip
    header = ("data", "items", "fit s", "Gram s", "inverse s", "n³ at sgemm rate s", "fit / it", "inverse / it",
              "cores", "peak GiB")  # fmt: skip
    show("In memory", header, rows)
    return result


def show_disk(file: str, folder: str, repeats: int) -> dict[str, Any]:
    """Disk against memory, and a fit that is killed three times."""
    runs: dict[str, Any] = {
        "memory": ("stored", file, "memory"),
        "disk, resumable": ("stored", file, "disk", f"{folder}/uninterrupted"),
        "disk, no folder named": ("stored", file, "disk"),
    }
    found = measure_all(__file__, runs, repeats)
    whole = found["disk, resumable"]
    rng, resumed, kills = random.Random(0), f"{folder}/killed", []
    command = [sys.executable, __file__, "--child", "stored", file, "disk", resumed]
    while len(kills) < 3:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            process.wait(rng.uniform(0.1, 0.35) * whole.seconds)
            raise RuntimeError("the fit ended before it was killed")
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        manifest = Path(resumed, "deql-tiles.json")
        kills.append(json.loads(json.loads(manifest.read_text())["content"])["done"] if manifest.exists() else None)
    found["disk, killed three times: the last run"] = last = measure(__file__, "stored", file, "disk", resumed)
    rows = [(label, one.seconds, one.seconds / found["memory"].seconds, one.cores, one.peak_mib)
            for label, one in found.items()]  # fmt: skip
    show(f"20,108 items on disk, budget {BUDGET}", ("fit", "seconds", "of memory's", "cores", "peak MiB"), rows)
    same = last.facts["digest"] == whole.facts["digest"]
    print(f"killed when so many pivots were done: {kills}; the same P to the last bit: {same}")
    base = found["memory"].seconds
    return {
        "disk_over_memory": found["disk, no folder named"].seconds / base,
        "resumable_over_memory": whole.seconds / base,
        "peak_mib": max(found["disk, no folder named"].peak_mib, whole.peak_mib, last.peak_mib),
        "pivots_done_at_kills": kills,
        "same_after_kills": same,
    }


def show_gram(file: str, repeats: int) -> dict[str, Any]:
    runs: dict[str, Any] = {"deql": ("gram", file, "deql"), "SciPy X.T @ X": ("gram", file, "scipy")}
    found = measure_all(__file__, runs, repeats)
    rows = [(label, one.seconds, one.cores, one.beyond_mib, one.facts["sum"]) for label, one in found.items()]
    show("Gram matrix, ML-20M's shape", ("by", "seconds", "cores", "MiB beyond data", "sum of entries"), rows)
    ours, theirs = found.values()
    return {"speedup_vs_scipy": theirs.seconds / ours.seconds, "same_sum": ours.facts == theirs.facts}


def show_torch(files: dict[str, str]) -> dict[str, Any]:
    """Each arithmetic in a process of its own."""
    result: dict[str, Any] = {}
    rows = []
    for name, file in files.items():
        for arithmetic in ARITHMETICS:
            facts = measure(__file__, "torch", file, arithmetic).facts
            result.setdefault(name, {})[arithmetic] = facts
            rows.append((name, arithmetic, facts["gram"], facts["sweep"], facts["seconds"], facts["gib"],
                         f"{facts['residual']:.1e}"))  # fmt: skip
    header = ("data", "arithmetic", "Gram s", "inverse s", "and checked s", "device GiB", "residual")
    show(f"On one {facts['device']}", header, rows)
    return result


def show_agreement(file: str, folder: str) -> dict[str, Any]:
    """P and lists of every engine beside those of the memory engine."""
    engines = {"memory": ("memory",), "disk": ("disk",)}
    try:
        import torch

        if torch.cuda.is_available():
            engines |= {f"torch {arithmetic}": ("torch", arithmetic) for arithmetic in ARITHMETICS}
    except ImportError:
        pass
    result: dict[str, Any] = {}
    rows = []
    for label, how in engines.items():
        out = f"{folder}/{label.replace(' ', '-')}"
        one = measure(__file__, "rank", file, out, *how)
        items, P = np.load(f"{out}.items.npy"), np.load(f"{out}.precision.npy")
        if label == "memory":
            first_items, first_P = items, P
        difference = float(np.abs(P - first_P).max() / np.abs(first_P).max())
        lists = float((items == first_items).all(axis=1).mean())
        sets = float((np.sort(items, 1) == np.sort(first_items, 1)).all(axis=1).mean())
        result[label] = {"difference": difference, "lists": lists, "sets": sets, "fit": one.seconds} | one.facts
        rows.append((label, one.seconds, one.facts["rank"], f"{one.facts['residual']:.1e}", f"{difference:.1e}",
                     f"{lists:.3%}", f"{sets:.3%}"))  # fmt: skip
    header = ("engine", "fit s", "rank s", "residual", "P differs by", "same lists", "same sets")
    show("Yelp2018 by every engine: P and all users' first 20 items beside the memory engine's", header, rows)
    return result


def main() -> int:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description="Time the engines, and measure their memory.")
    parser.add_argument("--memory", nargs="*", default=[], metavar="DATA", help="yelp2018, amazon-book")
    for part in ("disk", "gram", "torch", "agree"):
        parser.add_argument(f"--{part}", action="store_true")
    parser.add_argument("--repeats", type=int, default=2, help="repeats of each entry; the best counts")
    options = parser.parse_args()
    result: dict[str, Any] = {}
    if options.memory:
        result["memory"] = show_memory(options.memory)
    # Not in memory: a file there would be counted as such.
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as folder:

        def saved(name: str) -> str:
            file = f"{folder}/{name}.npz"
            if not Path(file).exists():
                measure(__file__, "data", name, file)  # not here: children's peaks start from what this process holds
            return file

        if options.gram:
            result["gram"] = show_gram(saved("ml-20m"), options.repeats)
        if options.disk:
            result["disk"] = show_disk(saved("ml-20m"), folder, options.repeats)
        if options.torch:
            result["torch"] = show_torch({name: saved(name) for name in ("yelp2018", "amazon-book")})
        if options.agree:
            result["agree"] = show_agreement(saved("yelp2018"), folder)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    serve(TASKS)
    sys.exit(main())
