"""The model that tasks on parts of the users share: every worker maps it from one path, once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from deql.errors import ClusterError, DeqlError, ModelFileError, ParameterError, name_some
from deql.io.model_file import checksum
from deql.linalg.engines.dask_cluster import Cluster, ask
from deql.linalg.engines.dask_connection import connect
from deql.linalg.engines.dask_tasks import use_one_thread
from deql.models import load
from deql.models.base import Recommender

__all__ = ["SharedModel", "cluster_with", "load_shared"]

_loading = Lock()


class SharedModel:
    """A model file or folder that all workers see.

    Parameters
    ----------
    path : path
        Where it is, here and there.

    Attributes
    ----------
    path : Path
    checksum : str
        By which workers know that theirs is the same.
    model : Recommender
        The model, checked and loaded here.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike):
            raise ParameterError(
                f"workers read the model from a path that they share, got a {type(path).__name__}: save it, and name "
                "the file",
                parameter="model",
            )
        self.path = Path(os.path.abspath(path))
        self.model = load(self.path)
        self.checksum = checksum(self.path)

    @property
    def key(self) -> tuple[str, str, int]:
        """What is sent to workers in its place: the path, the checksum, and which process sends it."""
        return str(self.path), self.checksum, os.getpid()


def load_shared(path: str, known: str, asker: int) -> Recommender:
    """The model on a worker: mapped once for the process, whatever the number of parts."""
    use_one_thread(asker)
    with _loading:
        return _load_once(path, known)


@lru_cache(maxsize=1)
def _load_once(path: str, known: str) -> Recommender:
    _check_same(path, known)
    return load(path, verify=False)  # as it was where the work was asked for


def _check_same(path: str, known: str) -> None:
    if checksum(path) != known:
        raise ModelFileError(f"{path} is another model there")


def _try_model(path: str, known: str) -> str:
    """Why a worker cannot use the model, if so."""
    try:
        _check_same(path, known)
    except (DeqlError, OSError) as error:
        return str(error)
    return ""


@contextmanager
def cluster_with(client: Any, shared: SharedModel, folder: Path | None = None) -> Iterator[Any]:
    """A client whose workers have this version of deql, the model and, if one is named, the folder.

    Raises
    ------
    ClusterError
        If the scheduler does not answer, or not all workers have these.
    """
    by_address = isinstance(client, str | os.PathLike)
    given = (None, client) if by_address else (client, None)
    with connect(*given) as connected, Cluster(connected, folder) as cluster:
        workers = cluster.look()
        said = ask(connected, connected.run, _try_model, *shared.key[:2], workers=list(workers), on_error="return")
        without = {address: str(why) for address, why in said.items() if why}
        if without:
            raise ClusterError(
                f"the workers {name_some(list(without))} do not have the model {shared.path} "
                f"({next(iter(without.values()))}): name a path that all workers share"
            )
        yield connected
