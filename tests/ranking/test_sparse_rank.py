"""Ranking by some entries of P, against dense scores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from deql.linalg.sparse_precision import SparsePrecision
from deql.models.sparse_weights import SparseWeights
from deql.ranking.popularity_order import PopularityOrder
from deql.ranking.sparse_rank import rank_sparse


def weights(n, seed, share, prior=False, models=None, whole_numbers=False):
    """C with its diagonal, and gains and shifts; whole numbers make ties, and sums without rounding."""
    generator = np.random.default_rng(seed)
    there = (generator.random((n, n)) < share) | np.eye(n, dtype=bool)

    def draw(*shape):
        return generator.integers(-2, 3, shape).astype(float) if whole_numbers else generator.normal(size=shape)

    rows, columns = np.nonzero(there)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
    C = SparsePrecision(
        indptr, columns.astype(np.int32), draw(len(rows)).astype(np.float32),
        draw(len(rows)).astype(np.float32) if prior else None,
    )  # fmt: skip
    shape = (n,) if models is None else (models, n)
    gain, shift, scale = draw(*shape), draw(*shape), draw(*shape) if prior else None
    return SparseWeights(C, gain, shift, PopularityOrder.of(generator.integers(0, n // 2 + 1, n)), scale)


def dense(W):
    """W as a plain matrix."""
    own = W.precision.to_dense().astype(float) * W.gain + np.diag(W.shift)
    return own if W.scale is None else own + W.precision.images_to_dense().astype(float) * W.scale


def histories(users, n, seed, whole_numbers=False):
    generator = np.random.default_rng(seed + 1000)
    X = generator.random((users, n)) < generator.uniform(0.0, 0.5, (users, 1))
    values = generator.integers(1, 3, X.shape) if whole_numbers else generator.uniform(-1, 2, X.shape)
    return csr_array(X * values.astype(np.float32))


def best(scores, k, blocked, counts):
    """The k best columns of dense scores, of those at 0 the more popular, of equals the lower one first, then −1."""
    scores = np.where(blocked, -np.inf, scores)
    columns = np.lexsort((np.broadcast_to(-counts, scores.shape) * (scores == 0), -scores))[:, :k]
    top = np.take_along_axis(scores, columns, axis=1)
    return np.where(np.isfinite(top), columns, -1), np.where(np.isfinite(top), top, np.nan)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 40), k=st.integers(1, 45), seed=st.integers(0, 999), share=st.sampled_from([0.0, 0.05, 0.3, 1.0]),
    prior=st.booleans(), exclude_seen=st.booleans(), filtered=st.booleans(), whole_numbers=st.booleans(),
)  # fmt: skip
def test_lists_are_those_of_dense_scores(n, k, seed, share, prior, exclude_seen, filtered, whole_numbers):
    W, X = weights(n, seed, share, prior, whole_numbers=whole_numbers), histories(9, n, seed, whole_numbers)
    allowed = np.random.default_rng(seed).random(n) < 0.6 if filtered else np.ones(n, bool)
    items, scores = W.rank(X, k, exclude_seen, allowed, None)
    some = np.diff(X.indptr) > 0
    assert (items[~some] == -1).all()
    blocked = ~allowed | ((X.toarray() != 0) & exclude_seen)
    columns, top = best(X.toarray().astype(float) @ dense(W), min(k, n), blocked, W.popularity.counts)
    np.testing.assert_array_equal(items[some], columns[some])
    np.testing.assert_allclose(scores[some], top[some], rtol=1e-9, atol=1e-9)


def test_many_more_columns_than_are_kept_and_many_that_tie():
    W, X = weights(600, 3, 0.5, whole_numbers=True), histories(20, 600, 3, whole_numbers=True)
    items, _ = W.rank(X, 7, True, np.ones(600, bool), None)
    some = np.diff(X.indptr) > 0
    columns, _ = best(X.toarray() @ dense(W), 7, X.toarray() != 0, W.popularity.counts)
    np.testing.assert_array_equal(items[some], columns[some])


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 30), seed=st.integers(0, 999), share=st.sampled_from([0.0, 0.02, 0.1]), prior=st.booleans(),
    whole_numbers=st.booleans(),
)  # fmt: skip
def test_cold_histories_are_those_without_a_weight_for_another_item(n, seed, share, prior, whole_numbers):
    W, X = weights(n, seed, share, prior, whole_numbers=whole_numbers), histories(30, n, seed)
    has = X.toarray() != 0
    reached = has.astype(float) @ (dense(W) != 0) > 0
    assert W.cold(X.indptr, X.indices).tolist() == (~(reached & ~has).any(axis=1)).tolist()


@pytest.mark.parametrize("prior", [False, True])
def test_several_models_in_one_pass(prior):
    W, X = weights(50, 5, 0.2, prior, models=3), histories(30, 50, 5)
    X = X[np.diff(X.indptr) > 0]
    squares = np.zeros((3, X.shape[0]))
    together = W.rank_all(X, 6, squares, None)
    for model in range(3):
        scale = None if not prior else W.scale[model]
        one = SparseWeights(W.precision, W.gain[model], W.shift[model], W.popularity, scale)
        assert together[model].tolist() == one.rank(X, 6, True, np.ones(50, bool), None)[0].tolist()
        unseen = np.where(X.toarray() != 0, 0.0, X.toarray() @ dense(one))
        np.testing.assert_allclose(squares[model], (unseen**2).sum(axis=1), rtol=1e-6)


@pytest.mark.parametrize("prior", [False, True])
def test_pairs_and_parts_add_up_to_the_last_bit(prior):
    W, X = weights(40, 6, 0.3, prior), histories(25, 40, 6)
    X = X[np.diff(X.indptr) > 0]
    items, scores = W.rank(X, 10, False, np.ones(40, bool), None)
    for user in range(X.shape[0]):
        history, values = X.indices[X.indptr[user] : X.indptr[user + 1]], X.data[X.indptr[user] : X.indptr[user + 1]]
        for item, score in zip(items[user], scores[user], strict=True):
            parts, whole = W.contributions(history, values, item)
            assert whole == score == sum(parts.tolist())
    pairs = csr_array((np.ones(items.size), items.ravel(), np.arange(0, items.size + 1, 10)), shape=X.shape)
    pairs.sort_indices()
    order = np.argsort(items, axis=1)
    assert W.pair_scores(X, pairs).tobytes() == np.take_along_axis(scores, order, axis=1).tobytes()


def test_the_same_bits_with_any_number_of_threads_and_reports(monkeypatch):
    W, X = weights(80, 8, 0.2, prior=True), histories(3000, 80, 8)
    found, told = [], []
    for threads in ("1", "2"):
        monkeypatch.setenv("DEQL_THREADS", threads)
        lists = W.rank(X, 5, True, np.ones(80, bool), lambda done, total: told.append((done, total)))
        found.append([part.tobytes() for part in lists])
    assert found[0] == found[1]
    assert told[:3] == [(1024, 3000), (2048, 3000), (3000, 3000)]


def test_histories_out_of_order_are_refused():
    W, X = weights(5, 0, 0.5), csr_array((np.ones(2), np.array([3, 1]), np.array([0, 2])), shape=(1, 5))
    with pytest.raises(ValueError, match="sorted"):
        rank_sparse(W.precision, W.gain, W.shift, W.popularity, X, k=2)
