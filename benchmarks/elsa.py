"""ELSA on Gowalla and Yelp2018 beside the paper's numbers (tb:2).

    python benchmarks/elsa.py gowalla yelp2018 --data DIR                  # the settings below on the test part
    python benchmarks/elsa.py gowalla --data DIR --choose 1024 4096 8192   # these ranks on validation data, no test

DIR has LightGCN's files of each. No setting of ELSA is published for these data: optimizer, learning rate, first A and
loss are its authors'; rank, batch size and epochs were chosen on interactions held out of train, on which Adam's ε
was compared, too. Those are a tenth of each user's, drawn at random for Yelp2018; for Gowalla, whose test part is the
end of each line, the last (chronology.py). The test part had been read before for other settings: see the results.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from time import perf_counter
from typing import Any

import deql
from _measure import show
from chronology import lines_of, without_the_end
from deql.models.elsa.elsa import ELSA
from deql.paper.published import reported
from deql.split import Split, read_lightgcn_split
from deql.tuning.tuning_data import hold_out_validation

METRICS = ("recall@20", "ndcg@20")
BATCH, PATIENCE, MOST_EPOCHS = 8192, 3, 45
SETTINGS = {"gowalla": {"rank": 8192, "epochs": 5}, "yelp2018": {"rank": 768, "epochs": 23}}


def choose(name: str, folder: Path, split: Split, ranks: list[int], device: str | None) -> dict[str, Any]:
    """The best epoch of each rank on validation data."""
    if name == "gowalla":
        cut = without_the_end(split, lines_of(folder / "train.txt"))
        train, validation = cut.train, cut.validation
    else:
        held = hold_out_validation(split, seed=0)
        train, validation = held.train, held.validation
    found: dict[str, Any] = {}
    for rank in ranks:
        model = ELSA(rank, MOST_EPOCHS, BATCH, patience=PATIENCE, device=device).fit(train, validation=validation)
        seconds = sum(epoch.seconds for epoch in model.history_) / len(model.history_)
        found[str(rank)] = {
            "epochs": model.epochs_,
            "ndcg@20": model.history_[model.epochs_ - 1].ndcg,
            "epoch_s": seconds,
        }
    rows = [(rank, *(str(value) for value in facts.values())) for rank, facts in found.items()]
    show(f"{name}: validation data", ("rank", "epochs", "NDCG@20", "seconds of an epoch"), rows)
    return found


def read_test(name: str, split: Split, device: str | None) -> dict[str, Any]:
    """The setting above, trained on all of train, on the test part."""
    begin = perf_counter()
    model = ELSA(**SETTINGS[name], batch_size=BATCH, device=device).fit(split.train)
    facts: dict[str, Any] = SETTINGS[name] | {"fit_s": perf_counter() - begin}
    means = deql.evaluate(model, split.test, METRICS).means
    paper = dict(zip(METRICS, reported("weak", name)["ELSA"], strict=True))
    rows = [
        (metric, f"{means[metric]:.4f}", f"{paper[metric]:.4f}", f"{means[metric] / paper[metric] - 1:+.1%}")
        for metric in METRICS
    ]
    show(f"{name}: test part", ("metric", "here", "paper", "difference"), rows)
    return facts | means


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="+", choices=[*SETTINGS])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--choose", type=int, nargs="+", metavar="RANK")
    parser.add_argument("--device")
    given = parser.parse_args()
    result = {}
    for name in given.names:
        split = read_lightgcn_split(given.data / name)
        if given.choose:
            result[name] = choose(name, given.data / name, split, given.choose, given.device)
        else:
            result[name] = read_test(name, split, given.device)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
