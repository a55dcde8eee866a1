import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_array

import deql
from deql import EASE, Interactions, Popularity
from deql.errors import DeqlError, ParameterError
from deql.evaluation.comparison import compare
from deql.evaluation.comparison_result import Comparison
from deql.evaluation.significance import holm

METRICS = ("recall@5", "ndcg@5")


@pytest.fixture(scope="module")
def paired_goods():
    """300 customers who buy goods in pairs 2i, 2i + 1: to know one is to know the other; popularity hardly helps."""
    generator = np.random.default_rng(0)
    pairs = generator.random((300, 15)) < 0.25
    pairs[np.arange(300), generator.integers(0, 15, 300)] = True
    return Interactions.from_csr(csr_array(np.repeat(pairs, 2, axis=1).astype(float)))


@pytest.fixture(scope="module")
def found(paired_goods):
    models = {"popular": Popularity(), "ease": EASE(5.0), "stiff": EASE(5000.0), "again": EASE(5.0)}
    return compare(models, paired_goods, splits=5, metrics=METRICS, baseline="popular", seed=3)


def made(values, lower=False, baseline=None, per_user=None):
    """A comparison of models with given values, splits × models."""
    values = np.array(values, float)
    metric = "mse" if lower else "ndcg@20"
    names = [f"m{i}" for i in range(values.shape[1])]
    return Comparison(
        models={name: {"model": "EASE", "parameters": {"l2": 1.0}} for name in names},
        metrics=(metric,), values={metric: values}, per_user={} if per_user is None else {metric: np.array(per_user)},
        baseline=baseline, protocol="strong",
        splits=[{"seed": i, "judged": 7, "skipped": 0, "dropped": {"items": 0},
                 "train": {"users": 9, "items": 5, "interactions": 30}} for i in range(len(values))],
    )  # fmt: skip


def test_the_better_model_is_found_and_is_significant(found):
    assert found.best("ndcg@5") in ("ease", "again")
    tests = {(test.against, test.better, test.other): test for test in found.tests("ndcg@5")}
    assert tests["baseline", "ease", "popular"].significant
    assert tests["baseline", "ease", "popular"].difference > 0.1
    assert found.significant("ndcg@5") >= {"ease", "again"}
    assert found.over == "splits"


def test_values_are_those_of_separate_evaluation(found, paired_goods):
    for row, seed in enumerate(range(3, 8)):
        split = deql.split_strong(paired_goods, seed=seed)
        result = deql.evaluate(EASE(5.0).fit(split.train), split.test, list(METRICS))
        for metric in METRICS:
            assert found.values[metric][row, found.names.index("ease")] == result.means[metric]
        assert found.splits[row]["seed"] == seed
        assert found.splits[row]["judged"] == len(result.users)
    assert found.means["ease"]["ndcg@5"] == pytest.approx(found.values["ndcg@5"][:, 1].mean())
    assert found.deviations["ease"]["ndcg@5"] == pytest.approx(stats.tstd(found.values["ndcg@5"][:, 1]))


def test_equal_models_are_never_told_apart(found):
    ease, again = (found.names.index(name) for name in ("ease", "again"))
    for metric in METRICS:
        for over in ("splits", "users"):
            for test in ("t", "wilcoxon"):
                assert found.p_values(metric, over, test)[ease, again] == 1


def test_p_values_are_scipys_and_corrected_for_what_was_asked(found):
    values = found.values["recall@5"]
    expected = {
        name: stats.ttest_rel(values[:, place], values[:, 0], alternative="greater").pvalue
        for place, name in enumerate(found.names)
        if name != "popular"
    }
    tests = {test.better: test for test in found.tests("recall@5") if test.against == "baseline"}
    assert {name: test.t for name, test in tests.items()} == pytest.approx(expected)
    corrected = holm(list(expected.values()))
    assert [tests[name].t_holm for name in expected] == pytest.approx(corrected.tolist())


def test_the_best_is_corrected_for_all_pairs_it_was_chosen_from():
    found = made([[0.30, 0.20], [0.31, 0.22], [0.33, 0.21]])
    (test,) = found.tests("ndcg@20")
    assert (test.better, test.other, test.against, test.pairs) == ("m0", "m1", "best", 3)
    assert test.t_holm == pytest.approx(2 * test.t)  # two ordered pairs: as much as a two-sided test asks
    assert test.wilcoxon == 1 / 8
    assert test.wilcoxon_holm == 1 / 4
    assert found.significant("ndcg@20") == ({"m1"} if test.t_holm < 0.05 else set())


def test_users_count_once_however_often_they_are_judged(paired_goods):
    models = {"popular": Popularity(), "ease": EASE(5.0)}
    found = compare(models, paired_goods, splits=3, metrics="ndcg@5", test_users=0.4)
    seen: dict = {}
    for seed in range(3):
        split = deql.split_strong(paired_goods, test_users=0.4, seed=seed)
        result = deql.evaluate(EASE(5.0).fit(split.train), split.test, ["ndcg@5"])
        for user, value in zip(result.users.tolist(), result.per_user["ndcg@5"], strict=True):
            seen.setdefault(user, []).append(value)
    assert max(map(len, seen.values())) > 1
    assert found.per_user["ndcg@5"][:, 1] == pytest.approx([np.mean(values) for values in seen.values()])
    assert found.tests("ndcg@5", "users")[0].pairs == len(seen)


