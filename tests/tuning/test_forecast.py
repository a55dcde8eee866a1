import pytest

import deql
from deql.tuning.trainer import Trainer
from tests.tuning.common import SMALL, market

GRID = {"l2": [1, 5, 25, 125], "dropout": [0.0, 0.3, 0.6], "user_power": [0, 0.6], "b": [0, 1], "popularity_power": 0}


@pytest.fixture(scope="module")
def split():
    return deql.split_strong(market(160, 40, seed=21), 0.1, 0.4)


@pytest.mark.parametrize("search", ["walk", "grid", "optuna"])
def test_the_time_is_told_before_any_work(split, search, monkeypatch):
    if search == "optuna":
        pytest.importorskip("optuna")
    told, evaluate = [], Trainer.evaluate

    def watched(self, *given):
        assert told
        return evaluate(self, *given)

    monkeypatch.setattr(Trainer, "evaluate", watched)
    deql.tune(split, GRID, search=search, budget=5, tell=told.append)
    assert told[0].startswith("under 1 s: ")
    assert f"for the {search}, and the fit of the winner" in told[0]
    assert "inverse" in told[0]


def test_a_search_that_is_done_tells_no_time(split, tmp_path):
    for told in ([], []):
        deql.tune(split, SMALL, journal=tmp_path / "j", tell=told.append)
    assert told == []


def test_what_the_journal_has_is_not_counted_again(split, tmp_path):
    first, then = [], []
    deql.tune(split, GRID, search="grid", prune=False, budget=11, journal=tmp_path / "j", tell=first.append)
    deql.tune(split, GRID, search="grid", prune=False, journal=tmp_path / "j", tell=then.append)
    assert "10 inverses" in first[0]
    assert "14 inverses" in then[0]


@pytest.fixture
def slow(monkeypatch):
    """An inverse of 100 s, as the planner has it; screening costs a tenth of it."""
    monkeypatch.setattr("deql.tuning.forecast.predict_seconds", lambda *given: 100.0)
    monkeypatch.setattr("deql.tuning.trials.inverses_of_screening", lambda *given: 0.1)
    monkeypatch.setattr("deql.tuning.tuner._LEAST_ITEMS", 10)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "about 18 min: about 16 screenings and about 8 inverses of 2 min for the walk"),
        ({"prune": False}, "about 28 min: about 16 inverses of 2 min for the walk"),
        ({"budget": 1}, "about 3 min: about 1 inverse of 2 min for the walk"),
        ({"budget": 4}, "about 6 min: about 15 screenings and about 1 inverse of 2 min for the walk"),
        ({"budget": "5min"}, "about 5 min: "),
        ({"search": "grid"}, "about 16 min: 24 screenings and 6 inverses of 2 min for the grid"),
        ({"search": "grid", "prune": False}, "about 42 min: 24 inverses of 2 min for the grid"),
    ],
)
def test_what_is_told(split, slow, options, words):
    told = []

    def tell(line):
        told.append(line)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        deql.tune(split, GRID, tell=tell, **options)
    assert told[0].startswith(words)
