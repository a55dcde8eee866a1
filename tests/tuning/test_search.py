import math
from functools import cache
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import deql
from deql.errors import DeqlError
from deql.tuning import trainer
from deql.tuning.budget import inverses_of_screening
from deql.tuning.search import KEPT, by_gram, kept_after_screening, spread_order
from deql.tuning.space import Point, as_space
from deql.tuning.trainer import Trainer
from deql.tuning.tuning_data import hold_out_validation, sample_items
from tests.tuning.common import SMALL, findings, market, steps

GRID = {
    "l2": [1, 5, 25, 125],
    "dropout": [0.0, 0.3, 0.6, 0.9],
    "user_power": [0, 0.6],
    "b": [0, 1],
    "popularity_power": 0,
    "prior": None,
}
"""32 inverses."""

KEPT_OF_GRID = math.ceil(32 * KEPT)


@pytest.fixture(scope="module")
def split():
    return deql.split_strong(market(160, 40, seed=21), 0.1, 0.4)


@pytest.fixture(scope="module")
def undisturbed(split):
    """What a search with these options comes to when nothing happens to it: searched once."""
    return cache(lambda **options: deql.tune(split, GRID, **{"search": "grid"} | options))


@pytest.fixture
def screening(monkeypatch):
    """Screening on data as small as the tests', where it is a share of an inverse as on large ones."""
    monkeypatch.setattr("deql.tuning.tuner._LEAST_ITEMS", 10)
    monkeypatch.setattr("deql.tuning.budget._OVERHEAD_SECONDS", 0.0)


@given(st.integers(0, 300))
def test_spread_order_has_each_place_once(count):
    assert sorted(spread_order(count)) == list(range(count))


def test_spread_order_leaves_no_large_gap():
    for first in (5, 10, 20):
        places = sorted(spread_order(100)[:first])
        gaps = [after - before for before, after in zip([0, *places], [*places, 99], strict=True)]
        assert max(gaps) <= 2.7 * 100 / first


def test_points_of_one_user_power_come_together():
    points = [Point(1.0, 0.0, 0.5), Point(2.0, 0.0, 0.0), Point(3.0, 0.0, 0.5), Point(4.0, 0.0, 0.0)]
    assert [point.l2 for point in by_gram(points)] == [1, 3, 2, 4]


def test_at_least_six_points_are_kept():
    points = [Point(float(l2), 0.0, 0.0) for l2 in range(12)]
    assert len(kept_after_screening(points, range(12), 12)) == 6
    assert len(kept_after_screening(points[:3], range(3), 12)) == 3
    assert [point.l2 for point in kept_after_screening(points, range(12), 12)] == [11, 10, 9, 8, 7, 6]


@pytest.fixture
def inverted(monkeypatch, split):
    """How many matrices of full size were inverted."""
    from deql.linalg.engines import memory

    sizes, invert = [], memory.invert

    def watch(packed, *rest, **more):
        sizes.append(packed.n)
        return invert(packed, *rest, **more)

    monkeypatch.setattr(memory, "invert", watch)
    return lambda: sizes.count(split.train.n_items)


@pytest.mark.parametrize("search", ["walk", "grid", "optuna"])
@pytest.mark.parametrize("budget", [1, 2, 3, 10])
def test_a_budget_counts_the_fit_of_the_winner_too(split, budget, search, inverted, tmp_path):
    if search == "optuna":
        pytest.importorskip("optuna")
    tuning = deql.tune(split, GRID, budget=budget, search=search, prune=False, journal=tmp_path / "j")
    assert tuning.inverses == max(1, budget - 1)
    assert tuning.inverses <= inverted() <= budget
    assert tuning.table.height == 2 * tuning.inverses
    assert tuning.complete
    assert len(steps(tmp_path / "j")) == tuning.inverses


@pytest.mark.parametrize("search", ["walk", "grid"])
def test_a_budget_counts_the_fit_on_all_data_too(search, monkeypatch):
    from deql.linalg.engines import memory

    calls, invert = [], memory.invert
    monkeypatch.setattr(memory, "invert", lambda *given, **more: calls.append(1) or invert(*given, **more))
    tuning = deql.tune(market(160, 40, seed=21), GRID, budget=6, search=search)  # a tenth of the users is held out
    assert tuning.inverses == 4
    assert 5 <= len(calls) <= 6


