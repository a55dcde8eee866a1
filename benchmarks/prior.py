"""What a prior costs a fit: time and memory of DEQL with a low pass beside DEQL without.

Each fit runs in a process of its own, with compiled kernels loaded beforehand. The parts that the prior adds, the
eigenvectors and the product P·U, are timed by themselves in the second.

    python benchmarks/prior.py                            # 40,000 items, rank 512
    python benchmarks/prior.py --items 8000 --rank 64
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scipy.sparse import load_npz, save_npz

from _measure import Task, measure, measure_all, serve, show
from fit import DROPOUT, L2, B, synthetic

TARGET = 1.25


def save_data(folder: str, items: str) -> Task:
    return Task(lambda: save_npz(Path(folder, "data.npz"), synthetic(int(items)), compressed=False))


def fit(folder: str, rank: str) -> Task:
    import deql
    from deql.models import linear

    data = deql.Interactions.from_csr(load_npz(Path(folder, "data.npz")))
    small = deql.Interactions.from_csr(data.matrix[:2000, :200]).without_empty()
    prior = deql.priors.LowPass(rank=int(rank)) if int(rank) else None
    warm = deql.priors.LowPass(rank=2) if prior else None
    deql.DEQL(l2=L2, dropout=DROPOUT, b=B, prior=warm).fit(small)
    took: dict[str, float] = {}
    if prior is not None:
        object.__setattr__(prior, "weights", _timed(prior.weights, "eigenvectors", took))
        linear.FittedPrior.of = _timed(linear.FittedPrior.of, "product", took)  # type: ignore[method-assign]
    model = deql.DEQL(l2=L2, dropout=DROPOUT, b=B, prior=prior)
    return Task(lambda: model.fit(data), lambda fitted: took)


def _timed(function: Callable[..., Any], name: str, took: dict[str, float]) -> Callable[..., Any]:
    def timed(*given: Any, **named: Any) -> Any:
        start = time.perf_counter()
        result = function(*given, **named)
        took[name] = time.perf_counter() - start
        return result

    return timed


def main() -> None:
    serve({"data": save_data, "fit": fit})
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=40_000)
    parser.add_argument("--rank", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the numbers here, too")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        measure(__file__, "data", folder, options.items)
        runs = {"without": ("fit", folder, 0), "with": ("fit", folder, options.rank)}
        found = measure_all(__file__, runs, options.repeats)
    ratio = found["with"].seconds / found["without"].seconds
    rows = [(name, one.seconds, one.cpu_seconds, one.peak_mib / 1024) for name, one in found.items()]
    rows += [(name, seconds, "", "") for name, seconds in found["with"].facts.items()]
    title = f"{options.items:,} items, low pass of rank {options.rank}: {ratio:.2f} × the time (at most {TARGET})"
    show(title, ["fit", "seconds", "CPU seconds", "peak GiB"], rows)
    if options.json:
        facts = {name: vars(one) for name, one in found.items()}
        options.json.write_text(json.dumps(facts | {"ratio": ratio}, indent=2) + "\n")
    sys.exit(ratio > TARGET)


if __name__ == "__main__":
    main()
