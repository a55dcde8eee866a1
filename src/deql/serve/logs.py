"""Logs for machines: one JSON object a line on standard error, from the supervisor, the workers and uvicorn alike."""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from typing import Any

__all__ = ["JsonLines", "configure", "log"]

_LOGGER = logging.getLogger("deql.serve")
_LONGEST_TRACE = 8000


class JsonLines(logging.Formatter):
    """One line for each record, whatever its texts hold.

    Examples
    --------
    >>> record = logging.LogRecord("deql.serve", logging.INFO, "", 0, "stop", None, None)
    >>> record.created, record.msecs, record.process, record.fields = 0.25, 250.0, 7, {"reason": "tea\\nfor two"}
    >>> JsonLines().format(record)
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


def configure() -> None:
    """Send what is logged in this process to standard error, this way; uvicorn's notes about itself are left out."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
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
