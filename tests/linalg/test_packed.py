import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deql.linalg.packed import PackedSymmetric
from deql.linalg.tiling import STRIP


@given(n=st.integers(1, 12), tile=st.integers(1, 12), extra=st.integers(0, 9), seed=st.integers(0, 99))
def test_a_grown_matrix_has_a_diagonal_more(n: int, tile: int, extra: int, seed: int) -> None:
    dense = np.random.default_rng(seed).normal(size=(n, n))
    dense += dense.T
    expected = np.zeros((n + extra, n + extra))
    expected[:n, :n] = dense
    expected[range(n, n + extra), range(n, n + extra)] = 2.5
    grown = PackedSymmetric.from_dense(dense, min(tile, n)).grown(extra, 2.5)
    assert np.array_equal(grown.to_dense(), expected)


@pytest.mark.parametrize(("n", "tile", "extra"), [(500, 500, 40), (300, 300, 2), (640, 192, 70), (900, 900, 3)])
def test_a_grown_matrix_is_one_tile_or_has_tiles_that_kernels_take(n: int, tile: int, extra: int) -> None:
    grown = PackedSymmetric(n, tile).grown(extra, 1.0)
    assert grown.tile == grown.n or grown.tile % STRIP == 0
    assert grown.diagonal()[n:].tolist() == [1.0] * extra
