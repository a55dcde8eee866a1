from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deql
from deql.errors import DataError, ParameterError
from deql.tuning.space import NAMED, ridges_around
from tests.tuning.common import PARAMETERS, SMALL, findings, market, parameters_of, separate, simplest_tied

WIDE = {
    "l2": [0.7, 5, 60],
    "dropout": [0.0, 0.3, 0.8],
    "user_power": [0.0, 0.5],
    "b": [0.0, 0.5, 1.0, 2.0],
    "xi": [0.0, 0.2],
    "popularity_power": [0.0, 0.25],
    "prior": None,
}


def assert_equals_separate(tuning, rows, metrics):
    assert tuning.table.columns == [*PARAMETERS, *metrics]
    assert [parameters_of(row) for row in tuning.table.to_dicts()] == [parameters_of(row) for row in rows]
    for metric in metrics:
        assert tuning.table[metric].to_list() == pytest.approx([row[metric] for row in rows], rel=0, abs=1e-9)
    assert parameters_of(tuning.best) == parameters_of(simplest_tied(rows, metrics[0]))
    assert tuning.best in tuning.table.to_dicts()
    assert (tuning.tie is None) == (tuning.best == tuning.table.row(0, named=True))


def assert_same_model(model, other):
    assert type(model) is type(other)
    assert model.get_params() == other.get_params()
    for name in ("gain_", "shift_", "item_counts_", "items_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(other, name))
    np.testing.assert_array_equal(model.precision_.data, other.precision_.data)


def fitted_apart(tuning, data):
    """The winner's parameters, fitted in the plain way."""
    best = {name: value for name, value in parameters_of(tuning.best).items() if value is not None}
    return (deql.RDLAE if "xi" in best else deql.DEQL)(**best).fit(data)


@pytest.mark.parametrize(("metric", "weighted"), [("ndcg@20", False), ("recall@5", True), ("mse", True)])
def test_every_model_is_as_if_fitted_and_judged_alone(metric, weighted):
    split = deql.split_strong(market(seed=1, weighted=weighted), test_users=0.1, validation_users=0.3)
    tuning = deql.tune(split, WIDE, metric, search="grid")
    metrics = [name for name in tuning.table.columns if name not in PARAMETERS]
    assert metrics[0] == metric
    assert_equals_separate(tuning, separate(WIDE, split.train, split.validation, metrics), metrics)
    assert tuning.inverses == 18
    assert tuning.judged == len(deql.evaluate(tuning.model, split.validation).users)
    assert_same_model(tuning.model, fitted_apart(tuning, split.train))


def test_of_several_metrics_the_first_decides(tmp_path):
    split = deql.split_strong(market(), seed=3)
    journal = tmp_path / "search.jsonl"
    tuning = deql.tune(split, SMALL, ("recall@5", "ndcg@3"), journal=journal)
    alone = deql.tune(split, SMALL, "recall@5", journal=tmp_path / "one.jsonl")
    assert (tuning.metric, tuning.best) == ("recall@5", alone.best | {"ndcg@3": tuning.best["ndcg@3"]})
    assert tuning.table["recall@5", "ndcg@5"].equals(alone.table["recall@5", "ndcg@5"])
    assert "ndcg@3" in tuning.table.columns
    assert deql.tune(split, SMALL, ["recall@5", "ndcg@3"], journal=journal).table.equals(tuning.table)
    assert deql.tune(split, SMALL, ["recall@5"], journal=tmp_path / "one.jsonl").table.equals(alone.table)


@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**32 - 1), weighted=st.booleans(), metric=st.sampled_from(["ndcg@3", "hit_rate@1", "mse"]),
    l2=st.lists(st.floats(0.01, 1000), min_size=1, max_size=2, unique=True),
    dropout=st.lists(st.floats(0, 0.95), min_size=1, max_size=2, unique=True),
    user_power=st.lists(st.floats(-1, 1.5), min_size=1, max_size=2, unique=True),
    b=st.lists(st.floats(0, 5) | st.just(float("inf")), min_size=1, max_size=3, unique=True),
)  # fmt: skip
def test_any_space_on_any_data(seed, weighted, metric, l2, dropout, user_power, b):
    split = deql.split_strong(market(60, 9, seed, weighted), 0.2, 0.4)
    space = {"l2": l2, "dropout": dropout, "user_power": user_power, "b": b, "popularity_power": [0, 0.5]}
    space |= {"prior": None}
    tuning = deql.tune(split, space, metric, dtype="float64")
    metrics = [name for name in tuning.table.columns if name not in PARAMETERS]
    assert_equals_separate(tuning, separate(space, split.train, split.validation, metrics, "float64"), metrics)


