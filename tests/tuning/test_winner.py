import numpy as np
import pytest
from scipy import stats

import deql
from deql import DEQL
from deql.tuning.tuning_result import BCurve
from deql.tuning.winner import CURVE
from tests.tuning.common import SMALL, market, parameters_of

PLAIN = {"user_power": 0, "popularity_power": 0, "prior": None}


@pytest.fixture(scope="module")
def split():
    return deql.split_strong(market(260, 30, seed=11), 0.1, 0.4)


def model_of(row, train):
    return (deql.DEQL if row.get("xi") is None else deql.RDLAE)(
        **{name: value for name, value in row.items() if value is not None}
    ).fit(train)


def t_test(better, other, split, metric):
    judged = deql.evaluate([better, other], split.validation, metric)
    mine, theirs = (one.per_user[metric] for one in judged)
    if metric == "mse":
        mine, theirs = theirs, mine
    return stats.ttest_rel(mine, theirs, alternative="greater").pvalue


@pytest.mark.parametrize("metric", ["ndcg@20", "recall@3", "mse"])
def test_the_rival_is_the_best_with_b_zero_wherever_it_is(split, metric):
    space = PLAIN | {"l2": [0.5, 5, 50, 500], "dropout": [0.0, 0.2, 0.5, 0.8], "b": [0, 0.5, 1, 2]}
    tuning = deql.tune(split, space, metric, search="grid")
    rows = tuning.table.to_dicts()
    zero = next(row for row in rows if row["b"] == 0)
    rival = tuning.rival
    assert rival.searched
    assert rival.parameters == {name: zero[name] for name in ("l2", "dropout", "user_power", "b", "popularity_power")}
    assert rival.value == zero[metric]
    assert rival.difference == pytest.approx(tuning.best[metric] - zero[metric], rel=1e-12)
    if tuning.best["b"] != 0:
        other = model_of(rival.parameters, split.train)
        assert rival.p_value == pytest.approx(t_test(tuning.model, other, split, metric), rel=1e-9)
        assert rival.significant == (rival.p_value < 0.05)


def test_there_is_a_search_whose_rival_is_at_another_point(split):
    # What the test above must not miss.
    space = PLAIN | {"l2": [0.5, 5, 50, 500], "dropout": [0.0, 0.2, 0.5, 0.8], "b": [0, 0.5, 1, 2]}
    tunings = [deql.tune(split, space, metric, search="grid") for metric in ("ndcg@20", "recall@3", "mse")]
    apart = [
        tuning.best["b"] and any(tuning.best[name] != tuning.rival.parameters[name] for name in ("l2", "dropout"))
        for tuning in tunings
    ]
    assert any(apart)


@pytest.mark.parametrize("metric", ["ndcg@20", "mse"])
def test_without_b_zero_the_rival_is_the_winner_with_b_zero(split, metric):
    tuning = deql.tune(split, PLAIN | {"l2": [5, 50], "dropout": [0.3, 0.6], "b": [0.5, 1, 2]}, metric)
    rival = tuning.rival
    assert not rival.searched
    expected = {
        name: value for name, value in parameters_of(tuning.best).items() if name not in ("xi", "half_life")
    } | {"b": 0.0}
    assert rival.parameters == expected
    other = DEQL(**rival.parameters).fit(split.train)
    assert rival.value == pytest.approx(deql.evaluate(other, split.validation, metric).means[metric], rel=1e-12)
    assert rival.p_value == pytest.approx(t_test(tuning.model, other, split, metric), rel=1e-9)
    assert "b = 0 with all else equal" in tuning.sentence


def test_a_winner_with_b_zero_is_its_own_rival(split):
    tuning = deql.tune(split, PLAIN | {"l2": [5, 50], "dropout": 0.5, "b": 0})
    assert tuning.best["b"] == 0
    assert (tuning.rival.difference, tuning.rival.p_value, tuning.rival.significant) == (0, 1, False)
    assert tuning.rival.value == tuning.best["ndcg@20"]
    assert tuning.rival.searched


def test_a_sentence_ends_with_its_last_word(split):
    sentence = deql.tune(split, PLAIN | {"l2": 5, "dropout": 0.5, "b": 0}).sentence
    assert sentence == sentence.strip()


def test_a_winner_with_a_bounded_diagonal(split):
    tuning = deql.tune(split, PLAIN | {"l2": [5, 50], "dropout": 0.5, "b": [], "xi": [0.6, 0.9]})
    assert isinstance(tuning.model, deql.RDLAE)
    assert tuning.best["b"] is None
    assert tuning.best["xi"] == tuning.model.xi
    assert not tuning.rival.searched
    assert tuning.rival.difference != 0
    assert "xi" not in tuning.rival.parameters
    other = DEQL(tuning.best["l2"], 0.5, 0.0).fit(split.train)
    assert tuning.rival.p_value == pytest.approx(t_test(tuning.model, other, split, "ndcg@20"), rel=1e-9)
    assert tuning.curve.b == list(CURVE)
    assert "has no b" in tuning.sentence


