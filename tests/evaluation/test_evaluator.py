import math

import numpy as np
import pytest
from scipy.sparse import csr_array

import deql
from deql import DEQL, EASE, EDLAE, Interactions, Popularity, evaluate, split_strong
from deql.errors import DataError, DeqlError, ParameterError
from deql.evaluation import Evaluation
from deql.split import HeldOut

METRICS = ["recall@1", "recall@5", "recall_capped@5", "ndcg@5", "recall@20", "recall_capped@20", "ndcg@20", "ndcg@500"]


def naive(ranked, wanted, metric):
    """One user's value: a list of item ids, a set of item ids, and the textbook."""
    name, k = metric.split("@")
    hits = [rank for rank, item in enumerate(ranked[: int(k)], start=1) if item in wanted]
    if name == "recall":
        return len(hits) / len(wanted)
    if name == "recall_capped":
        return len(hits) / min(int(k), len(wanted))
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(int(k), len(wanted)) + 1))
    return sum(1 / math.log2(rank + 1) for rank in hits) / ideal


@pytest.fixture(scope="module")
def split(random_matrix):
    data = Interactions.from_csr(random_matrix(150, 40), items=[f"i{i}" for i in range(40)])
    return split_strong(data, 0.3, 0.1, held_out=0.4, seed=3)


@pytest.mark.parametrize("model", [EASE(l2=5.0), Popularity()], ids=["EASE", "Popularity"])
def test_every_user_as_the_textbook_has_it(split, model):
    model.fit(split.train)
    result = evaluate(model, split.test, METRICS)
    users = split.test.seen.users.tolist()
    assert result.users.tolist() == users
    for metric in METRICS:
        expected = []
        for user in users:
            (ranked,), _ = model.recommend([split.test.seen.history(user)], k=40)
            expected.append(naive(ranked.tolist(), set(split.test.held_out.history(user)), metric))
        assert result.per_user[metric].tolist() == pytest.approx(expected)
        assert result.means[metric] == pytest.approx(sum(expected) / len(expected))
    assert list(result.means) == list(result.per_user) == METRICS


def test_the_hand_worked_user(toy):
    # Popularity, tea seen: egg (3), jam (3), rye (2), oat (1). Jam and oat are ranks 2 and 4.
    seen = Interactions.from_csr(csr_array([[0, 0, 0, 0, 1]]), items=toy.items)
    held_out = Interactions.from_csr(csr_array([[0, 1, 1, 0, 0]]), items=toy.items)
    assert toy.items.tolist() == ["egg", "jam", "oat", "rye", "tea"]
    result = evaluate(Popularity().fit(toy), HeldOut(seen, held_out), ["recall@2", "recall_capped@1", "ndcg@4"])
    assert result.means["recall@2"] == 1 / 2
    assert result.means["recall_capped@1"] == 0
    assert result.means["ndcg@4"] == pytest.approx((1 / math.log2(3) + 1 / math.log2(5)) / (1 + 1 / math.log2(3)))


def test_users_with_nothing_held_out_are_left_out(toy):
    hidden = np.zeros(toy.matrix.shape)
    hidden[[1, 4], 0] = 1  # egg for bob and eve
    result = evaluate(
        Popularity().fit(toy), HeldOut(toy, Interactions.from_csr(csr_array(hidden), toy.users, toy.items))
    )
    assert result.users.tolist() == ["bob", "eve"]
    assert result.per_user["recall@20"].tolist() == [1, 1]
    assert result.skipped == 5
    with pytest.raises(DataError, match="nothing to evaluate"):
        evaluate(
            Popularity().fit(toy), HeldOut(toy, Interactions.from_csr(csr_array(hidden * 0), toy.users, toy.items))
        )


def test_a_user_with_nothing_seen_is_judged_by_popularity(toy):
    seen = Interactions.from_csr(csr_array((1, 5)), items=toy.items)
    held_out = Interactions.from_csr(csr_array([[0, 0, 0, 0, 1]]), items=toy.items)
    assert evaluate(EASE(l2=1.0).fit(toy), HeldOut(seen, held_out), ["recall@1"]).means == {"recall@1": 1}


