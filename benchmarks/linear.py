"""All linear models on the bundled data: accuracy, fitting time, memory and size of the model file.

Each model is fitted in a process of its own on the training users of ``split_strong`` (seed 0) and evaluated on the
test users. Its hyper-parameters are those with the best NDCG@20 on the validation users: of the closed forms the ones
that ``deql reproduce`` keeps, of the others the best of the small grids below, which ``--choose`` searches again.
Rank 1,024 takes over what was chosen for 256.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from _measure import Measurement, Task, measure_all, serve, show

METRICS = ["recall@20", "ndcg@20"]
BATCHES = {"batch_size": [256, 1024, 4096]}
GRIDS: dict[str, tuple[str, dict[str, list[float]]]] = {
    "LAE": ("lae", {"l2": [1, 3, 10, 30, 100, 300]}),
    "LowRankDEQL, 256": ("lowrankdeql:rank=256", {"l2": [0.3, 1, 3, 10, 30], "dropout": [0.3, 0.6, 0.8]}),
    "ELSA, 256": ("elsa:rank=256", BATCHES),
    "ELSA, 1024": ("elsa:rank=1024", BATCHES),
    "SLIM": ("slim", {"l1": [0.01, 0.03, 0.1, 0.3, 1], "l2": [1, 3, 10, 30]}),
}
PATIENCE, MOST_EPOCHS = 3, 60
"""Of ELSA, whose number of epochs is chosen by early stopping."""

CHOSEN = {
    "LAE": "lae:l2=100",
    "LowRankDEQL, 256": "lowrankdeql:rank=256,l2=1,dropout=0.6",
    "LowRankDEQL, 1024": "lowrankdeql:rank=1024,l2=1,dropout=0.6",
    "ELSA, 256": "elsa:rank=256,batch_size=1024,epochs=13",
    "ELSA, 1024": "elsa:rank=1024,batch_size=256,epochs=10",
    "SLIM": "slim:l1=0.01,l2=10",
}


def rows() -> dict[str, str]:
    """Every model as ``deql evaluate`` would be told."""
    from deql.paper.hyperparameters import stored_choices

    specs = {"Popularity": "popularity", "LAE": CHOSEN["LAE"]}
    for choice in stored_choices("debian-strong"):
        if choice.origin == "found" and choice.row != "DEQL(L2+zero-diag)":  # that is EDLAE
            kind = type(choice.model()).__name__.lower()
            fixed = ["l2=0"] if choice.row == "DEQL(plain)" else []
            specs[choice.row] = f"{kind}:{','.join([*fixed, *choice.words.split()])}"
    return specs | CHOSEN


def fit(spec: str) -> Task:
    """A fit, compiled kernels loaded beforehand; accuracy on the test users and file size afterwards."""
    import deql
    from deql.cli.model_specs import parse_spec
    from deql.models import Recommender

    split = deql.split_strong(deql.datasets.debian())
    model = parse_spec(spec)
    warm = parse_spec(spec)
    warm.set_params(
        **{name: value for name, value in {"rank": 8, "epochs": 1, "l2": 10.0}.items() if name in warm.get_params()}
    )
    warm.fit(split.train.take_users(slice(0, 2000)))

    def finish(model: Recommender) -> dict[str, float]:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "model.deql"
            model.save(path)
            return deql.evaluate(model, split.test, METRICS).means | {"bytes": os.path.getsize(path)}

    return Task(lambda: model.fit(split.train), finish)


def choose(names: list[str]) -> dict[str, str]:
    """The best of each grid on the validation users."""
    import deql
    from deql.cli.model_specs import parse_spec

    split = deql.split_strong(deql.datasets.debian())
    chosen = {}
    for name in names:
        start, grid = GRIDS[name]
        worth = {}
        for spec in _specs(start, grid):
            model = parse_spec(spec)
            if isinstance(model, deql.ELSA):
                model.set_params(epochs=MOST_EPOCHS, patience=PATIENCE).fit(split.train, validation=split.validation)
                spec += f",epochs={model.epochs_}"
            else:
                model.fit(split.train)
            means = deql.evaluate(model, split.validation, METRICS).means
            worth[spec] = means["ndcg@20"]
            print(spec, {metric: round(value, 4) for metric, value in means.items()}, flush=True)
        chosen[name] = max(worth, key=worth.__getitem__)
    return chosen


def _specs(start: str, grid: dict[str, list[float]]) -> Iterator[str]:
    for values in product(*grid.values()):
        chosen = ",".join(f"{name}={value:g}" for name, value in zip(grid, values, strict=True))
        yield f"{start}{',' if ':' in start else ':'}{chosen}" if chosen else start


def main() -> int:
    serve({"fit": fit})
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--choose", action="store_true", help="search the grids on the validation users")
    parser.add_argument("--only", nargs="+", help="rows")
    options = parser.parse_args()
    if options.choose:
        print(json.dumps(choose(options.only or list(GRIDS))))
        return 0
    specs = {name: spec for name, spec in rows().items() if not options.only or name in options.only}
    found: dict[str, Measurement] = measure_all(
        __file__, {name: ["fit", spec] for name, spec in specs.items()}, options.repeats
    )
    cells = [
        [name, specs[name].partition(":")[2].replace(",", " "), f"{sample.facts['recall@20']:.4f}",
         f"{sample.facts['ndcg@20']:.4f}", sample.seconds, sample.cpu_seconds / sample.seconds, sample.peak_mib,
         sample.beyond_mib, sample.facts["bytes"] / 2**20]
        for name, sample in found.items()
    ]  # fmt: skip
    header = ["model", "parameters", "R@20", "N@20", "seconds", "cores", "peak MiB", "beyond data", "file MiB"]
    show("Bundled data, test users", header, cells)
    facts = {
        name: sample.facts | {"seconds": sample.seconds, "beyond_mib": sample.beyond_mib}
        for name, sample in found.items()
    }
    print(json.dumps({"models": facts}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
