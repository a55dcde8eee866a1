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
from deql.serve import serving_model, shared_model, snapshot
from deql.serve.serving_model import ModelHolder, Query, ServingModel
from deql.serve.settings import Settings
from deql.serve.shared_model import SharedModel, WorkerError
from deql.serve.snapshot import attach_rows, path_of
from tests.fixtures.write_files import interactions


class ReloadRefusedError(DeqlError):
    """What the supervisor said."""


class _Worker:
    """Prepares and swaps as a worker's process does, without the process."""

    pid, ready = 1, True

    def __init__(self, first: ServingModel) -> None:
        self.holder = ModelHolder(first)
        self._next: ServingModel | None = None

    def ask(self, body: Mapping[str, Any], files: Mapping[str, int] | None, seconds: float) -> None:
        try:
            if body["kind"] == "swap":
                assert self._next is not None
                self.holder.swap(self._next)
            self._next = None if files is None else _opened(files)
        except Exception as error:
            raise WorkerError(str(error) or type(error).__name__) from None

    def kill(self) -> None:
        raise AssertionError("the worker has not the new model")


def _opened(files: Mapping[str, int]) -> ServingModel:
    serving = ServingModel.open(path_of(files["model"]), verify=False)
    if "rows" in files:
        attach_rows(serving.model, files["rows"])
    serving.warm()
    return serving


class Reloading:
    """From one model to another and back."""

    def __init__(self) -> None:
        logging.getLogger("deql.serve").setLevel(logging.CRITICAL + 1)  # it tells of every fault
        serving_model._RELEASE_SECONDS = 0.0  # else every old model is waited for
        shared_model._NICE = 0  # nobody asks meanwhile
        self._folder = Path(tempfile.mkdtemp(prefix="deql-reload-"))
        self._models = [deql.EASE(l2=l2).fit(interactions()) for l2 in (1.0, 2.0)]
        self._models[0].save(self._folder / "shop.deql")
        first = snapshot.take(self._folder / "shop.deql")
        self._worker = _Worker(_opened(first.files))
        settings = Settings(str(self._folder / "shop.deql"))
        self._shared = SharedModel(settings, first, str(self._folder), lambda: None)
        self._shared.workers[1] = self._worker  # type: ignore[assignment]
        self._turn = 0

    def prepare(self, folder: Path) -> None:
        (folder / "unused").touch()

    def act(self, folder: Path) -> str:
        path = self._folder / "shop.deql"
        if checksum(path) == self._worker.holder.current.checksum:  # else the last reload was refused
            self._turn = 1 - self._turn
            usual = path.with_name("next.deql")
            self._models[self._turn].save(usual)
            os.replace(usual, path)
        before = self._shared.current.checksum
        answer = self._shared.reload()
        if "refused" in answer:
            assert self._worker.holder.current.checksum == before == self._shared.current.checksum
            raise ReloadRefusedError(answer["refused"])
        return str(answer["result"]["checksum"])

    def holds(self, folder: Path, result: str) -> None:
        assert result == self._worker.holder.current.checksum == checksum(self._folder / "shop.deql")
        self._answers()

    def survived(self, before: dict[str, bytes], folder: Path) -> None:
        self._answers()

    def _answers(self) -> None:
        """The model that is served answers as the file did that it is from."""
        serving = self._worker.holder.current
        columns, _ = serving.known(["tea"])
        [found] = serving.rank([Query(columns, k=3)])
        l2 = serving.model.fitted_params_["l2"]
        expected = self._models[0 if l2 == 1.0 else 1].recommend([["tea"]], k=3)
        assert [serving.items[column] for column in found.columns] == expected.ids[0].tolist()
        assert found.scores == expected.scores[0].tolist()