def test_a_held_out_item_that_the_model_does_not_know_counts_as_missed(toy):
    goods = [*toy.items.tolist(), "zest"]
    seen = Interactions.from_csr(csr_array([[0, 0, 0, 0, 1, 0]]), items=goods)
    held_out = Interactions.from_csr(csr_array([[1, 0, 0, 0, 0, 1]]), items=goods)
    with pytest.warns(
        UserWarning, match=r"^ignored 1 unknown item in what is held out, and counted as missed: 'zest'$"
    ):
        result = evaluate(Popularity().fit(toy), HeldOut(seen, held_out), ["recall@5"])
    assert result.means == {"recall@5": 1 / 2}


@pytest.mark.parametrize("metrics", [["recall@20", "auc"], ["hits@10"], ["ndcg@0"]])
def test_unknown_metrics_are_an_error(split, metrics):
    with pytest.raises(ParameterError, match="unknown metric"):
        evaluate(Popularity().fit(split.train), split.test, metrics)


def test_no_metric_is_an_error(split):
    with pytest.raises(ParameterError, match="metric"):
        evaluate(Popularity().fit(split.train), split.test, [])


def test_one_metric_needs_no_list(split):
    model = Popularity().fit(split.train)
    assert evaluate(model, split.test, "recall@20").means == evaluate(model, split.test, ["recall@20"]).means


def test_a_model_must_be_fitted(split):
    with pytest.raises(DeqlError, match="not fitted"):
        evaluate(EASE(), split.test)


ALL = [
    "recall@5", "recall_capped@3", "ndcg@20", "precision@7", "hit_rate@1", "mrr@10", "map@10",
    "coverage@3", "coverage@9", "gini@3", "novelty@4", "mse",
]  # fmt: skip


class TestBeyondAccuracy:
    def test_as_counted_by_hand_from_the_lists(self, split):
        model = EASE(l2=5.0).fit(split.train)
        result = evaluate(model, split.test, ["coverage@3", "gini@3", "novelty@3"])
        ids, _ = model.recommend(split.test.seen, k=3)
        times = [sum(item in row for row in ids.tolist()) for item in model.items_.tolist()]
        n = len(times)
        assert result.means["coverage@3"] == sum(count > 0 for count in times) / n
        expected = sum(abs(a - b) for a in times for b in times) / (2 * n * sum(times))
        assert result.means["gini@3"] == pytest.approx(expected)
        share = dict(zip(model.items_.tolist(), model.item_counts_ / split.train.n_users, strict=True))
        bits = [sum(-math.log2(share[item]) for item in row) / 3 for row in ids.tolist()]
        assert result.per_user["novelty@3"] == pytest.approx(bits)
        assert set(result.per_user) == {"novelty@3"}
        assert set(result.standard_errors) == {"novelty@3"}


def held_out_error(W, X, H):
    """Numerators and ‖Δ‖² of the paper's eq:2.1, with R = X + H and Δ = 1 where X is kept."""
    kept = X != 0
    return (np.where(kept, 0, X + H - X @ W) ** 2).sum(axis=1), kept.sum()


