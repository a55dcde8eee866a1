import signal
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import block_diag, csr_array

import deql
from deql._system.threads import blas_limited
from deql.errors import DeviceError, TooLargeError
from deql.linalg import eigenvectors, subspace_iteration
from deql.linalg.eigenvectors import leading_eigenvectors
from deql.linalg.tall_blocks import inner_products, turn

RANK = 6


def tastes(seed, users=300, items=260, kinds=RANK, weighted=False):
    """Users who mostly have items of their kind, kinds of different sizes: so many eigenvalues stand out."""
    generator = np.random.default_rng(seed)
    of_user, of_item = (generator.integers(0, kinds, count) for count in (users, items))
    share = np.where(of_user[:, None] == of_item, 0.4, 0.02)
    R = (generator.random((users, items)) < share).astype(float)
    if weighted:
        R *= generator.uniform(-0.5, 2.0, R.shape)
    return csr_array(R / np.sqrt(np.outer(1 + R.any(axis=1) * abs(R).sum(axis=1), 1 + abs(R).sum(axis=0))))


def exactly(half, rank):
    with blas_limited(1):  # on a busy machine its threads wait for each other
        values, vectors = np.linalg.eigh((half.T @ half).toarray())
    return values[::-1][:rank], vectors[:, ::-1][:, :rank]


def distance(found, exact):
    """‖VVᵀ − V*V*ᵀ‖_F/√(2k)."""
    return np.linalg.norm(found @ found.T - exact @ exact.T) / np.sqrt(2 * exact.shape[1])


@pytest.fixture
def iterated(monkeypatch):
    monkeypatch.setattr(eigenvectors, "_DENSE", 0)


@given(seed=st.integers(0, 10**6), users=st.integers(1, 14), items=st.integers(1, 14), rank=st.integers(1, 14))
@settings(max_examples=60, deadline=None)
def test_few_users_or_items_are_solved_exactly(seed, users, items, rank):
    generator = np.random.default_rng(seed)
    half = csr_array((generator.random((users, items)) < 0.5) * generator.uniform(-1.0, 2.0, (users, items)))
    rank = min(rank, items)
    found, values = leading_eigenvectors(half, rank), exactly(half, rank)[0]
    some = values > 1e-10 * max(values[0], 1e-300)
    assert found.values == pytest.approx(values[some], rel=1e-9)
    assert found.vectors.T @ found.vectors == pytest.approx(np.eye(some.sum()), abs=1e-5)
    gram = (half.T @ half).toarray()
    assert gram @ found.vectors == pytest.approx(found.vectors * found.values, abs=1e-5 * max(1.0, values[0]))
    assert (found.vectors[np.abs(found.vectors).argmax(axis=0), np.arange(some.sum())] > 0).all()


@given(seed=st.integers(0, 10**6), weighted=st.booleans())
@settings(max_examples=10, deadline=None)
def test_subspace_iteration_comes_as_close_as_it_says(seed, weighted):
    half = tastes(seed, weighted=weighted)
    blocks = eigenvectors._HostBlocks(half)
    with blas_limited(1):
        found = subspace_iteration.leading_subspace(blocks, RANK, close=1e-3)
    values, vectors = exactly(half, RANK)
    assert found.values[:RANK] == pytest.approx(values, rel=1e-4)
    V = found.vectors[:, :RANK].astype(float)
    assert pytest.approx(np.eye(RANK), abs=1e-5) == V.T @ V
    if found.distance <= 1e-3:
        assert distance(V, vectors) < 5e-3


@pytest.mark.usefixtures("iterated")
def test_many_users_and_items_are_iterated():
    half = tastes(0)
    found = leading_eigenvectors(half, RANK)
    assert found.rounds > 1
    assert found.distance <= subspace_iteration.CLOSE
    assert distance(found.vectors, exactly(half, RANK)[1]) < 2 * subspace_iteration.CLOSE


@pytest.mark.usefixtures("iterated")
def test_vectors_are_the_same_each_time_with_any_number_of_threads():
    half, found = tastes(1), []
    for threads in (1, 2, 3, 1):
        deql.set_threads(threads)
        found.append(leading_eigenvectors(half, RANK))
    deql.set_threads(None)
    for other in found[1:]:
        assert np.array_equal(found[0].values, other.values)
        assert np.array_equal(found[0].vectors, other.vectors)


@pytest.mark.usefixtures("iterated")
@pytest.mark.parametrize("rank", [3, 20])
def test_parts_without_a_link_have_tied_eigenvalues(rank):
    parts = 40  # of ones, 5 × 5: so many eigenvalues are 1, and all others 0
    half = csr_array(block_diag([np.full((5, 5), 0.2)] * parts))
    found, again = leading_eigenvectors(half, rank), leading_eigenvectors(half, rank)
    assert found.values == pytest.approx(np.ones(rank), abs=1e-5)
    assert half.T @ (half @ found.vectors) == pytest.approx(found.vectors, abs=1e-3)
    assert np.array_equal(found.vectors, again.vectors)