class Untouchable:
    """Stands for the test part: whoever looks at it fails."""

    def __getattribute__(self, name):
        raise AssertionError(f"the test part was asked for {name}")


def with_test(split, test):
    other = replace(split)
    object.__setattr__(other, "test", test)  # Split itself looks at what it is given
    return other


def shuffled(part, seed):
    """The same users with each other's held-out items."""
    order = np.random.default_rng(seed).permutation(part.held_out.n_users)
    return deql.split.HeldOut(
        part.seen, deql.Interactions(part.held_out.matrix[order], part.seen.users, part.seen.items)
    )


@pytest.mark.parametrize("validated", [True, False])
def test_the_labels_of_the_test_part_change_nothing(validated, tmp_path):
    split = deql.split_strong(market(seed=2), 0.3, 0.2 if validated else 0)
    first = findings(deql.tune(split, SMALL, journal=tmp_path / "a"))
    for seed in (1, 2):
        other = with_test(split, shuffled(split.test, seed))
        assert (other.test.held_out.matrix != split.test.held_out.matrix).nnz
        assert findings(deql.tune(other, SMALL)) == first
        # The journal of the one is that of the other: not even its checksum saw the test part.
        assert findings(deql.tune(other, SMALL, journal=tmp_path / "a")) == first
    assert findings(deql.tune(with_test(split, Untouchable()), SMALL)) == first