@pytest.mark.parametrize("search", ["walk", "grid"])
@pytest.mark.parametrize("budget", [1, 2, 3, 5, 8])
def test_a_budget_counts_screening(split, search, budget, screening):
    tuning = deql.tune(split, GRID, budget=budget, search=search)
    full, small = hold_out_validation(split, 0), sample_items(hold_out_validation(split, 0), 0.25, 2000, 0)
    share = inverses_of_screening(small, full, rules=2)
    assert 0.03 < share < 0.05
    spent = tuning.inverses + share * tuning.looks.height + (tuning.inverses > 1)
    assert spent <= budget
    assert (tuning.looks.height > 0) == (budget > 1)


@pytest.mark.parametrize("budget", [3, 10])
def test_a_grid_cut_short_measures_what_the_whole_one_does(split, undisturbed, budget):
    tuning = deql.tune(split, GRID, budget=budget, search="grid")
    whole = {tuple(row.values()) for row in undisturbed(prune=False).table.to_dicts()}
    assert {tuple(row.values()) for row in tuning.table.to_dicts()} <= whole


def test_a_larger_budget_goes_on(split, undisturbed, tmp_path):
    journal = tmp_path / "j"
    for budget in (2, 5, 5, 3, 9, None):
        tuning = deql.tune(split, GRID, budget=budget, search="grid", journal=journal)
        done = steps(journal)
        assert len(set(done)) == len(done)
    assert tuning.inverses == len(done) == 32
    assert findings(tuning) == findings(undisturbed())


@pytest.fixture
def clock(monkeypatch, split):
    """A screening takes 1/8 s and a point 1 s, by a clock that nothing else moves and that does not round."""
    now, evaluate = [0.0], Trainer.evaluate

    def slow(self, *arguments):
        now[0] += 0.125 if self.data.train.n_items < split.train.n_items else 1.0
        return evaluate(self, *arguments)

    monkeypatch.setattr(Trainer, "evaluate", slow)
    monkeypatch.setattr("deql.tuning.trials.time", SimpleNamespace(perf_counter=lambda: now[0]))


def assert_within(seconds, journal):
    """All that was done and the fit of the winner fit in the time, and one trial more would not have."""
    times = [record["seconds"] for record in records(journal) if record["step"] != "end"]
    trials = len([step for step in steps(journal) if step[0] == "point"])
    assert sum(times) + (trials > 1) <= seconds < sum(times) + 2.0 + 0.125
    assert len(set(steps(journal))) == len(steps(journal)) == len(times)


@pytest.mark.parametrize("search", ["walk", "grid"])
@pytest.mark.parametrize("prune", [False, True])
def test_a_time_is_kept_with_the_fit_of_the_winner(split, clock, screening, search, prune, tmp_path):
    journal = tmp_path / "j"
    for seconds, looks in ((3.5, 14), (5.5, 22), (8.5, 32)):  # looks take up to half of the time
        tuning = deql.tune(split, GRID, budget=f"{seconds}s", search=search, prune=prune, journal=journal)
        assert_within(seconds, journal)
        if search == "grid":
            assert tuning.looks.height == (looks if prune else 0)
        assert tuning.complete


def test_one_point_is_measured_however_short_the_time(split, clock):
    assert deql.tune(split, GRID, budget="0.5s").inverses == 1


def records(journal):
    import json

    return [json.loads(line) for line in journal.read_bytes().splitlines()[1:]]


def test_screening_of_all_points_and_an_inverse_for_the_best_few(split, undisturbed, screening):
    tuning = deql.tune(split, GRID, search="grid")
    assert tuning.looks.height == 32
    assert tuning.inverses == KEPT_OF_GRID
    assert tuning.table.height == 2 * KEPT_OF_GRID
    names = ["l2", "dropout", "user_power"]
    kept = {tuple(row[name] for name in names) for row in tuning.looks.head(KEPT_OF_GRID).to_dicts()}
    assert kept == {tuple(row[name] for name in names) for row in tuning.table.to_dicts()}
    whole = {tuple(row.values()) for row in undisturbed(prune=False).table.to_dicts()}
    assert {tuple(row.values()) for row in tuning.table.to_dicts()} <= whole
    values = tuning.looks["ndcg@20"].to_list()
    assert values == sorted(values, reverse=True)


