import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deql.errors import DeqlError, ParameterError
from deql.metrics import (
    METRICS,
    average_precision,
    coverage,
    gini,
    hit_rate,
    ndcg,
    novelty,
    parse_metric,
    precision,
    recall,
    recall_capped,
    reciprocal_rank,
)

# Ranks 2, 3 and 6 hold held-out items; log₂(3) = 1.585, log₂(4) = 2, log₂(7) = 2.807.
HITS = np.array([[False, True, True, False, False, True]])
AT_2, AT_3, AT_6 = 1 / math.log2(3), 1 / 2, 1 / math.log2(7)


def ideal(count):
    return sum(1 / math.log2(rank + 1) for rank in range(1, count + 1))


@pytest.mark.parametrize(
    ("k", "held_out", "plain", "capped", "gain"),
    [
        (1, 3, 0, 0, 0),
        (2, 3, 1 / 3, 1 / 2, AT_2 / ideal(2)),  # more held out than k
        (3, 3, 2 / 3, 2 / 3, (AT_2 + AT_3) / ideal(3)),
        (6, 3, 1, 1, (AT_2 + AT_3 + AT_6) / ideal(3)),  # fewer held out than k
        (6, 10, 3 / 10, 3 / 6, (AT_2 + AT_3 + AT_6) / ideal(6)),
        (50, 10, 3 / 10, 3 / 10, (AT_2 + AT_3 + AT_6) / ideal(10)),  # k deeper than the list
        (50, 100, 3 / 100, 3 / 50, (AT_2 + AT_3 + AT_6) / ideal(50)),
    ],
)
def test_hand_worked(k, held_out, plain, capped, gain):
    counts = np.array([held_out])
    assert recall(HITS, counts, k) == pytest.approx([plain])
    assert recall_capped(HITS, counts, k) == pytest.approx([capped])
    assert ndcg(HITS, counts, k) == pytest.approx([gain])


@pytest.mark.parametrize(
    ("k", "held_out", "share", "any_hit", "first", "average"),
    [
        (1, 3, 0, 0, 0, 0),
        (2, 3, 1 / 2, 1, 1 / 2, (1 / 2) / 2),  # more held out than k: divided by k
        (3, 3, 2 / 3, 1, 1 / 2, (1 / 2 + 2 / 3) / 3),
        (6, 3, 3 / 6, 1, 1 / 2, (1 / 2 + 2 / 3 + 3 / 6) / 3),
        (6, 10, 3 / 6, 1, 1 / 2, (1 / 2 + 2 / 3 + 3 / 6) / 6),
        (50, 10, 3 / 50, 1, 1 / 2, (1 / 2 + 2 / 3 + 3 / 6) / 10),  # k deeper than the list
    ],
)
def test_hand_worked_too(k, held_out, share, any_hit, first, average):
    counts = np.array([held_out])
    assert precision(HITS, counts, k) == pytest.approx([share])
    assert hit_rate(HITS, counts, k).tolist() == [any_hit]
    assert reciprocal_rank(HITS, counts, k) == pytest.approx([first])
    assert average_precision(HITS, counts, k) == pytest.approx([average])


def test_coverage_and_gini_by_hand():
    assert coverage(np.array([5, 0, 0, 1])) == 1 / 2
    assert gini(np.array([2, 2, 2])) == 0
    assert gini(np.array([0, 0, 9, 0])) == pytest.approx(3 / 4)
    # Sorted 1, 2, 5: (−2·1 + 0·2 + 2·5) / (3·8).
    assert gini(np.array([5, 1, 2])) == pytest.approx(8 / 24)
    assert gini(np.zeros(3, np.int64)) == 0


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30).filter(any))
def test_gini_is_half_the_mean_difference_over_the_mean(times):
    counts = np.array(times)
    differences = abs(counts[:, None] - counts).mean()
    assert gini(counts) == pytest.approx(differences / 2 / counts.mean())


def test_novelty_by_hand():
    lists = np.array([[0, 1, 2], [2, 3, -1], [-1, -1, -1]], np.int32)
    counts = np.array([8, 4, 1, 0])  # of 8 users: 0, 1 and 3 bits, and what nobody has as if one had it
    assert novelty(lists, counts, 8, 2).tolist() == [0.5, 3, 0]
    assert novelty(lists, counts, 8, 3) == pytest.approx([4 / 3, 3, 0])
    assert novelty(lists, counts, 8, 1).tolist() == [0, 3, 0]


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("held_out", [1, 3, 5])
def test_a_perfect_list_is_worth_1(k, held_out):
    hits = np.arange(5)[None] < held_out
    assert ndcg(hits, np.array([held_out]), k) == pytest.approx([1])
    assert recall_capped(hits, np.array([held_out]), k) == pytest.approx([1])
    assert recall(hits, np.array([held_out]), k) == pytest.approx([min(k, held_out) / held_out])


@given(
    st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=5),
    st.integers(1, 12),
    st.integers(0, 5),
)
def test_every_metric_is_between_0_and_1_and_an_earlier_hit_is_never_worse(rows, k, more):
    hits = np.array(rows)
    counts = hits.sum(axis=1) + more + 1
    earlier = np.sort(hits, axis=1)[:, ::-1]
    for metric in (one.function for one in METRICS.values() if one.of == "hits"):
        values = metric(hits, counts, k)
        assert values.shape == (len(rows),)
        assert ((values >= 0) & (values <= 1 + 1e-12)).all()
        assert (metric(earlier, counts, k) >= values - 1e-12).all()


@pytest.mark.parametrize("name", [name for name in METRICS if name != "mse"])
def test_names_are_parsed(name):
    assert parse_metric(f"{name}@100") == (name, 100)


@pytest.mark.parametrize(
    "text",
    [
        "auc@20",
        "mse@20",
        "recall@9999999999",
        "recall",
        "recall@",
        "recall@0",
        "recall@-1",
        "recall@2.5",
        "Recall@20",
        "@20",
        "",
        20,
        None,
    ],
)
def test_unknown_metrics_are_an_error_that_names_the_known(text):
    with pytest.raises(
        ParameterError, match=r"recall@20, recall_capped@20, ndcg@20.*gini@20, novelty@20.* or mse"
    ) as caught:
        parse_metric(text)
    assert isinstance(caught.value, DeqlError)


def test_mse_has_no_k():
    assert parse_metric("mse") == ("mse", 0)