@pytest.mark.parametrize("validated", [True, False])
def test_screening_and_optuna_do_not_look_at_the_test_part_either(validated, monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.setattr("deql.tuning.tuner._LEAST_ITEMS", 10)
    split = deql.split_strong(market(seed=2), 0.3, 0.2 if validated else 0)
    unseen = with_test(split, Untouchable())
    grid = deql.tune(unseen, SMALL | {"l2": [1, 10, 100], "dropout": [0, 0.3, 0.6, 0.9]}, search="grid")
    assert grid.looks.height == 12
    assert deql.tune(unseen, SMALL | {"l2": [1, 10, 100], "dropout": [0, 0.3, 0.6, 0.9]}).looks.height
    assert deql.tune(unseen, SMALL, search="optuna", budget=3).table.height


def cells(data):
    """(user, item) of each interaction."""
    rows = np.repeat(np.arange(data.n_users), np.diff(data.matrix.indptr))
    return set(zip(data.users[rows].tolist(), data.items[data.matrix.indices].tolist(), strict=True))


@pytest.fixture
def watched(monkeypatch):
    """The data of each search that is run."""
    from deql.tuning import tuner

    seen = []

    def watch(*given, **named):
        seen.append(hold_out_validation(*given, **named))
        return seen[-1]

    hold_out_validation = tuner.hold_out_validation
    monkeypatch.setattr(tuner, "hold_out_validation", watch)
    return seen


@pytest.mark.parametrize("as_matrix", [False, True])
def test_of_whole_data_users_are_held_out_and_the_winner_learns_from_all(as_matrix, watched):
    data = market(seed=3, weighted=True)
    tuning = deql.tune(data.matrix if as_matrix else data, SMALL, seed=5)
    (held,) = watched
    assert not {user for user, _ in cells(held.train)} & set(held.validation.seen.users.tolist())
    assert not cells(held.validation.seen) & cells(held.validation.held_out)
    assert held.validation.seen.n_users == round(0.1 * data.n_users) == 16
    assert tuning.how == "16 users were held out to choose on"
    metrics = ["ndcg@20", "recall@20"]
    assert_equals_separate(tuning, separate(SMALL, held.train, held.validation, metrics), metrics)
    assert_same_model(tuning.model, fitted_apart(tuning, data))
    assert tuning.model.n_users_ == data.n_users
    assert len(tuning.model.items_) == data.n_items


def test_a_split_without_validation_holds_out_some_of_each_users_items(watched):
    split = deql.split_weak(market(seed=4), validation=0)
    assert split.validation is None
    tuning = deql.tune(split, SMALL)
    (held,) = watched
    hidden = cells(held.validation.held_out)
    assert hidden
    assert not hidden & cells(held.train)
    assert hidden | cells(held.train) <= cells(split.train)
    assert not hidden & cells(split.test.held_out)
    assert hidden.isdisjoint(cells(held.validation.seen))
    metrics = ["ndcg@20", "recall@20"]
    assert_equals_separate(tuning, separate(SMALL, held.train, held.validation, metrics), metrics)
    assert_same_model(tuning.model, fitted_apart(tuning, split.train))
    held_out = "10% of each user's training items were held out at random"
    assert tuning.how == f"the split has no validation part, so {held_out}"


def test_the_seed_decides_what_is_held_out(watched):
    data = market(seed=5)
    for seed in (0, 0, 1):
        deql.tune(data, SMALL | {"l2": 2, "dropout": 0.5}, seed=seed)
    first, again, other = (set(held.validation.seen.users.tolist()) for held in watched)
    assert first == again != other


def test_double_precision():
    split = deql.split_strong(market(seed=6), 0.1, 0.3)
    tuning = deql.tune(split, SMALL, dtype="float64")
    metrics = ["ndcg@20", "recall@20"]
    assert_equals_separate(tuning, separate(SMALL, split.train, split.validation, metrics, "float64"), metrics)
    assert tuning.model.precision_.dtype == np.float64


def test_progress_goes_to_standard_error(capsys):
    split = deql.split_strong(market(seed=6), 0.1, 0.3)
    quiet = findings(deql.tune(split, SMALL))
    assert capsys.readouterr() == ("", "")
    loud = deql.tune(split, SMALL, progress=True)
    assert capsys.readouterr().out == ""
    assert findings(loud)["leaderboard"] == quiet["leaderboard"]


@pytest.mark.parametrize("metric", ["coverage@20", "gini@5", "novelty@20", "ndcg", "accuracy@3", "mse@5", None, 20])
def test_metrics_that_do_not_say_how_good_a_model_is(metric):
    with pytest.raises(ParameterError):
        deql.tune(market(), SMALL, metric)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"search": "random"}, "search must be one of walk, grid, optuna"),
        ({"dtype": "float16"}, "dtype must be"),
        ({"seed": -1}, "seed"),
        ({"seed": 0.5}, "seed"),
        ({"budget": 0}, "budget"),
        ({"space": "huge"}, "there is no space 'huge'"),
        ({"data": 7}, "7|int"),
    ],
)
def test_wrong_arguments_are_said_before_any_work(wrong, words, tmp_path):
    journal = tmp_path / "journal"
    with pytest.raises(deql.DeqlError, match=words):
        deql.tune(**{"data": market(), "space": SMALL, "journal": journal} | wrong)
    assert not journal.exists()


def test_a_validation_part_with_nothing_to_find():
    split = deql.split_strong(market(), 0.1, 0.3)
    nothing = split.validation.held_out.keep(np.zeros(split.validation.held_out.n_interactions, bool))
    split = deql.split.Split(split.train, deql.split.HeldOut(split.validation.seen, nothing), split.test, {})
    with pytest.raises(DataError, match="nothing to choose on"):
        deql.tune(split, SMALL)


def test_points_without_a_model_are_said_and_left_out():
    # 20 users cannot determine 24 items without a ridge or dropout.
    split = deql.split_strong(market(40, 24, seed=7), 0.2, 0.3)
    space = SMALL | {"l2": [0, 5]}
    told = []
    tuning = deql.tune(split, space, tell=told.append)
    assert tuning.inverses == 3
    assert len(told) == 5
    (failed,) = [line for line in told if "no model" in line]
    assert "l2=0 dropout=0 user_power=0: no model, " in failed
    assert "without a ridge" in failed
    assert tuning.table.height == 9
    assert tuning.table.filter((tuning.table["l2"] == 0) & (tuning.table["dropout"] == 0)).is_empty()


