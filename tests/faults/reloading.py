"""A server's reload in one process: the supervisor's own steps, and a worker that does what workers do."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import deql
from deql.errors import DeqlError
from deql.io.model_file import checksum
from deql.serve import serving_model, shared_model, snapshot, worker
from deql.serve.serving_model import ModelHolder, Query, ServingModel
from deql.serve.settings import Settings
from deql.serve.shared_model import SharedModel, WorkerError
from tests.fixtures.write_files import interactions

NAME = "shop"


class ReloadRefusedError(DeqlError):
    """What the supervisor said."""


class _Worker:
    """Prepares and swaps as a worker's process does, without the process."""

    pid, ready = 1, True

    def __init__(self, settings: Settings, first: Mapping[str, int]) -> None:
        self._settings = settings
        self.holder = ModelHolder(self._opened(first))
        self._next: ServingModel | None = None

    def ask(self, body: Mapping[str, Any], files: Mapping[str, int] | None, seconds: float) -> None:
        try:
            if body["kind"] == "swap":
                assert self._next is not None
                self.holder.swap(self._next)
            self._next = None if files is None else self._opened(files)
        except Exception as error:
            raise WorkerError(str(error) or type(error).__name__) from None

    def kill(self) -> None:
        raise AssertionError("the worker has not the new model")

    def _opened(self, files: Mapping[str, int]) -> ServingModel:
        """As a worker does it, which is handed files of its own."""
        return worker._open(self._settings, NAME, {name: os.dup(file) for name, file in files.items()})


class Reloading:
    """From one model to another and back."""

    def __init__(self) -> None:
        logging.getLogger("deql.serve").setLevel(logging.CRITICAL + 1)  # it tells of every fault
        serving_model._RELEASE_SECONDS = 0.0  # else every old model is waited for
        shared_model._NICE = 0  # nobody asks meanwhile
        self._folder = tempfile.TemporaryDirectory(prefix="deql-reload-")
        self._path = Path(self._folder.name) / "shop.deql"
        self._models = [deql.EASE(l2=l2).fit(interactions()) for l2 in (1.0, 2.0)]
        self._models[0].save(self._path)
        settings = Settings({NAME: str(self._path)})
        first = snapshot.take(self._path)
        self._worker = _Worker(settings, first.files)
        self._shared = SharedModel(settings, {NAME: first}, self._folder.name, lambda: None)
        self._shared.workers[1] = self._worker  # type: ignore[assignment]
        self._turn = 0

    def close(self) -> None:
        """Listen no more, and leave nothing behind."""
        self._shared.close()
        self._shared.current[NAME].close()
        self._folder.cleanup()

    @property
    def _serving(self) -> ServingModel:
        return self._worker.holder.get()

    def prepare(self, folder: Path) -> None:
        """The other model takes the file's place: its saving is not what is tried here."""
        self._turn = 1 - self._turn
        self._models[self._turn].save(self._path)

    def act(self, folder: Path) -> str:
        before = self._shared.current[NAME].checksum
        answer = self._shared.reload()
        if "refused" in answer:
            assert self._serving.checksum == before == self._shared.current[NAME].checksum
            raise ReloadRefusedError(answer["refused"])
        return str(answer["result"]["checksum"])

    def holds(self, folder: Path, result: str) -> None:
        assert result == self._serving.checksum == checksum(self._path)
        self._answers()

    def survived(self, before: dict[str, bytes], folder: Path) -> None:
        self._answers()

    def _answers(self) -> None:
        """The model that is served answers as the file did that it is from."""
        columns, weights, _ = self._serving.known(["tea"])
        [found] = self._serving.rank([Query(columns, weights, k=3)])
        l2 = self._serving.model.fitted_params_["l2"]
        expected = self._models[0 if l2 == 1.0 else 1].recommend([["tea"]], k=3)
        assert [self._serving.items[column] for column in found.columns] == expected.ids[0].tolist()
        assert found.scores == expected.scores[0].tolist()
