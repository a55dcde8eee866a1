import math

import numpy as np
import pytest
from scipy.sparse import csr_array

from deql import EASE, Interactions, Popularity, evaluate, split_strong
from deql.errors import DataError, DeqlError, ParameterError
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
    with pytest.warns(UserWarning, match="'zest'"):
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
