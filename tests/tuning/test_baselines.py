"""Popularity, the best EASE and the best EDLAE beside the winner, on the same validation users."""

import json

import numpy as np
import pytest
from scipy import stats

import deql
from deql.tuning.space import ridges_around
from tests.tuning.common import SMALL, findings, market, parameters_of, steps

GRID = {
    "l2": [0.2, 1, 5, 25, 125, 625], "dropout": [0.0, 0.2, 0.4, 0.6, 0.8], "user_power": [0, 0.4, 0.8],
    "b": [0, 1], "popularity_power": [0, 0.2], "prior": None,
}  # fmt: skip
METRICS = ["ndcg@20", "recall@20"]


@pytest.fixture(scope="module")
def split():
    return deql.split_strong(market(400, 60, seed=21), 0.1, 0.4)


def means(model, split, metrics=METRICS):
    return deql.evaluate(model.fit(split.train), split.validation, metrics).means


def best_of(models, split, metric="ndcg@20"):
    return max(means(model, split)[metric] for model in models)


@pytest.mark.parametrize("search", ["walk", "grid"])
def test_they_are_what_separate_fits_give(split, search):
    tuning = deql.tune(split, GRID, search=search)
    assert list(tuning.baselines) == ["popularity", "EASE", "EDLAE"]
    for row in tuning.baselines.values():
        assert list(row) == tuning.table.columns
    popularity, ease, edlae = tuning.baselines.values()
    assert set(parameters_of(popularity).values()) == {None}
    assert {metric: popularity[metric] for metric in METRICS} == means(deql.Popularity(), split)
    for row, model in ((ease, deql.EASE(ease["l2"])), (edlae, deql.EDLAE(edlae["l2"], edlae["dropout"]))):
        assert (row["user_power"], row["b"], row["xi"], row["popularity_power"]) == (0, 0, None, 0)
        assert {metric: row[metric] for metric in METRICS} == pytest.approx(means(model, split), abs=1e-9)
    assert ease["dropout"] == 0
    assert ease["ndcg@20"] == pytest.approx(best_of([deql.EASE(l2) for l2 in GRID["l2"]], split), abs=1e-9)
    assert popularity["ndcg@20"] < ease["ndcg@20"] <= edlae["ndcg@20"] <= tuning.best["ndcg@20"]


def test_a_grid_measured_whole_has_them_already(split):
    tuning = deql.tune(split, GRID, search="grid")
    assert tuning.baseline_inverses == 0
    rows = tuning.table.to_dicts()
    plain = [row for row in rows if row["b"] == row["popularity_power"] == row["user_power"] == 0]
    assert tuning.baselines["EDLAE"] == plain[0]
    assert tuning.baselines["EASE"] == next(row for row in plain if row["dropout"] == 0)


def test_outside_the_space_they_are_measured_beside_it(split, tmp_path):
    space = {"l2": [1, 25, 625], "dropout": 0.4, "user_power": 0.8, "b": 1, "popularity_power": 0.2, "prior": None}
    told = []
    tuning = deql.tune(split, space, journal=tmp_path / "j", tell=told.append)
    assert (tuning.inverses, tuning.table.height) == (3, 3)
    assert set(tuning.table["dropout"]) == {0.4}
    assert tuning.best["dropout"] == 0.4  # what is held fixed stays so, whatever a baseline is worth
    measured = [step[1:] for step in steps(tmp_path / "j") if step[0] == "baseline"]
    assert len(measured) == len(set(measured)) == tuning.baseline_inverses > 0
    assert sum("EASE to compare with: l2=" in line for line in told) == sum(not point[1] for point in measured)
    assert all(power == 0 for _, _, power in measured)
    assert tuning.baselines["EASE"]["l2"] in space["l2"]


def test_ridges_that_follow_the_data_are_those_without_user_power(split):
    space = {"dropout": [0.3, 0.6], "user_power": 0.8, "b": [0, 1], "popularity_power": 0, "prior": None}
    tuning = deql.tune(split, space)
    assert tuning.baselines["EASE"]["l2"] in ridges_around(split.train.matrix.sum() / split.train.n_items)


@pytest.mark.parametrize("search", ["walk", "grid", "optuna"])
@pytest.mark.parametrize("seed", range(3))
def test_no_winner_is_worse_than_ease(search, seed, monkeypatch):
    if search == "optuna":
        pytest.importorskip("optuna")
    monkeypatch.setattr("deql.tuning.tuner._LEAST_ITEMS", 10)
    split = deql.split_strong(market(160, 40, seed=seed), 0.1, 0.4)
    tuning = deql.tune(split, GRID, search=search, budget=None if search == "walk" else 8)
    if "EASE" in tuning.baselines:
        assert tuning.table["ndcg@20"].max() >= tuning.baselines["EASE"]["ndcg@20"]


