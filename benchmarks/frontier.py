"""What moves the accuracy beyond the parameters that were searched: the row with weights of ``deql reproduce``, varied.

    python benchmarks/frontier.py gowalla --data DIR                 # the study, on validation data alone
    python benchmarks/frontier.py gowalla --data DIR --test          # and then the test part, once
    python benchmarks/frontier.py yelp2018 --data DIR --test --block 1024 0.3 0.5   # only that: studied elsewhere

Around the stored choice l2, p (dropout), γ (user_power), b, α (popularity_power) the study tries

- one parameter: another value of one, the others as chosen; with another γ, l2 keeps its ratio to the mean of D;
- left: weights on the way in, x·diag(count^−β)·P;
- gain: another power of P_ii in it, count^−α/P_ii^s;
- rank one: A + c·μμᵀ, where μ = counts/√users: by Sherman and Morrison a change of rank one of the scores;
- ridge: one that grows with popularity, factor·l2·(D/mean D)^q, at b = 0;
- two blocks: the choice's scores plus t times those of another block, t in units of both blocks' median 20th score:
  another P; the users' (the same closed form on Rᵀ, items weighted by count^−δ; where who is evaluated was trained on);
  the linear filter x·D^−β·G·D^−(1−β), where G = RᵀU⁻¹R; the ideal low pass x·D^−½·V·Vᵀ·D^power, where V are the k
  leading eigenvectors of D^−½·G·D^−½, and D and U are what each item and user has.

Where a row of the table has one more parameter, such as α or t, it is the best one by NDCG. Needs torch, and for
the study of the large data sets about 40 GB of a device's memory; ``--test --block`` needs 10 GiB and no device.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

import deql
from _dense import Laboratory, Row, Solved, Study, Worth, inverse, multiply, packed_gram
from _measure import show
from deql.linalg.engines.torch_packed import DevicePacked, open_device
from deql.linalg.gram import weighted_diagonal
from deql.paper.hyperparameters import Choice, stored_choices
from deql.paper.paper_datasets import PaperDataset, find_datasets
from deql.paper.published import METRICS, WEIGHTED
from deql.tuning.tuning_data import TuningData, hold_out_validation

KEYS = ("gowalla", "yelp2018", "gowalla-1", "debian-weak", "debian-strong")
USER_POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)
DROPOUTS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9)
B = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
POPULARITY_POWERS = (0.0, 0.1, 0.2, 0.3, 0.4)
BETAS = (-0.2, -0.1, 0.1, 0.2, 0.3, 0.5)
GAIN_POWERS, GAIN_POPULARITY = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25), (-0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
RANK_ONE = (-0.5, -0.2, 0.2, 1.0, 5.0)
RIDGE_POWERS, RIDGE_FACTORS = (0.125, 0.25, 0.375), (0.7, 1.0, 1.4)
OF_USERS = ((0.5, 1.0), (0.8, 1.0), (0.8, 5.0))
"""Dropout, and the ridge in means of the diagonal."""
FILTERS = (0.5, 0.25, 0.0)
LOW_PASS = "ideal low pass"
EIGENVECTORS, LOW_PASS_POWERS = (64, 256, 1024), (0.5, 0.0)
LARGEST_DIFFERENCE = 1e-4


def one_parameter(study: Study) -> Iterator[Row]:
    for power in USER_POWERS:
        solved, l2 = study.reweighted(power)
        yield _another("user_power", study, solved, l2=l2, user_power=power)
    for dropout in DROPOUTS:
        yield _another("dropout", study, study.solve(*study.gram, study.l2, dropout), dropout=dropout)
    for l2 in (0.5 * study.l2, 2 * study.l2):
        yield _another("l2", study, study.solve(*study.gram, l2), l2=l2)
    for b in B:
        yield Row("b", {"b": b}, study.evaluate(study.sums, study.gain(study.base, b=b)))
    for alpha in POPULARITY_POWERS:
        gain = study.gain(study.base, popularity_power=alpha)
        yield Row("popularity_power", {"popularity_power": alpha}, study.evaluate(study.sums, gain))


def _another(part: str, study: Study, solved: Solved, **changes: float) -> Row:
    return Row(part, changes, study.evaluate(multiply(study.lab.seen, solved.P), study.gain(solved, **changes)))


def other_forms(study: Study) -> Iterator[Row]:
    lab, alpha, diagonal = study.lab, study.alpha, study.base.diagonal
    for beta in BETAS:
        heavy = csr_array(lab.seen.multiply(lab.popularity**-beta))
        sums = multiply(heavy, study.base.P)
        powers = {round(alpha - less, 3) for less in (0, beta, beta / 2, 0.1, -0.1)}
        yield study.best("left", (
            ({"beta": beta, "popularity_power": a}, study.evaluate(sums, study.gain(study.base, popularity_power=a)))
            for a in sorted(powers)
        ))  # fmt: skip
    for s in GAIN_POWERS:
        yield study.best("gain", (
            (
                {"s": s, "popularity_power": a},
                study.evaluate(study.sums, lab.vector(-(diagonal**-s) * lab.popularity**-a)),
            )
            for a in GAIN_POPULARITY
        ))  # fmt: skip
    yield from _rank_one(study)
    # Items that nobody has get the ridge of the rarest.
    D = np.maximum(study.base.D, study.base.D[study.base.D > 0].min())
    for q in RIDGE_POWERS:
        for factor in RIDGE_FACTORS:
            solved = study.solve(*study.gram, factor * study.l2 * (D / study.base.D.mean()) ** q)
            sums = multiply(lab.seen, solved.P)
            yield study.best("ridge", (
                ({"q": q, "factor": factor, "popularity_power": a},
                 study.evaluate(sums, lab.vector(-(lab.popularity**-a) / solved.diagonal)))
                for a in (alpha - 0.1, alpha - 0.05, alpha, alpha + 0.05, alpha + 0.1)
            ))  # fmt: skip


def _rank_one(study: Study) -> Iterator[Row]:
    """(A + c·μμᵀ)⁻¹ = P − c/(1 + c·μᵀPμ)·(Pμ)(Pμ)ᵀ, where that is positive definite."""
    lab = study.lab
    mean = lab.popularity / np.sqrt(lab.train.n_users)
    column = study.base.P.matvec(mean)
    users, items = lab.vector(lab.seen @ column), lab.vector(column)
    for c in RANK_ONE:
        scale = 1 + c * float(mean @ column)
        if scale > 0:
            gain = study.gain(study.base._replace(diagonal=study.base.diagonal - c / scale * column**2))
            yield Row(
                "rank one", {"c": c}, study.evaluate(torch.addr(study.sums, users, items, alpha=-c / scale), gain)
            )


def two_blocks(study: Study) -> Iterator[Row]:
    lab = study.lab
    for factor in (8.0, 1 / 8):
        yield _other_P(study, study.solve(*study.gram, factor * study.l2), l2=factor * study.l2)
    for power in sorted({0.0, 1.0} - {study.gamma}):
        solved, l2 = study.reweighted(power)
        yield _other_P(study, solved, l2=l2, user_power=power)
    yield from _of_users(study)
    S, _ = study.gram_of(1.0)
    for beta in FILTERS:
        block = multiply(csr_array(lab.seen.multiply(lab.popularity**-beta)), S)
        yield study.blend("linear filter", block.mul_(lab.vector(lab.popularity ** -(1 - beta))), beta=beta)
    del S
    for k in EIGENVECTORS:
        for power in LOW_PASS_POWERS:
            left, right = lab.low_pass(k, power)
            yield study.blend(LOW_PASS, left @ right, k=k, power=power)


def _other_P(study: Study, solved: Solved, **changes: float) -> Row:
    block = multiply(study.lab.seen, solved.P).mul_(study.gain(solved, **changes))
    return study.blend("another P", block, **changes)


def _of_users(study: Study) -> Iterator[Row]:
    """−(Rᵀ·P)ᵀ/P_uu with P = (R·diag(count^−δ)·Rᵀ + …)⁻¹, if every evaluated user is a training user."""
    lab, train = study.lab, study.lab.train
    row_of = {user: row for row, user in enumerate(train.users.tolist())}
    rows = [row_of.get(user, -1) for user in lab.users.tolist()]
    if min(rows) < 0:
        return
    by_item = csr_array(train.matrix.T)
    by_item.sort_indices()
    for delta in (0.5, 1.0):
        weights = lab.popularity**-delta
        D = weighted_diagonal(by_item, weights)
        S = packed_gram(by_item, weights, lab.device)
        for dropout, ridge in OF_USERS:
            P = inverse(S, dropout / (1 - dropout) * D + ridge * D.mean())
            block = multiply(by_item, P).mul_(lab.vector(-1 / P.diagonal())).T[rows]
            del P
            for a in (0.0, 0.2, 0.4):
                yield study.blend(
                    "users' block", block * lab.vector(lab.popularity**-a),
                    delta=delta, dropout=dropout, ridge=ridge, popularity_power=a,
                )  # fmt: skip


def on_test(dataset: PaperDataset, choice: Choice, block: dict[str, float], device: torch.device) -> dict[str, Worth]:
    """The choice and its blend with the ideal low pass, fitted on all of train, on the test users.

    P stays packed, and scores are made for a slice of the users at a time.
    """
    split = dataset.first
    model = choice.model().fit(split.train)
    means = deql.evaluate(model, split.test, METRICS).means
    lab = Laboratory(split.train, split.test, device)
    P, gain = DevicePacked.from_host(model.precision_, device), lab.vector(model.gain_)
    del model
    left, right = lab.low_pass(int(block["k"]), block["power"])

    def chosen(rows: slice) -> Tensor:
        return multiply(lab.seen[rows], P).mul_(gain)

    def filtered(rows: slice) -> Tensor:
        return left[rows] @ right

    weight = block["t"] * lab.unit(chosen) / lab.unit(filtered)
    return {
        "chosen, by deql.evaluate": Worth(*(means[metric] for metric in METRICS)),
        "chosen": lab.evaluate(chosen),
        "with the ideal low pass": lab.evaluate(lambda rows: chosen(rows).add_(filtered(rows), alpha=weight)),
    }


def study_all(held: TuningData, choice: Choice, device: torch.device) -> list[Row]:
    """Every row of the study, the choice first; a line for each on standard error as soon as it is there."""
    study = Study(held, choice.parameters, device)
    rows = [Row("chosen", choice.parameters, study.lab.evaluate(study.chosen))]
    for part in (one_parameter, other_forms, two_blocks):
        for row in part(study):
            rows.append(row)
            print(f"{row.part}: {words(row.parameters)} {row.worth.ndcg:.5f}", file=sys.stderr, flush=True)
    return rows


def words(parameters: dict[str, float]) -> str:
    return " ".join(f"{name}={value:.4g}" for name, value in parameters.items())


def apart(one: Worth, other: Worth) -> float:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("key", choices=KEYS)
    parser.add_argument("--data", type=Path, help="has a folder for each data set")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--test", action="store_true", help="read the test part in the end")
    parser.add_argument(
        "--block", nargs=3, type=float, metavar=("K", "T", "POWER"),
        help="the ideal low pass that was best on validation data, for --test without the study",
    )  # fmt: skip
    given = parser.parse_args()
    if given.block and not given.test:
        parser.error("--block goes with --test")
    return given


def main() -> int:
    """Study, print the table, and read the test part if asked to; 1 if a number is not what the library says."""
    given = arguments()
    datasets, missing = find_datasets(given.data, ["strong", "weak"], [given.key])
    if missing:
        sys.exit(missing[0].where)
    (dataset,) = datasets
    choice = next(one for one in stored_choices(dataset.key) if (one.row, one.origin) == (WEIGHTED, "found"))
    device = open_device(given.device)
    facts: dict[str, Any] = {"data": dataset.key, "device": str(device), "choice": choice.parameters}
    good = True
    if given.block:
        block = dict(zip(("k", "t", "power"), given.block, strict=True))
    else:
        rows = study_all(hold_out_validation(dataset.first, seed=0), choice, device)
        chosen = rows[0].worth
        header = ("part", "", "Recall@20", "NDCG@20", "to the choice", "NDCG@20 alone")
        show(f"{dataset.label}, validation data", header, [
            (row.part, words(row.parameters), f"{row.worth.recall:.5f}", f"{row.worth.ndcg:.5f}",
             f"{row.worth.ndcg / chosen.ndcg - 1:+.2%}", f"{row.alone.ndcg:.5f}" if row.alone else "")
            for row in rows
        ])  # fmt: skip
        block = max((row for row in rows if row.part == LOW_PASS), key=lambda row: row.worth.ndcg).parameters
        stored = Worth(*(choice.validation[metric] for metric in METRICS))
        good = apart(chosen, stored) <= LARGEST_DIFFERENCE
        best = {row.part: row.facts() for row in sorted(rows, key=lambda row: row.worth.ndcg)}
        facts |= {"from_stored": apart(chosen, stored), "best": best, "rows": [row.facts() for row in rows]}
    facts["block"] = block
    if given.test:
        tested = on_test(dataset, choice, block, device)
        show(f"{dataset.label}, test part", ("model", "Recall@20", "NDCG@20"), [
            (name, f"{worth.recall:.5f}", f"{worth.ndcg:.5f}") for name, worth in tested.items()
        ])  # fmt: skip
        library, chosen, _ = tested.values()
        good &= apart(chosen, library) <= LARGEST_DIFFERENCE
        facts["test"] = {name: worth._asdict() for name, worth in tested.items()}
    print(json.dumps(facts))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
