"""Models that share no P: each setting fitted alone, a walk or all of them, resumed, within a budget."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import deql
from deql.errors import DataError, JournalError, ParameterError, TooLargeError
from deql.linalg.gram import user_weights, weighted_diagonal
from deql.tuning import model_trials
from deql.tuning.model_space import ModelSpace, model_space
from deql.tuning.space import ridges_around
from deql.tuning.trial import TIE
from deql.tuning.tuning_data import all_interactions
from tests.tuning.common import market

SPLIT = deql.split_strong(market(seed=1), test_users=0.1, validation_users=0.3)
GRID = {"l1": [0.05, 0.5], "l2": [1.0, 10.0, 100.0]}
SLIM = deql.SLIM()


def alone(values, metric="ndcg@20", split=SPLIT):
    return deql.evaluate(deql.SLIM(**values).fit(split.train), split.validation, [metric]).means[metric]


def settings(found):
    """The settings of the leaderboard, in its order."""
    return [tuple(row[name] for name in found.axes) for row in found.table.to_dicts()]


class TestFound:
    @pytest.mark.parametrize("metric", ["ndcg@20", "recall@5", "mse"])
    def test_every_setting_is_as_if_fitted_alone(self, metric):
        found = deql.tune(SPLIT, GRID, metric, model=SLIM, search="grid")
        rows = [{"l1": l1, "l2": l2} for l2 in GRID["l2"] for l1 in GRID["l1"]]
        expected = sorted((alone(row, metric) for row in rows), reverse=metric != "mse")
        assert found.table[metric].to_list() == pytest.approx(expected, abs=1e-12)
        for row in found.table.to_dicts():
            assert row[metric] == pytest.approx(alone({name: row[name] for name in GRID}, metric), abs=1e-12)
        assert found.best == found.table.row(0, named=True)
        assert (found.fits, found.left_out, found.complete) == (6, 0, True)
        best = deql.SLIM(found.best["l1"], found.best["l2"]).fit(SPLIT.train)
        np.testing.assert_array_equal(found.model.weights(), best.weights())
        assert found.judged == len(deql.evaluate(best, SPLIT.validation).users)
        assert found.error == deql.evaluate(best, SPLIT.validation, [metric]).standard_errors[metric]

    def test_a_walk_ends_where_no_neighbour_is_better(self):
        found = deql.tune(SPLIT, {"l1": [0.01, 0.1, 1.0, 10.0]}, model=SLIM)
        space = model_space(SLIM, SPLIT.train, {"l1": [0.01, 0.1, 1.0, 10.0]})
        values = {row: one["ndcg@20"] for row, one in zip(settings(found), found.table.to_dicts(), strict=True)}
        assert space.start() in values
        # A better neighbour that is tied is not stepped to.
        last = found.best["ndcg@20"] - TIE * found.error
        ends = [one for one, value in values.items() if value >= last and set(space.neighbours(one)) <= set(values)]
        assert ends

    def test_the_walk_goes_step_by_step(self, monkeypatch):
        """From the model's own values, to larger ones first, and past a tie to the other side."""
        worth = {1: 0.3, 2: 0.5, 4: 0.5001, 8: 0.9}
        asked = []

        def run(self, setting):
            asked.append(setting)
            trial = model_trials.ModelTrial(setting, dict.fromkeys(self.metrics, worth[setting[1]]), 1.0, 9, 0.01)
            return trial, deql.SLIM(setting[1]).fit(SPLIT.train)

        monkeypatch.setattr(model_trials.ModelTrials, "_run", run)
        found = deql.tune(SPLIT, {"l1": [8, 4, 2, 1], "l2": 3.0}, model=deql.SLIM(l1=2.2))
        assert asked == [(3.0, 2), (3.0, 4), (3.0, 1)]
        assert (found.best["l1"], found.model.l1) == (4, 4)

    def test_everything_can_be_had_in_the_end(self):
        found = deql.tune(SPLIT, {"l1": 0.5, "l2": 10.0}, model=SLIM, refit="all")
        expected = deql.SLIM(0.5, 10.0).fit(all_interactions(SPLIT))
        np.testing.assert_array_equal(found.model.weights(), expected.weights())
        assert found.fits == 1

    def test_the_test_part_is_not_read(self):
        other = replace(SPLIT, test=replace(SPLIT.test, held_out=SPLIT.test.seen))
        one, two = (deql.tune(split, GRID, model=SLIM).to_dict() for split in (SPLIT, other))
        assert {**one, "seconds": 0} == {**two, "seconds": 0}

    def test_of_a_table_users_are_held_out(self):
        table = market(seed=2)
        found = deql.tune(table, {"l1": [0.1, 1.0]}, model=SLIM, budget=2)
        assert "users were held out to choose on" in found.how
        assert found.model.n_users_ == table.n_users

    def test_a_setting_without_a_model_is_told(self, monkeypatch):
        fit = deql.SLIM.fit
        monkeypatch.setattr(deql.SLIM, "fit", lambda self, data: fit(self, data) if self.l1 < 1 else _fail())
        found = deql.tune(SPLIT, {"l1": [0.1, 2.0], "l2": 10.0}, model=SLIM)
        assert found.failures == ["l2=10 l1=2: it went wrong"]
        assert "1 setting gave no model, such as l2=10 l1=2: it went wrong." in found.sentences
        with pytest.raises(DataError, match="no setting gave a model, such as l2=10 l1=2: it went wrong"):
            deql.tune(SPLIT, {"l1": 2.0, "l2": 10.0}, model=SLIM)

    def test_in_words(self):
        found = deql.tune(SPLIT, GRID, model=SLIM, search="grid")
        value = f"{found.best['ndcg@20']:.4f}"
        assert found.sentences[0].startswith(f"Best: SLIM l1={found.best['l1']:g} l2={found.best['l2']:g}, ndcg@20 ")
        assert str(found).startswith("All 6 settings of SLIM\n")
        assert repr(found).startswith("ModelTuning(best of 6 settings: SLIM(")
        assert value in repr(found)
        assert found.spec in found._repr_html_()
        assert found.to_frame("pandas")["ndcg@20"].tolist() == found.table["ndcg@20"].to_list()
        assert json.loads(json.dumps(found.to_dict()))["best"] == found.best
        (edge,) = (one for one in found.sentences if one.startswith(f"The best l1={found.best['l1']:g} is"))
        assert edge.endswith("widen l1 downwards." if found.best["l1"] == 0.05 else "widen l1 upwards.")


