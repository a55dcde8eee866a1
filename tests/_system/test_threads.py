import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.sparse import random_array
from threadpoolctl import threadpool_info

import deql
from deql._system import threads as parallel
from deql._system.threads import blas_limited, map_ahead, run_slices, set_threads, thread_count
from deql.data.matrices import canonical
from deql.errors import ParameterError
from deql.linalg import parallel_sweep
from deql.linalg.gram import gram


@pytest.fixture(autouse=True)
def _nothing_set():
    yield
    set_threads(None)


def test_the_number_of_threads_can_be_set(monkeypatch):
    monkeypatch.setenv("DEQL_THREADS", "3")
    assert thread_count() == 3
    monkeypatch.setenv("DEQL_THREADS", "")
    assert thread_count() >= 1
    for nonsense in ("0", "-1", "many", "2.5", "²", "9" * 20):
        monkeypatch.setenv("DEQL_THREADS", nonsense)
        with pytest.raises(ParameterError, match="DEQL_THREADS must be a whole number from 1 to 1,024, got"):
            thread_count()


def test_what_is_set_in_python_counts_before_the_environment(monkeypatch):
    monkeypatch.setenv("DEQL_THREADS", "3")
    set_threads(2)
    assert thread_count() == 2
    set_threads(np.int64(5))
    assert thread_count() == 5
    set_threads(None)
    assert thread_count() == 3
    for nonsense in (0, -1, 1.5, "2", True, 10**20):
        with pytest.raises(ParameterError, match="number of threads must be a whole number from 1 to 1,024, got"):
            set_threads(nonsense)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")
@pytest.mark.parametrize(("processors", "quota", "threads"), [(8, None, 8), (8, 3, 3), (2, 16, 2)])
def test_a_control_group_may_leave_less_than_all_processors(monkeypatch, processors, quota, threads):
    monkeypatch.delenv("DEQL_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda which: range(processors))
    monkeypatch.setattr(parallel, "_quota", lambda: quota)
    assert thread_count() == threads


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_blas_uses_as_many_threads_as_were_set():
    before = blas_threads()
    set_threads(1)
    with blas_limited():
        assert blas_threads() == {1}
    assert blas_threads() == before


def test_limits_of_several_threads_end_in_any_order():
    before = blas_threads()
    first, second = blas_limited(2), blas_limited(1)
    first.__enter__()
    second.__enter__()
    assert blas_threads() == {1}
    first.__exit__(None, None, None)
    assert blas_threads() == {1}
    second.__exit__(None, None, None)
    assert blas_threads() == before


def test_the_number_of_threads_changes_nothing_in_a_fit_and_every_product_has_one(random_matrix, monkeypatch):
    """A matrix of several tiles; its products say how many threads BLAS has."""
    monkeypatch.setattr("deql.linalg.gram.choose_tile", lambda n: 64)
    data, seen, whole = random_matrix(400, 150), [], parallel_sweep.gemm

    def watched(*arguments):
        seen.append(blas_threads())
        whole(*arguments)

    monkeypatch.setattr(parallel_sweep, "gemm", watched)
    models = []
    for threads in (1, 2):
        set_threads(threads)
        models.append(deql.DEQL(l2=5.0, dropout=0.3, b=0.5).fit(data))
    assert set().union(*seen) == {1}
    one, two = (model.precision_ for model in models)
    assert one.n_blocks > 1
    np.testing.assert_array_equal(one.data, two.data)
    (ids, scores), (other_ids, other_scores) = (model.recommend(data, k=10) for model in models)
    np.testing.assert_array_equal(scores, other_scores)
    np.testing.assert_array_equal(ids, other_ids)


@pytest.mark.parametrize("threads", ["1", "4"])
def test_an_interruption_ends_the_slices_under_way_and_starts_no_more(threads, monkeypatch):
    monkeypatch.setenv("DEQL_THREADS", threads)
    stop, begun = np.zeros(1, bool), []

    def kernel(first, last):
        begun.append(first)
        for _ in range(500):
            if stop[0]:
                return
            time.sleep(0.01)
        pytest.fail("was not asked to end")

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_slices(kernel, range(100), stop=stop, poll=interrupt)
    assert len(begun) <= int(threads)


@pytest.mark.parametrize("threads", ["1", "4"])
def test_an_error_in_a_slice_is_raised(threads, monkeypatch):
    monkeypatch.setenv("DEQL_THREADS", threads)

    def kernel(first, last):
        if first == 3:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_slices(kernel, range(10))


def test_threads_serve_again_for_the_next_call(monkeypatch):
    monkeypatch.setenv("DEQL_THREADS", "2")
    done, names = [], set()

    def kernel(first, last):
        done.append(first)
        names.add(threading.current_thread().name)

    with ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            run_slices(kernel, range(5), pool=pool)
    assert sorted(done) == sorted(list(range(4)) * 20)
    assert len(names) <= 2


def test_a_stopped_kernel_returns_at_once(monkeypatch):
    """The numba kernels look at the flag: an interrupted Gram matrix stays unfinished."""
    R = canonical(random_array((500, 600), density=0.05, rng=np.random.default_rng(1)))

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gram(R, report=interrupt)


@pytest.mark.parametrize("threads", ["1", "2", "5"])
@pytest.mark.parametrize("count", [0, 1, 3, 40])
def test_results_come_in_the_order_of_things(threads, count, monkeypatch):
    monkeypatch.setenv("DEQL_THREADS", threads)

    def slow_for_some(thing):
        time.sleep(0.002 * (thing % 3))
        return thing * thing

    assert list(map_ahead(slow_for_some, iter(range(count)))) == [thing * thing for thing in range(count)]


@pytest.mark.parametrize("threads", ["1", "3"])
def test_only_a_few_things_are_taken_ahead(threads, monkeypatch):
    monkeypatch.setenv("DEQL_THREADS", threads)
    taken = []

    def things():
        for thing in range(1000):
            taken.append(thing)
            yield thing

    results = map_ahead(str, things())
    assert taken == [], "nothing before the first result is asked for"
    for given_out in range(1, 6):
        assert next(results) == str(given_out - 1)
        assert len(taken) <= given_out + 2 * int(threads)
    results.close()
    assert len(taken) <= 5 + 2 * int(threads)


def test_work_is_shared_among_threads(monkeypatch):
    """Three things can only be done if all three are under way at once."""
    monkeypatch.setenv("DEQL_THREADS", "3")
    together = threading.Barrier(3, timeout=10)
    assert sorted(map_ahead(lambda thing: together.wait(), range(3))) == [0, 1, 2]


def test_an_error_comes_in_its_turn_and_ends_the_work(monkeypatch):
    monkeypatch.setenv("DEQL_THREADS", "2")
    begun = []

    def work(thing):
        begun.append(thing)
        if thing in (3, 4):
            raise ZeroDivisionError(thing)
        return thing

    results = map_ahead(work, range(1000))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ZeroDivisionError, match="3"):
        next(results)
    assert max(begun) <= 3 + 2 * 2
    with pytest.raises(StopIteration):
        next(results)


def test_an_error_among_the_things_comes_through(monkeypatch):
    monkeypatch.setenv("DEQL_THREADS", "2")

    def things():
        yield 1
        raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        list(map_ahead(str, things()))


def test_no_thread_outlives_a_consumer_that_stops(monkeypatch):
    monkeypatch.setenv("DEQL_THREADS", "4")
    before = threading.active_count()
    results = map_ahead(str, range(1000))
    assert next(results) == "0"
    assert threading.active_count() > before
    results.close()
    assert threading.active_count() == before
