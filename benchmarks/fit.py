"""Fitting time and memory: deql against the paper's Fast Algorithm and against the bare cubic step.

Entries, each in a process of its own:

- ``deql``: ``DEQL(l2, dropout, b).fit(csr)`` in float32, compiled kernels loaded beforehand.
- ``paper``: the Fast Algorithm of the paper's section 4 for DEQL(L2), in NumPy and float64, as the text
  has it: each matrix it names is an array. Only RᵀR is a sparse product (the paper counts O(mn²)).
- ``paper, tuned``: the same steps with the care the text does not ask for: Hadamard products in place, a
  matrix freed after its last use, and a layout in which the loop reads and writes contiguous columns.
- ``potrf + potri`` and ``pftrf + pftri``: LAPACK's Cholesky inverse of the ready float32 matrix, dense
  in place and packed. Only the cubic step is timed, and the ready matrix counts as data.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.sparse import csr_array, load_npz, save_npz

from _measure import Measurement, Task, measure, measure_all, serve, show

L2, DROPOUT, B = 50.0, 0.3, 0.5
CHECKED_COLUMNS = 16
LARGEST_DIFFERENCE = 1e-3
TARGETS = {"speedup_vs_paper": 12.0, "memory_vs_paper": 15.0, "time_over_lapack": 1.25}
ENTRIES = {
    "deql": ["deql"],
    "paper": ["paper"],
    "paper, tuned": ["paper", "tuned"],
    "potrf + potri": ["dense"],
    "pftrf + pftri": ["packed"],
}


def synthetic(n: int, users: int = 40_000, interactions: int = 1_000_000) -> csr_array:
    """Random interactions with Zipf-like popularity of items, at least one for each item."""
    rng = np.random.default_rng(0)
    popularity = 1.0 / (np.arange(n) + 10.0)
    activity = rng.lognormal(0.0, 1.0, users)
    items = np.concatenate([np.arange(n), rng.choice(n, interactions, p=popularity / popularity.sum())])
    who = rng.choice(users, len(items), p=activity / activity.sum())
    matrix = csr_array((np.ones(len(items), np.float32), (who, rng.permutation(n)[items])), shape=(users, n))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def paper_weights(R: csr_array, lam: float, p: float, a: float, b: float) -> NDArray[np.float64]:
    """W of DEQL(L2) by the paper's Fast Algorithm, with its names and its matrices."""
    n = R.shape[1]
    RtR = (R.T @ R).toarray()
    G0 = _two_valued(n, (1 - p) * p * a**2 + (1 - p) ** 2 * b**2, (1 - p) ** 2 * p * a**2 + (1 - p) ** 3 * b**2)
    U = _two_valued(n, (1 - p) * b**2, (1 - p) * p * a**2 + (1 - p) ** 2 * b**2)
    across = -((1 - p) ** 2) * p * (a**2 - b**2)
    G1 = _two_valued(n, -(1 - p) * p * (a**2 - b**2), across)
    G2 = _two_valued(n, 0.0, across)
    H0_inverse = np.linalg.inv(G0 * RtR + lam * np.eye(n))
    V = H0_inverse @ (U * RtR)
    E1 = H0_inverse @ (G1 * RtR)
    E2 = G2 * RtR
    W = np.zeros((n, n))
    for i in range(n):
        r, w, e2 = V[:, i], E1[:, i], E2[:, i]
        s = r - r[i] / (1 + w[i]) * w
        t = H0_inverse[:, i] - H0_inverse[i, i] / (1 + w[i]) * w
        W[:, i] = s - (e2 @ s) / (1 + e2 @ t) * t
    return W


def _two_valued(n: int, diagonal: float, other: float) -> NDArray[np.float64]:
    G = np.full((n, n), other)
    np.fill_diagonal(G, diagonal)
    return G