def _fail():
    raise DataError("it went wrong")


def _raise(error):
    raise error


class TestLongWork:
    @pytest.mark.parametrize("search", ["walk", "grid"])
    def test_goes_on_where_it_was_killed(self, monkeypatch, tmp_path, search):
        whole = deql.tune(SPLIT, GRID, model=SLIM, search=search)
        journal, evaluate, asked = tmp_path / "j.jsonl", model_trials.evaluate, []

        def killed(*given):
            asked.append(given)
            if len(asked) == 3:
                raise SystemExit
            return evaluate(*given)

        monkeypatch.setattr(model_trials, "evaluate", killed)
        with pytest.raises(SystemExit):
            deql.tune(SPLIT, GRID, model=SLIM, search=search, journal=journal)
        found = deql.tune(SPLIT, GRID, model=SLIM, search=search, journal=journal)
        assert len(asked) == whole.fits + 1
        assert settings(found) == settings(whole)
        assert found.best == whole.best
        again = deql.tune(SPLIT, GRID, model=SLIM, search=search, journal=journal)
        assert len(asked) == whole.fits + 1
        assert {**again.to_dict(), "seconds": 0} == {**found.to_dict(), "seconds": 0}
        np.testing.assert_array_equal(again.model.weights(), whole.model.weights())

    @pytest.mark.parametrize(
        "changed",
        [{"model": deql.SLIM(popularity_power=0.2)}, {"space": {"l1": [0.05, 0.6]}}, {"metric": "recall@5"},
         {"search": "grid"}, {"seed": 3}, {"data": deql.split_strong(market(seed=4))}],
        ids=lambda changed: next(iter(changed)),
    )  # fmt: skip
    def test_another_search_is_refused(self, tmp_path, changed):
        asked = {"data": SPLIT, "space": GRID, "model": SLIM, "journal": tmp_path / "j.jsonl", "budget": 1}
        deql.tune(**asked)
        with pytest.raises(JournalError, match="of a search with other"):
            deql.tune(**asked | changed)

    @pytest.mark.parametrize(
        "damage",
        [{"step": "look"}, {"parameters": {"l1": 7}}, {"error": "x"}, {"error": [1]}, {"error": -1}, {"failure": 5},
         {"failure": ""}, {"users": -5}, {"users": 2.5}, {"seconds": None}, {"seconds": -1},
         {"values": {"ndcg@20": "0.5", "recall@20": 0.5}}, {"values": {}}],
        ids=str,
    )  # fmt: skip
    def test_a_damaged_journal_is_refused(self, tmp_path, damage):
        journal = tmp_path / "j.jsonl"
        deql.tune(SPLIT, GRID, model=SLIM, journal=journal, budget=1)
        head, line = journal.read_text().splitlines()
        journal.write_text(head + "\n" + json.dumps(json.loads(line) | damage) + "\n")
        with pytest.raises(JournalError, match="is damaged: delete it to begin again"):
            deql.tune(SPLIT, GRID, model=SLIM, journal=journal)

    def test_a_budget_is_the_same_after_a_kill(self, tmp_path):
        asked = {"space": {"l1": [0.05, 0.5], "l2": [1.0, 10.0, 100.0]}, "model": deql.SLIM(l2=1.0), "budget": 4}
        whole = deql.tune(SPLIT, **asked, journal=tmp_path / "j.jsonl")
        lines = (tmp_path / "j.jsonl").read_text().splitlines(keepends=True)
        for kept in range(1, len(lines)):
            (tmp_path / "j.jsonl").write_text("".join(lines[:kept]))
            found = deql.tune(SPLIT, **asked, journal=tmp_path / "j.jsonl")
            assert (found.fits, found.best) == (whole.fits, whole.best)

    def test_an_interrupt_ends_with_the_best_so_far(self, monkeypatch):
        evaluate, asked = model_trials.evaluate, []

        def interrupted(*given):
            asked.append(given)
            if len(asked) == 3:
                raise KeyboardInterrupt
            return evaluate(*given)

        monkeypatch.setattr(model_trials, "evaluate", interrupted)
        told = []
        found = deql.tune(SPLIT, GRID, model=SLIM, search="grid", tell=told.append)
        assert (found.complete, found.fits) == (False, 2)
        assert told[-1] == "interrupted"
        asked[:] = [None, None]
        with pytest.raises(KeyboardInterrupt):
            deql.tune(SPLIT, GRID, model=SLIM)

    def test_an_interrupt_after_a_kill_fits_the_best_again(self, monkeypatch, tmp_path):
        asked = {"space": GRID, "model": SLIM, "search": "grid", "journal": tmp_path / "j.jsonl"}
        deql.tune(SPLIT, **asked)
        lines = (tmp_path / "j.jsonl").read_text().splitlines(keepends=True)
        (tmp_path / "j.jsonl").write_text("".join(lines[:4]))
        monkeypatch.setattr(model_trials, "evaluate", lambda *given: _raise(KeyboardInterrupt))
        told = []
        found = deql.tune(SPLIT, **asked, tell=told.append)
        assert (found.complete, found.fits, found.left_out) == (False, 3, 3)
        assert told[0].startswith("interrupted: fitting the best so far")
        best = deql.SLIM(**{name: found.best[name] for name in GRID}).fit(SPLIT.train)
        np.testing.assert_array_equal(found.model.weights(), best.weights())
        assert "The search ended early: 3 more settings were to be measured." in found.sentences

    def test_a_setting_that_is_too_large_here_is_tried_again_elsewhere(self, monkeypatch, tmp_path):
        fit, asked = deql.SLIM.fit, {"space": {"l1": [0.1, 2.0], "l2": 10.0}, "model": SLIM, "journal": tmp_path / "j"}

        def small(self, data):
            return fit(self, data) if self.l1 < 1 else _raise(TooLargeError("no room"))

        with monkeypatch.context() as patched:
            patched.setattr(deql.SLIM, "fit", small)
            found = deql.tune(SPLIT, **asked)
            assert found.failures == ["l2=10 l1=2: no room"]
            with pytest.raises(TooLargeError, match="no room"):
                deql.tune(SPLIT, {"l1": 2.0}, model=SLIM)
        assert deql.tune(SPLIT, **asked).fits == 2
        assert not deql.tune(SPLIT, **asked).failures

    def test_a_budget_of_fits(self):
        for budget in (1, 3):
            found = deql.tune(SPLIT, GRID, model=SLIM, search="grid", budget=budget)
            assert (found.fits, found.left_out) == (budget, 6 - budget)
        assert len(set(found.table["l1"])) == 2  # from all over the grid
        assert f"{6 - budget} more settings were to be measured" in " ".join(found.sentences)
        held = deql.tune(market(seed=2), GRID, model=SLIM, search="grid", budget=3)
        assert held.fits == 2  # and the last one is on everything

    def test_a_budget_of_time(self, monkeypatch):
        clock = iter(range(0, 10**6, 10))
        monkeypatch.setattr(model_trials.time, "perf_counter", lambda: next(clock))
        found = deql.tune(SPLIT, GRID, model=SLIM, search="grid", budget="35s")
        assert (found.fits, found.left_out) == (3, 3)

    def test_each_trial_is_told(self):
        told = []
        found = deql.tune(SPLIT, GRID, model=SLIM, search="grid", tell=told.append)
        assert [line.split(":")[0] for line in told] == [f"{one} of 6" for one in range(1, 7)]
        assert told[-1].endswith(f"(best so far {found.best['ndcg@20']:.4f})")
        assert all("left at most" in line for line in told[:-1])


