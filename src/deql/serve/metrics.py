"""What Prometheus is told: right with one worker or several, and apart for each app where tests make many.

With several processes the numbers lie in files of a folder that the supervisor made (``PROMETHEUS_MULTIPROC_DIR``), and
whichever worker is asked adds them all up.
"""

from __future__ import annotations

import os

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["CONTENT_TYPE", "FOLDER", "Metrics"]

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable by which workers find the folder; prometheus_client's own."""

CONTENT_TYPE: str = CONTENT_TYPE_LATEST

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5, 5.0, 10.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The counters of one app.

    Labels take few values: a route is a template such as ``/items/{item}/similar``, never an address.

    Examples
    --------
    >>> metrics = Metrics()
    >>> metrics.answered("/recommend", "POST", 200, 0.004)
    >>> b'deql_requests_total{method="POST",route="/recommend",status="200"} 1.0' in metrics.text()
    True
    """

    def __init__(self) -> None:
        self._registry = own = CollectorRegistry()
        self._requests = Counter("deql_requests", "Requests answered.", ["route", "method", "status"], registry=own)
        self._seconds = Histogram(
            "deql_request_seconds", "From a request's headers to the end of its answer.", ["route"], registry=own,
            buckets=_SECONDS,
        )  # fmt: skip
        self.in_flight = Gauge(
            "deql_requests_in_flight", "Requests being answered now.", registry=own, multiprocess_mode="livesum"
        )
        self._histories = Counter("deql_histories", "Histories ranked.", registry=own)
        self._batches = Histogram("deql_batch_size", "Histories ranked in one pass.", registry=own, buckets=_SIZES)
        self._reloads = Counter("deql_reloads", "Reloads of the model file.", ["outcome"], registry=own)
        self._workers = Gauge(
            "deql_workers", "Workers that answer from a model.", registry=own, multiprocess_mode="livesum"
        )
        self._loaded = Gauge(
            "deql_model_loaded_timestamp_seconds", "When the first worker took up its model.",
            registry=own, multiprocess_mode="livemin",
        )  # fmt: skip
        self._items = Gauge("deql_model_items", "Items of the model.", registry=own, multiprocess_mode="livemax")

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def batch(self, histories: int) -> None:
        """Count a pass over P."""
        self._histories.inc(histories)
        self._batches.observe(histories)

    def reloaded(self, outcome: str) -> None:
        """Count a reload: ``changed``, ``unchanged`` or ``rejected``."""
        self._reloads.labels(outcome).inc()

    def serving(self, items: int) -> None:
        """Say that a model of so many items is answered from, from now on."""
        self._workers.set(1)
        self._loaded.set_to_current_time()
        self._items.set(items)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it; of all workers if there are several."""
        if FOLDER not in os.environ:
            return generate_latest(self._registry)
        from prometheus_client.multiprocess import MultiProcessCollector

        everyone = CollectorRegistry()
        MultiProcessCollector(everyone)  # type: ignore[no-untyped-call]
        return generate_latest(everyone)