@pytest.mark.usefixtures("iterated")
def test_identical_items_leave_out_eigenvalues_of_zero():
    generator = np.random.default_rng(0)
    half = csr_array(np.repeat((generator.random((200, 4)) < 0.4) / 20, 50, axis=1))
    found = leading_eigenvectors(half, 9)
    assert len(found.values) == found.vectors.shape[1] == 4
    assert found.values == pytest.approx(exactly(half, 4)[0], rel=1e-4)


@pytest.mark.usefixtures("iterated")
def test_a_flat_spectrum_ends_after_the_last_round(monkeypatch):
    monkeypatch.setattr(subspace_iteration, "_ROUNDS", 2)
    half = csr_array(np.random.default_rng(0).standard_normal((200, 200)) / 20)
    with pytest.warns(UserWarning, match="after 2 rounds the 8 leading eigenvectors are .* choose another rank"):
        found = leading_eigenvectors(half, 8)
    assert found.rounds == 2
    assert found.distance > subspace_iteration.CLOSE


def test_nothing_at_all_has_no_eigenvectors():
    assert leading_eigenvectors(csr_array((3, 4)), 2).vectors.shape == (4, 0)


def test_directions_that_a_block_has_twice_do_no_harm():
    generator = np.random.default_rng(0)
    X = generator.standard_normal((50, 3))
    X = np.column_stack([X, X[:, 0]])
    values, rotation = subspace_iteration._ritz(eigenvectors._HostBlocks(tastes(0)), X.T @ X, X.T @ X)
    assert np.isfinite(rotation).all()
    assert values[:3] == pytest.approx(np.ones(3), rel=1e-5)


@pytest.mark.usefixtures("iterated")
def test_progress_never_goes_back():
    told = []
    leading_eigenvectors(tastes(0), RANK, report=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1] == (100, 100)


@pytest.mark.usefixtures("iterated")
def test_an_interruption_passes_through():
    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        leading_eigenvectors(tastes(0), RANK, report=interrupt)


def test_a_long_decomposition_does_not_keep_an_interruption_waiting(monkeypatch):
    monkeypatch.setattr(np.linalg, "eigh", lambda matrix: time.sleep(60))
    timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
    timer.start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        leading_eigenvectors(tastes(0), RANK)
    assert time.monotonic() - begun < 20


@pytest.mark.usefixtures("iterated")
def test_a_device_without_room_leaves_it_to_memory(monkeypatch):
    torch_eigenvectors = pytest.importorskip("deql.linalg.engines.torch_eigenvectors")

    def fail(*_given):
        raise DeviceError("cuda has too little memory")

    monkeypatch.setattr(torch_eigenvectors, "leading_on_device", fail)
    with pytest.warns(UserWarning, match="too little memory; eigenvectors are computed in memory instead"):
        found = leading_eigenvectors(tastes(0), RANK, device="cpu")
    assert np.array_equal(found.vectors, leading_eigenvectors(tastes(0), RANK).vectors)


@pytest.mark.parametrize("dense", [True, False])
def test_too_little_memory_is_told_before(monkeypatch, dense):
    monkeypatch.setattr(eigenvectors, "_DENSE", 2000 if dense else 0)
    monkeypatch.setattr(eigenvectors, "free_memory", lambda: 1000)
    with pytest.raises(TooLargeError, match=r"rank 6 of 260 items needs about .* choose a lower rank"):
        leading_eigenvectors(tastes(0), RANK)


@pytest.mark.usefixtures("iterated")
def test_a_device_finds_the_same(device):
    half = tastes(0)
    found, host = leading_eigenvectors(half, RANK, device=str(device)), leading_eigenvectors(half, RANK)
    assert found.values == pytest.approx(host.values, rel=1e-5)
    assert found.vectors.flags.c_contiguous
    assert np.abs(found.vectors - host.vectors).max() < 1e-3


@pytest.mark.usefixtures("iterated")
def test_a_device_that_is_not_there_is_told():
    pytest.importorskip("torch")
    with pytest.raises(DeviceError, match="cuda:99"):
        leading_eigenvectors(tastes(0), RANK, device="cuda:99")


def test_products_of_tall_blocks_are_those_of_numpy():
    generator = np.random.default_rng(0)
    X = generator.standard_normal((9000, 70)).astype(np.float32)
    Q = generator.standard_normal((70, 70))
    assert np.abs(inner_products(X, X) - X.astype(float).T @ X).max() < 1e-2
    assert np.array_equal(inner_products(X, X), inner_products(X, X).T)
    turned = X.copy()
    turn(turned, Q)
    assert np.abs(turned - X @ Q).max() < 1e-3