def test_a_bound_of_zero_is_b_zero(split):
    tuning = deql.tune(split, PLAIN | {"l2": 5, "dropout": 0.5, "b": 0, "xi": 0})
    assert tuning.rival.difference == 0
    assert tuning.table["ndcg@20"].n_unique() == 1
    assert tuning.best["b"] == 0  # of equal ones the first of the space


def test_the_curve_is_what_separate_fits_give(split):
    space = {"l2": [5, 50], "dropout": [0.3, 0.6], "user_power": 0.5, "popularity_power": [0.1, 0.3], "b": [0.77, 1.9]}
    tuning = deql.tune(split, space, "recall@5", prior="none")
    curve = tuning.curve
    assert curve.b == sorted({*CURVE, tuning.best["b"]})
    assert len(curve.b) == len(CURVE) + (tuning.best["b"] not in CURVE)
    assert set(curve.values) == {"recall@5", "ndcg@5"}
    for b, *values in zip(
        curve.b, curve.values["recall@5"], curve.values["ndcg@5"], curve.errors["ndcg@5"], strict=True
    ):
        model = DEQL(**{name: value for name, value in parameters_of(tuning.best).items() if name != "xi"} | {"b": b})
        result = deql.evaluate(model.fit(split.train), split.validation, ["recall@5", "ndcg@5"])
        error = stats.sem(result.per_user["ndcg@5"])
        assert values == pytest.approx([result.means["recall@5"], result.means["ndcg@5"], error], rel=1e-9)
    at_best = curve.values["recall@5"][curve.b.index(tuning.best["b"])]
    assert at_best == pytest.approx(tuning.best["recall@5"], rel=1e-12)
    for metric, values in curve.values.items():
        assert curve.values[metric][curve.b.index(curve.best(metric))] == max(values)


def test_of_equal_values_the_smallest_b_is_best():
    curve = BCurve([0.0, 0.5, 1.0, 2.0], {"ndcg@20": [0.1, 0.3, 0.3, 0.2], "mse": [4.0, 2.0, 3.0, 2.0]}, {})
    assert curve.best("ndcg@20") == 0.5
    assert curve.best("mse") == 0.5


def test_mse_is_won_by_the_smallest(split):
    tuning = deql.tune(split, SMALL, "mse")
    values = tuning.table["mse"].to_list()
    assert values == sorted(values)
    assert tuning.best["mse"] == min(values) < max(values)
    assert set(tuning.curve.values) == {"mse", "recall@20", "ndcg@20"}
    curve = tuning.curve.values["mse"]
    assert curve[tuning.curve.b.index(tuning.curve.best("mse"))] == min(curve)
    at_best = curve[tuning.curve.b.index(tuning.best["b"])]
    assert at_best == pytest.approx(tuning.best["mse"], rel=1e-12)
    assert tuning.rival.difference <= 0


def test_equal_models_keep_the_order_of_their_parameters(split):
    # Nothing is dropped, so every b above 0 is the same model.
    tuning = deql.tune(split, PLAIN | {"l2": [50, 5], "dropout": 0, "b": [2, 0.5, 1]})
    assert tuning.table["b"].to_list() == [2, 0.5, 1] * 2
    assert tuning.table["ndcg@20"].n_unique() <= 2
    assert "nothing is dropped, so every b above 0 is the same" in tuning.sentence


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"dropout": 0.5, "b": [1]}, "b = a: kept and dropped entries count alike"),
        ({"dropout": 0.5, "b": [3]}, "b > a: what is kept counts more than what is dropped"),
        ({"dropout": 0.5, "b": [0.5]}, "b < a: what is kept counts less than what is dropped"),
        ({"dropout": 0.5, "b": [0]}, "b = 0: only what is dropped counts"),
        ({"dropout": 0, "b": [0]}, "nothing is dropped: this is EASE"),
    ],
)
def test_where_b_is_in_words(split, space, words):
    tuning = deql.tune(split, PLAIN | {"l2": 5} | space)
    assert words in tuning.sentence
    assert f"ndcg@20 {tuning.best['ndcg@20']:.4f} on {tuning.judged} validation users" in tuning.sentence


def test_better_or_worse_than_b_zero_in_words(split):
    space = PLAIN | {"l2": 5, "dropout": 0.5}
    for b in (0.5, 1, 4):
        tuning = deql.tune(split, space | {"b": b})
        rival = tuning.rival
        better = rival.difference > 0 and not rival.tied
        assert rival.tied == (abs(rival.difference) < rival.error)
        assert ("It is tied with b = 0 with all else equal" in tuning.sentence) == rival.tied
        assert rival.tied or f"{abs(rival.difference):.4f}" in tuning.sentence
        assert ("better than" in tuning.sentence) == better
        assert ("is significant" in tuning.sentence) == (better and rival.significant)
        assert ("may be chance" in tuning.sentence) == (better and not rival.significant)


def test_everything_but_the_model_is_plain(split):
    import json

    tuning = deql.tune(split, SMALL)
    found = json.loads(json.dumps(tuning.to_dict()))
    assert found["best"] == tuning.best
    assert found["leaderboard"] == tuning.table.to_dicts()
    assert found["models"] == 12
    assert found["looks"] == []
    assert np.isfinite(found["seconds"])
