"""Small Dask clusters of real processes for tests, closed whatever became of their workers."""

from __future__ import annotations

import gc
import os
import signal
import time
import warnings
from contextlib import contextmanager


@contextmanager
def started(workers, **options):
    """The client of so many single-thread worker processes on this machine."""
    import distributed

    cluster = distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address=":0",  # any port: several of these run side by side
        silence_logs=50,
        **options,
    )
    try:
        client = distributed.Client(cluster, set_as_default=False)
        try:
            yield client
        finally:
            client.close(timeout=10)
    finally:
        with warnings.catch_warnings():  # of sockets to workers that were killed
            warnings.simplefilter("ignore")
            cluster.close(timeout=20)
            del cluster
            gc.collect()


def kill_one(client):
    """Kill a worker's process; the cluster starts another."""
    victim = next(iter(client.run(os.getpid).values()))
    os.kill(victim, signal.SIGKILL)


def assert_nothing_left(client):
    """No worker holds any result."""
    for _ in range(100):
        if not any(client.has_what().values()):
            return
        time.sleep(0.1)
    raise AssertionError(client.has_what())
