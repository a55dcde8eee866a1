"""What a prior costs: a fit with a low pass, lists for all users, and a server's requests, each beside none.

Users, items and lengths of histories are Gowalla's, all else is made up: P as in serve.py, so that nothing is fitted
where only ranking is measured, and factors as a low pass has them. Every measurement is a process of its own, with and
without a prior by turns; the best of a few counts. The server's part is serve.py, with two workers.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from _measure import Task, measure_all, serve, show
from serve import made_up_model, made_up_prior

K = 20
TARGETS = {"fit": 1.25, "recommend": 2.0, "requests_per_second": 300.0}
PARTS = ("fit", "recommend", "serve")


def made_up_users(users: int, items: int, length: int, generator: np.random.Generator) -> csr_array:
    """Histories of about this length; popular items are the first ones."""
    drawn = np.sort((items * generator.random((users, length)) ** 3).astype(np.int32), axis=1)
    once = np.diff(drawn, axis=1, prepend=-1) > 0
    indptr = np.concatenate([[0], np.cumsum(once.sum(axis=1))])
    return csr_array((np.ones(indptr[-1], np.float32), drawn[once], indptr), shape=(users, items))


def fit(users: str, items: str, length: str, rank: str) -> Task:
    """All of a fit, from the interactions on."""
    import deql

    data = made_up_users(int(users), int(items), int(length), np.random.default_rng(0))
    prior = deql.priors.LowPass(int(rank)) if int(rank) else None
    deql.DEQL(l2=80.0, dropout=0.3, b=0.5, prior=prior and deql.priors.LowPass(2)).fit(data[:200, :60])  # compiles
    model = deql.DEQL(l2=80.0, dropout=0.3, b=0.5, prior=prior)
    return Task(lambda: model.fit(data))


def recommend(users: str, items: str, length: str, rank: str) -> Task:
    """Lists for all users."""
    generator = np.random.default_rng(0)
    model = made_up_model(int(items), generator)
    histories = made_up_users(int(users), int(items), int(length), generator)
    if int(rank):
        model = made_up_prior(model, int(rank), generator)
    model.recommend(histories[:2], k=K)  # loads the kernels
    return Task(
        lambda: model.recommend(histories, k=K),
        lambda found: {"output_mib": (found.ids.nbytes + found.scores.nbytes) / 2**20},
    )


def requests(items: int, rank: int, seconds: float) -> dict[str, Any]:
    """What serve.py says of two workers under its usual load."""
    command = [sys.executable, str(Path(__file__).with_name("serve.py")), "--items", str(items), "--prior", str(rank)]
    command += ["--seconds", str(seconds), "--reloads", "0", "--", "--workers", "2"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 2):  # wrong answers, or none
        raise RuntimeError(f"serve.py failed:\n{done.stdout[-2000:]}")
    run = next(run for label, run in json.loads(done.stdout.splitlines()[-1])["runs"].items() if "connections" in label)
    return {name: run[name] for name in ("per_second", "ms", "errors", "wrong", "compared", "server_cpu")}


def main() -> int:
    """Measure, print the tables and the ratios; 2 if a target was missed."""
    parser = argparse.ArgumentParser(description="What a prior costs.")
    parser.add_argument("parts", nargs="*", default=PARTS, help=f"some of {', '.join(PARTS)}; all by default")
    parser.add_argument("--users", type=int, default=29_858)
    parser.add_argument("--items", type=int, default=40_981)
    parser.add_argument("--length", type=int, default=27, help="items of a history")
    parser.add_argument("--rank", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3, help="of each measurement; the best counts")
    parser.add_argument("--seconds", type=float, default=20.0, help="of load on the server")
    options = parser.parse_args()
    sizes = (options.users, options.items, options.length)
    result: dict[str, Any] = {"targets": TARGETS, "users": sizes[0], "items": sizes[1], "rank": options.rank}
    missed = []
    for part in ("fit", "recommend"):
        if part not in options.parts:
            continue
        found = measure_all(
            __file__, {rank: (part, *sizes, rank) for rank in (0, options.rank)}, options.repeats
        )
        show(
            f"{part}: {sizes[0]:,} users, {sizes[1]:,} items",
            ("prior", "seconds", "CPU seconds", "MiB beyond imports and inputs"),
            ((f"rank {rank}" if rank else "none", one.seconds, one.cpu_seconds, one.beyond_mib)
             for rank, one in found.items()),
        )  # fmt: skip
        without, with_prior = found[0], found[options.rank]
        result[part] = {
            "seconds": [without.seconds, with_prior.seconds],
            "cpu_seconds": [without.cpu_seconds, with_prior.cpu_seconds],
            "beyond_mib": [without.beyond_mib, with_prior.beyond_mib],
            "ratio": with_prior.seconds / without.seconds,
        }
        missed += [part] if result[part]["ratio"] > TARGETS[part] else []
    if "serve" in options.parts:
        served = {rank: requests(options.items, rank, options.seconds) for rank in (0, options.rank)}
        show(
            f"serve: two workers, {options.items:,} items",
            ("prior", "requests/s", "p50 ms", "p99 ms", "errors", "wrong", "server's cores"),
            ((f"rank {rank}" if rank else "none", run["per_second"], run["ms"]["p50"], run["ms"]["p99"], run["errors"],
              f"{run['wrong']} of {run['compared']}", run["server_cpu"]) for rank, run in served.items()),
        )  # fmt: skip
        result["serve"] = {"none": served[0], "prior": served[options.rank]}
        missed += ["serve"] if served[options.rank]["per_second"] < TARGETS["requests_per_second"] else []
    print(json.dumps(result))
    print(*(f"below the targets: {part}" for part in missed), sep="\n", end="\n" if missed else "", file=sys.stderr)
    return 2 if missed else 0


if __name__ == "__main__":
    serve({"fit": fit, "recommend": recommend})
    sys.exit(main())
