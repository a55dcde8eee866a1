"""The table of accuracy by seconds: networks beside closed forms, on what was held out of train."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import deql
from deql._system.measure import Measurement
from deql.errors import DeqlError
from deql.io.journal import Journal
from deql.paper import training_curves
from deql.paper.hyperparameters import Choice
from deql.paper.measurement_log import MeasurementLog
from deql.paper.paper_datasets import PaperDataset
from deql.paper.published import WITH_PRIOR
from deql.paper.table_request import TableRequest
from tests.paper.common import shop

WORTH = {"recall@20": 0.5, "ndcg@20": 0.4}
LIGHTGCN = Choice("LightGCN", {"layers": 2, "epochs": 30}, "found", "x", WORTH)
EASE = Choice("EASE", {"l2": 3.0}, "found", "x", WORTH)
OTHER_EASE = Choice("EASE", {"l2": 5.0}, "ends", "x", WORTH)
DLAE = Choice("DLAE", {"l2": 3.0, "dropout": 0.3}, "found", "x", WORTH)
PRIOR = {"prior": "lowpass:rank=4", "prior_weight": 1.0}
LOW_PASS = Choice(WITH_PRIOR, {"l2": 3.0, "dropout": 0.3, "b": 0.5} | PRIOR, "found", "x", WORTH)
CURVE = [[100.0, 0.2], [200.0, 0.28], [300.0, 0.3]]


def took(seconds, ndcg, gib=2, **facts):
    worth = {"recall@20": 0.4, "ndcg@20": ndcg, "errors": {"recall@20": 0.02, "ndcg@20": 0.01}}
    return Measurement(seconds, 2 * seconds, 1024.0 * gib, 512.0, worth | facts)


TOOK = {
    "LightGCN": took(300.0, 0.30, engine="torch", curve=CURVE),
    "EASE": took(10.0, 0.29, engine="memory"),
    WITH_PRIOR: took(20.0, 0.31, gib=4, engine="memory"),
}


@pytest.fixture
def make(monkeypatch):
    """The table of some choices, and what was fitted on which data; no process is started."""

    def make(*choices, name="yelp2018", journal=None):
        monkeypatch.setattr("deql.paper.table_request.stored_choices", lambda key, own: list(choices))
        fitted = {}

        def fit_in_subprocess(choice, file, machine, evaluated):
            assert evaluated
            fitted[choice.row] = deql.load_split(file)
            if choice.row not in TOOK:
                raise DeqlError(f"{choice.row} could not be fitted: odd")
            return TOOK[choice.row]

        monkeypatch.setattr(training_curves, "fit_in_subprocess", fit_in_subprocess)
        dataset = PaperDataset(name, "weak", Path())
        dataset.__dict__["first"] = deql.split_weak(shop(), validation=0, seed=0)
        log = MeasurementLog(journal or Journal(None, {}, "reproduction"))
        lead, [section] = training_curves.training(TableRequest(log, [dataset]))
        return lead, section, fitted, dataset.first

    return make


def rows(section):
    (grid,) = section.grids
    return {names[0]: dict(zip(grid.header, [*names, *map(str, cells)], strict=True)) for names, cells in grid.rows}


def test_networks_stand_beside_the_closed_forms_and_the_papers_costs(make):
    lead, section, _, _ = make(LIGHTGCN, EASE, DLAE, LOW_PASS)
    found = rows(section)
    assert list(found) == ["LightGCN", "EASE", WITH_PRIOR]
    assert found["LightGCN"] == {
        "model": "LightGCN", "hyper-parameters": "layers=2 epochs=30", "origin": "chosen on validation data",
        "minutes paper": "30", "GB paper": "1", "seconds here": "300", "GiB here": "2.00",
        "Recall@20": "0.4000 ± 0.0200", "NDCG@20": "0.3000 ± 0.0100",
    }  # fmt: skip
    assert [found[WITH_PRIOR][name] for name in ("minutes paper", "GB paper")] == ["–", "–"]
    assert lead == (
        "Yelp2018: the best network there, LightGCN, has NDCG@20 0.3000 after 5.00 minutes of training; "
        f"{WITH_PRIOR} has 0.3100 after 20.0 s."
    )
    assert list(section.key) == ["LightGCN", "EASE", WITH_PRIOR]
    assert "NDCG@20 by seconds" in section.figures[0].svg


def test_the_test_part_is_not_there(make):
    _, _, fitted, split = make(LIGHTGCN, EASE)
    assert set(fitted) == {"LightGCN", "EASE"}
    for seen in fitted.values():
        assert (seen.train.matrix - split.train.matrix).max() == 0
        held_out = seen.test.held_out
        assert seen.train.n_interactions + held_out.n_interactions <= split.train.n_interactions
        places = [split.train.user_index[user] for user in held_out.users.tolist()]
        columns = [split.train.items.tolist().index(item) for item in held_out.items.tolist()]
        in_train = split.train.matrix.toarray()[np.ix_(places, columns)]
        assert (in_train[held_out.matrix.toarray() > 0] > 0).all()


def test_each_row_is_fitted_once(make, tmp_path):
    with Journal(tmp_path / "measured.jsonl", {}, "reproduction") as journal:
        assert len(make(LIGHTGCN, EASE, journal=journal)[2]) == 2
        lead, _, fitted, _ = make(LIGHTGCN, EASE, journal=journal)
    assert (lead.partition(":")[0], fitted) == ("Yelp2018", {})


def test_a_row_that_fails_is_told_of(make):
    ssm = Choice("SSM (MF)", {"temperature": 0.1}, "found", "x", WORTH)
    _, section, _, _ = make(LIGHTGCN, ssm, EASE)
    assert list(rows(section)) == ["LightGCN", "EASE"]
    assert section.remarks == ["SSM (MF) could not be fitted: odd."]


def test_nothing_to_show(make):
    lead, section, fitted, _ = make(EASE, LOW_PASS)
    assert (lead, fitted) == ("", {})
    assert section.words == ["Of no network hyper-parameters were chosen on validation data of yelp2018."]


def test_hold_outs_are_those_of_the_choice():
    chosen = training_curves._choices([Choice("LightGCN", {"layers": 2}, "ends"), LIGHTGCN, EASE, OTHER_EASE, LOW_PASS])
    assert [(one.row, one.origin) for one in chosen] == [("LightGCN", "ends"), ("EASE", "ends"), (WITH_PRIOR, "found")]
    chosen = training_curves._choices([LIGHTGCN, EASE, OTHER_EASE])
    assert [(one.row, one.origin) for one in chosen] == [("LightGCN", "found"), ("EASE", "found")]
