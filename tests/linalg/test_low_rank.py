"""Woodbury's identity on the packed store, against plain inverses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from deql._system.threads import set_threads
from deql.errors import InaccurateInverseError, NotPositiveDefiniteError
from deql.linalg import low_rank, panel
from deql.linalg.engines.memory import invert_in_memory
from deql.linalg.gram_change import GramChange, gram_change
from deql.linalg.low_rank import core_of_change, low_rank_step, residual_of, retiring_step, step_residual
from deql.linalg.packed import PackedSymmetric
from deql.linalg.panel import panel_product


def positive(n, seed=0, ridge=1.0):
    rows = np.random.default_rng(seed).normal(size=(n + 3, n))
    return rows.T @ rows + ridge * np.eye(n)


def changed(n, touched, k, seed=0):
    """A change that leaves the matrix positive definite: rows come, and some of the ridge goes."""
    rng = np.random.default_rng(seed)
    columns = np.sort(rng.choice(n, touched, replace=False)).astype(np.int64)
    if k is None:
        rows = rng.normal(size=(touched, touched))
        return GramChange(columns, None, rows @ rows.T - 0.5 * np.eye(touched))
    factor = csr_array(rng.normal(size=(touched, k)) * (rng.random((touched, k)) < 0.6))
    return GramChange(columns, factor, np.diag(rng.uniform(0.1, 2.0, k)))


def dense_change(change, n):
    return change.matvec(np.eye(n))


@st.composite
def cases(draw):
    n = draw(st.integers(1, 40))
    touched = draw(st.integers(1, n))
    return n, draw(st.integers(1, n)), touched, draw(st.none() | st.integers(1, touched)), draw(st.integers(0, 9))


@given(cases())
def test_is_the_inverse_of_the_changed_matrix(case):
    n, tile, touched, k, seed = case
    A, change = positive(n, seed), changed(n, touched, k, seed)
    P = PackedSymmetric.from_dense(np.linalg.inv(A), tile)
    P.mirror_diagonal_tiles()
    before, told = P.data.copy(), []
    updated = low_rank_step(P, change).precision(P, lambda done, total: told.append((done, total)))
    exact = np.linalg.inv(A + dense_change(change, n))
    np.testing.assert_allclose(updated.to_dense(), exact, atol=1e-9 * abs(exact).max())
    assert np.array_equal(P.data, before)
    for _, block in updated.blocks():
        assert np.array_equal(block[: block.shape[1]], block[: block.shape[1]].T)
    assert told == [(done + 1, P.n_blocks) for done in range(P.n_blocks)]
    assert step_residual(P, updated, change) < 1e-8
    assert residual_of(updated, lambda x: A @ x + change.matvec(x)) < 1e-8


@given(cases())
def test_a_thin_product_follows(case):
    n, tile, touched, k, seed = case
    A, change = positive(n, seed), changed(n, touched, k, seed)
    P = PackedSymmetric.from_dense(np.linalg.inv(A), tile)
    U = np.random.default_rng(seed).normal(size=(n, 3))
    updated = low_rank_step(P, change).thin((np.linalg.inv(A) @ U).astype(np.float32))
    exact = np.linalg.solve(A + dense_change(change, n), U)
    assert updated.dtype == np.float32
    np.testing.assert_allclose(updated, exact, atol=1e-5 * abs(np.linalg.inv(A) @ U).max())


@given(st.integers(2, 40), st.integers(1, 40), st.integers(0, 9), st.data())
def test_retired_items_leave_the_inverse_of_the_others(n, tile, seed, data):
    A, gone = positive(n, seed), data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n - 1, unique=True))
    P = PackedSymmetric.from_dense(np.linalg.inv(A), min(tile, n))
    columns = np.sort(np.array(gone, np.int64))
    left = retiring_step(P, columns).precision(P).without(columns)
    kept = np.delete(np.arange(n), columns)
    exact = np.linalg.inv(A[np.ix_(kept, kept)])
    np.testing.assert_allclose(left.to_dense(), exact, atol=1e-9 * abs(exact).max())


@given(cases())
def test_a_panel_is_a_product(case):
    n, tile, touched, k, seed = case
    P, change = PackedSymmetric.from_dense(positive(n, seed), tile), changed(n, touched, k, seed)
    P.mirror_diagonal_tiles()
    dense, columns = P.to_dense(), change.columns
    exact = dense[:, columns] if k is None else dense[:, columns] @ change.factor
    np.testing.assert_allclose(panel_product(P, columns, change.factor), exact, atol=1e-12 * abs(dense).max() * n)


@pytest.mark.parametrize("k", [None, 20])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_is_the_same_with_any_number_of_threads(k, dtype, monkeypatch):
    monkeypatch.setattr(low_rank, "_ROWS", 100)
    monkeypatch.setattr(low_rank, "_IN_CACHE", 3000)
    monkeypatch.setattr(low_rank, "_SOLVED", 16)
    monkeypatch.setattr(panel, "_ROWS", 50)
    n = 700
    A, change = positive(n, ridge=50.0), changed(n, 130, k)
    P = PackedSymmetric.from_dense(np.linalg.inv(A).astype(dtype), 128)
    P.mirror_diagonal_tiles()
    left, found = np.ones((n, 2), np.float32), []
    for threads in (1, 2, 3):
        set_threads(threads)
        try:
            step = low_rank_step(P, change)
            updated = step.precision(P)
            gone = updated.without(change.columns)
            numbers = (updated.data, step.thin(left), gone.data, updated.matvec(np.ones((n, 4))))
        finally:
            set_threads(None)
        found.append(b"".join(part.tobytes() for part in numbers))
    assert found[0] == found[1] == found[2]
    exact = np.linalg.inv(A + dense_change(change, n))
    np.testing.assert_allclose(
        updated.to_dense(), exact, atol=abs(exact).max() * (1e-4 if dtype == np.float32 else 1e-9)
    )


def test_a_store_can_be_given(tmp_path):
    A, change = positive(30), changed(30, 5, None)
    P = PackedSymmetric.from_dense(np.linalg.inv(A), 8)
    store = np.memmap(tmp_path / "store", np.float64, "w+", shape=P.data.shape)
    updated = low_rank_step(P, change).precision(P, store=lambda n, tile: store)
    assert updated.data is store
    assert np.array_equal(updated.data, low_rank_step(P, change).precision(P).data)


def test_what_cannot_be_inverted_is_refused():
    P = PackedSymmetric.from_dense(np.linalg.inv(np.diag([2.0, 1.0, 4.0])), 2)
    for gone in (-1.0, -3.0):  # singular, then indefinite
        with pytest.raises(InaccurateInverseError, match="not positive definite"):
            low_rank_step(P, GramChange(np.array([1]), None, np.array([[gone]])))
    with pytest.raises(InaccurateInverseError):
        core_of_change(np.array([[np.nan]]), np.array([[1.0]]))
    with pytest.raises(NotPositiveDefiniteError):
        retiring_step(PackedSymmetric.from_dense(-np.eye(3), 2), np.array([1]))


def test_a_wrong_step_has_a_residual():
    A, change = positive(30), changed(30, 5, None)
    P = PackedSymmetric.from_dense(np.linalg.inv(A), 8)
    assert step_residual(P, P, change) > 0.1
    assert residual_of(P, lambda x: A @ x + change.matvec(x)) > 0.1


def test_an_error_ends_the_work_and_is_told(monkeypatch):
    A, change = positive(60), changed(60, 5, None)
    P = PackedSymmetric.from_dense(np.linalg.inv(A), 8)

    def interrupted(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        low_rank_step(P, change).precision(P, interrupted)


@pytest.mark.parametrize(("l2", "ratio"), [(1.0, 0.0), (20.0, 0.43), (500.0, 0.0)])
def test_a_hundred_updates_are_as_exact_as_a_fit(l2, ratio):
    n, rng = 200, np.random.default_rng(0)
    rows = (rng.random((1200, n)) < rng.uniform(0.01, 0.2, n)).astype(float)

    def matrix():
        gram = rows.T @ rows
        return gram + np.diag(ratio * np.diag(gram) + l2)

    def fitted():
        P = PackedSymmetric.from_dense(matrix().astype(np.float32), 64)
        invert_in_memory(P)
        return P

    P = fitted()
    for _ in range(100):
        users = rng.choice(len(rows), rng.integers(1, 6), replace=False)
        before = rows[users]
        after = rows[users] = rows[users][:, rng.permutation(n)]
        ones = np.ones(len(users))
        change = gram_change(csr_array(before), csr_array(after), ones, ones, ratio).change
        P = low_rank_step(P, change).precision(P)
    exact = np.linalg.inv(matrix())

    def error(of):
        return np.linalg.norm(of.to_dense() - exact) / np.linalg.norm(exact)

    assert error(P) < min(1e-5, 5 * error(fitted()))
    assert residual_of(P, lambda x: matrix() @ x) < 1e-4


def test_numbers_that_cancel_out_are_multiplied_in_double_precision():
    n, rng = 120, np.random.default_rng(0)
    rows = (rng.random((100, n)) < 0.2) * rng.integers(1, 30, (100, n))
    A = rows.T @ rows + 30 * np.eye(n)
    P = PackedSymmetric.from_dense(np.linalg.inv(A).astype(np.float32), n)
    usual = gram_change(csr_array((1, n)), csr_array(rows[:1] > 0), np.ones(1), np.ones(1), 0.4).change
    heavy = gram_change(csr_array(rows[:40]), csr_array(rows[40:80, ::-1]), np.ones(40), np.ones(40), 0.4).change
    assert not low_rank_step(P, usual)._cancels(P)
    assert low_rank_step(P, heavy)._cancels(P)
    assert retiring_step(P, np.array([3, 4]))._cancels(P)


def test_the_core_does_not_depend_on_how_its_numbers_lie():
    K, M = positive(150), positive(150, seed=1)
    assert np.array_equal(core_of_change(K, M), core_of_change(np.asfortranarray(K), np.asfortranarray(M)))
