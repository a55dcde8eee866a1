"""Half-lives as an axis of the search: points, grids, journals, and what is found where tastes drift."""

import json
import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array

import deql
from deql.errors import DataError, ParameterError
from deql.tuning.space import Point, Space, as_space
from deql.tuning.walk import PointGrid

DAY = 86400.0
FEW = {"l2": [1, 10], "dropout": 0.3, "user_power": [0, 0.5], "b": [0, 1], "popularity_power": 0, "prior": None}


@pytest.fixture(scope="module")
def drifting():
    """Items come in groups, and halfway through every history the groups become others."""
    generator = np.random.default_rng(1)
    groups = [generator.permutation(48).reshape(8, 6) for _ in range(2)]
    when = {}
    for user in range(200):
        for era, group in enumerate(groups):
            for item in generator.permutation(group[generator.integers(8)])[:5]:
                when[user, int(item)] = 50 * era + generator.uniform(0, 10)
    rows, columns = np.array([*when]).T
    times = csr_array((np.array([*when.values()]) * DAY, (rows, columns)), shape=(200, 48))
    times.sort_indices()
    ones = csr_array((np.ones(times.nnz), times.indices, times.indptr), shape=times.shape)
    return replace(deql.Interactions.from_csr(ones), times=times.data)


def test_a_space_reads_half_lives():
    space = as_space({"half_life": ["30d", None, "720h", 7]})
    assert space.half_life == ("30d", None, 7.0)
    assert space.lengths == (30 * DAY, math.inf, 7.0)
    assert json.loads(json.dumps(space.to_dict()))["half_life"] == ["30d", None, 7.0]
    assert "half_life" not in Space().to_dict()
    assert as_space({"half_life": "2w"}).half_life == ("14d",)
    with pytest.raises(ParameterError, match="half_life must be a number above 0"):
        as_space({"half_life": ["soon"]})
    with pytest.raises(ParameterError, match="at least one value of half_life"):
        as_space({"half_life": []})


def test_a_step_to_another_half_life_keeps_the_ratio_of_l2_to_the_mean_diagonal():
    def mean(user_power, half_life):
        return 100.0 if half_life == math.inf else half_life

    space = Space(l2=(0.1, 1.0, 10.0, 100.0), dropout=(0.5,), half_life=(None, 1, 10))
    grid = PointGrid(space.points(mean), mean)
    assert grid.start() == Point(100.0, 0.5, 0.0, math.inf)
    assert Point(10.0, 0.5, 0.0, 10.0) in grid.neighbours(grid.start())
    assert {Point(100.0, 0.5, 0.0), Point(1.0, 0.5, 0.0, 1.0)} <= {*grid.neighbours(Point(10.0, 0.5, 0.0, 10.0))}


@pytest.mark.parametrize("prior", [None, "lowpass"])
def test_every_point_is_as_if_fitted_alone(drifting, prior):
    split = deql.split_leave_last(drifting)
    half_lives = [None, "8d"] if prior is None else ["8d"]  # else the prior is tried at the best point alone
    more = {"prior_rank": 4, "prior_power_in": 0.2, "prior_power_out": 0.6, "prior_weight": 1.0}
    space = FEW | {"half_life": half_lives, "prior": prior} | (more if prior else {})
    found = deql.tune(split, space, search="grid", dtype="float64", baselines=False)
    rows = found.table.to_dicts()
    assert {row["half_life"] for row in rows} == {None if one is None else 8 * DAY for one in half_lives}
    assert any(row["prior_weight"] for row in rows) == (prior is not None)
    for row in rows:
        rank, weight = row["prior_rank"], row["prior_weight"]
        low = deql.priors.LowPass(int(rank), row["prior_power_in"], row["prior_power_out"]) if weight else None
        model = deql.DEQL(
            row["l2"], row["dropout"], row["b"], user_power=row["user_power"], half_life=row["half_life"], prior=low,
            prior_weight=weight or 1.0, dtype="float64",
        ).fit(split.train)  # fmt: skip
        value = deql.evaluate(model, split.validation, "ndcg@20").means["ndcg@20"]
        assert value == pytest.approx(row["ndcg@20"], abs=1e-6)


@pytest.mark.parametrize("search", ["grid", "walk", "optuna"])
def test_it_finds_that_tastes_drift(drifting, search):
    if search == "optuna":
        pytest.importorskip("optuna")
    space = FEW | {"half_life": [None, "8d", "4000d"]}
    found = deql.tune(drifting, space, search=search, budget=40, validation="last", dtype="float64")
    assert found.best["half_life"] == 8 * DAY
    assert (found.model.half_life, found.model.until_) == ("8d", drifting.times.max())
    assert "half_life=8d" in found.spec
    assert all(row["half_life"] is None for row in found.baselines.values())
    everything = " ".join([found.sentence, *found.notes, str(found)])
    assert "inf" not in everything.replace("information", "")


def test_a_journal_resumes_and_knows_the_times(drifting, tmp_path):
    path, told = tmp_path / "search.jsonl", []
    space = FEW | {"half_life": [None, "8d"]}
    first = deql.tune(drifting, space, journal=path, validation="last", tell=told.append)
    lines = path.read_text().splitlines()
    again = deql.tune(drifting, space, journal=path, validation="last")
    assert again.best == first.best
    assert path.read_text().splitlines() == lines
    assert any("half_life=8d" in line for line in told)
    points = [json.loads(line) for line in lines if '"step": "point"' in line]
    assert {point.get("half_life") for point in points} == {None, 8 * DAY}
    assert sum("half_life" in point for point in points) == len(points) // 2
    with pytest.raises(deql.errors.JournalError):
        deql.tune(replace(drifting, times=drifting.times * 2), space, journal=path, validation="last")


def test_a_search_without_half_lives_writes_what_it_did_before(drifting, tmp_path):
    path = tmp_path / "search.jsonl"
    first = deql.tune(drifting, FEW, journal=path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert not any("half_life" in line for line in lines)
    # The end as earlier versions wrote it, which is found again.
    end = lines[-1]
    for row in (end["best"], *(one["parameters"] for one in end["baselines"].values())):
        row.pop("half_life")
    if end["tie"]:
        end["tie"]["parameters"].pop("half_life")
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert deql.tune(drifting, FEW, journal=path).best == first.best
    assert len(path.read_text().splitlines()) == len(lines)


def test_times_are_needed_and_found_in_frames(drifting):
    space = FEW | {"half_life": [None, "8d"]}
    with pytest.raises(DataError, match="half_life needs to know when things happened: say time=…"):
        deql.tune(replace(drifting, times=None), space)
    frame = drifting.to_frame("polars")
    assert isinstance(frame, pl.DataFrame)
    assert deql.tune(frame, space, budget=3).model.half_life in (None, "8d")


def test_the_winner_is_fitted_on_everything_with_its_times(drifting):
    split = deql.split_strong(drifting, seed=2)
    found = deql.tune(split, FEW | {"half_life": "8d"}, refit="all", budget=3)
    assert found.model.until_ == drifting.times.max()
    assert found.model.n_users_ == drifting.n_users
