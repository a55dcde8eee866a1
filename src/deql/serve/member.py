"""A worker as the supervisor sees it: a process, and what was asked of it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from deql.errors import DeqlError
from deql.serve.channel import Channel, pair

__all__ = ["Member", "WorkerError", "WorkerGoneError"]

_PATIENCE = 10.0
"""Seconds for a message to be sent or to arrive whole; they are small, so that only a stopped process takes longer."""


class WorkerError(DeqlError):
    """A worker that is gone, or says that it cannot do what it was asked."""


class WorkerGoneError(WorkerError):
    """A worker that ended, or cannot be reached; another one will take its place."""


class Member:
    """One worker.

    Attributes
    ----------
    ready : bool
        Whether it has ever answered requests.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        channel: Channel,
        on_request: Callable[[Member, dict[str, Any]], None],
    ) -> None:
        self._process, self._channel, self._on_request = process, channel, on_request
        self._asked: dict[int, asyncio.Future[None]] = {}
        self._numbers = itertools.count()
        self.ready = False
        asyncio.get_running_loop().add_reader(channel.fileno(), self._receive)

    @classmethod
    async def start(
        cls, environment: Mapping[str, str], on_request: Callable[[Member, dict[str, Any]], None]
    ) -> Member:
        """A new process; ``on_request`` is called with what it asks for.

        It finds modules where this one does, but not in the folder that it happens to be started in (``-P``). It has a
        process group of its own: a terminal's Ctrl-C is for the supervisor alone.
        """
        ours, theirs = pair(_PATIENCE)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "deql.serve.worker", str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL, pass_fds=[theirs.fileno()], env=os.environ | environment,
                process_group=0,
            )  # fmt: skip
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return cls(process, ours, on_request)

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def send(self, body: Mapping[str, Any], files: Mapping[str, int] | None = None) -> None:
        """Send a message that needs no answer."""
        try:
            self._channel.send(body, files)
        except OSError as error:
            raise WorkerGoneError(f"worker {self.pid} cannot be reached: {error}") from None

    def ask(self, body: Mapping[str, Any], files: Mapping[str, int] | None = None) -> asyncio.Future[None]:
        """Send a message; the future is done when the worker has done what it says, or fails with a WorkerError.

        Each has a number, as the answer to a question that nobody waits for any more may still come.
        """
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self.send({**body, "number": number}, files)
        except WorkerError as error:
            answer.set_exception(error)
        return answer

    async def ended(self) -> int:
        """Wait until the process is gone; its exit status, or minus the signal that ended it."""
        status = await self._process.wait()
        self._lose()
        return status

    def terminate(self) -> None:
        """Ask it to end in good order."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """End it now."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def _receive(self) -> None:
        try:
            message = self._channel.receive()
        except OSError:
            message = None
        if message is None:
            self._lose()
        elif message.body["kind"] == "done":
            answer = self._asked.pop(message.body["number"], None)
            if answer is None or answer.done():
                return
            if "failed" in message.body:
                answer.set_exception(WorkerError(message.body["failed"]))
            else:
                answer.set_result(None)
        else:
            self._on_request(self, message.body)

    def _lose(self) -> None:
        """It will not answer any more."""
        if self._channel.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._channel.fileno())
            self._channel.close()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(WorkerGoneError(f"worker {self.pid} ended"))
        self._asked.clear()
