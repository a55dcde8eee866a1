"""Leading eigenvectors of the graph of users and items, as the low pass takes them: our solver against SciPy's.

Data: published splits in $DEQL_DATA. Each solver runs in a process of its own, on as many cores as there are.

- ``deql``: subspace iteration with Chebyshev filters, to the distance at which the library stops; ``deql 0.1`` …
  to another distance.
- ``arpack``, ``propack``, ``lobpcg``: ``eigsh``, ``svds`` and ``lobpcg`` of SciPy, float64.

Residuals ‖G·v − θ·v‖ are computed anew in float64. Distances ‖VVᵀ − V*V*ᵀ‖_F/√(2k) are those from ARPACK's vectors, or,
where it does not run, from the closest of ours. Recall@20 and NDCG@20 on the test part are those of the low pass alone,
with powers of 0.5: they tell how far the iteration has to go.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

import deql
from _measure import Measurement, Task, measure_all, serve, show
from deql._system.threads import blas_limited
from deql.data import Interactions
from deql.linalg.eigenvectors import leading_eigenvectors
from deql.linalg.subspace_iteration import CLOSE
from deql.models.stored import FactoredAutoencoder
from deql.priors import LowPass
from deql.priors.low_pass import LowPassBasis, normalised
from deql.split import Split, read_lightgcn_split

SOLVERS = ["deql", "deql 0.1", "deql 0.03", "deql 0.001", "arpack", "propack", "lobpcg"]
TARGETS = {"seconds_512": 40.0, "metrics_differ": 5e-5}
MOST = 20
"""Iterations of LOBPCG: with them it is slower than all others already."""


@dataclass(eq=False, repr=False)
class Alone(FactoredAutoencoder):
    """A low pass and nothing else."""

    vectors: NDArray[np.float32] | None = None

    def _learn(self, data: Interactions) -> None:
        degrees = np.maximum(data.matrix.sum(axis=0), 1.0)[:, None]
        self._keep(degrees**-0.5 * self.vectors, degrees**0.5 * self.vectors)


def load(name: str) -> Split:
    return read_lightgcn_split(Path(os.environ["DEQL_DATA"], name))


def find(name: str, solver: str, rank: str, worth: str, folder: str) -> Task:
    """The eigenvectors; their residuals and what they are worth afterwards."""
    split, k = load(name), int(rank)
    half = normalised(split.train.matrix)[0]
    own = solver.split()[0] == "deql"
    close = float(solver.split()[1]) if solver != "deql" and own else CLOSE
    if own:
        leading_eigenvectors(csr_array(half[:, :2500]), 4)  # compiles

    def work() -> NDArray[Any]:
        return leading_eigenvectors(half, k, close=close).vectors if own else by_scipy(half, solver, k)

    def finish(vectors: NDArray[Any]) -> dict[str, Any]:
        np.save(Path(folder, f"{name} {k} {solver}.npy"), vectors)
        V = vectors.astype(np.float64)
        image = half.T @ (half @ V)
        values = np.einsum("ij,ij->j", V, image)
        facts = {"residual": float(np.linalg.norm(image - V * values, axis=0).max()), "last": float(values[-1])}
        if int(worth):
            model = Alone(vectors=vectors.astype(np.float32)).fit(split.train)
            facts |= deql.evaluate(model, split.test, ["recall@20", "ndcg@20"]).means
        return facts

    return Task(work, finish)


def by_scipy(half: csr_array, solver: str, k: int) -> NDArray[np.float64]:
    from scipy.sparse.linalg import LinearOperator, eigsh, lobpcg, svds

    n, back, generator = half.shape[1], csr_array(half.T), np.random.default_rng(0)

    def multiply(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return back @ (half @ x)

    G = LinearOperator((n, n), matvec=multiply, matmat=multiply, dtype=np.float64)
    with blas_limited():
        if solver == "arpack":
            values, vectors = eigsh(G, k, v0=generator.standard_normal(n), tol=1e-4)
        elif solver == "propack":
            _, values, rows = svds(half, k, solver="propack", tol=1e-4, rng=generator)
            vectors = rows.T
        else:
            values, vectors = lobpcg(G, generator.standard_normal((n, k)), tol=1e-3, maxiter=MOST, largest=True)
    return vectors[:, np.argsort(-values)]


def prior(name: str, rank: str) -> Task:
    """The whole of what a fit asks of the prior; beside it, how long another choice of powers takes."""
    train = load(name).train
    LowPass(4).weights(Interactions.from_csr(train.matrix[:, :2500]))

    def finish(_: Any) -> dict[str, float]:
        basis, seconds = LowPassBasis.of(train, int(rank)), []
        for powers in ((0.5, 0.5), (0.5, 0.3), (0.3, 0.3), (0.5, 0.5)):
            start = perf_counter()
            basis.weights(int(rank), *powers)
            seconds.append(perf_counter() - start)
        return dict(zip(("first", "new power_out", "new power_in", "known powers"), seconds, strict=True))

    return Task(lambda: LowPass(int(rank)).weights(train), finish)


def main() -> int:
    serve({"find": find, "prior": prior})
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["gowalla", "yelp2018"])
    parser.add_argument("--ranks", nargs="+", type=int, default=[512, 1024])
    parser.add_argument("--solvers", nargs="+", choices=SOLVERS, default=[*SOLVERS[:4], "arpack"])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--without-metrics", action="store_true")
    options = parser.parse_args()
    if "DEQL_DATA" not in os.environ:
        parser.error("set DEQL_DATA to the folder that holds the data sets")
    rows, facts, ratios = [], {}, {"seconds_512": 0.0, "metrics_differ": 0.0}
    worth = int(not options.without_metrics)
    for name in options.data:
        for rank in options.ranks:
            with TemporaryDirectory() as folder:
                runs = {solver: ["find", name, solver, rank, worth, folder] for solver in options.solvers}
                found = measure_all(__file__, runs, options.repeats)
                truth = "arpack" if "arpack" in found else min(found, key=lambda one: found[one].facts["residual"])
                exact = np.load(Path(folder, f"{name} {rank} {truth}.npy"))
                for solver, sample in found.items():
                    sample.facts["distance"] = distance(exact, np.load(Path(folder, f"{name} {rank} {solver}.npy")))
                    rows.append([name, rank, solver, *_cells(sample)])
                    facts[f"{name} {rank} {solver}"] = sample.facts | {"cpu_seconds": sample.cpu_seconds}
            if "deql" in found:
                ours, best = found["deql"], found[truth]
                if rank == 512:
                    ratios["seconds_512"] = max(ratios["seconds_512"], ours.seconds)
                for metric in ("recall@20", "ndcg@20") if worth else ():
                    apart = abs(ours.facts[metric] - best.facts[metric])
                    ratios["metrics_differ"] = max(ratios["metrics_differ"], apart)
            whole = measure_all(__file__, {"prior": ["prior", name, rank]}, options.repeats)["prior"]
            rows.append([name, rank, "LowPass.weights", *_cells(whole)])
            facts[f"{name} {rank} LowPass.weights"] = whole.facts | {"cpu_seconds": whole.cpu_seconds}
    show(
        "Leading eigenvectors",
        ["data", "k", "", "s", "CPU s", "peak MiB", "beyond", "residual", "distance", "R@20", "N@20"],
        rows,
    )
    met = {name: ratios[name] <= most for name, most in TARGETS.items()}
    print(json.dumps({"ratios": ratios, "targets": TARGETS, "met": met, "facts": facts}))
    return 0 if all(met.values()) else 1


def distance(exact: NDArray[Any], found: NDArray[Any]) -> float:
    """‖VVᵀ − V*V*ᵀ‖_F/√(2k), of orthonormal columns."""
    k = exact.shape[1]
    return float(np.sqrt(max(0.0, 1.0 - (np.square(exact.T @ found.astype(np.float64))).sum() / k)))


def _cells(sample: Measurement) -> list[object]:
    facts = sample.facts
    shown = [f"{facts[name]:.1e}" if name in facts else "" for name in ("residual", "distance")]
    worth = [f"{facts[name]:.5f}" if name in facts else "" for name in ("recall@20", "ndcg@20")]
    return [sample.seconds, sample.cpu_seconds, sample.peak_mib, sample.beyond_mib, *shown, *worth]


if __name__ == "__main__":
    sys.exit(main())
