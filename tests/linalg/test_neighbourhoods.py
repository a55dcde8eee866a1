"""Columns of P on neighbourhoods: each against the inverse of its small system by NumPy."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import deql
from deql.linalg import strongest_pairs as lists_module
from deql.linalg.neighbourhoods import solve_columns
from deql.linalg.sparse_triangle import popularity_order, sum_triangle
from deql.linalg.strongest_pairs import strongest_pairs


def problem(users=80, items=30, seed=0, weighted=True, dtype=np.float64, ridge=0.7):
    """S of items in order of popularity, what is added to its diagonal, and A as a plain matrix."""
    generator = np.random.default_rng(seed)
    R = generator.random((users, items)) < generator.permutation(np.linspace(0.02, 0.5, items))
    R = R * (generator.uniform(0.5, 2.0, R.shape) if weighted else 1.0)
    R = R[:, popularity_order((R != 0).sum(axis=0))[0]]
    S = sum_triangle(csr_array(R), None, dtype)
    added = ridge + 0.3 * S.diagonal
    return S, added, R.T @ R + np.diag(added)


def solved(S, added, k, **more):
    return solve_columns(S, added, k, strongest_pairs(S, S.diagonal + added, k), **more)


def members(columns, i):
    return columns.rows[i, : columns.counts[i]]


def strength(S, added):
    """|S_ij|/√A_jj as the lists rank it, in the type of S, on and off the diagonal."""
    dense = csr_array((S.values, S.columns, S.indptr), shape=(S.n, S.n)).toarray()
    return np.abs(dense + dense.T) * (1 / np.sqrt(S.diagonal + added)).astype(S.values.dtype)


class TestColumns:
    @settings(max_examples=25, deadline=None)
    @given(
        items=st.integers(1, 40), k=st.integers(1, 12), seed=st.integers(0, 99), weighted=st.booleans(),
        single=st.booleans(),
    )  # fmt: skip
    def test_are_those_of_the_inverse_on_the_neighbourhood(self, items, k, seed, weighted, single):
        S, added, A = problem(50, items, seed, weighted, np.float32 if single else np.float64)
        found = solved(S, added, k)
        for i in range(items):
            of = members(found, i)
            assert of[-1] == i
            assert len(set(of.tolist())) == len(of) <= min(k, items - 1) + 1
            expected = np.linalg.inv(A[np.ix_(of, of)])[:, -1]
            np.testing.assert_allclose(
                found.values[i, : len(of)], expected, rtol=0, atol=(2e-5 if single else 1e-12) * expected[-1]
            )

    def test_have_as_many_members_as_there_are_partners_for(self):
        S, added, A = problem(60, 25, weighted=False)
        for k in (1, 2, 5, 24):
            found = solved(S, added, k)
            partners = (A - np.diag(A.diagonal()) != 0).sum(axis=0)
            assert (found.counts - 1 >= np.minimum(partners, k // 2)).all()
            assert (found.counts - 1 <= k).all()

    @pytest.mark.parametrize("k", [29, 30, 1000])
    def test_of_all_items_are_p(self, k):
        S, added, A = problem()
        found = solved(S, added, k)
        P = np.zeros_like(A)
        for i in range(30):
            P[members(found, i), i] = found.values[i]
        np.testing.assert_allclose(P, np.linalg.inv(A), rtol=0, atol=1e-13)

    def test_half_of_the_members_are_the_strongest_others(self):
        S, added, _ = problem(200, 40)
        found, ranked = solved(S, added, 9), strength(S, added)
        for i in range(40):
            best = sorted((j for j in range(40) if ranked[i, j] > 0), key=lambda j: (-ranked[i, j], j))[:5]
            assert set(best) <= set(members(found, i).tolist())

    def test_the_other_half_are_those_that_the_first_leave_unexplained(self):
        """With lists of all pairs, the residual S_ji − Σ S_jm·x_m is known of every item."""
        S, added, A = problem(200, 16)  # 4k ≥ n − 1
        k, size = 4, np.sqrt(A.diagonal())
        found, ranked = solved(S, added, k), strength(S, added)
        for i in range(16):
            first = sorted((j for j in range(16) if ranked[i, j] > 0), key=lambda j: (-ranked[i, j], j))[:2]
            rest = [j for j in range(16) if j != i and j not in first]
            x = np.linalg.solve(A[np.ix_(first, first)], A[first, i])
            left = np.abs(A[np.ix_(rest, [i])][:, 0] - A[np.ix_(rest, first)] @ x) / size[rest]
            assert {*members(found, i).tolist()} == {i, *first, *np.array(rest)[np.argsort(-left)[:2]].tolist()}

    @pytest.mark.parametrize("scale", [2.0**-150, 2.0**-60, 2.0**100, 2.0**500])
    def test_are_the_same_of_values_that_are_all_larger_or_smaller(self, scale):
        """Far beyond float32 too, where all strengths would be 0 or infinite and say nothing."""
        S, added, _ = problem()
        scaled = replace(S, values=S.values * scale, diagonal=S.diagonal * scale)
        one, other = solved(S, added, 6), solved(scaled, added * scale, 6)
        assert one.counts.tolist() == other.counts.tolist()
        assert [members(one, i).tolist() for i in range(S.n)] == [members(other, i).tolist() for i in range(S.n)]

    def test_of_a_span_are_those_of_all(self):
        S, added, _ = problem()
        whole, part = solved(S, added, 6), solved(S, added, 6, span=(11, 23))
        assert part.counts.tolist() == whole.counts[11:23].tolist()
        for at in range(12):
            assert members(part, at).tolist() == members(whole, at + 11).tolist()
            assert part.values[at, : part.counts[at]].tolist() == whole.values[at + 11, : part.counts[at]].tolist()

    @pytest.mark.parametrize("k", [1, 2])
    def test_rows_much_longer_than_a_neighbourhood_are_searched(self, k):
        S, added, A = problem(60, 150)
        assert np.diff(S.indptr).max() > 24 * (k + 1)
        found = solved(S, added, k)
        for i in range(150):
            of = members(found, i)
            np.testing.assert_allclose(found.values[i, : len(of)], np.linalg.inv(A[np.ix_(of, of)])[:, -1], atol=1e-12)

    def test_items_that_share_no_user_stand_alone(self):
        S = sum_triangle(csr_array(np.diag([3.0, 2.0, 1.0])), None, np.float64)
        found = solved(S, np.ones(3), 1)
        assert found.counts.tolist() == [1, 1, 1]
        np.testing.assert_allclose(found.values[:, 0], [1 / 10, 1 / 5, 1 / 2])

    def test_tell_how_far_they_are(self):
        S, added, _ = problem()
        told = []
        solved(S, added, 6, report=lambda done, total: told.append((done, total)))
        assert all(done <= total == 30 for done, total in told)


class TestResiduals:
    def test_are_those_of_the_small_systems(self):
        S, added, A = problem(dtype=np.float32)
        found = solved(S, added, 7)
        for i in range(30):
            of = members(found, i)
            product = A[np.ix_(of, of)] @ found.values[i, : len(of)].astype(float)
            product[-1] -= 1
            assert found.residuals[i] == pytest.approx(np.abs(product).max(), abs=1e-6)
        assert 0 < found.residuals.max() < 1e-5

    def test_are_infinite_where_there_is_no_inverse(self):
        """Two items that everybody has who has one of them, and no ridge."""
        R = csr_array(np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]))
        S = sum_triangle(R, None, np.float64)
        assert np.isinf(solved(S, np.zeros(3), 2).residuals).all()
        assert np.isinf(solved(S, np.zeros(3), 1).residuals[:2]).all()
        assert not np.isinf(solved(S, np.ones(3), 2).residuals).any()


class TestImages:
    @pytest.mark.parametrize("k", [5, 29])
    def test_are_those_of_the_prior_on_the_neighbourhood(self, k):
        S, added, A = problem()
        generator = np.random.default_rng(4)
        left, right = generator.normal(size=(2, 30, 3)).astype(np.float32)
        scale, own = generator.uniform(0.5, 2.0, (2, 30))
        W0 = left.astype(float) @ right.T.astype(float) * scale + np.diag(own)
        found = solved(S, added, k, prior=(left, right, scale, own))
        for i in range(30):
            of = members(found, i)
            expected = np.linalg.solve(A[np.ix_(of, of)], W0[of, i])
            np.testing.assert_allclose(found.images[i, : len(of)], expected, rtol=0, atol=1e-12)

    def test_there_are_none_without_a_prior(self):
        S, added, _ = problem()
        assert len(solved(S, added, 5).images) == 0


class TestStrongestPairs:
    @settings(max_examples=40, deadline=None)
    @given(items=st.integers(1, 40), k=st.integers(1, 10), seed=st.integers(0, 99), weighted=st.booleans())
    def test_are_the_4k_largest_of_equals_the_more_popular(self, items, k, seed, weighted):
        S, added, A = problem(50, items, seed, weighted, np.float32)
        lists, ranked = strongest_pairs(S, S.diagonal + added, k), strength(S, added)
        for i in range(items):
            begin, end = lists.indptr[i], lists.indptr[i + 1]
            there = [j for j in range(items) if ranked[i, j] > 0]
            best = sorted(there, key=lambda j: (-ranked[i, j], j))[: 4 * k]
            assert sorted(lists.others[begin:end].tolist()) == sorted(best)
            np.testing.assert_allclose(lists.values[begin:end], A[i, lists.others[begin:end]], rtol=1e-6)

    def test_are_fewer_where_there_are_very_many(self, monkeypatch):
        S, added, _ = problem()
        monkeypatch.setattr(lists_module, "MOST_LISTED", 100)
        assert np.diff(strongest_pairs(S, S.diagonal + added, 3).indptr).max() == 3


def test_the_same_bits_with_any_number_of_threads():
    """All pairs weigh alike in half of these data, so that ties are everywhere."""
    S, added, _ = problem(300, 200, weighted=False, dtype=np.float32)
    found = []
    try:
        for threads in (1, 2):
            deql.set_threads(threads)
            one = solved(S, added, 20)
            filled = np.arange(21) < one.counts[:, None]
            found.append([one.counts.tobytes(), one.rows[filled].tobytes(), one.values[filled].tobytes()])
    finally:
        deql.set_threads(None)
    assert found[0] == found[1]