def tuned_paper_weights(R: csr_array, lam: float, p: float, a: float, b: float) -> NDArray[np.float64]:
    """The same, sparing memory and striding."""
    n = R.shape[1]
    RtR = (R.T @ R).toarray()
    H0 = _hadamard((1 - p) * p * a**2 + (1 - p) ** 2 * b**2, (1 - p) ** 2 * p * a**2 + (1 - p) ** 3 * b**2, RtR)
    H0[np.diag_indices(n)] += lam
    inverse = np.linalg.inv(H0)
    del H0
    across = -((1 - p) ** 2) * p * (a**2 - b**2)
    inverse_v = _product(inverse, _hadamard((1 - p) * b**2, (1 - p) * p * a**2 + (1 - p) ** 2 * b**2, RtR))
    inverse_e1 = _product(inverse, _hadamard(-(1 - p) * p * (a**2 - b**2), across, RtR))
    e2 = _hadamard(0.0, across, RtR)
    del RtR
    W = np.empty((n, n), order="F")
    for i in range(n):
        r, w = inverse_v[:, i], inverse_e1[:, i]
        s = r - r[i] / (1 + w[i]) * w
        # Row i of the symmetric inverse is its column i, and contiguous.
        t = inverse[i] - inverse[i, i] / (1 + w[i]) * w
        W[:, i] = s - (e2[:, i] @ s) / (1 + e2[:, i] @ t) * t
    return W


def _hadamard(diagonal: float, other: float, RtR: NDArray[np.float64]) -> NDArray[np.float64]:
    """G ⊙ RᵀR, where G has one value on its diagonal and another elsewhere."""
    G = np.full(RtR.shape, other, order="F")
    np.fill_diagonal(G, diagonal)
    G *= RtR
    return G


