"""The Gram matrix of very many items, against plain matrices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from deql.errors import TooLargeError
from deql.linalg import sparse_triangle as module
from deql.linalg.sparse_triangle import popularity_order, sum_triangle


def ratings(users, items, seed, weighted=True):
    """Real-valued and uneven, some users and items without any entry."""
    generator = np.random.default_rng(seed)
    R = generator.random((users, items)) < generator.permutation(np.linspace(0.0, 0.6, items))
    R = R * (generator.uniform(-1.0, 3.0, R.shape) if weighted else 1.0)
    return csr_array(R)


def dense(S):
    """What the rows hold, both halves, with the diagonal."""
    half = csr_array((S.values.astype(float), S.columns, S.indptr), shape=(S.n, S.n)).toarray()
    assert not np.triu(half).any()
    return half + half.T + np.diag(S.diagonal)


@settings(max_examples=40, deadline=None)
@given(
    users=st.integers(1, 30), items=st.integers(1, 20), seed=st.integers(0, 99), weighted=st.booleans(),
    user_weights=st.booleans(),
)  # fmt: skip
def test_is_the_gram_matrix(users, items, seed, weighted, user_weights):
    R = ratings(users, items, seed, weighted)
    weights = np.random.default_rng(seed).uniform(0.1, 2.0, users) if user_weights else None
    S = sum_triangle(R, weights, np.float64)
    L = np.eye(users) if weights is None else np.diag(weights)
    np.testing.assert_allclose(dense(S), R.toarray().T @ L @ R.toarray(), atol=1e-12)


def test_has_an_entry_for_each_pair_that_shares_a_user_in_order():
    R = ratings(40, 15, 3, weighted=False)
    S = sum_triangle(R, None, np.float32)
    expected = np.tril(R.toarray().T @ R.toarray(), -1)
    assert S.values.dtype == np.float32
    for row in range(15):
        columns = S.columns[S.indptr[row] : S.indptr[row + 1]]
        assert columns.tolist() == np.flatnonzero(expected[row]).tolist()
        assert S.values[S.indptr[row] : S.indptr[row + 1]].tolist() == expected[row, columns].tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parts_merged_are_the_whole(dtype):
    R, weights = ratings(60, 25, 1), np.random.default_rng(2).uniform(0.1, 2.0, 60)
    whole = sum_triangle(R, weights, dtype)
    first, second, nobody = (
        sum_triangle(R[low:high], weights[low:high], dtype) for low, high in ((0, 7), (7, 60), (60, 60))
    )
    for merged in (first.merged(second), second.merged(first), nobody.merged(first).merged(second).merged(nobody)):
        assert merged.indptr.tolist() == whole.indptr.tolist()
        assert merged.columns.tolist() == whole.columns.tolist()
        np.testing.assert_allclose(merged.values, whole.values, rtol=1e-6 if dtype == np.float32 else 1e-13)
        np.testing.assert_allclose(merged.diagonal, whole.diagonal, rtol=1e-13)


def test_is_the_same_with_any_number_of_threads(monkeypatch):
    R, found = ratings(300, 120, 5), []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("DEQL_THREADS", threads)
        S = sum_triangle(R, None, np.float32)
        found.append([part.tobytes() for part in (S.indptr, S.columns, S.values, S.diagonal)])
    assert found[0] == found[1] == found[2]


def test_tells_how_far_it_is_and_stops_when_told():
    R, seen = ratings(50, 30, 5), []
    sum_triangle(R, None, np.float32, poll=lambda done: seen.append(int(done.sum())))
    assert not seen or (seen == sorted(seen) and seen[-1] <= 60)
    stopped = sum_triangle(R, None, np.float32, stop=np.ones(1, bool))
    assert len(stopped.columns) == 0


def test_more_pairs_than_memory_holds_are_refused(monkeypatch):
    S = sum_triangle(ratings(40, 15, 3), None, np.float32)
    monkeypatch.setattr(module, "free_memory", lambda: 100)
    sentence = r"^\d+ pairs of items share users, which take \d KiB of memory, and 0 KiB are free: leave out users who"
    with pytest.raises(TooLargeError, match=sentence):
        sum_triangle(ratings(40, 15, 3), None, np.float32)
    with pytest.raises(TooLargeError, match=sentence):
        S.merged(S)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_order_of_popularity(counts):
    items, places = popularity_order(np.array(counts))
    assert items.tolist() == sorted(range(len(counts)), key=lambda item: (-counts[item], item))
    assert places[items].tolist() == list(range(len(counts)))