def test_they_count_in_a_budget(split, monkeypatch):
    from deql.linalg.engines import memory

    made, invert = [], memory.invert
    monkeypatch.setattr(memory, "invert", lambda *given, **more: made.append(1) or invert(*given, **more))
    for budget in (1, 2, 4, 8, 30):
        made.clear()
        tuning = deql.tune(split, SMALL | {"dropout": 0.5, "user_power": 0.8}, budget=budget)
        assert len(made) <= budget
        assert tuning.inverses + tuning.baseline_inverses <= max(1, budget - 1)
    assert list(tuning.baselines) == ["popularity", "EASE", "EDLAE"]


def test_without_room_for_them_they_are_not_there(split):
    tuning = deql.tune(split, SMALL | {"l2": 2, "dropout": 0.5, "user_power": 0.8}, budget=1)
    assert list(tuning.baselines) == ["popularity"]


def test_an_error_is_not_for_popularity(split):
    tuning = deql.tune(split, SMALL, "mse")
    assert np.isnan(tuning.baselines["popularity"]["mse"])
    assert tuning.baselines["popularity"]["ndcg@20"] == means(deql.Popularity(), split)["ndcg@20"]
    assert tuning.best["mse"] <= tuning.baselines["EASE"]["mse"]


@pytest.mark.parametrize("search", ["walk", "grid"])
@pytest.mark.parametrize("metric", ["ndcg@20", "mse"])
def test_their_errors_are_those_of_the_differences_on_the_same_users(split, search, metric):
    tuning = deql.tune(split, GRID, metric, search=search, dtype="float64")

    def users(row):
        model = deql.DEQL(**{name: value for name, value in parameters_of(row).items() if value is not None})
        return deql.evaluate(model.set_params(dtype="float64").fit(split.train), split.validation, [metric])

    mine = users(tuning.best).per_user[metric]
    for name in ("EASE", "EDLAE"):
        expected = stats.sem(mine - users(tuning.baselines[name]).per_user[metric])
        assert tuning.baseline_errors[name] == pytest.approx(expected, abs=1e-9)


def test_a_search_that_was_killed_before_its_end_knows_them_all_the_same(split, tmp_path):
    path, space = tmp_path / "j", SMALL | {"dropout": [0.3, 0.5], "user_power": 0.8}
    expected = findings(deql.tune(split, space, journal=path))
    path.write_text("".join(line for line in path.read_text().splitlines(True) if '"step": "end"' not in line))
    assert findings(deql.tune(split, space, journal=path)) == expected
    assert set(expected["baseline_errors"]) == {"EASE", "EDLAE"}


def test_a_journal_of_a_version_without_them_goes_on(split, tmp_path):
    path = tmp_path / "j"
    space = SMALL | {"dropout": [0.3, 0.5], "user_power": 0.8}
    expected = findings(deql.tune(split, space, journal=path))
    head, *records = map(json.loads, path.read_bytes().splitlines())
    older = [record for record in records if record["step"] != "baseline"]
    older[-1].pop("popularity")
    path.write_text("".join(json.dumps(record) + "\n" for record in [head, *older]))
    assert findings(deql.tune(split, space, journal=path)) == expected


def test_they_are_kept_in_the_journal(split, tmp_path, monkeypatch):
    path = tmp_path / "j"
    space = SMALL | {"dropout": [0.3, 0.5], "user_power": 0.8}
    expected = findings(deql.tune(split, space, journal=path))
    monkeypatch.setattr("deql.tuning.trials.TrialStore._run", None)  # whoever measures anything fails
    assert findings(deql.tune(split, space, journal=path)) == expected


def test_they_can_be_left_out(split, tmp_path):
    space, told = SMALL | {"dropout": [0.3, 0.5], "user_power": 0.8}, []
    tuning = deql.tune(split, space, baselines=False, tell=told.append, journal=tmp_path / "j")
    assert (list(tuning.baselines), tuning.baseline_inverses) == (["popularity"], 0)
    assert not any("compare with" in line for line in told)
    assert list(deql.tune(split, space, journal=tmp_path / "j").baselines) == ["popularity", "EASE", "EDLAE"]
    with pytest.raises(deql.DeqlError, match="baselines must be True or False"):
        deql.tune(split, space, baselines="some")
