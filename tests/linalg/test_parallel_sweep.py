import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deql
from deql.errors import NotPositiveDefiniteError
from deql.linalg import parallel_sweep as module
from deql.linalg.packed import PackedSymmetric
from deql.linalg.parallel_sweep import parallel_sweep


@pytest.fixture(autouse=True)
def threads():
    yield
    deql.set_threads(None)


def positive_definite(n, seed):
    X = np.random.default_rng(seed).standard_normal((2 * n, n))
    return X.T @ X / n + np.eye(n)


def swept(A, tile, report=None):
    packed = PackedSymmetric.from_dense(A, tile)
    parallel_sweep([block for _, block in packed.blocks()], report)
    packed.mirror_diagonal_tiles()
    return packed.to_dense()


@pytest.mark.slow
@given(
    n=st.integers(1, 50),
    tile=st.integers(1, 55),
    tiles_in_group=st.integers(1, 5),
    threads=st.integers(1, 6),
    seed=st.integers(0, 10**6),
)
def test_it_is_the_inverse_however_the_work_is_cut(n, tile, tiles_in_group, threads, seed):
    A = positive_definite(n, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TASK_FLOPS", 2 * tiles_in_group * min(tile, n) ** 3)
        deql.set_threads(threads)
        np.testing.assert_allclose(swept(A, tile), np.linalg.inv(A), rtol=0, atol=1e-11)


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), threads=st.integers(2, 8), tiles_in_group=st.integers(1, 3))
def test_tasks_that_take_any_time_give_the_same_bits(seed, threads, tiles_in_group):
    """A thread that loses its core for a while must not let others see what is not ready."""
    A, rng = positive_definite(40, seed), np.random.default_rng(seed)
    gemm = module.gemm

    def slow(*arguments):
        if rng.random() < 0.3:
            time.sleep(rng.random() * 2e-3)
        gemm(*arguments)
        if rng.random() < 0.1:
            time.sleep(rng.random() * 2e-3)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TASK_FLOPS", 2 * tiles_in_group * 5**3)
        deql.set_threads(1)
        alone = swept(A, 5)
        deql.set_threads(threads)
        patch.setattr(module, "gemm", slow)
        np.testing.assert_array_equal(swept(A, 5), alone)


def test_views_of_a_dense_matrix_are_swept_too():
    A = positive_definite(30, 1)
    dense = A.copy()
    parallel_sweep([dense[left:, left : left + 8] for left in range(0, 30, 8)])
    np.testing.assert_allclose(np.tril(dense), np.tril(np.linalg.inv(A)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("column", [0, 4, 17, 29])
@pytest.mark.parametrize("tile", [8, 30])
def test_a_pivot_that_is_not_positive_is_named(column, tile):
    A = positive_definite(30, 2)
    A[column, column] = -1.0
    with pytest.raises(NotPositiveDefiniteError) as caught:
        swept(A, tile)
    assert caught.value.indices == [column]


def test_every_pivot_is_reported_once_and_in_order():
    seen = []
    swept(positive_definite(50, 3), 16, lambda done, total: seen.append((done, total)))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_an_interruption_leaves_no_thread_behind():
    def interrupt(done, total):
        raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        swept(positive_definite(60, 4), 8, interrupt)
    assert threading.active_count() == before


def test_others_run_while_a_product_does():
    """SciPy's own wrappers hold the interpreter's lock, so that no second product could begin."""
    rows, stop, turns = np.ones((20_000, 800), np.float32), threading.Event(), [0]

    def count():
        while not stop.is_set():
            turns[0] += 1
            time.sleep(1e-3)

    watcher = threading.Thread(target=count)
    watcher.start()
    try:
        before = turns[0]
        module.gemm(1.0, rows.T, rows, 0.0, np.empty((800, 800), np.float32))  # a tenth of a second or more
        during = turns[0] - before
    finally:
        stop.set()
        watcher.join()
    assert during > 3
