import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import random_array

torch = pytest.importorskip("torch")

from deql.errors import DataError, DeviceError, InaccurateInverseError, NotPositiveDefiniteError, ParameterError  # noqa: E402
from deql.linalg.engines import torch_packed as device_packed  # noqa: E402
from deql.linalg.engines.torch_gram import gram_on_device  # noqa: E402
from deql.linalg.engines.torch_invert import (  # noqa: E402
    Streamed,
    invert_on_device,
    invert_through_device,
)
from deql.linalg.engines.torch_packed import DevicePacked, open_device  # noqa: E402
from deql.linalg.engines.torch_products import Products, arithmetic_set  # noqa: E402
from deql.linalg.gram import gram, user_weights  # noqa: E402
from deql.linalg.invert import check_inverse  # noqa: E402
from deql.linalg.packed import PackedSymmetric  # noqa: E402
from deql.linalg.sweep import sweep  # noqa: E402

CPU = torch.device("cpu")
ACCURACY = {"float64": 1e-13, "float32": 2e-6, "fp16x3": 5e-6, "bf16x3": 2e-5, "tf32x3": 5e-6, "tf32": 2e-3}


def positive_definite(n, seed, dtype=np.float64):
    X = np.random.default_rng(seed).standard_normal((2 * n, n))
    return (X.T @ X / n + np.eye(n)).astype(dtype)


def sent(A, tile, device):
    return DevicePacked.from_host(PackedSymmetric.from_dense(A, tile), device)


def relative(P, A):
    exact = np.linalg.inv(A.astype(np.float64))
    return np.abs(P.to_dense() - exact).max() / np.abs(exact).max()


@pytest.mark.parametrize("arithmetic", ACCURACY)
@pytest.mark.parametrize(("n", "tile"), [(300, 64), (300, 77), (700, 700)])
def test_every_precision_inverts_as_well_as_it_promises(arithmetic, n, tile, device):
    A = positive_definite(n, 1, np.float64 if arithmetic == "float64" else np.float32)
    P = sent(A, tile, device)
    residual = invert_on_device(P, arithmetic)
    assert relative(P, A) < ACCURACY[arithmetic]
    assert residual < 20 * ACCURACY[arithmetic]
    for _, block in P.to_host().blocks():
        np.testing.assert_array_equal(block[: block.shape[1]], block[: block.shape[1]].T)


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 40), tile=st.integers(1, 45), blocks=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_streaming_gives_the_inverse_whatever_the_tiles_and_pivots(n, tile, blocks, seed):
    A = positive_definite(n, seed)
    P = PackedSymmetric.from_dense(A, tile)
    with Streamed(P, CPU, blocks, slab_numbers=3 * tile) as tiles:
        sweep(tiles, Products("float64", torch.float64, CPU))
    P.mirror_diagonal_tiles()
    np.testing.assert_allclose(P.to_dense(), np.linalg.inv(A), rtol=0, atol=1e-12)


def test_streaming_with_pivots_of_one_tile_is_the_sweep_in_place_to_the_last_bit(device):
    A = positive_definite(300, 3, np.float32)
    P, Q = PackedSymmetric.from_dense(A, 64), sent(A, 64, device)
    invert_through_device(P, device, "fp16x3", blocks_per_pivot=1)
    invert_on_device(Q, "fp16x3")
    np.testing.assert_array_equal(P.data, Q.to_host().data)