def test_lower_is_better_for_some_metrics():
    found = made([[0.3, 0.2], [0.4, 0.2], [0.5, 0.25]], lower=True)
    assert found.best("mse") == "m1"
    (test,) = found.tests("mse")
    assert (test.better, test.other) == ("m1", "m0")
    assert test.difference < 0
    assert test.t == pytest.approx(stats.ttest_rel([0.3, 0.4, 0.5], [0.2, 0.2, 0.25], alternative="greater").pvalue)


def test_one_split_is_tested_over_users(paired_goods):
    split = deql.split_strong(paired_goods, test_users=0.5)
    found = compare([Popularity(), EASE(5.0)], split, metrics=["ndcg@5"])
    assert found.over == "users"
    assert all(math.isnan(one["ndcg@5"]) for one in found.deviations.values())
    (test,) = found.tests("ndcg@5")
    assert test.pairs == split.test.seen.n_users
    assert test.significant
    assert math.isnan(found.tests("ndcg@5", "splits")[0].t)
    result = deql.evaluate(EASE(5.0).fit(split.train), split.test, "ndcg@5").per_user["ndcg@5"]
    assert found.standard_errors["EASE l2=5"]["ndcg@5"] == pytest.approx(stats.sem(result))
    assert "standard error" in str(found)


def test_a_metric_without_values_of_users_has_no_tests_over_them():
    found = made([[0.3, 0.2]])
    (test,) = found.tests("ndcg@20", "users")
    assert test.pairs == 0
    assert math.isnan(test.t)
    assert not test.significant
    assert "0.3000" in str(found)


def test_json_says_it_all_and_comes_back(found):
    plain = json.loads(found.to_json())
    assert plain == found.to_dict()
    assert plain["best"] == {metric: found.best(metric) for metric in METRICS}
    assert plain["models"]["ease"] == {
        "model": "EASE",
        "parameters": deql.evaluation.model_groups.parameters(EASE(5.0)),
    }
    assert len(plain["tests"]) == len(METRICS) * 2 * len(found.tests("ndcg@5"))
    deviations = json.loads(made([[0.3, 0.2]]).to_json())["deviations"]
    assert deviations == {"m0": {"ndcg@20": None}, "m1": {"ndcg@20": None}}


@pytest.mark.parametrize("protocol", ["leave-last", "time"])
def test_times_of_a_frame_are_found(paired_goods, protocol):
    timed = replace(paired_goods, times=np.arange(paired_goods.n_interactions) % 97.0)
    models = [Popularity(), EASE(10.0)]
    found = compare(models, timed.to_frame("pandas"), protocol=protocol, metrics=METRICS)
    assert found.to_json() == compare(models, timed, protocol=protocol, metrics=METRICS).to_json()


@pytest.mark.parametrize("protocol", ["weak", "leave-last"])
def test_other_protocols(paired_goods, protocol):
    from dataclasses import replace

    timed = replace(paired_goods, times=np.arange(paired_goods.n_interactions, dtype=float))
    found = compare([Popularity(), EASE(5.0)], timed, splits=2, metrics="ndcg@5", protocol=protocol)
    assert len(found.splits) == (1 if protocol == "leave-last" else 2)
    assert found.protocol == protocol
    assert 0 <= found.means["EASE l2=5"]["ndcg@5"] <= 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"models": [EASE()]}, "at least two"),
        ({"baseline": "easy"}, "'easy' is not one of the models: EASE, Popularity"),
        ({"splits": 0}, "splits must be"),
        ({"splits": True}, "splits must be"),
        ({"tell": 5}, "tell must be a function"),
        ({"models": None}, "models must be a list or a dict of models, got None"),
        ({"protocol": "soft"}, "strong, weak, leave-last"),
        ({"validation": 0.1}, "a strong split takes held_out, test_users, validation_users, not validation"),
        ({"metrics": ["auc"]}, "auc"),
        ({"seed": -1}, "seed"),
    ],
)
def test_nonsense(paired_goods, change, message):
    arguments = {"models": [EASE(), Popularity()], "data": paired_goods, "splits": 2} | change
    with pytest.raises(DeqlError, match=message):
        compare(**arguments)


def test_nonsense_asked_of_a_result(found, paired_goods):
    with pytest.raises(ParameterError, match="was not measured"):
        found.tests("recall@7")
    with pytest.raises(ParameterError, match="'splits' or 'users'"):
        found.p_values("recall@5", over="days")
    with pytest.raises(ParameterError, match="test_users cannot be chosen"):
        compare([EASE(), Popularity()], deql.split_strong(paired_goods), test_users=0.3)


def test_below_a_standard_error_the_word_is_tied():
    # It was: +0.0000 with a star.
    values = np.array([[0.3, 0.30002, 0.2], [0.3, 0.30003, 0.4], [0.3, 0.30002, 0.3], [0.3, 0.30003, 0.31]])
    one = made(values, baseline="m0")
    tests = {test.better: test for test in one.tests("ndcg@20") if test.against == "baseline"}
    assert tests["m1"].t_holm < 0.05
    assert tests["m1"].tied
    assert not tests["m1"].significant
    assert tests["m2"].tied
    assert tests["m2"].error == pytest.approx(stats.sem(values[:, 2] - values[:, 0]))
    assert one.significant("ndcg@20") == set()
    assert "+0.0000" not in str(one)
    assert str(one).count("tied") >= 3
    assert "tied: the difference is below one standard error" in str(one)
    assert "tied" not in str(made(values + np.array([0, 0.05, 0.5]), baseline="m0"))
    assert all(test["tied"] in (True, False) for test in one.to_dict()["tests"])