def _product(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.matmul(left, right, out=np.empty(left.shape, order="F"))


def save_data(folder: str, name: str, n: str) -> Task:
    """Write a data set for the fits, and for LAPACK the matrix to invert, dense and packed."""
    import deql

    def work() -> csr_array:
        matrix = synthetic(int(n)) if name == "synthetic" else deql.datasets.debian().matrix
        save_npz(_file(folder, name, "npz"), matrix, compressed=False)
        A = (matrix.T @ matrix).toarray(order="F")
        i = np.arange(len(A))
        A[i, i] = A[i, i] / (1 - DROPOUT) + L2
        np.save(_file(folder, name, "dense.npy"), A)
        np.save(_file(folder, name, "packed.npy"), lapack.strttf(A, uplo="L")[0])
        return matrix

    return Task(work, lambda matrix: {"users": matrix.shape[0], "items": matrix.shape[1], "values": matrix.nnz})


def fit_deql(folder: str, name: str) -> Task:
    import deql

    matrix = load_npz(_file(folder, name, "npz"))
    model = deql.DEQL(l2=L2, dropout=DROPOUT, b=B)
    # A fit of two items loads the kernels for the types of this matrix.
    types = matrix.indptr.dtype, matrix.indices.dtype, matrix.dtype
    indptr, indices, values = (np.array(part, kind) for part, kind in zip(([0, 2], [0, 1], [1, 1]), types, strict=True))
    model.fit(csr_array((values, indices, indptr), shape=(1, 2)))
    return Task(lambda: model.fit(matrix), lambda fitted: _save_columns(folder, name, "deql", fitted.weights()))


def fit_paper(folder: str, name: str, tuned: str = "") -> Task:
    matrix = load_npz(_file(folder, name, "npz")).astype(np.float64)
    # The library's l2 is the ridge as the Gram matrix sees it: l2 = λ/((1−p)²·κ), here with a = 1.
    lam = L2 * (1 - DROPOUT) ** 2 * (DROPOUT + (1 - DROPOUT) * B**2)
    work = partial(tuned_paper_weights if tuned else paper_weights, lam=lam, p=DROPOUT, a=1.0, b=B)
    return Task(lambda: work(matrix), lambda W: _save_columns(folder, name, "paper", W))


def invert_dense(folder: str, name: str) -> Task:
    A = np.load(_file(folder, name, "dense.npy"))

    def work() -> NDArray[np.float32]:
        factor, _ = lapack.spotrf(A, lower=1, clean=0, overwrite_a=1)
        return lapack.spotri(factor, lower=1, overwrite_c=1)[0]

    return Task(work, partial(_check_in_place, A))


def invert_packed(folder: str, name: str) -> Task:
    A = np.load(_file(folder, name, "packed.npy"))
    n = int(np.sqrt(2 * len(A)))

    def work() -> NDArray[np.float32]:
        factor, _ = lapack.spftrf(n, A, uplo="L", overwrite_a=1)
        return lapack.spftri(n, factor, uplo="L", overwrite_a=1)[0]

    return Task(work, partial(_check_in_place, A))


def _check_in_place(A: NDArray[np.float32], inverse: NDArray[np.float32]) -> dict[str, Any]:
    if not np.shares_memory(A, inverse):
        raise RuntimeError("the cubic step copied its matrix")
    return {}


def _file(folder: str, name: str, suffix: str) -> Path:
    return Path(folder, f"{name}.{suffix}")


def _save_columns(folder: str, name: str, entry: str, W: NDArray[Any]) -> dict[str, Any]:
    columns = np.linspace(0, len(W) - 1, CHECKED_COLUMNS).astype(int)
    np.save(_file(folder, name, f"{entry}.npy"), W[:, columns])
    return {}


def _difference(folder: str, name: str) -> float:
    """Largest difference between the checked columns of both W, relative to their largest entry."""
    ours, theirs = (np.load(_file(folder, name, f"{entry}.npy")) for entry in ("deql", "paper"))
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def _ratios(found: dict[str, Measurement]) -> dict[str, float]:
    ours = found["deql"]
    against = {}
    for label in ("paper", "paper, tuned"):
        name = label.replace(", ", "_")
        against[f"speedup_vs_{name}"] = found[label].seconds / ours.seconds
        against[f"memory_vs_{name}_total"] = found[label].peak_mib / ours.peak_mib
        against[f"memory_vs_{name}_beyond_baseline"] = found[label].beyond_mib / ours.beyond_mib
    return against | {
        "time_over_potrf_potri": ours.seconds / found["potrf + potri"].seconds,
        "time_over_pftrf_pftri": ours.seconds / found["pftrf + pftri"].seconds,
    }


TASKS: dict[str, Callable[..., Task]] = {
    "data": save_data,
    "deql": fit_deql,
    "paper": fit_paper,
    "dense": invert_dense,
    "packed": invert_packed,
}


def main() -> int:
    """Measure, print the table and the ratios; 1 if deql and the paper's algorithm disagree."""
    parser = argparse.ArgumentParser(description="Time and measure deql's fit.")
    parser.add_argument("--repeats", type=int, default=3, help="repeats of each entry; the best counts")
    parser.add_argument("--n", type=int, default=12_000, help="items of the synthetic data")
    parser.add_argument("--data", nargs="+", choices=("debian", "synthetic"), default=("debian", "synthetic"))
    options = parser.parse_args()
    result: dict[str, Any] = {"targets": TARGETS}
    rows = []
    agreed = True
    with TemporaryDirectory() as folder:
        for name in options.data:
            size = measure(__file__, "data", folder, name, options.n).facts
            # A first fit, not counted: where kernels are not compiled yet, that takes memory too.
            measure(__file__, "deql", folder, name)
            runs = {label: (task, folder, name, *how) for label, (task, *how) in ENTRIES.items()}
            found = measure_all(__file__, runs, options.repeats)
            rows += [
                (name, label, one.seconds, one.cores, one.peak_mib, one.beyond_mib) for label, one in found.items()
            ]
            difference = _difference(folder, name)
            agreed &= difference <= LARGEST_DIFFERENCE
            result[name] = size | _ratios(found) | {"difference_from_paper": difference}
            print(f"{name}: {size}; W differs from the paper's by {difference:.1e} of its largest entry")
    show("Fitting", ("data", "entry", "seconds", "cores", "peak MiB", "MiB beyond imports and data"), rows)
    print(json.dumps(result))
    return 0 if agreed else 1


if __name__ == "__main__":
    serve(TASKS)
    sys.exit(main())