class TestSpaces:
    def test_are_around_what_the_model_has(self):
        data = market(seed=1)
        assert model_space(deql.SLIM(l1=2.0), data, "default").axes["l1"] == (0.2, 0.6, 2.0, 6.0, 20.0)
        lightgcn = model_space(deql.neural.LightGCN(learning_rate=0.01, layers=1, epochs=50), data, "default")
        assert lightgcn.axes["learning_rate"] == (0.0033, 0.01, 0.03)
        assert (lightgcn.axes["layers"], lightgcn.axes["epochs"]) == ((1, 2), (25, 50, 100))
        assert "layers" not in model_space(deql.neural.SSM(backbone="mf"), data, "default").axes
        assert "weight_decay" not in model_space(deql.neural.LightGCN(weight_decay=0.0), data, "default").axes
        lowrank = model_space(deql.LowRankDEQL(), data, "default").axes
        assert max(lowrank["rank"]) == data.n_items
        assert lowrank["dropout"] == (0.0, 0.3, 0.5, 0.7)

    def test_go_by_what_was_typed(self):
        data = market(seed=1)
        axes = model_space(deql.LowRankDEQL(l2=200.0, dropout=0.4, rank=5000), data, {"rank": [10]}).axes
        assert axes == {"l2": (20.0, 60.0, 200.0, 600.0, 2000.0), "dropout": (0.0, 0.3, 0.4, 0.5, 0.7), "rank": (10,)}
        exact = model_space(deql.ELSA(learning_rate=0.0123, rank=20), data, "default").axes
        assert exact["learning_rate"] == (0.0041, 0.0123, 0.037)
        assert exact["rank"] == (10, 20, data.n_items)
        assert "layers" not in model_space(deql.neural.SSM(), data, {"backbone": "mf"}).axes

    def test_leave_out_what_the_model_refuses(self):
        axes = model_space(deql.neural.SSM(temperature=0.03, layers=64), market(seed=1), "default").axes
        assert (axes["temperature"], axes["layers"]) == ((0.03, 0.04), (63, 64))

    def test_l2_goes_by_the_weights_of_users(self):
        data = market(seed=1)
        plain, weighted = (model_space(deql.SLIM(user_power=power), data, "default") for power in (0.0, 0.75))
        expected = weighted_diagonal(data.matrix, user_weights(data.matrix, 0.75)).mean()
        assert weighted.axes["l2"] == ridges_around(float(expected))
        assert max(weighted.axes["l2"]) < max(plain.axes["l2"])

    def test_take_numbers_of_numpy(self):
        model = deql.ELSA(rank=np.int64(8), epochs=np.int64(50), learning_rate=np.float32(0.25))
        axes = model_space(model, market(seed=1), {"batch_size": np.array([8, 16]), "seed": np.array(3)}).axes
        assert all(type(value) in (int, float) for values in axes.values() for value in values)
        assert (axes["epochs"], axes["batch_size"], axes["seed"]) == ((25, 50, 100), (8, 16), (3,))

    @pytest.mark.parametrize("model", [deql.SLIM(), deql.LowRankDEQL(), deql.ELSA(), deql.neural.LightGCN(),
                                       deql.neural.SSM(), deql.neural.SGL()])  # fmt: skip
    def test_begin_at_the_model_s_own_values(self, model):
        """But for l2, whose values go by the data, and what the model leaves to the data."""
        space = model_space(model, market(seed=1), "default")
        own = model.get_params()
        for name, value in space.named(space.start()).items():
            assert value in space.axes[name]
            assert name in ("l2", "rank") or value == own[name]
        for setting in space.settings():
            space.configured(setting)._check_parameters()

    def test_values_that_are_no_numbers_keep_their_order(self):
        space = model_space(deql.neural.SSM(backbone="mf"), market(seed=1), {"backbone": ["mf", "lightgcn"]})
        assert space.axes["backbone"] == ("mf", "lightgcn")
        assert space.named(space.start())["backbone"] == "mf"

    def test_neighbours_are_one_step_away(self):
        space = ModelSpace(SLIM, {"l1": (1.0, 2.0, 3.0), "l2": (5.0, 6.0)})
        assert list(space.neighbours((2.0, 5.0))) == [(3.0, 5.0), (1.0, 5.0), (2.0, 6.0)]


