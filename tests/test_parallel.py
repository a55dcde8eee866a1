import time

import numpy as np
import pytest
from scipy.sparse import random_array

from deql.gram import gram
from deql.interactions.table import canonical
from deql.parallel import run_slices, thread_count


def test_the_number_of_threads_can_be_set(monkeypatch):
    monkeypatch.setenv("DEQL_THREADS", "3")
    assert thread_count() == 3
    for nonsense in ("", "0", "-1", "many"):
        monkeypatch.setenv("DEQL_THREADS", nonsense)
        assert thread_count() >= 1


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


def test_a_stopped_kernel_returns_at_once(monkeypatch):
    """The numba kernels look at the flag: an interrupted Gram matrix stays unfinished."""
    R = canonical(random_array((500, 600), density=0.05, rng=np.random.default_rng(1)))

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gram(R, report=interrupt)