def test_a_space_without_any_model():
    split = deql.split_strong(market(40, 24, seed=7), 0.2, 0.3)
    with pytest.raises(DataError, match=r"gave a model, such as l2=0 dropout=0 .* without a ridge"):
        deql.tune(split, SMALL | {"l2": 0, "dropout": 0})


def test_a_space_without_any_model_at_the_screening(monkeypatch):
    monkeypatch.setattr("deql.tuning.tuner._LEAST_ITEMS", 10)
    split = deql.split_strong(market(40, 100, seed=7), 0.2, 0.3)
    powers = [step / 10 for step in range(12)]
    with pytest.raises(DataError, match="without a ridge"):
        deql.tune(split, SMALL | {"l2": 0, "dropout": 0, "user_power": powers})


def test_values_in_the_thousands_move_the_automatic_ridge():
    data = market(seed=8)
    large = deql.Interactions(data.matrix * 5000.0, data.users, data.items)
    split = deql.split_strong(large, 0.1, 0.3)
    space = {"dropout": 0.5, "user_power": [0, 0.8], "b": [0, 1], "popularity_power": 0, "prior": None}
    tuning = deql.tune(split, space, search="grid")
    for power in (0, 0.8):
        l2 = sorted(set(tuning.table.filter(tuning.table["user_power"] == power)["l2"]))
        dense = split.train.matrix.toarray().astype(float)
        weights = (dense != 0).sum(axis=1) ** -float(power)
        mean = (weights @ dense**2).mean()
        assert l2 == list(ridges_around(mean))
    # l2 is measured in squared values: the same search on data of ones, with l2 as many times smaller.
    plain = deql.split_strong(data, 0.1, 0.3)
    scaled = {**space, "user_power": 0, "l2": [value / 5000**2 for value in sorted(set(tuning.table["l2"]))]}
    expected = deql.tune(plain, scaled, dtype="float64")
    again = deql.tune(split, {**space, "user_power": 0, "l2": sorted(set(tuning.table["l2"]))}, dtype="float64")
    np.testing.assert_allclose(again.table["ndcg@20"], expected.table["ndcg@20"], rtol=1e-9)


def test_a_point_without_a_solution_on_all_data_does_not_win():
    # Nobody has the last item: the search's own training data leave it out, what the winner is fitted on has it.
    wider = deql.Interactions.from_csr(np.pad(market(seed=9).matrix.toarray(), ((0, 0), (0, 1))))
    told = []
    tuning = deql.tune(wider, SMALL | {"l2": [0, 5], "dropout": 0.5}, tell=told.append)
    searched = [line for line in told[1:] if "to compare with" not in line]
    assert ["no model, 1 item has no interactions (24)" in line for line in searched] == [True, False]
    assert tuning.best["l2"] == 5
    assert len(tuning.model.items_) == 25


def test_a_ridge_too_large_for_the_type_spoils_no_other_point():
    split = deql.split_strong(market(), 0.1, 0.3)
    tuning = deql.tune(split, SMALL | {"l2": [5, 1e39]})
    assert tuning.best["l2"] == 5


@pytest.mark.parametrize("name", NAMED)
def test_named_spaces_run(name):
    split = deql.split_strong(market(200, 15), 0.1, 0.3)
    tuning = deql.tune(split, name, search="grid")
    space = NAMED[name]
    ridges = 6 if space.l2 is None else len(space.l2)
    assert tuning.inverses == ridges * len(space.dropout) * len(space.user_power)
    alone = [row for row in tuning.table.to_dicts() if not row["prior_weight"]]
    assert len(alone) == tuning.inverses * len(space.b) * len(space.popularity_power)
    assert (len(alone) < tuning.table.height) == (space.prior is not None)
    assert tuning.space == space


def test_too_few_users_to_choose_on():
    with pytest.raises(DataError, match="4 users are too few to choose on"):
        deql.tune(market(4, 5), SMALL)


def test_a_metric_that_is_not_finite_is_no_result(tmp_path):
    split = deql.split_strong(market(), 0.1, 0.3)
    space = SMALL | {"popularity_power": -130}  # finite in float64, unlike its square
    for _ in range(2):
        with pytest.raises(DataError, match="mse is not finite"), np.errstate(all="ignore"):
            deql.tune(split, space, "mse", dtype="float64", journal=tmp_path / "j")
