"""Hyper-parameters of the graph networks, chosen on a hold-out of train.txt; the test part is never seen.

    python benchmarks/networks.py gowalla --data DIR --on line-ends --row "SSM (GNN)" --trials 12

A walk goes from setting to setting: one step along one axis at a time, on in the same direction as long as that is
better, until no step is or the trials are used up. Settings of one's own come first, each with a ``--try`` that names
what differs from the usual first one, and the walk begins at the best of them. Hold-outs are those of frontier.py.
Every trial is a line of ``--journal`` as soon as it is there, and the same command goes on after the last one. NumPy,
SciPy and torch are enough.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import torch

import deql
from _dense import Laboratory
from _hold_outs import HOLD_OUTS, read_lines
from _journal import Journal
from _networks import AXES, MAKERS, STARTS, Setting, Trials, stepped


def walk(row: str, trials: Trials, own: Sequence[Setting], most: int) -> Setting:
    """The best setting found when no step along an axis is better, or ``most`` settings were tried; first one's own."""
    best = max(own, key=lambda setting: trials.worth(row, setting).ndcg)
    tried, unchanged = len(own), 0
    for name in cycle(AXES[row]):
        before = best
        for direction in (1, -1):
            while tried < most and (near := stepped(best, name, AXES[row][name], direction)) is not None:
                tried += 1
                if trials.worth(row, near).ndcg <= trials.worth(row, best).ndcg:
                    break
                best = near
            if best != before:
                break
        unchanged = unchanged + 1 if best == before else 0
        if tried >= most or unchanged == len(AXES[row]):
            break
    return best


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("key", help="folder below DIR, with train.txt")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--on", choices=tuple(HOLD_OUTS), default="random")
    parser.add_argument("--row", choices=tuple(MAKERS), required=True)
    parser.add_argument("--trials", type=int, default=12, help="settings that are tried at most")
    parser.add_argument(
        "--try", dest="own", type=json.loads, action="append", help="a setting of one's own, as JSON; may be repeated"
    )
    parser.add_argument("--journal", type=Path, help="networks-KEY-ON.jsonl if not given")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=None)
    given = parser.parse_args()
    given.journal = given.journal or Path(f"networks-{given.key}-{given.on}.jsonl")
    return given


def main() -> None:
    given = arguments()
    if given.threads:
        deql.set_threads(given.threads)
        torch.set_num_threads(given.threads)
    parts = HOLD_OUTS[given.on](read_lines(given.data / given.key / "train.txt"))
    trials = Trials(parts, Laboratory(parts, torch.device(given.device)), Journal(given.journal))
    own = [STARTS[given.row] | one for one in given.own or [{}]]
    best = walk(given.row, trials, own, given.trials)
    worth = trials.worth(given.row, best)
    models = sum(one["row"] == given.row for one in trials.journal.results.values())
    print(json.dumps({"row": given.row, "setting": best, "models": models, **worth._asdict()}))


if __name__ == "__main__":
    main()
