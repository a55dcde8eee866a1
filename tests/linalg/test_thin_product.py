"""P·U at the speed of large products, against plain matrices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deql.linalg import thin_product as module
from deql.linalg.packed import PackedSymmetric
from deql.linalg.thin_product import thin_product


def symmetric(n, tile, dtype=np.float32, seed=0):
    half = np.random.default_rng(seed).normal(size=(n, n))
    return PackedSymmetric.from_dense((half + half.T).astype(dtype), tile)


@given(n=st.integers(1, 40), tile=st.integers(1, 40), k=st.integers(1, 40), double=st.booleans())
def test_is_the_product(n, tile, k, double):
    P = symmetric(n, min(tile, n), np.float64 if double else np.float32)
    U = np.random.default_rng(1).normal(size=(n, k)).astype(np.float32)
    product = thin_product(P, U)
    assert product.dtype == np.float32
    exact = P.to_dense().astype(float) @ U
    np.testing.assert_allclose(product, exact, atol=1e-5 * max(1.0, abs(exact).max()))


def test_takes_columns_of_another_array_and_several_passes(monkeypatch):
    monkeypatch.setattr(module, "COLUMNS_AT_ONCE", 5)
    monkeypatch.setattr(module, "_ROWS", 7)
    monkeypatch.setattr(module, "_COLUMNS", 2)
    P, U = symmetric(30, 8), np.random.default_rng(1).normal(size=(30, 24))[:, ::2]
    told = []
    product = thin_product(P, U, lambda done, total: told.append((done, total)))
    np.testing.assert_allclose(product, P.to_dense() @ U, atol=1e-4)
    assert told == [(done + 1, 12) for done in range(12)]


def test_is_the_same_with_any_number_of_threads(monkeypatch):
    P, U = symmetric(900, 128), np.random.default_rng(1).normal(size=(900, 300))
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("DEQL_THREADS", threads)
        found.append(thin_product(P, U).tobytes())
    assert found[0] == found[1]


def test_on_a_device(device, monkeypatch):
    torch_packed = pytest.importorskip("deql.linalg.engines.torch_packed")
    monkeypatch.setattr(torch_packed, "_COLUMNS", 5)
    P, U = symmetric(30, 8), np.random.default_rng(1).normal(size=(30, 12)).astype(np.float32)
    there = torch_packed.DevicePacked.from_host(P, device).thin_product(U)
    assert there.dtype == np.float32
    np.testing.assert_allclose(there, thin_product(P, U), atol=1e-4)
