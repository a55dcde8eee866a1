"""The change of A by few columns, against A before and after."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from deql.linalg.gram_change import gram_change


def dense_change(before, after, weights, ratio, fresh):
    (A, B), (a, b) = (before.toarray(), after.toarray()), weights
    S = B.T @ (b[:, None] * B) - A.T @ (a[:, None] * A)
    return S + ratio * np.diag(S.diagonal()) + np.diag(fresh), S.diagonal()


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 10**6), users=st.integers(0, 6), items=st.integers(1, 12), ratio=st.sampled_from([0.0, 0.7]),
    begun=st.booleans(), alike=st.booleans(), moved=st.sampled_from([1.0, 0.2]),
)  # fmt: skip
def test_is_the_difference_of_two_gram_matrices(seed, users, items, ratio, begun, alike, moved):
    generator = np.random.default_rng(seed)
    before, after = (
        csr_array((generator.random((users, items)) < 0.4) * generator.uniform(0.3, 2.0, (users, items)))
        for _ in range(2)
    )
    after = csr_array(np.where(generator.random(items) < moved, after.toarray(), before.toarray()))
    same = generator.random(users) < 0.3
    after = csr_array(np.where(same[:, None], before.toarray(), after.toarray()))
    weights = [generator.uniform(0.2, 1.0, users), generator.uniform(0.2, 1.0, users)]
    weights[1] = np.where(same, weights[0], weights[1])
    fresh = np.zeros(items)
    fresh[items - 1] = -1.0 if begun else 0.0
    if alike:
        weights[1] = weights[0]
    found = gram_change(before, after, weights[0], weights[1], ratio, fresh)
    change, by_item = found.change, found.diagonal_change
    assert (found.rank, found.columns.tolist()) == (change.rank, change.columns.tolist())
    exact, diagonal = dense_change(before, after, weights, ratio, fresh)
    assert np.allclose(change.matvec(np.eye(items)), exact, rtol=0, atol=1e-12)
    assert np.allclose(by_item, diagonal, rtol=0, atol=1e-12)
    assert np.array_equal(change.middle, change.middle.T)
    assert (np.diff(change.columns) > 0).all()
    used = before.toarray()[~same].any(axis=0) | after.toarray()[~same].any(axis=0)
    assert change.rank <= len(change.columns) <= (used | (fresh != 0)).sum()


@pytest.mark.parametrize("ratio", [0.0, 0.7])
def test_one_more_item_of_a_long_history_changes_few_columns(ratio):
    generator = np.random.default_rng(0)
    before = generator.uniform(0.1, 3.0, (3, 80))
    before[:, 40:45] = 0
    after = before.copy()
    after[[0, 1, 2], [40, 41, 42]] = 0.1
    found = gram_change(csr_array(before), csr_array(after), np.ones(3), np.ones(3), ratio)
    assert np.flatnonzero(found.diagonal_change).tolist() == [40, 41, 42]  # and no rounding elsewhere
    assert found.rank == 6


@pytest.mark.parametrize("ratio", [0.0, 0.7])
def test_an_item_that_many_get_changes_two_columns(ratio):
    generator = np.random.default_rng(0)
    before = (generator.random((60, 90)) < 0.3) * generator.uniform(0.5, 2.0, (60, 90))
    before[:, 7] = 0
    after = before.copy()
    after[:, 7] = generator.uniform(0.5, 2.0, 60)
    found = gram_change(csr_array(before), csr_array(after), np.ones(60), np.ones(60), ratio)
    exact, _ = dense_change(csr_array(before), csr_array(after), [np.ones(60)] * 2, ratio, np.zeros(90))
    assert found.rank == 2
    assert np.allclose(found.change.matvec(np.eye(90)), exact, rtol=0, atol=1e-10)


def test_rows_that_stay_are_no_change():
    rows = csr_array(np.array([[1.0, 0.0, 2.0]]))
    found = gram_change(rows, rows, np.ones(1), np.ones(1), 0.5)
    assert (found.rank, len(found.columns)) == (0, 0)
    assert not found.diagonal_change.any()
