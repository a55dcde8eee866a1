import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deql.errors import InaccurateInverseError, NotPositiveDefiniteError
from deql.linalg.engines.disk_products import SlicedProducts
from deql.linalg.engines.memory import invert_in_memory
from deql.linalg.packed import PackedSymmetric, mirror_lower, multiply
from deql.linalg.sweep import InPlace, sweep
from deql.linalg.tiling import choose_tile


def positive_definite(n, seed, dtype=np.float64):
    X = np.random.default_rng(seed).standard_normal((2 * n, n))
    return (X.T @ X / n + np.eye(n)).astype(dtype)


@given(n=st.integers(1, 40), tile=st.integers(1, 45), seed=st.integers(0, 10**6))
def test_sweep_is_the_inverse_whether_or_not_the_tile_divides_n(n, tile, seed):
    A = positive_definite(n, seed)
    packed = PackedSymmetric.from_dense(A, tile)
    sweep(InPlace(packed), SlicedProducts(packed.dtype))
    np.testing.assert_allclose(packed.to_dense(), np.linalg.inv(A), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("n", "tile"), [(300, 64), (300, 100), (300, 77), (300, 300), (513, 256)])
def test_sweep_in_single_precision(n, tile):
    A = positive_definite(n, 1)
    packed = PackedSymmetric.from_dense(A.astype(np.float32), tile)
    residual = invert_in_memory(packed)
    exact = np.linalg.inv(A)
    assert np.abs(packed.to_dense() - exact).max() < 2e-6 * np.abs(exact).max()
    assert residual < 1e-5


def test_sweep_works_in_place():
    packed = PackedSymmetric.from_dense(positive_definite(50, 2), 16)
    store = packed.data
    sweep(InPlace(packed), SlicedProducts(packed.dtype))
    assert packed.data is store


def test_sweep_reports_every_pivot_once():
    seen = []
    packed = PackedSymmetric.from_dense(positive_definite(50, 2), 16)
    sweep(InPlace(packed), SlicedProducts(packed.dtype), lambda done, total: seen.append((done, total)))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


@given(n=st.integers(1, 30), tile=st.integers(1, 33), seed=st.integers(0, 10**6))
def test_packed_matrix_keeps_every_entry(n, tile, seed):
    A = positive_definite(n, seed)
    packed = PackedSymmetric.from_dense(A, tile)
    np.testing.assert_array_equal(packed.to_dense(), A)
    np.testing.assert_array_equal(packed.diagonal(), np.diag(A))
    x = np.random.default_rng(seed).standard_normal((n, 3))
    np.testing.assert_allclose(packed.matvec(x), A @ x, atol=1e-10)
    np.testing.assert_allclose(packed.matvec(x[:, 0]), A @ x[:, 0], atol=1e-10)
    packed.add_to_diagonal(np.arange(n, dtype=float))
    np.testing.assert_allclose(packed.to_dense(), A + np.diag(np.arange(n)))


def test_matvec_takes_slabs_apart_correctly():
    A = positive_definite(1500, 3)
    packed = PackedSymmetric.from_dense(A, 1100)  # a diagonal tile taller than a slab
    x = np.random.default_rng(3).standard_normal(1500)
    np.testing.assert_allclose(packed.matvec(x), A @ x, rtol=1e-9, atol=1e-9)


def test_a_product_takes_parts_in_any_order():
    A = positive_definite(40, 7)
    packed = PackedSymmetric.from_dense(A, 16)
    parts = [
        (start + first, start, block[first : first + 10])  # some begin within the tile on the diagonal
        for start, block in packed.blocks()
        for first in range(0, len(block), 10)
    ]
    x = np.random.default_rng(7).standard_normal((40, 2))
    np.testing.assert_allclose(multiply(parts[::-1], x, np.float64), A @ x, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", [1, 255, 600])
def test_the_lower_half_is_mirrored(n):
    a = np.random.default_rng(n).standard_normal((n, n))
    expected = np.where(np.tri(n, dtype=bool), a, a.T)
    mirror_lower(a)
    np.testing.assert_array_equal(a, expected)


def test_store_of_the_wrong_size_is_refused():
    with pytest.raises(ValueError, match="68 numbers"):
        PackedSymmetric(10, 4, np.zeros(67))


@pytest.mark.parametrize("n", [1, 2047, 2048, 2049, 5834, 8192, 8193, 12_000, 24_577, 91_599])
def test_store_is_half_the_matrix_once_memory_matters(n):
    numbers = PackedSymmetric.stored_numbers(n, choose_tile(n))
    assert numbers <= n * n
    if n > 5000:
        assert numbers < 0.54 * n * n
    if n > choose_tile(n):
        assert choose_tile(n) % 64 == 0


def test_a_diagonal_that_is_not_positive_is_named_before_the_work():
    A = positive_definite(6, 4)
    A[2, 2], A[4, 4] = 0.0, np.nan
    packed = PackedSymmetric.from_dense(A, 4)
    before = packed.data.copy()
    with pytest.raises(NotPositiveDefiniteError) as caught:
        invert_in_memory(packed)
    assert caught.value.indices == [2, 4]
    np.testing.assert_array_equal(packed.data, before)


def test_a_dependent_column_is_named_at_its_pivot():
    A = positive_definite(6, 5)
    A[:, 4] = A[:, 1]
    A[4, :] = A[1, :]
    A[4, 4] = A[1, 1] - 1e-6
    with pytest.raises(NotPositiveDefiniteError) as caught:
        invert_in_memory(PackedSymmetric.from_dense(A, 4))
    assert caught.value.indices == [4]


def test_a_few_wrong_entries_among_many_are_refused():
    A = np.diag(np.full(2000, 50.0)).astype(np.float32)
    A[7, 7] = A[8, 8] = 1e4 + 0.01
    A[7, 8] = A[8, 7] = 1e4
    with pytest.raises((InaccurateInverseError, NotPositiveDefiniteError)):
        invert_in_memory(PackedSymmetric.from_dense(A, 2000))


def test_the_inverse_is_symmetric_to_the_last_bit():
    packed = PackedSymmetric.from_dense(positive_definite(256, 8, np.float32), 64)
    invert_in_memory(packed)
    for _, block in packed.blocks():
        own = block[: block.shape[1]]
        np.testing.assert_array_equal(own, own.T)


def test_an_inaccurate_inverse_is_refused():
    spectrum = np.logspace(0, -9, 60)
    Q, _ = np.linalg.qr(np.random.default_rng(6).standard_normal((60, 60)))
    A = (Q * spectrum) @ Q.T
    A = (A + A.T) / 2
    invert_in_memory(PackedSymmetric.from_dense(A, 16))  # float64 can
    with pytest.raises((InaccurateInverseError, NotPositiveDefiniteError)):
        invert_in_memory(PackedSymmetric.from_dense(A.astype(np.float32), 16))
