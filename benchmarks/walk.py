"""The walk, which is how ``deql tune`` searches by default, against the time of one fit and against the whole grid.

For each data set, each entry in a process of its own:

- ``walk``: ``deql.tune`` with all that ``deql tune --report`` does (screening, inverses, evaluations, the winner's fit,
  its curve, the page), beside one fit of the winner's parameters with one evaluation on the same users, in the same
  process; and what was told before it began.
- ``whole``: every point of the default space, what the walk may lose against. It takes an hour and more on 17,000
  items, so only ``--whole`` does it.

Data: ``debian`` (bundled); ``amazon-beauty`` and ``ml-latest-small`` (ratings from 4 up) from $DEQL_DATA, and
``gowalla-17000``, the most popular items of Gowalla; ``made-up-17000``, tastes and popularity drawn at random.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from _measure import Measurement, Task, measure, serve, show
from tune import METRICS, read_split, warm

SETS = ("debian", "amazon-beauty", "ml-latest-small", "gowalla-17000", "made-up-17000")
ITEMS = 17_000
TARGETS = {"time_over_one_fit": 12.0, "lost_standard_errors": 1.0}
NAMES = ("l2", "dropout", "b", "user_power", "popularity_power")


def load(data: str) -> Any:
    """The split of a data set."""
    import deql

    if data in ("debian", "amazon-beauty"):
        return read_split(data)
    if data == "made-up-17000":
        return made_up_split()
    folder = Path(os.environ["DEQL_DATA"])
    if data == "ml-latest-small":
        ratings = deql.read_interactions(
            folder / data / "ratings.csv", user="userId", item="movieId", weight="rating", min_weight=4
        )
        return deql.split_strong(deql.Interactions.from_csr(_ones(ratings.matrix)), 0.1, 0.2)
    from deql.split import read_lightgcn_split

    published = read_lightgcn_split(folder / "gowalla")
    matrix = csr_array(published.train.matrix + published.test.held_out.matrix)
    users = np.bincount(matrix.indices, minlength=matrix.shape[1])
    popular = csr_array(matrix[:, np.sort(np.argsort(-users, kind="stable")[:ITEMS])])
    return deql.split_strong(deql.Interactions.from_csr(_ones(popular[np.diff(popular.indptr) >= 5])))


def made_up_split() -> Any:
    """Users of 1,500 tastes; a tenth of them validates, a tenth tests, each with a fifth of their items held out."""
    import deql
    from deql.split import HeldOut, Split
    from lowrank import made_up

    matrix = made_up(ITEMS, 30_000, 700_000, 1500)
    generator = np.random.default_rng(1)
    order, tenth = generator.permutation(matrix.shape[0]), matrix.shape[0] // 10
    parts = []
    for users in (order[:tenth], order[tenth : 2 * tenth]):
        of_users = csr_array(matrix[np.sort(users)])
        hidden = generator.random(of_users.nnz) < 0.2
        rows = np.repeat(np.arange(tenth), np.diff(of_users.indptr))
        parts.append(HeldOut(*(
            deql.Interactions.from_csr(csr_array(
                (np.ones(kept.sum(), np.float32), (rows[kept], of_users.indices[kept])), shape=of_users.shape
            )) for kept in (~hidden, hidden)
        )))  # fmt: skip
    return Split(deql.Interactions.from_csr(matrix[np.sort(order[2 * tenth :])]), *parts, {})


def _ones(matrix: csr_array) -> csr_array:
    return csr_array((np.ones(matrix.nnz, np.float32), matrix.indices, matrix.indptr), shape=matrix.shape)


def walk(data: str) -> Task:
    import deql
    from deql.report.tuning_page import tuning_page

    split, told = load(data), []
    warm(split)

    def work() -> Any:
        found = deql.tune(split, tell=told.append)
        return found, len(tuning_page(data, {}, found))

    def finish(result: Any) -> dict[str, Any]:
        found, _ = result
        begin = time.perf_counter()
        one = deql.DEQL(**{name: found.best[name] for name in NAMES}).fit(split.train)
        deql.evaluate(one, split.validation or split.test, METRICS)
        alone = time.perf_counter() - begin
        return _facts(found, split) | {
            "one_fit": alone, "told": told[0], "screenings": found.looks.height, "lines": told[1:], "notes": found.notes
        }  # fmt: skip

    return Task(work, finish)


def whole(data: str) -> Task:
    import deql

    split = load(data)
    warm(split)
    return Task(lambda: deql.tune(split, search="grid", prune=False), lambda found: _facts(found, split))


def _facts(found: Any, split: Any) -> dict[str, Any]:
    import deql

    metric = METRICS[0]
    at_best = found.curve.b.index(found.best["b"])
    tested = deql.evaluate(found.model, split.test, METRICS)
    return {
        "items": split.train.n_items, "users": found.judged, "inverses": found.inverses,
        "best": {name: found.best[name] for name in NAMES}, "value": found.best[metric],
        "error": found.curve.errors[metric][at_best], "test": tested.means[metric],
        "test_error": tested.standard_errors[metric],
    }  # fmt: skip


def _row(data: str, what: str, one: Measurement) -> tuple[object, ...]:
    facts = one.facts
    fit = facts.get("one_fit")
    words = " ".join(f"{value:g}" for value in facts["best"].values())
    return (
        data, what, facts.get("screenings", ""), facts["inverses"], one.seconds, fit or "",
        one.seconds / fit if fit else "", f"{facts['value']:.5f} ± {facts['error']:.5f}",
        f"{facts['test']:.5f} ± {facts['test_error']:.5f}", words,
    )  # fmt: skip


def main() -> int:
    """Measure, print the table and the ratios; 1 if a walk took too long or lost too much."""
    parser = argparse.ArgumentParser(description="Time and check the walk of deql.tune.")
    parser.add_argument("--data", nargs="+", choices=SETS, default=SETS[:1])
    parser.add_argument("--whole", action="store_true", help="the whole grid, too")
    options = parser.parse_args()
    rows, results, good = [], {}, True
    for data in options.data:
        walked = measure(__file__, "walk", data)
        rows.append(_row(data, "walk", walked))
        facts = walked.facts
        ratio = walked.seconds / facts["one_fit"]
        results[data] = {"seconds": walked.seconds, "time_over_one_fit": ratio} | facts
        good &= ratio <= TARGETS["time_over_one_fit"] or facts["items"] < ITEMS
        print(f"{data}: {facts['told']}", *facts["lines"], *facts["notes"], sep="\n    ", flush=True)
        if options.whole:
            every = measure(__file__, "whole", data)
            rows.append(_row(data, "whole", every))
            lost = (every.facts["value"] - facts["value"]) / every.facts["error"]
            results[data] |= {"whole": every.facts | {"seconds": every.seconds}, "lost_standard_errors": lost}
            good &= lost <= TARGETS["lost_standard_errors"]
    header = ("data", "", "screenings", "inverses", "seconds", "one fit", "ratio", METRICS[0], "on the test part",
              "l2, p, b, γ, α")  # fmt: skip
    show("The walk", header, rows)
    print(json.dumps({"targets": TARGETS, **results}))
    return 0 if good else 1


if __name__ == "__main__":
    serve({"walk": walk, "whole": whole})
    sys.exit(main())
