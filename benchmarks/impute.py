"""Entries hidden from the tables that scikit-learn ships, and how well each imputer guesses them.

The error is the root mean square over hidden entries in units of each column's standard deviation, so 1 is about what a
column's mean achieves. All imputers have their default parameters; nothing is chosen on what is hidden. "scaled" gets
columns of mean 0 and deviation 1, as LinearImputer makes for itself: distances depend on units.

Hidden are: any entry with the same chance (10, 30, 50 %); entries above their column's median three times as often as
others (30 % in all); or runs of neighbouring columns, a quarter of all but two at least, together (30 %).

"one matrix" is the family's own way with unknown patterns: EDLAE, trained for a dropout of the share that is missing,
on the Gram matrix, means and l2 that LinearImputer found.

All work in one thread and seconds are those of the processor, so that company on the machine matters little.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from itertools import product

import numpy as np
import threadpoolctl
from numpy.typing import NDArray

import deql
from _measure import show

Table = NDArray[np.float64]

WAYS = (("any", 0.1), ("any", 0.3), ("any", 0.5), ("high", 0.3), ("blocks", 0.3))
OURS = "LinearImputer"
FIRST_SEED = 100
"""Other draws than those looked at while the imputer was designed."""


def tables() -> dict[str, Table]:
    """The real tables, without constant columns."""
    from sklearn import datasets

    names = ("iris", "wine", "diabetes", "breast_cancer", "digits")
    found = {name: getattr(datasets, f"load_{name}")().data for name in names}
    linnerud = datasets.load_linnerud()
    found["linnerud"] = np.hstack([linnerud.data, linnerud.target])
    return {name: table[:, table.std(axis=0) > 0].astype(np.float64) for name, table in found.items()}


def hide(table: Table, way: str, share: float, seed: int) -> Table:
    """The table with NaN where an entry is hidden; every column keeps two entries at least."""
    generator = np.random.default_rng(seed)
    rows, columns = table.shape
    if way == "any":
        hidden = generator.random(table.shape) < share
    elif way == "high":
        hidden = generator.random(table.shape) < np.where(table > np.median(table, axis=0), 1.5 * share, 0.5 * share)
    else:
        blocks = min(4, columns // 2)
        hidden = (generator.random((rows, blocks)) < share)[:, np.arange(columns) * blocks // columns]
    hidden[:, (~hidden).sum(axis=0) < 2] = False
    return np.where(hidden, np.nan, table)


def entries() -> dict[str, Callable[[Table], Table]]:
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

    from deql.impute import LinearImputer

    def all_columns(imputer: object) -> Callable[[Table], Table]:
        return lambda table: imputer.fit_transform(table)  # type: ignore[attr-defined]

    return {
        OURS: all_columns(LinearImputer()),
        "one matrix": one_matrix,
        "mean": all_columns(SimpleImputer()),
        "median": all_columns(SimpleImputer(strategy="median")),
        "KNNImputer": all_columns(KNNImputer()),
        "KNNImputer, scaled": scaled(all_columns(KNNImputer())),
        "IterativeImputer": all_columns(IterativeImputer(random_state=0)),
    }


def scaled(impute: Callable[[Table], Table]) -> Callable[[Table], Table]:
    """An imputer that sees columns in standard deviations of what is observed in them."""

    def impute_scaled(table: Table) -> Table:
        mean, deviation = np.nanmean(table, axis=0), np.nanstd(table, axis=0)
        deviation[deviation == 0] = 1.0
        return impute((table - mean) / deviation) * deviation + mean

    return impute_scaled


def one_matrix(table: Table) -> Table:
    """x̂ = x·W with EDLAE's W, missing entries 0 in x."""
    from deql.impute import LinearImputer
    from deql.rules import decoupled

    model = LinearImputer().fit(table)
    dropout = float(np.isnan(table).mean())
    A = np.linalg.inv(model.precision_)
    constant = np.arange(len(A)) == 0  # it has no ridge and is never missing
    D = np.diag(A) - np.where(constant, 0.0, model.l2_)
    P = np.linalg.inv(A + dropout / (1 - dropout) * np.diag(np.where(constant, 0.0, D)))
    gain, shift = decoupled(np.diag(P), D, l2=model.l2_, dropout=dropout, b=0.0)
    W = P * gain + np.diag(shift)
    W[0] *= 1 - dropout  # W makes up for inputs that were dropped
    columns = model.modelled_
    mean, scale = model.mean_[columns], model.scale_[columns]
    guess = np.tile(model.mean_, (len(table), 1))
    given = np.nan_to_num((table[:, columns] - mean) / scale)
    guess[:, columns] += (W[0, 1:] + given @ W[1:, 1:]) * scale
    return np.where(np.isnan(table), guess, table)


