import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deql.errors import NotPositiveDefiniteError
from deql.linalg.blas import cholesky_inverse, gemm


def laid_out(draw, rng, rows, columns, dtype, turned):
    """A matrix by rows or by columns, whole or cut out of a larger one."""
    pad = draw(st.integers(0, 3))
    shape = (columns, rows) if turned else (rows, columns)
    whole = rng.standard_normal((shape[0] + pad, shape[1] + pad)).astype(dtype)
    part = whole[: shape[0], : shape[1]]
    return part.T if turned else part


@given(data=st.data())
def test_a_product_is_numpys_for_every_layout(data):
    draw = data.draw
    m, k, n = (draw(st.integers(1, 9)) for _ in range(3))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    a = laid_out(draw, rng, m, k, dtype, draw(st.booleans()))
    b = laid_out(draw, rng, k, n, dtype, draw(st.booleans()))
    c = laid_out(draw, rng, m, n, dtype, turned=False)
    around = c.base.copy()
    expected = -0.5 * (a @ b) + 2 * c
    gemm(-0.5, a, b, 2.0, c)
    np.testing.assert_allclose(c, expected, rtol=1e-4, atol=1e-5)
    around[:m, :n] = c
    np.testing.assert_array_equal(c.base, around)  # nothing beside it was written


@pytest.mark.parametrize(
    ("a", "b", "c"),
    [
        (np.ones((2, 3)), np.ones((2, 3)), np.ones((2, 3))),
        (np.ones((2, 2), np.float32), np.ones((2, 2)), np.ones((2, 2))),
        (np.ones((2, 2)), np.ones((2, 2)), np.ones((2, 4))[:, ::2]),
        (np.ones((4, 4))[::2, ::2], np.ones((2, 2)), np.ones((2, 2))),
        (np.ones((2, 2)), np.ones((2, 2)), np.asfortranarray(np.ones((2, 2)))),
    ],
)
def test_what_blas_cannot_read_is_refused(a, b, c):
    before = c.copy()
    with pytest.raises(ValueError, match=r"contiguous|go together"):
        gemm(1.0, a, b, 0.0, c)
    np.testing.assert_array_equal(c, before)


def test_an_empty_product_does_nothing():
    gemm(1.0, np.ones((0, 3)), np.ones((3, 2)), 0.0, np.ones((0, 2)))


@given(n=st.integers(1, 20), seed=st.integers(0, 10**6), dtype=st.sampled_from([np.float32, np.float64]))
def test_the_inverse_reads_the_lower_half(n, seed, dtype):
    X = np.random.default_rng(seed).standard_normal((2 * n, n))
    A = X.T @ X / n + np.eye(n)
    inverse = cholesky_inverse((np.tril(A) + np.triu(np.full((n, n), np.nan), 1)).astype(dtype))
    np.testing.assert_allclose(inverse, np.linalg.inv(A), rtol=0, atol=1e-4 if dtype is np.float32 else 1e-12)
    np.testing.assert_array_equal(inverse, inverse.T)
    assert inverse.dtype == dtype


def test_the_column_without_a_pivot_is_named():
    with pytest.raises(NotPositiveDefiniteError) as caught:
        cholesky_inverse(np.diag([1.0, 2.0, -1.0]), 10)
    assert caught.value.indices == [12]