class TestSquaredError:
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("b", [0.0, 2.0])
    def test_is_the_paper_s_formula(self, random_matrix, weighted, b):
        R = random_matrix(60, 130, seed=4, weighted=weighted)
        model = DEQL(l2=3.0, dropout=0.3, b=b, dtype="float64").fit(random_matrix(200, 130))
        hidden = np.random.default_rng(1).random(R.shape) < 0.3
        X, H = R.toarray() * ~hidden, R.toarray() * hidden
        judged = (H > 0).any(axis=1)
        target = HeldOut(Interactions.from_csr(csr_array(X)), Interactions.from_csr(csr_array(H)))
        errors, kept = held_out_error(model.weights(), X[judged], H[judged])
        result = evaluate(model, target, ["mse", "ndcg@5"])
        assert result.means["mse"] == pytest.approx(errors.sum() / kept, rel=1e-10)
        assert result.per_user["mse"] == pytest.approx(errors * judged.sum() / kept, rel=1e-10)
        assert result.per_user["mse"].mean() == pytest.approx(result.means["mse"], rel=1e-12)

    def test_by_hand(self):
        # Two users taught x with y: S = [[2, 2], [2, 2]], l2 = 1, EASE's W = [[0, 2/3], [2/3, 0]].
        model = EASE(l2=1.0, dtype="float64").fit(csr_array([[1.0, 1], [1, 1]]))
        seen, held_out = csr_array([[1.0, 0], [1, 0]]), csr_array([[0.0, 1], [0, 3]])
        target = HeldOut(Interactions.from_csr(seen), Interactions.from_csr(held_out))
        # Entry y of both: (1 − 2/3)² and (3 − 2/3)², over two kept entries.
        assert evaluate(model, target, "mse").means["mse"] == pytest.approx((1 / 9 + 49 / 9) / 2)

    def test_an_item_the_model_does_not_know_is_predicted_as_0(self):
        model = EASE(l2=1.0, dtype="float64").fit(csr_array([[1.0, 1], [1, 1]]))
        seen = Interactions.from_csr(csr_array([[1.0, 0, 0]]), items=[0, 1, 7])
        held_out = Interactions.from_csr(csr_array([[0.0, 1, 2]]), items=[0, 1, 7])
        with pytest.warns(UserWarning, match="counted as missed: 7"):
            result = evaluate(model, HeldOut(seen, held_out), "mse")
        assert result.means["mse"] == pytest.approx(1 / 9 + 4)

    def test_what_is_kept_is_not_judged_even_if_held_out_too(self):
        model = EASE(l2=1.0, dtype="float64").fit(csr_array([[1.0, 1], [1, 1]]))
        seen, held_out = csr_array([[1.0, 0]]), csr_array([[5.0, 1]])
        target = HeldOut(Interactions.from_csr(seen), Interactions.from_csr(held_out))
        assert evaluate(model, target, "mse").means["mse"] == pytest.approx(1 / 9)

    @pytest.mark.parametrize("threads", [1, 3])
    def test_does_not_depend_on_the_number_of_threads(self, random_matrix, monkeypatch, threads):
        monkeypatch.setattr("deql.ranking.rank._WORK_PER_THREAD", 1)
        R = random_matrix(40, 500, weighted=True)
        model = EASE(l2=3.0).fit(R)
        target = HeldOut(Interactions.from_csr(R), Interactions.from_csr(random_matrix(40, 500, seed=9)))
        monkeypatch.setenv("DEQL_THREADS", "2")
        expected = evaluate(model, target, ALL)
        monkeypatch.setenv("DEQL_THREADS", str(threads))
        assert_same_evaluation(evaluate(model, target, ALL), expected)

    def test_needs_weights(self, split):
        with pytest.raises(ParameterError, match="mse needs a model whose scores are X @ W, which Popularity has not"):
            evaluate(Popularity().fit(split.train), split.test, "mse")

    def test_needs_something_seen(self, toy):
        nothing = Interactions.from_csr(csr_array((1, 5)), items=toy.items)
        held_out = Interactions.from_csr(csr_array([[0, 0, 0, 0, 1.0]]), items=toy.items)
        with pytest.raises(DataError, match="nobody has any"):
            evaluate(EASE(l2=1.0).fit(toy), HeldOut(nothing, held_out), "mse")


def assert_same_evaluation(found, expected):
    assert found.means == expected.means
    assert found.users.tolist() == expected.users.tolist()
    assert found.skipped == expected.skipped
    assert found.per_user.keys() == expected.per_user.keys()
    for metric, values in found.per_user.items():
        assert values.tobytes() == expected.per_user[metric].tobytes()


