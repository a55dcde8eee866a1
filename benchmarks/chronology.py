"""Is a published split a random one? Gowalla's is not: what that changes for choosing hyper-parameters.

    python benchmarks/chronology.py FOLDER            # train.txt and test.txt of LightGCN's Gowalla
    python benchmarks/chronology.py FOLDER --choose   # and choose on the last tenth of each line: 3 inverses

Lines of ``train.txt`` keep the order of the source. If that is the order of time, neighbours in a line resemble each
other; and if the test part was cut off the end, its items resemble the end of the line more than its beginning.
Resemblance of two items is the cosine of their columns, without the user in question. No hyper-parameter is chosen on
the test part.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, diags_array

import deql
from _measure import show
from deql.linalg.gram import user_weights, weighted_diagonal
from deql.split import HeldOut, Split, read_lightgcn_split
from deql.tuning.space import Point
from deql.tuning.trainer import Trainer
from deql.tuning.tuning_data import TuningData, sample_items

METRICS = ("recall@20", "ndcg@20")
SHARE, LOOK_USERS, FULL = 0.1, 6_000, 2
USER_POWERS, DROPOUTS = (0.0, 0.25, 0.5, 0.75, 1.0), (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
RIDGES = (1.0, 2.0, 4.0, 8.0, 16.0)
START = (8.0, 0.7, 0.5)
"""Ridge in units of the mean diagonal, dropout and user_power near what a random hold-out chose."""

RULES = [{"b": b, "popularity_power": power} for power in (0.0, 0.1, 0.2, 0.3) for b in (0.0, 0.25, 0.5, 1.0, 2.0)]


def lines_of(path: Path) -> list[list[int]]:
    return [[int(word) for word in line.split()] for line in path.read_text().splitlines()]


def resemblance(train: csr_array, lines: list[list[int]], held_out: csr_array, users: int = 2_000) -> dict[str, float]:
    """Mean cosines: of neighbours in a line, of items half a line apart, of test items with either end of the line."""
    counts = np.maximum(np.bincount(train.indices, minlength=train.shape[1]), 1)
    unit = csr_array((train @ diags_array(1 / np.sqrt(counts))).T)
    found: dict[str, list[float]] = {"neighbours": [], "half a line apart": [], "test, beginning": [], "test, end": []}
    for user in np.random.default_rng(0).choice(len(lines), min(users, len(lines)), replace=False):
        items, later = np.array(lines[user][1:]), held_out[[user]].indices
        if len(items) < 12 or not len(later):
            continue
        inside = (unit[items] @ unit[items].T).toarray() - 1 / np.sqrt(np.outer(counts[items], counts[items]))
        across = (unit[later] @ unit[items].T).toarray()
        n, quarter = len(items), len(items) // 4
        found["neighbours"].append(inside.diagonal(1).mean())
        found["half a line apart"].append(inside.diagonal(n // 2).mean())
        found["test, beginning"].append(across[:, :quarter].mean())
        found["test, end"].append(across[:, -quarter:].mean())
    return {name: float(np.mean(values)) for name, values in found.items()}


def without_the_end(split: Split, lines: list[list[int]]) -> Split:
    """The last tenth of each line, at least one item, held out of train as validation."""
    train = split.train
    places = csr_array(
        (np.concatenate([np.arange(1, len(line)) / (len(line) - 1) for line in lines]),
         np.concatenate([np.searchsorted(train.items, line[1:]) for line in lines]),
         np.cumsum([0, *(len(line) - 1 for line in lines)])), shape=train.matrix.shape,
    )  # fmt: skip
    places.sort_indices()
    last = (places.data > 1 - SHARE + 1e-9) & (np.repeat(np.diff(places.indptr), np.diff(places.indptr)) > 1)
    seen, held_out = train.keep(~last), train.keep(last)
    return Split(seen, HeldOut(seen, held_out), split.test, {}, "given")


def walk(small: Trainer, matrix: csr_array) -> list[Point]:
    """Screening from neighbour to neighbour, as long as one is better; the points looked at, best first."""
    axes = (RIDGES, DROPOUTS, USER_POWERS)
    means = {
        power: float(weighted_diagonal(matrix, user_weights(matrix, power)).mean()) for power in USER_POWERS
    }  # fmt: skip
    worth: dict[tuple[int, ...], float] = {}

    def point(place: tuple[int, ...]) -> Point:
        ridge, dropout, power = (axis[at] for axis, at in zip(axes, place, strict=True))
        return Point(float(f"{ridge * means[power]:.2g}"), dropout, power)

    def look(place: tuple[int, ...]) -> float:
        if place not in worth:
            worth[place] = max(evaluated.means["ndcg@20"] for evaluated in small.evaluate(point(place), RULES, METRICS))
            print(f"look {point(place)} {worth[place]:.4f}", flush=True)
        return worth[place]

    place = tuple(axis.index(value) for axis, value in zip(axes, START, strict=True))
    while True:
        near = [
            (*place[:axis], place[axis] + step, *place[axis + 1 :])
            for axis in (2, 1, 0) for step in (1, -1) if 0 <= place[axis] + step < len(axes[axis])
        ]  # fmt: skip
        best = max([place, *near], key=look)
        if best == place:
            return [point(one) for one in sorted(worth, key=lambda one: -worth[one])]
        place = best


def choose(split: Split, cut: Split) -> dict[str, Any]:
    """Screening on a quarter of the items, the best points in full, and the winner on the test part, once."""
    assert cut.validation is not None
    held = TuningData(cut.train, cut.validation, cut.train, "the last tenth of each line")
    small = Trainer(
        sample_items(held, 0.25, LOOK_USERS, 0), "float32", False, weights_from=cut.train.matrix, grams=3
    )  # fmt: skip
    points = walk(small, cut.train.matrix)[:FULL]
    small.release()
    full = Trainer(held, "float32", False)
    measured = []
    for point in points:
        for rule, evaluated in zip(RULES, full.evaluate(point, RULES, METRICS), strict=True):
            measured.append((evaluated.means["ndcg@20"], evaluated.means["recall@20"], point, rule))
        print(f"full {point}; best so far {max(measured, key=lambda entry: entry[0])}", flush=True)
    full.release()
    ndcg, recall, point, rule = max(measured, key=lambda entry: entry[0])
    model = deql.DEQL(**point._asdict(), **rule).fit(split.train)
    return {
        **point._asdict(), **rule, "validation": {"recall@20": recall, "ndcg@20": ndcg},
        "test": deql.evaluate(model, split.test, METRICS).means,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--choose", action="store_true")
    given = parser.parse_args()
    split = read_lightgcn_split(given.folder)
    lines = lines_of(given.folder / "train.txt")
    found = resemblance(split.train.matrix, lines, split.test.held_out.matrix)
    show("Resemblance of items", ["pairs", "mean cosine"], [(name, f"{value:.4f}") for name, value in found.items()])
    facts: dict[str, Any] = {
        "neighbours_to_apart": found["neighbours"] / found["half a line apart"],
        "test_end_to_beginning": found["test, end"] / found["test, beginning"],
    }
    if given.choose:
        facts["chosen"] = choose(split, without_the_end(split, lines))
        show(
            "Chosen on the last tenth of each line",
            ["", ""],
            [(name, str(value)) for name, value in facts["chosen"].items()],
        )
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
