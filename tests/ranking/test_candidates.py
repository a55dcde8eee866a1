import numpy as np
import pytest

from deql.ranking.candidates import cut_back, keep_best, score_candidates, select_best, sort_best


def order(scores):
    """Places from the best to the worst, of equal scores the earlier first."""
    return np.argsort(-np.asarray(scores), kind="stable")


@pytest.fixture(params=range(8))
def scores(request):
    """Thirty scores, in half of the cases with many ties."""
    generator = np.random.default_rng(request.param)
    return generator.integers(-3, 4, 30).astype(float) if request.param % 2 else generator.standard_normal(30)


@pytest.mark.parametrize("keep", [1, 7, 29, 30])
def test_the_best_come_first(scores, keep):
    kept, places = scores.copy(), np.arange(30)
    assert keep_best(kept, places, 30, keep) == scores[order(scores)[keep - 1]]
    assert sorted(places[:keep]) == sorted(order(scores)[:keep])
    assert kept.tolist() == scores[places].tolist()
    sort_best(kept, places, keep)
    assert places[:keep].tolist() == order(scores)[:keep].tolist()


@pytest.mark.parametrize("keep", [1, 7, 30, 31])
@pytest.mark.parametrize("begin", ["first to last", "shuffled", "right already"])
def test_selecting_does_not_depend_on_the_order_it_begins_with(scores, keep, begin):
    places = {
        "first to last": np.arange(30),
        "shuffled": np.random.default_rng(9).permutation(30),
        "right already": order(scores),
    }[begin]
    kept = np.empty(30)
    bar = select_best(scores, keep, kept, places)
    assert bar == (scores[order(scores)[keep - 1]] if keep <= 30 else -np.inf)
    assert sorted(places[:keep]) == sorted(order(scores)[:keep])
    assert kept.tolist() == scores[places].tolist()


@pytest.mark.parametrize("ties", [False, True])
def test_what_no_model_keeps_is_dropped(ties):
    generator = np.random.default_rng(2)
    table = generator.integers(0, 4, (40, 5)).astype(float) if ties else generator.standard_normal((40, 5))
    sums, items, bars = generator.random(50), np.arange(100, 150, dtype=np.int32), np.full(5, -np.inf)
    wanted = sorted({place for m in range(5) for place in order(table[:, m])[:6].tolist()})
    expected = sums[wanted].tolist()
    extras = 2.0 * sums
    kept = cut_back(sums, extras, items, 40, table, 6, bars)
    assert extras[:kept].tolist() == (2.0 * sums[:kept]).tolist()
    assert kept == len(wanted) < 40
    assert items[:kept].tolist() == [100 + place for place in wanted]
    assert sums[:kept].tolist() == expected
    assert bars.tolist() == np.sort(table, axis=0)[-6].tolist()


@pytest.mark.parametrize("with_prior", [True, False])
@pytest.mark.parametrize("exclude_seen", [True, False])
def test_scores_under_every_model(exclude_seen, with_prior):
    gains, shifts = np.array([[2.0, 3.0, 5.0], [-1.0, 0.0, 4.0]]), np.array([[10.0, 20.0, 30.0], [1.0, 2.0, 3.0]])
    scales, errors = np.array([[1.0, 9.0, 2.0], [3.0, 9.0, 4.0]]), np.array([[0.5, 9.0, 0.25], [0.125, 9.0, 1.0]])
    table = np.full((3, 2), np.nan)
    score_candidates(
        np.array([7.0, 11.0, 0.0]), np.array([10.0, 20.0, 0.0])[: 3 * with_prior], np.array([0, 2, 9], np.int32), 2,
        gains.T.copy(), scales.T.copy(), errors.T.copy(), 8.0, shifts,
        np.array([1, 2], np.int32), np.array([100.0, 0.5], np.float32), exclude_seen, table,
    )  # fmt: skip
    expected = np.array([[14.0, -7.0], [55.0, 44.0]]) + (0 if exclude_seen else np.array([[0, 0], [15.0, 1.5]]))
    if with_prior:  # the extra by its scale, and eight times the error
        expected += np.array([[10.0 + 4.0, 30.0 + 1.0], [40.0 + 2.0, 80.0 + 8.0]])
    assert table[:2].tolist() == expected.tolist()
    assert np.isnan(table[2]).all()