class TestNonsense:
    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"model": "slim"}, "model must be a model such as deql.SLIM"),
            ({"model": deql.SLIM(l1=-1)}, "l1 must be a number from 0 up, got -1"),
            ({"model": deql.EASE()}, "EASE is of the family whose models share an inverse"),
            ({"model": deql.Popularity()}, "Popularity has nothing to search"),
            ({"space": "quick"}, "the space of SLIM is 'default', or values by parameter"),
            ({"space": {"l_1": [1]}}, "SLIM has no parameter 'l_1' .did you mean l1"),
            ({"space": {"l1": []}}, "l1 has no values: give at least one"),
            ({"space": {"l1": [1, -1]}}, "l1 must be a number from 0 up, got -1"),
            ({"search": "optuna"}, "search of a model must be walk or grid, got 'optuna'"),
            ({"prior": "lowpass"}, "prior is of the family on P: leave it out, or leave out model"),
            ({"dtype": "float64"}, "dtype is of the family on P"),
            ({"metric": "ndgc@20"}, "unknown metric"),
            ({"budget": "soon"}, "a budget is a number"),
            ({"seed": -1}, "seed must be"),
            ({"patience": 1}, "patience is of the family on P"),
            ({"prior": np.eye(3)}, "prior is of the family on P"),
            ({"baselines": False}, "baselines is of the family on P"),
            ({"model": deql.neural.LightGCN(checkpoint="a")}, "a checkpoint is of one fit, and these are many"),
            ({"model": deql.neural.LightGCN(), "metric": "mse"}, "mse needs a model whose scores are X @ W"),
        ],
    )
    def test_is_said_before_any_work(self, tmp_path, given, words):
        with pytest.raises(ParameterError, match=words):
            deql.tune(SPLIT, **{"model": SLIM, "journal": tmp_path / "j.jsonl"} | given)
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("model", [deql.ELSA(rank=4, device="cpu"), deql.neural.LightGCN(rank=4, device="cpu")])
def test_trained_models_are_searched_likewise(model):
    pytest.importorskip("torch")
    split = deql.split_weak(market(seed=1), validation=0.2)
    space = {"epochs": [2, 4], "batch_size": 64, "learning_rate": 0.05}
    found = deql.tune(split, space, model=model, budget=3)
    assert found.fits <= 3
    assert math.isfinite(found.best["ndcg@20"])
    assert found.model.epochs in (2, 4)