def test_items_of_very_different_weight_are_inverted_as_well(monkeypatch, device):
    A = positive_definite(200, 4)
    scale = 10 ** np.random.default_rng(4).uniform(-4, 4, 200)  # entries over sixteen orders of magnitude
    P = sent((A * scale[:, None] * scale).astype(np.float32), 64, device)
    # The residual of such a matrix is large in any arithmetic: it compares entries of all sizes.
    monkeypatch.setitem(check_inverse.__globals__, "LARGEST_RESIDUAL", np.inf)
    invert_on_device(P, "fp16x3")
    exact = np.linalg.inv(A)
    assert np.abs(P.to_dense() * scale[:, None] * scale - exact).max() < 1e-5 * np.abs(exact).max()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("values", ["ones", "ratings", "reals"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gram_on_a_device_is_the_host_s(weighted, values, dtype, monkeypatch, device):
    monkeypatch.setattr("deql.linalg.engines.torch_gram.DEVICE_SLICE", 20_000)  # several slices of users
    R = random_array((150, 70), density=0.1, rng=np.random.default_rng(5), format="csr").astype(np.float32)
    R.data[:] = {"ones": 1.0, "ratings": np.round(R.data * 10) / 2, "reals": R.data}[values]
    R.sort_indices()
    weights = user_weights(R, 0.5) if weighted else None
    S = gram_on_device((R.indptr, R.indices, R.data), 70, device, weights=weights, dtype=getattr(torch, dtype), tile=64)
    expected = gram(R, weights=weights, dtype=dtype, tile=64).to_dense()
    np.testing.assert_allclose(S.to_dense(), expected, rtol=2e-6 if dtype == "float32" else 1e-13)
    if values != "reals" and not weighted:
        np.testing.assert_array_equal(S.to_dense(), expected)


def test_a_packed_matrix_on_a_device_does_what_the_host_s_does(tmp_path, device):
    A = positive_definite(150, 6)
    host, there = PackedSymmetric.from_dense(A, 64), sent(A, 64, device)
    x = np.random.default_rng(6).standard_normal((150, 3))
    np.testing.assert_allclose(there.matvec(x), A @ x, atol=1e-10)
    np.testing.assert_allclose(there.matvec(x[:, 0]), A @ x[:, 0], atol=1e-10)
    for one in (host, there):
        one.add_to_diagonal(np.arange(150.0))
    np.testing.assert_array_equal(there.to_dense(), host.to_dense())
    np.testing.assert_array_equal(there.diagonal(), host.diagonal())
    assert there.dtype == np.float64
    there.copy().add_to_diagonal(np.ones(150))
    np.testing.assert_array_equal(there.diagonal(), host.diagonal())
    np.save(tmp_path / "P.npy", host.data)
    mapped = PackedSymmetric(150, 64, np.load(tmp_path / "P.npy", mmap_mode="r"))
    np.testing.assert_array_equal(DevicePacked.from_host(mapped, device).to_dense(), host.to_dense())


def test_what_cannot_be_inverted_is_named(device):
    A = positive_definite(6, 5)
    A[:, 4] = A[:, 1]
    A[4, :] = A[1, :]
    A[4, 4] = A[1, 1] - 1e-6
    with pytest.raises(NotPositiveDefiniteError) as caught:
        invert_on_device(sent(A, 4, device))
    assert caught.value.indices == [4]


def test_a_precision_that_is_too_short_for_the_matrix_is_refused(device):
    spectrum = np.logspace(0, -4, 100)
    Q, _ = np.linalg.qr(np.random.default_rng(6).standard_normal((100, 100)))
    A = ((Q * spectrum) @ Q.T).astype(np.float32)
    A = (A + A.T) / 2
    invert_on_device(sent(A, 32, device), "float32")
    with pytest.raises((InaccurateInverseError, NotPositiveDefiniteError)):
        invert_on_device(sent(A, 32, device), "tf32")


def test_unknown_devices_and_precisions_are_one_sentence():
    for name in ("cuda:99", "warp", "cuda" if not torch.cuda.is_available() else "cuda:98"):
        with pytest.raises(DeviceError, match="cannot be used"):
            open_device(name)
    with pytest.raises(ParameterError, match="one of float32"):
        Products("float8", torch.float32, CPU)


def test_too_little_memory_on_the_device_is_one_sentence(monkeypatch):
    def full(*_args, **_options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "zeros", full)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (2**30, 8 * 2**30))
    with pytest.raises(DeviceError, match=r"1\.0 of 8\.0 GiB are free"):
        device_packed.DevicePacked.zeros(10, 10, torch.float32, CPU)


def test_the_caller_s_setting_for_tf32_is_restored():
    settings_ = torch.backends.cuda.matmul
    before = settings_.fp32_precision
    with arithmetic_set("tf32"):
        assert settings_.fp32_precision == "tf32"
    assert settings_.fp32_precision == before


@pytest.mark.parametrize(
    ("interactions", "words"),
    [
        (([0, 1], [4], [1.0]), "interactions must have columns from 0 to 3, and one is 4"),
        (([0, 1], [-1], [1.0]), "and one is -1"),
        (([0, 2], [1], [1.0]), "indptr, indices and values"),
        (([0, 2, 1], [1], [1.0]), "indptr, indices and values"),
    ],
)
def test_interactions_that_are_none(interactions, words):
    with pytest.raises(DataError, match=words):
        gram_on_device(tuple(map(np.array, interactions)), 4, CPU)
