import pytest

import deql
from deql.errors import ParameterError
from deql.tuning import forecast_tuning
from deql.tuning.trainer import Trainer
from tests.tuning.common import SMALL, market

GRID = {"l2": [1, 5, 25, 125], "dropout": [0.0, 0.3, 0.6], "user_power": [0, 0.6], "b": [0, 1], "popularity_power": 0}
GRID |= {"prior": None}


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
    work = {
        "walk": "about 4 inverses of under 1 s for the walk",
        "grid": "4 inverses of under 1 s for the grid",
        "optuna": "about 4 inverses of under 1 s for Optuna",
    }
    assert told[0] == f"under 1 s: {work[search]}, and the fit of the winner"


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


WINNER = ", and the fit of the winner"
BESIDE = ", about 4 for EASE and EDLAE to compare with"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, f"about 21 min: about 16 screenings and about 6 inverses of 2 min for the walk{BESIDE}{WINNER}"),
        ({"prune": False}, f"about 25 min: about 10 inverses of 2 min for the walk{BESIDE}{WINNER}"),
        # The one point that is measured is the winner: nothing is fitted again.
        ({"budget": 1}, "about 2 min: about 1 inverse of 2 min for the walk"),
        ({"budget": 4}, "about 4 min: about 15 screenings and about 1 inverse of 2 min for the walk"),
        ({"budget": 5}, f"about 8 min: about 16 screenings and about 2 inverses of 2 min for the walk{WINNER}"),
        ({"search": "grid"}, f"about 22 min: 24 screenings and 6 inverses of 2 min for the grid{BESIDE}{WINNER}"),
        # The whole grid has EASE and EDLAE.
        ({"search": "grid", "prune": False}, f"about 42 min: 24 inverses of 2 min for the grid{WINNER}"),
    ],
)
def test_what_is_told(split, slow, options, words):
    assert told_first(split, options) == words


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget": "5min"}, "about 4 min: about 15 screenings and about 1 inverse of 2 min for the walk"),
        (
            {"budget": "15min"},
            f"about 14 min: about 16 screenings and about 6 inverses of 2 min for the walk{WINNER}",
        ),
        (
            {"budget": "9h"},
            f"about 21 min: about 16 screenings and about 6 inverses of 2 min for the walk{BESIDE}{WINNER}",
        ),
        ({"budget": "50s"}, "about 2 min: about 2 screenings and about 1 inverse of 2 min for the walk"),
        (
            {"budget": "15min", "search": "grid"},
            f"about 14 min: about 24 screenings and about 5 inverses of 2 min for the grid{WINNER}",
        ),
        ({"budget": "15min", "search": "grid", "prune": False},
         f"about 15 min: about 8 inverses of 2 min for the grid{WINNER}"),
        (
            {"budget": "15min", "search": "optuna"},
            f"about 15 min: about 18 screenings and about 6 inverses of 2 min for Optuna{WINNER}",
        ),
    ],
)  # fmt: skip
def test_a_time_is_told_with_what_it_has_room_for(split, slow, options, words):
    if options.get("search") == "optuna":
        pytest.importorskip("optuna")
    assert told_first(split, options) == words


def test_of_a_time_what_earlier_runs_took_is_gone(split, slow, tmp_path, monkeypatch):
    options = {"search": "grid", "prune": False, "budget": "15min", "journal": tmp_path / "j"}
    measured = []

    def interrupt(line):
        measured.append(line)
        if len(measured) == 4:  # the forecast, then three points
            raise KeyboardInterrupt

    deql.tune(split, GRID, tell=interrupt, **options)
    monkeypatch.setattr("deql.tuning.trials.TrialStore.spent", 600.0)
    assert told_first(split, options) == f"about 5 min: about 2 inverses of 2 min for the grid{WINNER}"


def told_first(split, options):
    told = []

    def tell(line):
        told.append(line)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        deql.tune(split, GRID, tell=tell, **options)
    return told[0]


def test_a_forecast_without_the_search(split, slow):
    ahead = forecast_tuning(split, GRID)
    assert str(ahead) == f"about 21 min: about 16 screenings and about 6 inverses of 2 min for the walk{BESIDE}{WINNER}"
    assert (ahead.points, ahead.screenings, ahead.inverses, ahead.baselines, ahead.fits) == (24, 16, 6, 4, 1)
    assert ahead.seconds == pytest.approx((1.6 + 6 + 4 + 1) * 100)
    assert forecast_tuning(split, GRID, refit="all").fits == 2
    with pytest.raises(ParameterError, match="search must be"):
        forecast_tuning(split, GRID, search="luck")


def test_a_forecast_measures_nothing(split, monkeypatch):
    monkeypatch.setattr(Trainer, "fit", None)
    assert forecast_tuning(split, SMALL, search="grid").inverses == 4


@pytest.mark.parametrize("search", ["walk", "grid"])
@pytest.mark.parametrize("budget", [1, 2, 3, 4, 6, 9, 40])
def test_baselines_that_are_forecast_are_those_there_is_room_for(split, slow, search, budget):
    ahead = forecast_tuning(split, GRID, budget=budget, search=search)
    spent = ahead.inverses + ahead.baselines + 0.1 * ahead.screenings
    assert spent + (ahead.inverses + ahead.baselines > 1) <= max(budget, 1 + 0.1 * ahead.screenings)