def error(table: Table, hidden: NDArray[np.bool_], guess: Table) -> float:
    return float(np.sqrt(np.mean(((guess - table) / table.std(axis=0))[hidden] ** 2)))


def compare(table: Table, seeds: int) -> dict[str, dict[str, list[float]]]:
    """Errors, one for each way and seed, and seconds of each imputer."""
    found: dict[str, dict[str, list[float]]] = {}
    for (way, share), seed in product(WAYS, range(FIRST_SEED, FIRST_SEED + seeds)):
        given = hide(table, way, share, seed)
        for name, impute in entries().items():
            start = time.process_time()
            guess = impute(given)
            seconds = time.process_time() - start
            kept = found.setdefault(name, {"errors": [], "seconds": []})
            kept["errors"].append(error(table, np.isnan(given), guess))
            kept["seconds"].append(seconds)
    return found


def large() -> dict[str, float]:
    """Seconds for 10,000 rows of 200 columns with 20 % missing; IterativeImputer makes one round of its ten."""
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer, KNNImputer

    from deql.impute import LinearImputer

    generator = np.random.default_rng(0)
    table = generator.standard_normal((10_000, 20)) @ generator.standard_normal((20, 200))
    table += 1.5 * generator.standard_normal(table.shape)
    given = hide(table, "any", 0.2, 0)
    imputers = {
        OURS: LinearImputer().fit_transform,
        "KNNImputer, scaled": scaled(KNNImputer().fit_transform),
        "one round": IterativeImputer(max_iter=1).fit_transform,
    }
    seconds = {}
    for name, impute in imputers.items():
        start = time.process_time()
        guess = impute(given)
        seconds[name] = time.process_time() - start
        print(f"{name}: {seconds[name]:.1f} s, error {error(table, np.isnan(given), guess):.3f}", flush=True)
    return seconds


def main() -> int:
    """Measure, print a table for each data set and the ratios; 1 if a column's mean or median is better anywhere."""
    parser = argparse.ArgumentParser(description="Compare imputers on hidden entries of real tables.")
    parser.add_argument("--seeds", type=int, default=5, help="draws of what is hidden")
    parser.add_argument("--tables", nargs="+", choices=sorted(tables()), help="only these")
    parser.add_argument("--large", action="store_true", help="also time 10,000 × 200 entries")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*IterativeImputer.*")
    deql.set_threads(1)
    compare(tables()["iris"], 1)  # loads the kernels and BLAS
    threadpoolctl.threadpool_limits(1)
    result: dict[str, object] = {}
    beaten = True
    for name, table in tables().items():
        if options.tables and name not in options.tables:
            continue
        found = compare(table, options.seeds)
        means = {one: np.reshape(kept["errors"], (len(WAYS), -1)).mean(axis=1) for one, kept in found.items()}
        beaten &= bool((means[OURS] < np.minimum(means["mean"], means["median"])).all())
        show(
            f"{name}: {table.shape[0]:,} × {table.shape[1]}",
            ("imputer", *(f"{way} {share:.0%}" for way, share in WAYS), "CPU seconds"),
            (
                (one, *(f"{value:.3f}" for value in means[one]), f"{np.median(kept['seconds']):.3f}")
                for one, kept in found.items()
            ),
        )
        result[name] = {
            one: {
                "error_ratio": float(np.exp(np.mean(np.log(means[OURS] / means[one])))),
                "speedup": float(np.median(kept["seconds"]) / np.median(found[OURS]["seconds"])),
            }
            for one, kept in found.items()
            if one != OURS
        }
    if options.large:
        result["seconds of 10,000 × 200"] = large()
    print(json.dumps({**result, "beats mean and median everywhere": beaten}))
    return 0 if beaten else 1


if __name__ == "__main__":
    sys.exit(main())