class TestSeveralModels:
    @pytest.fixture(scope="class")
    @classmethod
    def models(cls, split):
        first = EDLAE(l2=5.0, dropout=0.3).fit(split.train)
        return {
            "EDLAE": first,
            "EASE": EASE(l2=2.0).fit(split.train),
            "b=2": first.with_rule(b=2.0),
            "b=9": first.with_rule(b=9.0, popularity_power=0.3),
        }

    def test_are_judged_as_each_alone_bit_for_bit(self, split, models):
        together = evaluate(models, split.test, ALL)
        assert list(together) == list(models)
        for name, model in models.items():
            assert_same_evaluation(together[name], evaluate(model, split.test, ALL))
        assert len({result.means["ndcg@20"] for result in together.values()}) > 1

    def test_that_share_p_take_one_pass(self, split, models, monkeypatch):
        from deql.models import packed_weights

        shapes = []
        original = packed_weights.rank
        monkeypatch.setattr(packed_weights, "rank", lambda P, gain, *rest, **named: (
            shapes.append(gain.shape), original(P, gain, *rest, **named))[1])  # fmt: skip
        evaluate(models, split.test)
        n = split.train.n_items
        assert sorted(shapes) == [(1, n), (3, n)]

    def test_in_slices_as_in_one(self, split, models, monkeypatch):
        whole = evaluate(models, split.test, ALL)
        monkeypatch.setattr("deql.evaluation.evaluator._LIST_ENTRIES", 1)
        monkeypatch.setattr("deql.evaluation.evaluator._LEAST_USERS", 7)
        sliced = evaluate(models, split.test, ALL)
        for name in models:
            assert_same_evaluation(sliced[name], whole[name])

    def test_in_a_list_or_a_dict(self, split, models):
        several = list(models.values())
        assert [result.means for result in evaluate(several, split.test)] == [
            result.means for result in evaluate(models, split.test).values()
        ]
        assert evaluate([], split.test) == []
        assert evaluate({}, split.test) == {}

    def test_beside_another_kind(self, split, models):
        both = evaluate([models["EASE"], Popularity().fit(split.train)], split.test)
        assert both[1].means == evaluate(Popularity().fit(split.train), split.test).means

    @pytest.mark.parametrize("wrong", [["EASE"], {"EASE": EASE}, [None]])
    def test_must_be_models(self, split, wrong):
        with pytest.raises(ParameterError, match="a model, a list of models or a dict of models"):
            evaluate(wrong, split.test)


class TestHowSure:
    @pytest.fixture
    def found(self):
        values = np.random.default_rng(0).random(400)
        return Evaluation({"ndcg@5": float(values.mean())}, {"ndcg@5": values}, np.arange(400))

    def test_standard_error(self, found):
        values = found.per_user["ndcg@5"]
        by_hand = math.sqrt(sum((v - found.means["ndcg@5"]) ** 2 for v in values) / 399 / 400)
        assert found.standard_errors == {"ndcg@5": pytest.approx(by_hand)}
        assert math.isnan(Evaluation({"mse": 1.0}, {"mse": np.ones(1)}, np.arange(1)).standard_errors["mse"])

    def test_interval_is_that_of_the_normal_distribution_for_many_users(self, found):
        for level, z in ((0.95, 1.96), (0.5, 0.6745)):
            low, high = found.interval("ndcg@5", level=level, resamples=4000)
            error = found.standard_errors["ndcg@5"]
            assert low == pytest.approx(found.means["ndcg@5"] - z * error, abs=0.1 * error)
            assert high == pytest.approx(found.means["ndcg@5"] + z * error, abs=0.1 * error)

    def test_interval_depends_on_the_seed_alone(self, found, monkeypatch):
        expected = found.interval("ndcg@5", resamples=300)
        assert found.interval("ndcg@5", resamples=300) == expected
        assert found.interval("ndcg@5", resamples=300, seed=1) != expected
        monkeypatch.setattr("deql.evaluation.evaluation_result._DRAWS_AT_ONCE", 1)
        assert found.interval("ndcg@5", resamples=300) == expected

    def test_interval_of_equal_values_is_a_point(self):
        assert Evaluation({"mse": 2.0}, {"mse": np.full(9, 2.0)}, np.arange(9)).interval("mse") == (2.0, 2.0)

    @pytest.mark.parametrize(
        ("wrong", "words"),
        [
            ({"metric": "gini@5"}, "has no values for users"),
            ({"level": 1.0}, "level must be a share"),
            ({"resamples": 0}, "resamples must be a whole number from 1 up"),
            ({"seed": -1}, "seed must be a whole number from 0 up"),
        ],
    )
    def test_bad_requests(self, found, wrong, words):
        with pytest.raises(ParameterError, match=words):
            found.interval(**{"metric": "ndcg@5"} | wrong)

    def test_as_text(self):
        found = Evaluation({"mse": 2.5, "gini@5": 0.25}, {"mse": np.array([2.0, 3.0])}, np.arange(2), 1000)
        assert str(found).splitlines() == [
            "metric      mean  standard error",
            "mse       2.5000          0.5000",
            "gini@5    0.2500",
            "2 users; 1,000 more had nothing held out",
        ]


