"""The connection to a Dask cluster: a client that is given, or one of a scheduler that was looked at first."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from deql.errors import ClusterError, ParameterError, Setting

__all__ = ["check_connection", "connect", "has_cluster", "missing_dask", "own_address"]

_PATIENCE = 5
"""Seconds until a scheduler that does not answer is given up."""


def missing_dask() -> str | None:
    """Why there can be no cluster here, if so."""
    import importlib.util

    if importlib.util.find_spec("distributed") is None:
        return 'dask is not installed: pip install "deql[cluster]"'
    return None


def check_connection(client: Any, scheduler: Any) -> None:
    """Raise ParameterError unless an engine was given a client or a scheduler, or neither of them."""
    if client is not None and scheduler is not None:
        raise ParameterError("the engine takes a client or a scheduler, not both", parameter="scheduler")
    if client is not None and not all(hasattr(client, verb) for verb in ("submit", "scheduler_info")):
        raise ParameterError(f"client must be a distributed.Client, got {type(client).__name__}", parameter="client")
    if scheduler is not None and not isinstance(scheduler, str | os.PathLike):
        raise ParameterError(
            f"scheduler must be an address or a file, got {type(scheduler).__name__}", parameter="scheduler"
        )


def own_address(client: Any, scheduler: str | os.PathLike[str] | None) -> str | os.PathLike[str] | None:
    """By which another process connects by itself to what an engine has a connection to."""
    return scheduler if client is None else str(client.scheduler.address)


@contextmanager
def connect(client: Any = None, scheduler: str | os.PathLike[str] | None = None) -> Iterator[Any]:
    """The client that is given, one of the scheduler at an address or in a file, or the process's current one.

    Raises
    ------
    ClusterError
        If there is none, or it does not answer.
    """
    if missing := missing_dask():
        raise ClusterError(missing)
    import distributed

    if client is None and scheduler is None:
        with suppress(ValueError):
            client = distributed.default_client()
        if client is None:
            raise ClusterError(
                "no Dask cluster is named: say ",
                Setting("scheduler", None, "engine=deql.engines.Dask(scheduler='tcp://…:8786')"),
            )
    if client is not None:
        if client.status != "running":
            raise ClusterError(f"the Dask client is {client.status}: connect it to a scheduler")
        yield client
        return
    assert scheduler is not None
    with _new_client(scheduler) as own:
        yield own


def has_cluster(client: Any = None, scheduler: str | os.PathLike[str] | None = None) -> bool:
    """Whether there is a cluster to connect to.

    Examples
    --------
    >>> has_cluster(scheduler="no such file")
    False
    """
    try:
        with connect(client, scheduler):
            return True
    except ClusterError:
        return False


def _new_client(scheduler: str | os.PathLike[str]) -> Any:
    import distributed

    text = os.fspath(scheduler)
    if not text:
        raise ClusterError("the scheduler's address is empty: say one such as tcp://host:8786, or the scheduler's file")
    address = text if "://" in text else _address_in(Path(text))
    with _quiet("distributed.client", "distributed.comm", "distributed.core"):
        try:
            # In a thread, as the one of a notebook runs such a loop already.
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, _answer(address)).result()
            return distributed.Client(address, timeout=_PATIENCE, set_as_default=False)
        except (OSError, MemoryError):  # that time ran out, or another's words were taken for a length
            raise ClusterError(f"no Dask scheduler answers at {text}: start one there, or name another") from None
        except (ValueError, KeyError, TypeError):
            raise ClusterError(f"{text} names no Dask scheduler: say an address such as tcp://host:8786") from None


def _address_in(file: Path) -> str:
    """What a scheduler wrote of itself."""
    if not os.path.isfile(file):  # as a name that is too long is none
        raise ClusterError(f"there is no scheduler file {file}: name one, or an address such as tcp://host:8786")
    try:
        return str(json.loads(file.read_bytes())["address"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ClusterError(
            f"{file} is no scheduler file: name one that a scheduler wrote, or an address such as tcp://host:8786"
        ) from None


async def _answer(address: str) -> None:
    """Raise OSError if no scheduler answers: a client waits for ever where something else listens."""
    import distributed

    options = distributed.Security().get_connection_args("client")
    async with asyncio.timeout(_PATIENCE):
        async with distributed.rpc(address, timeout=_PATIENCE, connection_args=options) as scheduler:
            found = await scheduler.identity()
    if "workers" not in found:
        raise OSError("what answers is a worker")


@contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """While it is entered these loggers say nothing: what they would say is told once, as an error."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
