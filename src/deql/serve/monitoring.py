"""What those who watch the server see: JSON logs, numbers for Prometheus, and its state for systemd."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

from deql._system.lazy import lazy_module

if TYPE_CHECKING:
    import prometheus_client as prometheus
    from prometheus_client import multiprocess
else:  # it looks at FOLDER when it is imported, and the supervisor sets that later than it imports this
    prometheus = lazy_module("prometheus_client")
    multiprocess = lazy_module("prometheus_client.multiprocess")

__all__ = [
    "FOLDER",
    "JsonLogFormatter",
    "Metrics",
    "UpdateMetrics",
    "configure_logs",
    "forget_process",
    "log",
    "notify_systemd",
    "reload_counter",
]

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable by which workers find the folder; prometheus_client's own."""

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5, 5.0, 10.0)
_UPDATE_SECONDS = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)

_LOGGER = logging.getLogger("deql.serve")
_LONGEST_TRACE = 8000


class JsonLogFormatter(logging.Formatter):
    """One JSON object a line for each record, whatever its texts hold; for all processes, and for uvicorn.

    Examples
    --------
    >>> record = logging.LogRecord("deql.serve", logging.INFO, "", 0, "stop", None, None)
    >>> record.created, record.msecs, record.process, record.fields = 0.25, 250.0, 7, {"reason": "tea\\nfor two"}
    >>> JsonLogFormatter().format(record)
    '{"time": "1970-01-01T00:00:00.250Z", "level": "info", "event": "stop", "pid": 7, "reason": "tea\\\\nfor two"}'
    """

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields = getattr(record, "fields", None)
        line: dict[str, Any] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z", "level": record.levelname.lower(),
            "event": record.getMessage() if fields is not None else "library", "pid": record.process,
        }  # fmt: skip
        line |= {"logger": record.name, "message": record.getMessage().strip()} if fields is None else fields
        if record.exc_info and record.exc_info[1] is not None:
            line["traceback"] = "".join(traceback.format_exception(record.exc_info[1]))[-_LONGEST_TRACE:]
        return json.dumps(line, default=str)


def configure_logs() -> None:
    """Send what is logged in this process to standard error, this way; uvicorn's notes about itself are left out."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLogFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    _LOGGER.setLevel(logging.INFO)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi"):
        library = logging.getLogger(name)
        library.handlers = []
        library.setLevel(logging.WARNING)
    logging.captureWarnings(True)
    logging.raiseExceptions = False  # a log that nobody reads any more is no reason to fail


def log(event: str, level: int = logging.INFO, error: BaseException | None = None, **fields: Any) -> None:
    """Log that something happened.

    Parameters
    ----------
    event : str
        What, in one word for machines.
    level : int, default logging.INFO
    error : exception, optional
        Its traceback is kept.
    **fields
        Whatever else is known, as plain values.
    """
    if _LOGGER.isEnabledFor(level):
        _LOGGER.log(level, event, exc_info=error, extra={"fields": fields})


class Metrics:
    """The counters of one app: right with one worker or several, and apart for each app where tests make many.

    With several processes the numbers lie in files of a folder that the supervisor made, and whichever worker is asked
    adds them all up. Labels take few values: a route is a template such as ``/items/{item}/similar``, never an address.

    Examples
    --------
    >>> metrics = Metrics()
    >>> metrics.answered("/recommend", "POST", 200, 0.004)
    >>> b'deql_requests_total{method="POST",route="/recommend",status="200"} 1.0' in metrics.text()
    True
    """

    def __init__(self) -> None:
        self._registry = own = prometheus.CollectorRegistry()
        self._requests = prometheus.Counter(
            "deql_requests", "Requests answered.", ["route", "method", "status"], registry=own
        )
        self._seconds = prometheus.Histogram(
            "deql_request_seconds", "From a request's headers to the end of its answer.", ["route"], registry=own,
            buckets=_SECONDS,
        )  # fmt: skip
        self.in_flight = prometheus.Gauge(
            "deql_requests_in_flight", "Requests being answered now.", registry=own, multiprocess_mode="livesum"
        )
        self._histories = prometheus.Counter("deql_histories", "Histories ranked.", registry=own)
        self._batches = prometheus.Histogram(
            "deql_batch_size", "Histories ranked in one pass.", registry=own, buckets=_SIZES
        )
        self._workers = prometheus.Gauge(
            "deql_workers", "Workers that answer from a model.", registry=own, multiprocess_mode="livesum"
        )
        self._loaded = prometheus.Gauge(
            "deql_model_loaded_timestamp_seconds", "When the first worker took up its model.",
            ["model"], registry=own, multiprocess_mode="livemin",
        )  # fmt: skip
        self._items = prometheus.Gauge(
            "deql_model_items", "Items of the model.", ["model"], registry=own, multiprocess_mode="livemax"
        )

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def batch(self, histories: int) -> None:
        """Count a pass over P."""
        self._histories.inc(histories)
        self._batches.observe(histories)

    def serving(self, model: str, items: int) -> None:
        """Say that a model of this name, of so many items, is answered from, from now on."""
        self._workers.set(1)
        self._loaded.labels(model).set_to_current_time()
        self._items.labels(model).set(items)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it; of all workers if there are several."""
        if FOLDER not in os.environ:
            return prometheus.generate_latest(self._registry)
        everyone = prometheus.CollectorRegistry()
        multiprocess.MultiProcessCollector(everyone)  # type: ignore[no-untyped-call]
        return prometheus.generate_latest(everyone)


def reload_counter() -> prometheus.Counter:
    """Counts reloads of the model file by outcome: ``changed``, ``unchanged`` or ``rejected``; for the supervisor."""
    return prometheus.Counter(
        "deql_reloads", "Reloads of the model file.", ["outcome"], registry=prometheus.CollectorRegistry()
    )


class UpdateMetrics:
    """Counts updates of served models and their seconds; for the supervisor."""

    def __init__(self) -> None:
        own = prometheus.CollectorRegistry()
        self._updates = prometheus.Counter("deql_updates", "Updates of models.", ["outcome"], registry=own)
        self._seconds = prometheus.Histogram(
            "deql_update_seconds", "From a batch of changes to the swap of its model.", registry=own,
            buckets=_UPDATE_SECONDS,
        )  # fmt: skip

    def done(self, outcome: str, seconds: float) -> None:
        """Count one: ``updated``, ``refused`` or ``failed``; the seconds are those of models that were updated."""
        self._updates.labels(outcome).inc()
        if outcome == "updated":
            self._seconds.observe(seconds)


def notify_systemd(*lines: str) -> None:
    """Tell systemd, if it started the server (``Type=notify``), lines such as ``READY=1``."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # a name without a file
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(address)
        sender.sendall("\n".join(lines).encode())


def forget_process(pid: int, folder: str) -> None:
    """Take a worker that has ended out of the numbers that count those that live; for the supervisor."""
    multiprocess.mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]
