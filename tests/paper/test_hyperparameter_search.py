"""The search behind the choices: which spaces, and that it never reads the test part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from deql.paper import hyperparameter_search as module
from deql.paper.hyperparameter_search import search, weighted_spaces
from deql.paper.paper_datasets import PaperDataset
from deql.split import HeldOut
from deql.tuning.space import Space
from deql.tuning.tuning_data import hold_out_validation


def bundled():
    return PaperDataset("debian", "weak", None)


@pytest.fixture
def small_spaces(small, monkeypatch):
    family = Space(l2=(0.0, 5.0, 20.0), dropout=(0.0, 0.3, 0.6), b=(0.0, 0.5, 1.0), xi=(0.1,))
    monkeypatch.setattr(module, "FAMILY", family)
    monkeypatch.setattr(module, "USER_POWERS", (0.0, 0.5))
    monkeypatch.setattr(module, "_RIDGES", (1.0,))


def test_every_row_gets_a_choice_and_the_same_call_goes_on(small_spaces, tmp_path):
    dataset = bundled()
    lines = []
    first = search(dataset, tmp_path, tell=lines.append)
    assert [choice.row for choice in first] == [
        "EASE", "DLAE", "EDLAE", "RLAE", "RDLAE", "DEQL(plain)", "DEQL(L2+zero-diag)", "DEQL(L2)", "DEQL(L2) + weights",
    ]  # fmt: skip
    measured = len(lines)
    assert search(dataset, tmp_path, tell=lines.append) == first
    assert len(lines) == measured
    by_row = {choice.row: choice for choice in first}
    best = by_row["DEQL(L2) + weights"].validation["ndcg@20"]
    assert best >= max(by_row[row].validation["ndcg@20"] for row in ("EDLAE", "DLAE", "DEQL(L2)"))


def test_the_test_part_is_not_read(small_spaces, tmp_path):
    dataset, other = bundled(), bundled()
    split = other.first
    users = np.arange(split.test.held_out.n_users)[::-1]
    shuffled = split.test.held_out.take_users(users)
    shuffled = replace(shuffled, users=split.test.held_out.users)
    other.__dict__["first"] = replace(split, test=HeldOut(split.test.seen, shuffled))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    assert search(dataset, tmp_path / "one") == search(other, tmp_path / "two")


def test_ridges_keep_their_ratio_to_the_mean_diagonal(small):
    held = hold_out_validation(bundled().first, 0)
    matrix = held.train.matrix.toarray()
    spaces = list(weighted_spaces(held, {"l2": 10.0, "dropout": 0.9}))
    assert all(space.dropout == (0.8, 0.9) for space in spaces)
    for space in spaces:
        weights = matrix.sum(axis=1) ** -space.user_power[0]
        ratio = (weights @ matrix**2).mean() / (matrix**2).sum(axis=0).mean()
        assert space.l2[1] == pytest.approx(10 * ratio, rel=0.06)
