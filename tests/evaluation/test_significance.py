"""Tests of tests: SciPy, sums over all signs, and numbers worked out by hand."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from deql.errors import ParameterError
from deql.evaluation.significance import holm, paired_t, t_tail, wilcoxon

PAIRS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=9)


@pytest.mark.parametrize("n", [2, 3, 5, 30, 400])
def test_t_is_scipys_one_sided_paired_test(n):
    generator = np.random.default_rng(n)
    other = generator.uniform(0.2, 0.4, n)
    better = other + generator.normal(0.01, 0.02, n)
    assert paired_t(better, other) == pytest.approx(stats.ttest_rel(better, other, alternative="greater").pvalue)
    assert paired_t(better, other) + paired_t(other, better) == pytest.approx(1)


def test_t_by_hand():
    # Differences 1, 2, 3: mean 2, sd 1, t = 2√3 with two degrees of freedom, whose tail is ½ − t / (2√(2 + t²)).
    t = 2 * math.sqrt(3)
    assert paired_t([2, 4, 6], [1, 2, 3]) == pytest.approx(0.5 - t / (2 * math.sqrt(2 + t * t)))


def test_t_of_a_mean_that_is_less_certain():
    # As above, but with twice the variance of the mean: t = √6.
    t = math.sqrt(6)
    assert t_tail(3, 2.0, 1.0, 2 / 3) == pytest.approx(0.5 - t / (2 * math.sqrt(2 + t * t)))
    assert t_tail(3, 2.0, 1.0) == paired_t([2, 4, 6], [1, 2, 3])


def test_degenerate_pairs():
    assert math.isnan(paired_t([0.3], [0.2]))
    assert math.isnan(paired_t([], []))
    assert math.isnan(wilcoxon([], []))
    assert paired_t([0.3, 0.4], [0.3, 0.4]) == wilcoxon([0.3, 0.4], [0.3, 0.4]) == 1
    assert paired_t([2, 3], [1, 2]) == 0
    assert paired_t([1, 2], [2, 3]) == 1
    assert wilcoxon([1], [0]) == 1 / 2


@given(PAIRS)
def test_wilcoxon_counts_signs(pairs):
    """Ties and zeros included: the share of sign assignments whose positive ranks add up to as much."""
    better, other = np.array(pairs, float).T
    differences = (better - other)[better != other]
    if not len(differences):
        assert wilcoxon(better, other) == 1
        return
    ranks = stats.rankdata(np.abs(differences))
    observed = ranks[differences > 0].sum()
    sums = [ranks[list(signs)].sum() for signs in itertools.product([False, True], repeat=len(ranks))]
    assert wilcoxon(better, other) == pytest.approx(np.mean(np.array(sums) >= observed - 1e-9))


@pytest.mark.parametrize(("n", "method"), [(5, "exact"), (20, "exact"), (50, "exact"), (51, "approx"), (900, "approx")])
def test_wilcoxon_is_scipys(n, method):
    generator = np.random.default_rng(n)
    other = generator.normal(size=n)
    better = other + generator.normal(0.2, 1, n)
    expected = stats.wilcoxon(better, other, alternative="greater", correction=False, method=method).pvalue
    assert wilcoxon(better, other) == pytest.approx(expected, rel=1e-9)


def test_wilcoxon_of_many_ties_and_zeros_is_scipys():
    generator = np.random.default_rng(0)
    better, other = generator.integers(0, 5, (2, 3000)) / 4
    expected = stats.wilcoxon(better, other, alternative="greater", method="approx", zero_method="wilcox").pvalue
    assert wilcoxon(better, other) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("test", [paired_t, wilcoxon])
def test_pairs_must_be_pairs(test):
    with pytest.raises(ParameterError, match="equal length"):
        test([1, 2], [1])
    with pytest.raises(ParameterError, match="equal length"):
        test([[1, 2]], [[1, 2]])
    with pytest.raises(ParameterError, match="finite"):
        test([1, float("nan")], [1, 2])


def test_holm_by_hand():
    # Sorted .005 .01 .03 .04, times 4 3 2 1 = .02 .03 .06 .04; the last may not fall below the one before it.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.6]).tolist() == [1, 1]
    assert holm([]).tolist() == []


def test_holm_leaves_out_what_was_not_tested():
    found = holm([0.02, float("nan"), 0.01])
    assert found[[0, 2]] == pytest.approx([0.02, 0.02])
    assert math.isnan(found[1])


P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=8)


@given(P_VALUES, st.randoms())
def test_holm_in_any_order(p_values, random):
    corrected = holm(p_values)
    assert (corrected >= p_values).all()
    assert (corrected <= 1).all()
    by_size = np.argsort(p_values, kind="stable")
    assert (np.diff(corrected[by_size]) >= 0).all()
    order = list(range(len(p_values)))
    random.shuffle(order)
    assert holm(np.array(p_values)[order]) == pytest.approx(corrected[order])


@given(P_VALUES, st.sampled_from([0.01, 0.05, 0.2]))
def test_holm_rejects_what_the_procedure_rejects(p_values, level):
    """Step down by definition: reject the smallest while it is at most level / (number still there)."""
    left, rejected = sorted(range(len(p_values)), key=lambda i: p_values[i]), set()
    while left and p_values[left[0]] * len(left) <= level:
        rejected.add(left.pop(0))
    assert {i for i, p in enumerate(holm(p_values)) if p <= level} == rejected


def test_wilcoxon_sees_ties_through_rounding():
    """0.3 − 0.2, 0.2 − 0.1 and 0.1 − 0 differ in their last bits, and are the same difference."""
    tenths = np.array([3, 2, 1, 5, 7, 9]), np.array([2, 1, 0, 6, 6, 10])
    assert wilcoxon(tenths[0] / 10, tenths[1] / 10) == wilcoxon(*tenths)