def test_a_look_is_the_best_rule_on_a_quarter_of_the_items(split, screening):
    tuning = deql.tune(split, GRID, seed=4, search="grid")
    small = sample_items(hold_out_validation(split, 4), 0.25, 1000, 4)
    assert small.train.n_items == 10
    trainer = Trainer(small, "float32", False, weights_from=split.train.matrix)
    for row in tuning.looks.to_dicts():
        judged = trainer.evaluate(Point(row["l2"], row["dropout"], row["user_power"]),
                               [{"b": 0.0}, {"b": 1.0}], ["ndcg@20"])  # fmt: skip
        values = [one.means["ndcg@20"] for one in judged]
        assert row["ndcg@20"] == max(values)
        assert row["b"] == [0, 1][values.index(max(values))]


def test_looks_of_mse_keep_the_smallest(split, screening):
    tuning = deql.tune(split, GRID, "mse", search="grid")
    values = tuning.looks["mse"].to_list()
    assert values == sorted(values)
    kept = set(tuning.looks.head(KEPT_OF_GRID).select("l2", "dropout", "user_power").rows())
    # Screening lost the winner here, which was measured as a baseline.
    assert tuning.best == tuning.baselines["EASE"]
    assert kept == set(tuning.table.select("l2", "dropout", "user_power").rows()[1:])


def test_no_screening_where_it_would_not_pay(split, screening):
    assert deql.tune(split, GRID | {"l2": [1, 10], "user_power": 0}, search="grid").looks.is_empty()  # 8 points
    assert deql.tune(split, GRID, prune=False, search="grid").looks.is_empty()


def test_a_small_budget_takes_the_best_of_the_looks(split, screening):
    tuning = deql.tune(split, GRID, budget=9, search="grid")
    assert tuning.looks.height == 32
    assert 2 <= tuning.inverses < KEPT_OF_GRID
    best = set(tuning.looks.head(tuning.inverses).select("l2", "dropout", "user_power").rows())
    assert best == set(tuning.table.select("l2", "dropout", "user_power").rows())


@pytest.mark.parametrize("after", [1, 5])
def test_an_interruption_ends_with_the_best_so_far(split, undisturbed, after, tmp_path):
    told = []

    def tell(line):
        told.append(line)
        if len(told) == after + 1:  # the first line is how long it will take
            raise KeyboardInterrupt

    tuning = deql.tune(split, GRID, journal=tmp_path / "j", tell=tell, search="grid")
    assert not tuning.complete
    assert tuning.inverses == after
    first = tuning.table.row(0, named=True)
    assert tuning.best == (first if tuning.tie is None else tuning.best)
    assert [tuning.best[name] for name in ("l2", "dropout")] == [first[name] for name in ("l2", "dropout")]
    assert told[-1].startswith("interrupted")
    assert tuning.model.get_params()["l2"] == tuning.best["l2"]
    again = deql.tune(split, GRID, journal=tmp_path / "j", search="grid")
    assert again.complete
    assert findings(again) == findings(undisturbed())
    assert len(steps(tmp_path / "j")) == len(set(steps(tmp_path / "j"))) == 32


@pytest.mark.parametrize("search", ["walk", "grid", "optuna"])
@pytest.mark.parametrize(
    "place", ["deql.linalg.engines.memory.invert", "deql.tuning.trainer.evaluate", "deql.tuning.trainer.make_gram"]
)
def test_an_interruption_inside_a_fit(split, undisturbed, place, search, monkeypatch, tmp_path):
    if search == "optuna":
        pytest.importorskip("optuna")
    options = {"search": search, "budget": 20, "prune": False}
    module, _, name = place.rpartition(".")
    import importlib

    real = getattr(importlib.import_module(module), name)
    calls = []

    def interrupted(*arguments, **named):
        calls.append(name)
        if len(calls) == (2 if name == "make_gram" else 4):
            raise KeyboardInterrupt
        return real(*arguments, **named)

    monkeypatch.setattr(place, interrupted)
    tuning = deql.tune(split, GRID, journal=tmp_path / "j", **options)
    monkeypatch.undo()
    assert not tuning.complete
    assert 0 < tuning.inverses < 20
    expected = deql.DEQL(
        **{name: tuning.best[name] for name in ("l2", "dropout", "user_power", "b", "popularity_power")}
    )
    assert (tuning.model.gain_ == expected.fit(split.train).gain_).all()
    again = deql.tune(split, GRID, journal=tmp_path / "j", **options)
    assert again.complete
    assert findings(again) == findings(undisturbed(**options))


