import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deql.errors import DeqlError, ParameterError
from deql.evaluation.metrics import METRICS, ndcg, parse_metric, recall, recall_capped

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
    for metric in METRICS.values():
        values = metric(hits, counts, k)
        assert values.shape == (len(rows),)
        assert ((values >= 0) & (values <= 1 + 1e-12)).all()
        assert (metric(earlier, counts, k) >= values - 1e-12).all()


@pytest.mark.parametrize("name", METRICS)
def test_names_are_parsed(name):
    assert parse_metric(f"{name}@100") == (name, 100)


@pytest.mark.parametrize(
    "text",
    ["precision@20", "recall", "recall@", "recall@0", "recall@-1", "recall@2.5", "Recall@20", "@20", "", 20, None],
)
def test_unknown_metrics_are_an_error_that_names_the_known(text):
    with pytest.raises(ParameterError, match="recall@20, recall_capped@20, ndcg@20") as caught:
        parse_metric(text)
    assert isinstance(caught.value, DeqlError)
