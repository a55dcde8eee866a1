"""What a low pass adds to a tuned model: ``deql.tune`` with a prior in its space and without, on the test part.

For each data set strong splits (seeds from 0 up), and on each, in a process of its own, the spaces ``default`` and
``quick`` as they are and with ``prior="none"``. Differences are paired, over splits (± standard error of their mean)
and over all test users of all splits. Data and splits are those of first_day.py.

The exit status is 1 where the search with a prior is worse than the one without beyond one standard error over splits,
or takes more than 1.5 times as much time of the processors. The last line of the output has the numbers as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from _measure import Measurement, Task, measure, serve, show
from first_day import METRICS, SETS, load
from tune import warm

SPACES = ("default", "quick")
PRIORS = ("lowpass", "none")
MOST_TIME = 1.5


def run(data: str, seed: str, space: str, prior: str) -> Task:
    """One search on one split: what it costs, and each test user's values."""
    import deql

    split = load(data, int(seed))
    warm(split)
    warm_prior(split)

    def finish(found: Any) -> dict[str, Any]:
        tested = deql.evaluate(found.model, split.test, list(METRICS))
        told = None if found.prior is None else {"difference": found.prior.difference, "error": found.prior.error}
        facts = {"items": split.train.n_items, "users": len(tested.users), "spec": found.spec, "prior": told}
        return facts | {metric: tested.per_user[metric].tolist() for metric in METRICS}

    return Task(lambda: deql.tune(split, space, prior=prior), finish)


def warm_prior(split: Any) -> None:
    """Load the kernels of a prior, too."""
    import deql
    from deql.priors import LowPass

    few = split.train.take_items(slice(0, 50))
    model = deql.DEQL(prior=LowPass(4)).fit(few)
    seen, held_out = (part.take_items(slice(0, 50)) for part in (split.validation.seen, split.validation.held_out))
    deql.evaluate([model, model.with_rule(b=2.0)], deql.split.HeldOut(seen, held_out), list(METRICS))


def summarise(with_prior: Sequence[Measurement], without: Sequence[Measurement]) -> dict[str, Any]:
    """What the prior gains, by metric, and what it costs."""
    facts: dict[str, Any] = {}
    for metric in METRICS:
        mine, theirs = ([np.asarray(one.facts[metric]) for one in several] for several in (with_prior, without))
        means = np.array([one.mean() - other.mean() for one, other in zip(mine, theirs, strict=True)])
        users = np.concatenate(mine) - np.concatenate(theirs)
        level = float(np.mean([one.mean() for one in theirs]))
        facts[metric] = {
            "without": level, "gain": float(means.mean()), "relative": float(means.mean() / level),
            "error_splits": float(means.std(ddof=1) / np.sqrt(len(means))) if len(means) > 1 else float("nan"),
            "error_users": float(users.std(ddof=1) / np.sqrt(len(users))),
        }  # fmt: skip
    taken = sum("prior" in one.facts["spec"] for one in with_prior)
    seconds = [float(np.mean([one.cpu_seconds for one in several])) for several in (with_prior, without)]
    return facts | {
        "taken": taken, "seconds": seconds, "times": seconds[0] / seconds[1],
        "specs": [one.facts["spec"] for one in with_prior],
    }  # fmt: skip


def main() -> int:
    """Measure, print a table and the numbers."""
    parser = argparse.ArgumentParser(description="deql.tune with a low pass in its space and without.")
    parser.add_argument("--data", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--spaces", nargs="+", choices=SPACES, default=SPACES)
    parser.add_argument("--splits", type=int, default=3)
    options = parser.parse_args()
    result: dict[str, Any] = {}
    rows: list[tuple[object, ...]] = []
    failed = []
    for data in options.data:
        for space in options.spaces:
            found = [
                [measure(__file__, "run", data, seed, space, prior) for seed in range(options.splits)]
                for prior in PRIORS
            ]
            facts = summarise(*found)
            result[f"{data} {space}"] = facts
            cells: list[object] = [data, space]
            for metric in METRICS:
                one = facts[metric]
                cells.append(f"{one['without']:.4f}")
                cells.append(
                    f"{one['gain']:+.4f} ± {one['error_splits']:.4f}, {one['error_users']:.4f} ({one['relative']:+.1%})"
                )
            times = f"{facts['seconds'][1]:.1f} → {facts['seconds'][0]:.1f}"
            rows.append((*cells, f"{facts['taken']} of {options.splits}", times, f"{facts['times']:.2f}"))
            decided = facts[METRICS[0]]
            worse = decided["gain"] < -max(decided["error_splits"], decided["error_users"])
            if worse or facts["times"] > MOST_TIME:
                failed.append(f"{data} {space}")
    header = ["", "space"]
    for metric in METRICS:
        header += [f"{metric} without", "gain ± over splits, over users"]
    show(f"{options.splits} splits", (*header, "with a prior", "CPU seconds", "times"), rows)
    print(json.dumps(result | {"failed": failed}))
    return 1 if failed else 0


if __name__ == "__main__":
    serve({"run": run})
    sys.exit(main())
