"""The prior's stages: what is measured, what wins, what a killed search does again."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import deql
from deql import DEQL
from deql.errors import JournalError, ParameterError
from deql.priors import ItemFeatures, LowPass, Matrix
from deql.tuning import forecast_tuning
from deql.tuning.prior_factors import PriorFactors
from deql.tuning.prior_space import Variant, VariantGrid, ranks_around
from deql.tuning.space import NAMED, PARAMETERS, as_space
from deql.tuning.summary import edges, prior_sentences, summary_sentences
from deql.tuning.tuning_result import PriorComparison
from tests.tuning.common import findings, market

SPACE = {
    "l2": [2, 20], "dropout": [0.2, 0.5], "user_power": 0, "b": [0, 1], "popularity_power": [0, 0.2],
    "prior_rank": [2, 5], "prior_power_in": [0.1, 0.5], "prior_power_out": [0.3, 0.7], "prior_weight": [0.2, 1.0],
}  # fmt: skip


@pytest.fixture(scope="module")
def split():
    return deql.split_strong(market(400, 40, seed=5), 0.2, 0.3)


@pytest.fixture(scope="module")
def tuning(split):
    return deql.tune(split, SPACE)


def with_prior(row):
    return bool(row["prior_weight"])


def model_of(row):
    """The model of a row of the leaderboard, made from its parameters alone."""
    own = {name: row[name] for name in ("l2", "dropout", "user_power", "b", "popularity_power")}
    if not with_prior(row):
        return DEQL(**own)
    prior = LowPass(int(row["prior_rank"]), row["prior_power_in"], row["prior_power_out"])
    return DEQL(**own, prior=prior, prior_weight=row["prior_weight"])


def test_every_row_is_worth_what_its_parameters_say(split, tuning):
    rows = tuning.table.to_dicts()
    some = [row for row in rows if with_prior(row)][::7] + [row for row in rows if not with_prior(row)][::5]
    assert len(some) > 5
    for row in some:
        found = deql.evaluate(model_of(row).fit(split.train), split.validation, ["ndcg@20"])
        assert found.means["ndcg@20"] == pytest.approx(row["ndcg@20"], abs=2e-3)


def test_the_winner_is_what_its_row_and_its_spec_say(split, tuning):
    again = model_of(tuning.best).fit(split.train)
    np.testing.assert_allclose(tuning.model.weights(), again.weights(), atol=1e-4)
    for name in ("prior_rank", "prior_power_in", "prior_power_out", "prior_weight"):
        assert (name in tuning.spec) == with_prior(tuning.best)
    assert tuning.prior is not None
    assert not with_prior(tuning.prior.without)
    assert with_prior(tuning.prior.parameters)
    assert json.loads(json.dumps(tuning.to_dict()))["prior"]["clear"] == tuning.prior.clear


def test_no_model_is_measured_twice(tuning):
    rows = [tuple(row[name] for name in PARAMETERS) for row in tuning.table.to_dicts()]
    assert len(set(rows)) == len(rows)


def test_without_a_prior_it_is_the_search_of_before(split, tuning):
    plain = deql.tune(split, SPACE, prior="none")
    assert plain.prior is None
    assert prior_sentences(plain) == []
    assert set(plain.table["prior_weight"]) == {None}
    rows = [row for row in tuning.table.to_dicts() if not with_prior(row)]
    assert [row["ndcg@20"] for row in rows] == plain.table["ndcg@20"].to_list()
    assert findings(deql.tune(split, SPACE | {"prior": None})) == findings(plain)
    assert findings(deql.tune(split, SPACE | {"prior_weight": 0})) == findings(plain)


def test_what_is_not_clearly_better_is_left_to_the_search_without(split, tuning):
    assert not tuning.prior.clear
    assert "did not clearly help" in prior_sentences(tuning)[0]
    plain = deql.tune(split, SPACE, prior="none")
    assert tuning.spec == plain.spec  # the simpler of those that are tied without a prior, too
    assert (tuning.tie is None) == (plain.tie is None)
    np.testing.assert_array_equal(tuning.curve.values["ndcg@20"], plain.curve.values["ndcg@20"])
    assert tuning.rival.difference == plain.rival.difference


def test_a_gain_must_be_more_than_choosing_brings_about():
    rows = [{"ndcg@20": 0.30, "prior_weight": 0.0}, {"ndcg@20": 0.31, "prior_weight": 1.0}]
    for difference, error, clear in ((0.01, 0.006, False), (0.01, 0.004, True), (-0.01, 0.004, True)):
        assert PriorComparison(rows[1], rows[0], difference, error, False).clear == clear


def test_a_prior_of_no_weight_makes_no_difference(split):
    useless = deql.tune(split, SPACE | {"prior_weight": 1e-9})
    assert not useless.prior.clear
    assert not with_prior(useless.best)
    assert "differ by less than 0.0001" in " ".join(summary_sentences(useless))


def truth(users=500, items=40, seed=0):
    """Users of four groups who take any items of theirs: what a low pass of rank 4 knows."""
    generator = np.random.default_rng(seed)
    group = generator.integers(0, 4, users)
    liked = (np.arange(items) % 4 == group[:, None]) & (generator.random((users, items)) < 0.25)
    values = (liked | (generator.random((users, items)) < 0.01)).astype(float)
    values[np.arange(users), generator.integers(0, items, users)] = 1
    return deql.Interactions.from_csr(values)


def test_a_prior_that_knows_the_truth_wins():
    split = deql.split_strong(truth(400), 0.2, 0.7)  # 40 users to learn from
    whole = DEQL(1.0, 0.0, 0.0).fit(truth(5000, seed=1)).weights()
    space = {"l2": [0.3, 3, 30], "dropout": 0.3, "user_power": 0, "b": [0, 1], "popularity_power": 0}
    found = deql.tune(split, space | {"prior_weight": [0.3, 1.0]}, prior=Matrix(whole))
    assert with_prior(found.best)
    assert found.best["prior_rank"] is None
    assert found.prior.taken
    assert found.prior.difference > 2 * found.prior.error
    assert "The prior with weight" in prior_sentences(found)[0]
    assert "gains" in prior_sentences(found)[0]
    assert found.model.prior_weight == found.best["prior_weight"]
    tested = deql.evaluate([found.model, deql.tune(split, space, prior="none").model], split.test, ["ndcg@20"])
    assert tested[0].means["ndcg@20"] > tested[1].means["ndcg@20"]


def test_a_search_that_was_cut_goes_on_with_the_same_result(split, tuning, tmp_path):
    path = tmp_path / "j"
    assert findings(deql.tune(split, SPACE, journal=path)) == findings(tuning)
    lines = path.read_bytes().splitlines(keepends=True)
    places = [place for place, line in enumerate(lines) if line.startswith(b'{"step": "prior"')]
    assert places
    for stop in (places[0], places[0] + 1, places[-1] + 1):
        path.write_bytes(b"".join(lines[:stop]))
        assert findings(deql.tune(split, SPACE, journal=path)) == findings(tuning)
    told = []
    deql.tune(split, SPACE, journal=path, tell=told.append)
    assert told == []  # all of it is there
    damaged = json.loads(lines[places[0]])
    for change in ({"fixed": {"b": "x"}}, {"prior_rank": []}, {"values": {"ndcg@20": [0.1]}}):
        path.write_bytes(b"".join([*lines[: places[0]], json.dumps(damaged | change).encode() + b"\n"]))
        with pytest.raises(JournalError, match="is damaged"):
            deql.tune(split, SPACE, journal=path)


def test_the_default_space_takes_a_low_pass_that_helps_and_goes_on_with_it(tmp_path):
    split, path = deql.split_strong(truth(900), 0.2, 0.6), tmp_path / "j"
    found = deql.tune(split, journal=path, baselines=False)
    assert found.prior.taken
    assert found.prior.difference > 2 * found.prior.error
    assert "prior=lowpass" in found.spec
    tested = deql.evaluate(
        [found.model, deql.tune(split, prior="none", baselines=False).model], split.test, ["ndcg@20"]
    )
    assert tested[0].means["ndcg@20"] > tested[1].means["ndcg@20"]
    lines = path.read_bytes().splitlines(keepends=True)
    records = [json.loads(line) for line in lines]
    places = [place for place, one in enumerate(records) if one.get("step") == "prior"]
    walked = {(one["l2"], one["dropout"], one["user_power"]) for one in records if one.get("step") == "prior"}
    assert len(walked) > 1
    for stop in (places[1], len(lines) - 1):
        path.write_bytes(b"".join(lines[:stop]))
        assert findings(deql.tune(split, journal=path, baselines=False)) == findings(found)


def test_other_priors_are_other_searches(split, tmp_path):
    path = tmp_path / "j"
    small = SPACE | {"l2": 2, "dropout": 0.5}
    n = split.train.n_items
    deql.tune(split, small, prior=Matrix(np.zeros((n, n))), journal=tmp_path / "own")
    with pytest.raises(JournalError, match="other prior"):
        deql.tune(split, small, prior=Matrix(np.ones((n, n))), journal=tmp_path / "own")
    deql.tune(split, small, journal=path)
    for other in (small | {"prior": None}, small | {"prior_weight": 0.3}, small | {"prior": LowPass(2)}):
        with pytest.raises(JournalError, match="space"):
            deql.tune(split, other, journal=path)


@pytest.mark.parametrize("budget", [1, 2, 3, 5, 8])
def test_a_budget_is_for_the_prior_too(split, budget, tmp_path):
    found = deql.tune(split, SPACE, budget=budget, journal=tmp_path / "j")
    records = [json.loads(line) for line in (tmp_path / "j").read_bytes().splitlines()[1:]]
    points = [tuple(one[name] for name in ("l2", "dropout")) for one in records if one["step"] != "end"]
    fits = sum(one != other for one, other in zip(points, [None, *points[:-1]], strict=True))
    assert fits + (Point_of(found) != points[-1]) <= max(budget, 2)


def Point_of(found):
    return found.best["l2"], found.best["dropout"]


def test_the_forecast_names_the_prior(split):
    ahead = forecast_tuning(split, SPACE)
    assert ahead.prior > 0
    assert "for the prior" in str(ahead)
    plain = forecast_tuning(split, SPACE, prior="none")
    assert plain.prior == 0
    assert "prior" not in str(plain)
    assert plain.seconds < ahead.seconds


@pytest.mark.parametrize("search", ["grid", "optuna"])
def test_other_searches_try_it_too(split, search):
    if search == "optuna":
        pytest.importorskip("optuna")
    found = deql.tune(split, SPACE, search=search, budget=16)
    assert found.prior is not None
    assert found.table["prior_weight"].max() == 1.0


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"prior": "highpass"}, "the prior of a space is 'lowpass', 'none' or a prior"),
        ({"prior": 3}, "the prior of a space"),
        ({"prior_rank": 0}, "prior_rank"),
        ({"prior_rank": 2.5}, "prior_rank"),
        ({"prior_weight": -1}, "prior_weight"),
        ({"prior_power_in": float("nan")}, "prior_power_in"),
        ({"prior_power_out": []}, "prior_power_out"),
    ],
)
def test_bad_axes_are_named(space, words):
    with pytest.raises(ParameterError, match=words):
        as_space(space)


def test_a_rank_that_the_data_do_not_have_is_told_before_a_journal_is_begun(split, tmp_path):
    journal = tmp_path / "tuning.jsonl"
    with pytest.raises(ParameterError, match="a low pass of rank 4,000 needs"):
        deql.tune(split, SPACE | {"prior_rank": 4000}, journal=journal)
    assert not journal.exists()


def test_spaces_by_name_have_what_they_say():
    assert NAMED["default"].prior == NAMED["quick"].prior == "lowpass"
    assert NAMED["paper"].prior is None
    assert "prior" not in NAMED["paper"].to_dict()  # journals of earlier versions go on
    assert len(NAMED["quick"].prior_rules({"b": 0.0})) < len(NAMED["default"].prior_rules({"b": 0.0}))


@given(st.integers(1, 100_000), st.integers(1, 100_000))
def test_ranks_are_never_more_than_the_data_have(items, most):
    ranks = ranks_around(items, min(items, most))
    assert 1 <= ranks[0] <= ranks[-1] <= max(1, min(items, most))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**20), st.sampled_from([1, 3, 6]), st.floats(0, 1), st.floats(0, 1), st.floats(0.1, 2))
def test_factors_that_are_shared_are_those_of_a_fit(seed, rank, power_in, power_out, weight):
    data = market(60, 18, seed=seed % 50, weighted=True)
    fitted = DEQL(3.0, 0.4, user_power=0.3, dtype="float64").fit(data)
    rule = {"b": 0.7, "popularity_power": 0.2, "prior_power_out": power_out, "prior_weight": weight}
    found = PriorFactors("lowpass", data, 6).model(fitted, Variant(rank, power_in), rule)
    prior = LowPass(rank, power_in, power_out)
    again = DEQL(
        3.0, 0.4, 0.7, user_power=0.3, popularity_power=0.2, prior=prior, prior_weight=weight, dtype="float64"
    ).fit(data)
    np.testing.assert_allclose(found.weights(), again.weights(), rtol=2e-3, atol=2e-4)


def test_variants_of_one_rank_share_a_pass():
    data = market(60, 18, seed=3)
    fitted = DEQL(3.0).fit(data)
    factors = PriorFactors("lowpass", data, 6)
    rules = [{"b": 0.5, "prior_power_out": out, "prior_weight": weight} for out in (0.1, 0.9) for weight in (0.2, 1.0)]
    models = [factors.model(fitted, Variant(4, 0.3), rule) for rule in rules]
    assert len({tuple(map(id, model._shared_fit)) for model in models}) == 1
    grid = VariantGrid((4, 6), (0.3,))
    assert grid.start() == Variant(6, 0.3)


def test_the_edge_of_a_prior_axis_is_told(tuning):
    row = next(row for row in tuning.table.to_dicts() if with_prior(row) and row["prior_weight"] == 1.0)
    told = " ".join(edges(replace(tuning, best=row)))
    assert "The best prior_weight (1) is the largest tried" in told


def features(split, further=0):
    """What group an item of :func:`truth` is of; also of items that nobody has."""
    items = [*split.train.items.tolist(), *range(1000, 1000 + further)]
    return pl.DataFrame({"item": items, "group": [f"group {item % 4}" for item in items]})


SMALL = {"l2": [3, 30], "dropout": 0.3, "user_power": 0, "b": [0, 1], "popularity_power": 0, "prior_weight": [0.5, 2]}


@pytest.mark.parametrize("further", [0, 3])
def test_features_are_searched_and_kept(further, tmp_path):
    split = deql.split_strong(truth(400), 0.2, 0.7)
    prior = ItemFeatures(features(split, further))
    found = deql.tune(split, SMALL, prior=prior, journal=tmp_path / "j")
    assert with_prior(found.best)
    assert found.prior.taken
    again = DEQL(
        found.best["l2"], 0.3, found.best["b"], prior=prior, prior_weight=found.best["prior_weight"]
    ).fit(split.train)  # fmt: skip
    assert found.model.items_.tolist() == again.items_.tolist()
    np.testing.assert_allclose(found.model.weights(), again.weights(), atol=1e-5)
    assert len(found.model.add_items({2000: {"group": "group 1"}}).items_) == split.train.n_items + further + 1
    resumed = deql.tune(split, SMALL, prior=ItemFeatures(features(split, further)), journal=tmp_path / "j")
    np.testing.assert_allclose(resumed.model.weights(), again.weights(), atol=1e-5)
    other = features(split, further).with_columns(pl.col("group").reverse())
    with pytest.raises(JournalError, match="other prior"):
        deql.tune(split, SMALL, prior=ItemFeatures(other), journal=tmp_path / "j")


def test_columns_that_nobody_has_are_measured_as_they_are_fitted():
    split = deql.split_strong(truth(400), 0.2, 0.7)
    bare = split.train.matrix.toarray()
    bare[:, 7] = 0
    train = replace(split.train, matrix=csr_array(bare))
    prior = ItemFeatures(features(split))
    fitted = DEQL(3.0, 0.3).fit(train)
    rule = {"b": 0.5, "prior_weight": 1.5}
    found = PriorFactors(prior, train, None).model(fitted, Variant(None, None), rule)
    np.testing.assert_allclose(
        found.weights(), DEQL(3.0, 0.3, 0.5, prior=prior, prior_weight=1.5).fit(train).weights(), atol=1e-6
    )


def test_a_prior_with_further_items_is_taken_unless_it_is_clearly_worse(split):
    table = features(split, further=2)
    noise = table.with_columns(group=pl.Series(np.random.default_rng(0).permutation(table["group"].to_numpy())))
    found = deql.tune(split, SMALL | {"prior_weight": 0.01}, prior=ItemFeatures(noise))
    assert not found.prior.clear
    assert with_prior(found.best)
    assert found.model.items_[-1] == 1001
    assert "for the items that nobody has" in prior_sentences(found)[0]


def test_what_is_wrong_with_a_prior_is_told_before_any_work(split):
    told = []
    with pytest.raises(ParameterError, match="must have shape"):
        deql.tune(split, SMALL, prior=Matrix(np.zeros((3, 3))), tell=told.append)
    assert told == []