def test_an_interruption_before_the_first_point_is_one(split, monkeypatch, tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "evaluate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        deql.tune(split, GRID, journal=tmp_path / "j", search="grid")
    monkeypatch.undo()
    assert deql.tune(split, SMALL).complete
    assert deql.tune(split, GRID, journal=tmp_path / "j", search="grid").inverses == 32  # the file was let go


def test_an_interruption_of_the_screening_is_one_too(split, screening, monkeypatch, tmp_path):
    evaluate, calls = Trainer.evaluate, []

    def interrupted(self, *arguments):
        calls.append(1)
        if len(calls) == 10:
            raise KeyboardInterrupt
        return evaluate(self, *arguments)

    monkeypatch.setattr(Trainer, "evaluate", interrupted)
    early = deql.tune(split, GRID, journal=tmp_path / "j", search="grid")
    assert not early.complete
    assert early.inverses == 1
    assert early.looks.height == 9
    first = early.looks.row(0, named=True)
    assert all(early.best[name] == first[name] for name in ("l2", "dropout", "user_power"))
    assert len(steps(tmp_path / "j")) == 9  # the point that was measured to end with is not part of the search
    monkeypatch.setattr(Trainer, "evaluate", evaluate)
    assert findings(deql.tune(split, GRID, journal=tmp_path / "j", search="grid")) == findings(
        deql.tune(split, GRID, search="grid")
    )


def test_a_time_goes_to_the_points_with_the_best_looks(split, clock, screening, tmp_path):
    tuning = deql.tune(split, GRID, budget="9s", journal=tmp_path / "j", search="grid")
    order = [tuple(row[:3]) for row in tuning.looks.rows()]
    measured = [step[1:] for step in steps(tmp_path / "j") if step[0] == "point"]
    assert len(measured) == 4
    assert measured == order[: len(measured)]


def test_a_time_without_looks_reaches_every_user_power(split, clock):
    tuning = deql.tune(split, GRID, budget="10s", prune=False, search="grid")
    assert 1 < tuning.inverses < tuning.points
    assert set(tuning.table["user_power"]) == {0, 0.6}


@pytest.mark.parametrize("budget", [None, 5])
def test_there_is_one_gram_matrix_for_each_user_power(split, screening, monkeypatch, budget):
    made = []
    real = trainer.make_gram

    def watched(matrix, *where, **how):
        made.append(matrix.shape[1])
        return real(matrix, *where, **how)

    monkeypatch.setattr(trainer, "make_gram", watched)
    deql.tune(split, GRID, budget=budget, search="grid")
    small, whole = min(made), max(made)
    assert made.count(small) == 2
    assert made.count(whole) <= 2 + 2  # the rival's and the winner's user_power may come back in the end


def test_each_point_is_told_with_what_is_left(split):
    told = []
    deql.tune(split, GRID, budget=4, tell=told.append, search="grid")
    assert told.pop(0).startswith("under 1 s: 3 inverses of under 1 s for the grid")
    assert [line.split(":")[0] for line in told] == ["1 of 3", "2 of 3", "3 of 3"]
    assert "left" in told[0]
    assert "left" not in told[2]
    assert all("ndcg@20 0." in line and "best so far 0." in line for line in told)


class TestOptuna:
    @pytest.fixture(autouse=True)
    def _optuna(self):
        pytest.importorskip("optuna")

    def test_points_lie_within_the_space(self, split, tmp_path):
        tuning = deql.tune(split, GRID, search="optuna", budget=16, journal=tmp_path / "j")
        assert tuning.inverses == 15
        for _, l2, dropout, power in steps(tmp_path / "j"):
            assert 1 <= l2 <= 125
            assert 0 <= dropout <= 0.9
            assert 0 <= power <= 0.6
        assert set(tuning.table["b"]) == {0, 1}
        assert len(set(tuning.table["l2"])) > 8

    def test_the_same_seed_asks_for_the_same_points(self, split):
        first, again, other = (
            findings(deql.tune(split, GRID, search="optuna", budget=6, seed=seed)) for seed in (1, 1, 2)
        )
        assert first == again
        assert first["leaderboard"] != other["leaderboard"]

    def test_a_larger_budget_goes_on(self, split, tmp_path, screening):
        for budget in (3, 8):
            tuning = deql.tune(split, GRID, search="optuna", budget=budget, journal=tmp_path / "j")
            assert tuning.inverses <= budget
            done = steps(tmp_path / "j")
            assert len(set(done)) == len(done)
        assert findings(tuning) == findings(deql.tune(split, GRID, search="optuna", budget=8))

    def test_no_look_after_the_last_inverse(self, split, screening, tmp_path):
        for seed in range(3):
            journal = tmp_path / str(seed)
            tuning = deql.tune(split, GRID, search="optuna", budget=5, seed=seed, journal=journal)
            assert 1 <= tuning.inverses < 5
            assert steps(journal)[-1][0] == "point"

    def test_a_time_is_overrun_by_at_most_one_trial(self, split, clock, screening, tmp_path):
        for seed in range(4):
            journal = tmp_path / str(seed)
            deql.tune(split, GRID, search="optuna", budget="9.5s", seed=seed, journal=journal)
            assert_within(9.5, journal)

    def test_some_trials_end_at_the_screening(self, split, screening):
        tuning = deql.tune(split, GRID, search="optuna", budget=14)
        assert tuning.inverses >= 8
        assert tuning.inverses < tuning.looks.height <= 4 * 12

    def test_ridges_of_their_own_when_none_are_given(self, split):
        tuning = deql.tune(
            split,
            as_space({"dropout": [0, 0.8], "b": 1, "popularity_power": 0, "prior": None}),
            search="optuna",
            budget=8,
        )
        mean = split.train.matrix.multiply(split.train.matrix).sum() / split.train.n_items
        assert all(mean / 100 < row["l2"] < 100 * mean for row in tuning.table.to_dicts() if row["user_power"] == 0)

    def test_points_that_give_no_model_are_passed_over(self, monkeypatch):
        data = deql.split_strong(market(40, 24, seed=7), 0.2, 0.3)
        told = []
        space = SMALL | {"l2": 0, "dropout": [0, 0.01]}
        tuning = deql.tune(data, space, search="optuna", budget=3, tell=told.append)
        failed = [line for line in told if "no model" in line]
        assert failed
        assert tuning.inverses + len(tuning.failures) == len(told) - 1

    def test_one_point_ends(self, split):
        assert (
            deql.tune(split, GRID | {"l2": 5, "dropout": 0.3, "user_power": 0}, search="optuna", budget="1s").inverses
            == 1
        )

    def test_fixed_values_stay_as_they_are(self, split):
        space = GRID | {"l2": 1234.5, "dropout": 0.333, "user_power": 0.25}
        best = deql.tune(split, space, search="optuna", budget=2).best
        assert (best["l2"], best["dropout"], best["user_power"]) == (1234.5, 0.333, 0.25)

    def test_rounding_stays_within_the_space(self, split):
        table = deql.tune(split, GRID | {"dropout": [0.99, 0.9999]}, search="optuna", budget=8).table
        assert table["dropout"].is_between(0.99, 0.9999).all()

    def test_without_optuna_it_says_what_to_install(self, split, monkeypatch, tmp_path):
        import sys

        monkeypatch.setitem(sys.modules, "optuna", None)
        with pytest.raises(DeqlError, match=r'pip install "deql\[tune\]"'):
            deql.tune(split, GRID, search="optuna", journal=tmp_path / "j")
        assert not (tmp_path / "j").exists()
        assert deql.tune(split, GRID, budget=1).inverses == 1
