import math
import random
from dataclasses import replace

import numpy as np
import pytest

from deql import DEQL, EASE, Popularity

N = 90


@pytest.fixture(scope="module", params=["float32", "float64"])
def model(request, random_matrix):
    """b above 1 and a diagonal, so that the parts have both signs and the target's own part counts."""
    return DEQL(l2=0.5, dropout=0.2, b=3.0, dtype=request.param).fit(random_matrix(250, N))


@pytest.fixture(scope="module")
def histories():
    """Two hundred histories of one to eighty items."""
    generator = np.random.default_rng(4)
    return [generator.permutation(N)[: generator.integers(1, 80)].tolist() for _ in range(200)]


def test_parts_add_up_to_the_score_in_any_order(model, histories):
    shuffler = random.Random(0)
    for target, history in enumerate(histories):
        why = model.explain(history, target % N)
        values = [part.value for part in why]
        assert len(values) == len(history)
        assert why.rest == 0
        shuffled = shuffler.sample(values, len(values))
        for order in (values, values[::-1], shuffled, sorted(values)):
            total = 0.0
            for value in order:
                total += value
            assert total == why.score
            assert sum(order) == math.fsum(order) == np.sum(order) == np.cumsum(order)[-1] == why.score


def test_the_score_is_the_one_that_recommend_returns(model, histories):
    ids, scores = model.recommend(histories, k=N, exclude_seen=False)
    for history, row, row_scores in zip(histories[:40], ids.tolist(), scores.tolist(), strict=False):
        for item, score in zip(row, row_scores, strict=True):
            assert model.explain(history, item).score == score


def test_parts_are_the_entries_of_w(model, histories):
    W = model.weights().astype(float)
    for target, history in enumerate(histories[:N]):
        for item, value in model.explain(history, target):
            assert value == pytest.approx(W[item, target], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("k", [1, 5, 1000])
def test_what_k_cuts_off_is_in_the_rest(model, histories, k):
    for target, history in enumerate(histories[:50]):
        whole, cut = model.explain(history, target), model.explain(history, target, k=k)
        assert cut.parts == whole.parts[:k]
        assert cut.score == whole.score
        assert cut.rest == sum(part.value for part in whole.parts[k:])
        assert sum(part.value for part in cut) + cut.rest == cut.score


def test_an_explanation_is_a_sequence(toy):
    why = EASE(l2=1.0).fit(toy).explain(["egg", "tea"], "jam")
    assert len(why) == 2
    assert why[0] == why.parts[0] == next(iter(why))
    assert why[-1:] == why.parts[-1:]
    assert why[0] in why


def test_a_zero_diagonal_leaves_an_item_nothing_to_say_about_itself(toy):
    parts = dict(EASE(l2=1.0, dtype="float64").fit(toy).explain(["egg", "tea"], "tea"))
    assert parts["tea"] == pytest.approx(0, abs=1e-15)
    assert parts["egg"] > 0.1


def test_popularity_leaves_all_to_the_rest(toy):
    model = Popularity().fit(toy)
    why = model.explain(["egg", "jam"], "tea")
    assert [tuple(part) for part in why] == [("egg", 0), ("jam", 0)]
    assert why.score == why.rest == 6 / 7
    assert why.score == model.recommend([["egg", "jam"]], k=1).scores[0, 0]


@pytest.mark.parametrize("k", [1, 7, N + 5])
def test_a_neighbourhood_is_a_part_of_the_weights(model, k):
    W = model.weights()
    sizes = np.maximum(abs(W[11]), abs(W[:, 11]))
    sizes[11] = np.inf
    near = model.neighbours(11, k)
    assert len(near.items) == min(k, N - 1) + 1
    assert near.items[0] == 11
    # The k largest, the largest first; in float32 W itself is rounded.
    np.testing.assert_allclose(sizes[list(near.items)], np.sort(sizes)[::-1][: k + 1], rtol=1e-6)
    tolerance = 1e-5 if model.dtype == "float32" else 1e-12
    np.testing.assert_allclose(near.weights, W[np.ix_(near.items, near.items)], rtol=tolerance, atol=tolerance)


def test_the_edges_of_a_neighbourhood(model):
    near = model.neighbours(11, k=2)
    edges = near.edges()
    assert {(edge.source, edge.target): edge.weight for edge in edges} == {
        (s, t): near.weights[i, j] for i, s in enumerate(near.items) for j, t in enumerate(near.items) if i != j
    }
    assert all(11 in edge[:2] for edge in edges[:4])
    sizes = [abs(edge.weight) for edge in edges]
    assert sizes[:4] == sorted(sizes[:4], reverse=True)
    assert near.edges(between=1) == edges[:5]


def test_a_neighbourhood_without_weights(toy):
    near = Popularity().fit(toy).neighbours("tea")
    assert (near.items, near.weights.tolist(), near.edges()) == (("tea",), [[0.0]], [])


def test_titles_go_with_the_items(toy):
    data = replace(toy, titles=np.array([f"The {item}" for item in toy.items], dtype=object))
    model = EASE(1.0).fit(data)
    why = model.explain(["egg", "tea"], "jam", k=1)
    assert why.titles == {"jam": "The jam", "tea": "The tea"}
    assert model.neighbours("jam", k=1).titles == {"jam": "The jam", "tea": "The tea"}
    assert EASE(1.0).fit(toy).explain(["egg"], "jam").titles is None
