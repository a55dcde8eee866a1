"""What a reader is told before believing a result, and what of a journal is not believed."""

import json

import pytest
from scipy.sparse import csr_array

import deql
from deql import Interactions
from deql.errors import DataError, JournalError, ParameterError
from deql.tuning.summary import edges
from tests.tuning.common import SMALL, findings, market

GRID = {"l2": [1, 10, 100], "dropout": [0.2, 0.5, 0.8], "user_power": 0, "b": [0, 1], "popularity_power": 0}
GRID |= {"prior": None}


@pytest.fixture(scope="module")
def split():
    return deql.split_strong(market(160, 30, seed=51), 0.1, 0.4)


def test_nothing_is_said_where_all_is_well(split):
    tuning = deql.tune(split, GRID | {"b": list(deql.tune(split, GRID).curve.b)})
    assert tuning.notes == []
    assert tuning.left_out == 0


def test_a_budget_that_ended_the_search_is_told(split):
    tuning = deql.tune(split, GRID, budget=3)
    assert tuning.left_out == 7
    assert "The search ended early: 7 more points were to be measured, and a larger --budget goes on." in tuning.notes
    assert tuning.notes[0] in str(tuning)
    assert deql.tune(split, GRID, budget=9).notes[0].startswith("The search ended early: 1 more point was to be")


def test_what_was_not_measured_is_no_edge(split):
    for search in ("walk", "grid"):
        assert edges(deql.tune(split, GRID | {"b": [0, 1, 4]}, budget=1, search=search)) == []


def test_points_without_a_model_are_told():
    data = Interactions.from_csr(csr_array(market(120, 20, seed=3).matrix))
    tuning = deql.tune(data, SMALL | {"l2": [10, 1e39], "dropout": 0.5})
    assert tuning.inverses == 1
    assert len(tuning.failures) == 1
    assert tuning.failures[0].startswith("l2=1e+39 dropout=0.5 user_power=0 (")
    assert any(note.startswith("1 point gave no model, such as l2=1e+39") for note in tuning.notes)


def test_points_that_failed_at_the_screening_are_no_inverses(monkeypatch):
    monkeypatch.setattr("deql.tuning.tuner._LEAST_ITEMS", 10)
    split = deql.split_strong(market(160, 40, seed=21), 0.1, 0.4)
    tuning = deql.tune(split, GRID | {"l2": [1, 10, 1e36, 1e39], "dropout": [0.2, 0.5, 0.8, 0.9]}, search="grid")
    assert len(tuning.failures) == 4
    assert tuning.inverses == len(set(zip(tuning.table["l2"], tuning.table["dropout"], strict=True))) == 6


def test_few_users_are_told():
    tuning = deql.tune(market(40, 12, seed=1), SMALL)
    assert tuning.judged < 30
    assert any("too few to tell luck from skill" in note for note in tuning.notes)


def test_a_space_that_decides_nothing_is_told(split):
    tuning = deql.tune(split, SMALL | {"l2": 1e37, "dropout": 0, "b": [1, 2]})
    assert "Both models did equally well: this space decides nothing." in tuning.notes


def test_a_b_that_was_not_tried_is_told_where_it_is_better(split):
    whole = deql.split_strong(market(2000, 30, seed=51), 0.1, 0.4)
    tuning = deql.tune(whole, SMALL | {"b": 40, "l2": 2, "dropout": 0.5})
    best = tuning.curve.best("ndcg@20")
    assert best < 40
    place = tuning.curve.b.index(best)
    values = tuning.curve.values["ndcg@20"]
    gain = values[place] - values[tuning.curve.b.index(40)]
    assert gain > tuning.curve.paired_errors[place] > 0
    words = f"b = {best:g}, which the search did not try, does {gain:.4f} better with all else equal: "
    assert words + "add it to the values of b." in tuning.notes


def test_a_b_that_is_tied_with_the_winner_is_not_told(split):
    # It was: "on it, b = 0.4 does best", beside a saved model with b = 0.1.
    tuning = deql.tune(split, SMALL | {"b": [0.5, 4], "dropout": 0.5})
    best = tuning.curve.best("ndcg@20")
    assert best != tuning.best["b"]
    assert tuning.notes == []


def changed(path, change):
    lines = path.read_text().splitlines()
    record = json.loads(lines[1])
    change(record)
    path.write_text("\n".join([lines[0], json.dumps(record), *lines[2:-1]]) + "\n")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda step: step["values"].update({"ndcg@20": [0.9, 0.95, 0.8]}), "for the best model, but it is"),
        (lambda step: step.update(l2=77.0), "not in the space"),
        (lambda step: step["values"].update({"ndcg@20": [float("nan"), 0.1, 0.1]}), "damaged"),
        (lambda step: step.update(l2=10**400), "damaged"),
        (lambda step: step.update(step=[1]), "line 2"),
    ],
)
def test_a_journal_that_was_changed_is_not_believed(split, tmp_path, change, message):
    path = tmp_path / "j"
    deql.tune(split, SMALL, journal=path)
    changed(path, change)
    with pytest.raises(JournalError, match=message):
        deql.tune(split, SMALL, journal=path)


@pytest.mark.parametrize(
    "head", [b'{"deql": "tuning", "version": 1}', b'{"deql": "tuning", "search": []}', b"[" * 9999]
)
def test_a_head_that_makes_no_sense(split, tmp_path, head):
    (tmp_path / "j").write_bytes(head + b"\n")
    with pytest.raises(JournalError, match="is not a journal"):
        deql.tune(split, SMALL, journal=tmp_path / "j")
    assert (tmp_path / "j").read_bytes() == head + b"\n"


def test_blank_lines_at_the_end_do_no_harm(split, tmp_path):
    path = tmp_path / "j"
    first = findings(deql.tune(split, SMALL, journal=path))
    path.write_bytes(path.read_bytes() + b"\n\n")
    assert findings(deql.tune(split, SMALL, journal=path)) == first


def test_a_search_that_found_nothing_makes_way_for_another(split, tmp_path):
    path = tmp_path / "j"
    with pytest.raises(DataError, match="no point of the space gave a model, such as l2=1e\\+39"):
        deql.tune(split, SMALL | {"l2": 1e39}, journal=path)
    found = deql.tune(split, SMALL, journal=path)
    assert findings(deql.tune(split, SMALL, journal=path)) == findings(found)


@pytest.mark.parametrize("wrong", [{"journal": 5}, {"tell": 5}, {"prune": "no"}, {"space": {"l2": 10**400}}])
def test_arguments_that_make_no_sense(split, wrong):
    with pytest.raises(ParameterError):
        deql.tune(split, **wrong)
    with pytest.raises(JournalError, match="cannot be used"):
        deql.tune(split, SMALL, journal="a\0b")
