"""The process that updates a served model: at low priority, in memory of its own, from the copy that workers have.

It answers with plain values only: what was done, or why not, with the status and code of the HTTP answer.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np

from deql._system.formatting import as_json
from deql.data import Interactions
from deql.data.matrices import entry_rows
from deql.errors import DataError, DeqlError, ModelFileError, Setting, TooLargeError
from deql.io.model_file import checksum, replacing
from deql.models import load
from deql.models.linear import LinearAutoencoder
from deql.serve import monitoring
from deql.serve.shared_model import receive, send
from deql.serve.snapshot import path_of

__all__ = ["interactions_of", "main", "refused", "update_file"]

_NICE = 10
"""How much an update gives way to requests: twice as much as a reload, which takes a moment."""

_ADVICE = {
    "time": 'send a "time" with each',
    "ids": "send ids as the data have them",
    "item_features": "use deql update --item-features FILE, then reload the model",
}
"""What those who send JSON can do where others set a parameter."""


def refused(status: int, code: str, message: str) -> dict[str, Any]:
    """Why nothing was done, as a worker answers it."""
    return {"refused": {"status": status, "code": code, "message": message}}


def main(supervisor: Connection) -> None:
    """Do one update and say what came of it; ends at once if the supervisor does."""
    for ignored in (signal.SIGINT, signal.SIGHUP):  # meant for the supervisor
        signal.signal(ignored, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_supervisor, daemon=True).start()
    os.nice(_NICE)
    monitoring.configure_logs()
    body, files = receive(supervisor)
    try:
        answer = update_file(Path(body["path"]), path_of(files["model"]), body["checksum"], body["batch"])
    except MemoryError:
        answer = refused(503, "update_failed", "there is too little memory for the update: nothing was changed")
    except Exception as error:
        monitoring.log("update_failed", logging.ERROR, error)
        answer = refused(500, "internal", "something went wrong inside the update, and the server's log says more")
    send(supervisor, answer)


def _end_with_the_supervisor() -> None:
    supervisor = parent_process()
    if supervisor is not None:
        wait([supervisor.sentinel])
        os._exit(1)


def update_file(path: Path, copy: Path, served: str, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Apply a batch to the copy of a model and write that over the model's file, whole or not at all.

    Parameters
    ----------
    path : Path
        The model's file. Where it is not what is served any more it is somebody else's work, and stays.
    copy : Path
        What is served.
    served : str
        Its checksum.
    batch : mapping
        ``add`` and ``remove``, lists of records; ``forget_users``, ``retire_items``, lists of ids; ``new_users``.

    Returns
    -------
    dict
        ``report`` and the new file's ``checksum``, or what :func:`refused` gives.

    Examples
    --------
    >>> import tempfile, deql
    >>> model = deql.EASE(l2=1.0).fit(deql.Interactions.from_pairs(list("aab"), ["tea", "jam", "tea"]), keep_data=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "shop.deql"
    ...     model.save(path)
    ...     done = update_file(path, path, checksum(path), {"add": [{"user": "c", "item": "oat"}]})
    ...     deql.load(path).items_.tolist(), done["report"]["plan"]["changes"]["new_users"]
    (['jam', 'tea', 'oat'], 1)
    """
    try:
        with replacing(path, checksum(path)):
            return _update_held(path, copy, served, batch)
    except (ModelFileError, TooLargeError) as error:
        return refused(503, "update_failed", f"{error}; nothing was changed")
    except DeqlError as error:
        return refused(422, "invalid_request", _in_words(error))


def _update_held(path: Path, copy: Path, served: str, batch: Mapping[str, Any]) -> dict[str, Any]:
    """The same, while no other process updates the file."""
    if checksum(path) != served:
        return _changed(path)
    model = load(copy, verify=False)
    assert isinstance(model, LinearAutoencoder)
    model.progress = False
    with_rows = model.quantized_rows_ is not None
    report = model.update(
        interactions_of(batch.get("add", [])),
        interactions_of(batch.get("remove", [])),
        forget_users=batch.get("forget_users", []),
        retire_items=batch.get("retire_items", []),
        new_users=batch.get("new_users", False),
    )
    if checksum(path) != served:
        return _changed(path)
    model.save(path, quantized_rows=with_rows)
    return {"report": as_json(report.to_dict()), "checksum": checksum(path)}


def _changed(path: Path) -> dict[str, Any]:
    return refused(
        409, "model_changed", f"{path} is not the model that is served any more: reload it first, then update it"
    )


def _in_words(error: DeqlError) -> str:
    """An error's sentence, with advice that can be followed here."""
    named = [part.name for part in error.args if isinstance(part, Setting) and part.name in _ADVICE]
    what = str(error.args[0]).rpartition(": ")[0]
    return f"{what}: {_ADVICE[named[0]]}" if named and what else str(error)


def interactions_of(records: Sequence[Mapping[str, Any]]) -> Interactions | None:
    """Records of ``user``, ``item`` and perhaps ``weight`` and ``time`` as interactions; None if there are none.

    Without any weight a pair that comes twice counts once, else weights add up, one that is not given being 1. A pair's
    time is its latest.

    Examples
    --------
    >>> records = [{"user": 7, "item": "tea", "time": 3}, {"user": 7, "item": "tea", "time": 5}]
    >>> found = interactions_of(records)
    >>> found.matrix.toarray().tolist(), found.times.tolist()
    ([[1.0]], [5.0])
    """
    if not records:
        return None
    users, items = ([record[name] for record in records] for name in ("user", "item"))
    weighted = any("weight" in record for record in records)
    found = Interactions.from_pairs(
        users, items, [record.get("weight", 1.0) for record in records] if weighted else None
    )
    times = [record["time"] for record in records if "time" in record]
    if not times:
        return found
    if len(times) < len(records):
        raise DataError(
            f"{len(records) - len(times):,} of {len(records):,} records have no time: give all one, or none"
        )
    keys = entry_rows(found.matrix) * found.n_items + found.matrix.indices
    pairs = np.array(
        [
            found.user_index[user] * found.n_items + found.item_index[item]
            for user, item in zip(users, items, strict=True)
        ]
    )
    stays = np.isin(pairs, keys)  # weights below 0 may add up to nothing
    latest = np.full(found.n_interactions, -np.inf)
    np.maximum.at(latest, np.searchsorted(keys, pairs[stays]), np.array(times, np.float64)[stays])
    return replace(found, times=latest)
