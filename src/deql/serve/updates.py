"""Updates of served models, as the supervisor does them: a process for each, then a reload of that one model."""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deql.errors import ModelFileError, reason
from deql.io.atomic import remove_stale
from deql.io.model_file import checksum
from deql.serve import update_process
from deql.serve.monitoring import UpdateMetrics, log
from deql.serve.settings import Settings
from deql.serve.shared_model import SharedModel, receive, send
from deql.serve.update_process import refused

__all__ = ["Updates"]

_SPAWN = multiprocessing.get_context("spawn")

_END_SECONDS = 5.0
"""For a process to end that has answered, or was killed."""


class Updates:
    """Has batches applied to the models' files, one at a time for each model, and the result served.

    Parameters
    ----------
    settings : Settings
    share : SharedModel
        The models as they are served.
    """

    def __init__(self, settings: Settings, share: SharedModel) -> None:
        self._settings, self._share = settings, share
        self._busy = {name: threading.Lock() for name in settings.models}
        self._starting = threading.Lock()
        self._processes: set[Any] = set()
        self._is_closed = False
        self._metrics = UpdateMetrics()

    def close(self) -> None:
        """End what is under way, now; files stay what they were, and who waits is told."""
        with self._starting:
            self._is_closed = True
            for process in self._processes:
                process.kill()

    def update(self, name: str, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Apply a batch to the model of this name: the ``result``, or why it was ``refused``."""
        if not self._busy[name].acquire(blocking=False):
            return refused(409, "update_running", f"another update of {name} is under way: try again when it is done")
        began, answer = time.monotonic(), refused(500, "internal", "the server could not begin the update")
        try:
            answer = self._update(name, batch)
            return answer
        finally:
            self._busy[name].release()
            self._tell(name, answer, time.monotonic() - began)

    def _update(self, name: str, batch: Mapping[str, Any]) -> dict[str, Any]:
        began, path = time.monotonic(), Path(self._settings.models[name])
        done = self._in_a_process(name, path, batch)
        if "refused" in done:
            return done
        try:
            self._share.take_up(name)
        except Exception as error:
            return refused(
                409, "model_rejected", f"{path} was updated, but the server goes on with the model it had: {error}"
            )
        seconds = round(time.monotonic() - began, 3)
        served = {"checksum": done["checksum"], "workers": self._share.ready, "seconds": seconds}
        return {"result": {"model": name, **served, "report": done["report"]}}

    def _in_a_process(self, name: str, path: Path, batch: Mapping[str, Any]) -> dict[str, Any]:
        ours, theirs = _SPAWN.Pipe()
        copy, served = self._share.copy_of(name)
        process = _SPAWN.Process(target=update_process.main, args=(theirs,), daemon=True)
        try:
            with ours:
                with theirs, self._starting:
                    if self._is_closed:
                        raise EOFError
                    process.start()
                    self._processes.add(process)
                send(ours, {"path": str(path), "checksum": served, "batch": dict(batch)}, {"model": copy})
                answer, _ = receive(ours)
                return answer
        except (EOFError, OSError) as error:  # it has ended, or could not be started
            self._await_end(process)
            remove_stale(path)
            if self._is_closed:
                why = "the server is ending"
            elif process.exitcode is None and isinstance(error, OSError):
                why = reason(error)
            else:
                why = f"its process ended with exit code {process.exitcode}, perhaps for lack of memory"
            return _ended(path, served, why)
        finally:
            os.close(copy)
            self._await_end(process)

    def _await_end(self, process: Any) -> None:
        if process in self._processes:
            process.join(_END_SECONDS)
            with self._starting:
                self._processes.discard(process)

    def _tell(self, name: str, answer: Mapping[str, Any], seconds: float) -> None:
        """Count it and log it: numbers only, as what is wrong with a batch may name people."""
        about: dict[str, Any] = {"name": name, "seconds": round(seconds, 3)}
        if "result" in answer:
            self._metrics.done("updated", seconds)
            report = answer["result"]["report"]
            about |= {"checksum": answer["result"]["checksum"], "method": report["method"]}
            log("update", outcome="updated", **about, **report["plan"]["changes"])
            return
        why = answer["refused"]
        outcome = "failed" if why["status"] >= 500 else "refused"
        self._metrics.done(outcome, seconds)
        said = {} if why["code"] == "invalid_request" else {"reason": why["message"]}
        level = logging.ERROR if outcome == "failed" else logging.INFO
        log("update", level, outcome=outcome, code=why["code"], **about, **said)


def _ended(path: Path, served: str, why: str) -> dict[str, Any]:
    """What is said of an update that did not come to its end: the file may be new by then, if only just."""
    try:
        is_old = checksum(path) == served
    except ModelFileError:
        is_old = False
    what = "the model is as it was" if is_old else f"{path} is not the model that is served: reload it"
    return refused(503, "update_failed", f"the update was not done: {why}; {what}")
