"""The frontier of LightGCN's splits: our closed forms beside GF-CF and ChebyCF, one evaluator and one hold-out for all.

    python benchmarks/frontier.py read gowalla --data DIR                             # the test part, once
    python benchmarks/frontier.py read gowalla --data DIR --only gf-cf chebycf        # … without our rows
    python benchmarks/frontier.py search gowalla --data DIR --on line-ends            # our hyper-parameters
    python benchmarks/frontier.py filters gowalla --data DIR --on line-ends           # ChebyCF's

``read`` evaluates GF-CF and ChebyCF with their authors' settings, and the rows with a low pass of ``deql reproduce
weak``, on the test part or with ``--on`` on a hold-out of train. It exits with 1 if a number that the authors published
is missed by more than 3e-4. ``search`` and ``filters`` choose by NDCG@20 and never see the test part. Hold-outs are the
last tenth of each line of train.txt (``line-ends``), or the random tenth of each user that ``deql.tune`` takes.

Every result is a line of ``--journal`` as soon as it is there, and the same command goes on after the last one. NumPy
and torch are enough. Our rows and ``search`` keep P dense: 40 GB of a device's memory at 41,000 items; without a device
that is for small data, and ``deql reproduce weak`` reads our rows. The filters take 6 GiB.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from _closed_form import ClosedForm
from _dense import Laboratory, Scores
from _graph_filters import ItemGraph, chebycf, gfcf
from _hold_outs import HOLD_OUTS, Parts, read_lines, read_test
from _journal import Journal
from _search import RANKS, Search

CHOICES = Path(__file__).parents[1] / "src" / "deql" / "paper" / "choices.toml"
ROW, ORIGINS = "DEQL(L2) + weights + low pass", ("found", "ends")
GFCF_RANK = 256
CHEBYCF = {"gowalla": {"K": 8, "phi": 1.5, "rank": 512, "alpha": 0.2, "beta": 0.4}}
"""Its authors' settings."""
GRID = {"K": (8,), "phi": (1.0, 1.5, 2.0, 4.0), "rank": (256, 512, 1024), "beta": (0.2, 0.3, 0.4, 0.5),
        "alpha": (0.1, 0.2, 0.3, 0.5)}  # fmt: skip
PUBLISHED = {
    ("gowalla", "gf-cf"): (0.1849, 0.1518),
    ("gowalla", "chebycf"): (0.1941, 0.1616),
    ("yelp2018", "gf-cf"): (0.0697, 0.0571),
}
MET = 3e-4


class Filters:
    """GF-CF and ChebyCF on one laboratory; the eigenvectors are found once, if they are needed."""

    def __init__(self, lab: Laboratory, rank: int) -> None:
        self._lab, self._rank = lab, rank

    @cached_property
    def _graph(self) -> ItemGraph:
        return ItemGraph(self._lab)

    @cached_property
    def _V(self) -> Tensor:
        return self._graph.leading(self._rank)

    def gfcf(self) -> Scores:
        return gfcf(self._lab, self._graph, self._V[:, :GFCF_RANK].contiguous())

    def chebycf(self, rank: int, **settings: Any) -> Scores:
        return chebycf(self._lab, self._graph, self._V[:, :rank].contiguous(), **settings)


def read(given: argparse.Namespace, lab: Laboratory, journal: Journal) -> int:
    """The rows of the page; 1 if one of them is not what its authors published."""
    settings, ours = CHEBYCF.get(given.key), dict(stored(given.key))
    filters = Filters(lab, settings["rank"] if settings else GFCF_RANK)
    models = ClosedForm(lab, max((row["rank"] for row in ours.values()), default=0))
    makers: dict[str, Callable[[], Scores]] = {"gf-cf": filters.gfcf}
    if settings:
        makers["chebycf"] = partial(filters.chebycf, **settings)
    makers = {name: make for name, make in makers.items() if name in given.only}
    if "deql" in given.only:
        makers |= {name: partial(lambda row: models.scores(models.setting(**row)), row) for name, row in ours.items()}
    good = True
    for name, make in makers.items():
        worth = journal.evaluate(name, lambda make=make: lab.evaluate(make()))
        if given.on == "test" and (given.key, name) in PUBLISHED:
            good &= max(abs(a - b) for a, b in zip(worth[:2], PUBLISHED[given.key, name], strict=True)) <= MET
    return 0 if good else 1


def stored(key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Our rows with a low pass as the library stores them; its own reader needs more than NumPy and torch."""
    for origin, entry in tomllib.loads(CHOICES.read_text("utf-8")).get(key, {}).get(ROW, {}).items():
        if origin in ORIGINS:
            found = {name: value for name, value in entry.items() if isinstance(value, float)}
            for part in entry["prior"].removeprefix("lowpass:").split(","):
                name, value = part.split("=")
                found[name] = int(value) if name == "rank" else float(value)
            yield f"{ROW} ({origin})", found


def search(lab: Laboratory, journal: Journal) -> int:
    """Our hyper-parameters, stage by stage."""
    for stage, best in Search(ClosedForm(lab, max(RANKS)), journal).run():
        print(json.dumps({"stage": stage, "models": len(journal.results)} | journal.results[str(best)]), flush=True)
    return 0


def choose_filters(lab: Laboratory, journal: Journal) -> int:
    """ChebyCF's settings from a grid around its authors'."""
    filters = Filters(lab, max(GRID["rank"]))
    worths = {}
    for values in product(*GRID.values()):
        settings: dict[str, Any] = dict(zip(GRID, values, strict=True))
        name = " ".join(f"{name}={value:g}" for name, value in settings.items())
        worths[name] = journal.evaluate(name, lambda settings=settings: lab.evaluate(filters.chebycf(**settings)))
    best = max(worths, key=lambda name: worths[name].ndcg)
    print(json.dumps({"chebycf": best, **worths[best]._asdict()}))
    return 0


def parts_of(folder: Path, on: str) -> Parts:
    return read_test(folder) if on == "test" else HOLD_OUTS[on](read_lines(folder / "train.txt"))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=("read", "search", "filters"))
    parser.add_argument("key", help="folder below DIR, with train.txt and test.txt")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--on", choices=("test", *HOLD_OUTS), help="test for read, random for the others")
    parser.add_argument("--only", nargs="+", choices=("gf-cf", "chebycf", "deql"), default=("gf-cf", "chebycf", "deql"))
    parser.add_argument("--journal", type=Path, help="frontier-KEY-WHAT-ON.jsonl if not given")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    given.on = given.on or ("test" if given.what == "read" else "random")
    if given.what != "read" and given.on == "test":
        parser.error("nothing is chosen on the test part: say --on line-ends or --on random")
    given.journal = given.journal or Path(f"frontier-{given.key}-{given.what}-{given.on}.jsonl")
    return given


def main() -> int:
    given = arguments()
    torch.backends.cuda.matmul.allow_tf32 = False
    lab = Laboratory(parts_of(given.data / given.key, given.on), torch.device(given.device))
    journal = Journal(given.journal)
    if given.what == "read":
        return read(given, lab, journal)
    return search(lab, journal) if given.what == "search" else choose_filters(lab, journal)


if __name__ == "__main__":
    sys.exit(main())