@pytest.mark.parametrize("wanted", [True, False])
def test_a_bar_is_shown_if_a_model_wants_one(split, monkeypatch, wanted):
    from contextlib import nullcontext

    asked, told = [], []

    def stages(show):
        asked.append(show)
        return nullcontext(lambda label: lambda done, total: told.append((label, done / total)))

    model = EASE(l2=5.0).fit(split.train)
    model.progress = wanted
    monkeypatch.setattr("deql.evaluation.evaluator.stages", stages)
    evaluate([Popularity().fit(split.train), model], split.test)
    assert asked == [wanted]
    assert told[-1] == ("Evaluate", 1)


def test_the_same_model_twice_is_judged_twice(split):
    popularity = Popularity().fit(split.train)
    first, second = evaluate([popularity, popularity], split.test)
    assert first.means == second.means


@pytest.mark.parametrize("thing", [5, "ease", None])
def test_what_is_no_model_is_refused(split, thing):
    with pytest.raises(DeqlError, match="expected a model"):
        evaluate(thing, split.test)


def test_what_cannot_be_judged_is_refused_before_the_pass(split):
    models = [EASE(l2=1.0).fit(split.train), Popularity().fit(split.train)]
    with pytest.raises(DeqlError, match="mse needs a model whose scores are X @ W, which Popularity has not"):
        evaluate(models, split.test, "mse")


def test_parts_of_other_users_are_refused(split):
    other = split.test.held_out.take_users(np.arange(split.test.held_out.n_users)[::-1])
    with pytest.raises(DeqlError, match="the same users in the same order"):
        HeldOut(split.test.seen, other)


def test_evaluate_looks_on_the_device_where_p_is_there(monkeypatch):
    torch = pytest.importorskip("torch")
    from deql.linalg.engines.torch_packed import DevicePacked
    from deql.ranking import torch_rank

    data = deql.clean(deql.datasets.debian().take_users(slice(0, 4000)), min_users_per_item=30)
    split = deql.split_strong(data, seed=1)
    first = deql.EDLAE(l2=5.0, dropout=0.3).fit(split.train)
    models = [first, first.with_rule(b=2.0), first.with_rule(b=0.5, popularity_power=0.3)]
    metrics = ["recall@5", "ndcg@20", "coverage@3", "novelty@4", "mse"]
    expected = deql.evaluate(models, split.test, metrics)
    scanned, scan = [], torch_rank.scan

    def watched(wanted, *rest, **named):
        scanned.append(wanted.precision)
        return scan(wanted, *rest, **named)

    monkeypatch.setattr(torch_rank, "scan", watched)
    there = DevicePacked.from_host(first.precision_, torch.device("cpu"))
    monkeypatch.setattr(models[1], "on_device_", there, raising=False)
    for one, other in zip(deql.evaluate(models, split.test, metrics), expected, strict=True):
        assert one.means == pytest.approx(other.means, rel=1e-12)
        assert one.per_user["ndcg@20"].tobytes() == other.per_user["ndcg@20"].tobytes()
    assert scanned == [there]
