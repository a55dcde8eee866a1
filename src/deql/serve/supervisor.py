"""The supervisor: it has the socket and a snapshot of the model file, and keeps workers running that answer from it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from deql.errors import DeqlError, ParameterError, reason
from deql.serve import logs, snapshot
from deql.serve.aside import aside, leave_behind
from deql.serve.door import counts_file, left
from deql.serve.host import ReloadError
from deql.serve.logs import log
from deql.serve.member import Member, WorkerError, WorkerGoneError
from deql.serve.metrics import FOLDER
from deql.serve.settings import Settings
from deql.serve.snapshot import Snapshot
from deql.serve.systemd import notify

__all__ = ["bind", "run"]

_LOAD_SECONDS = 600.0
"""For a worker to load a model; one that takes longer hangs."""

_SWAP_SECONDS = 10.0

_ROUNDS = 5
"""How often a reload begins again for workers that started meanwhile: with a model that ends them it has to end."""

_FAILED_STARTS = 5
"""Workers that end one after the other before one of them is ready: then the fault is not a worker's."""

_SLOWEST_RESTART = 5.0


def run(settings: Settings, ready: Callable[[str], None] | None = None) -> int:
    """Serve until told to end; the exit code for the program.

    Must be called in the main thread: SIGTERM and SIGINT end it in good order, SIGHUP reads the model file again.

    Parameters
    ----------
    settings : Settings
    ready : callable, optional
        Called with the server's address once every worker answers.

    Raises
    ------
    DeqlError
        If the address cannot be listened at, or the file holds no model.
    """
    if os.name != "posix":
        raise ParameterError("deql serve needs a Unix system, such as Linux or macOS")
    with bind(settings.host, settings.port) as listener:
        first = snapshot.take(Path(settings.model))
        with tempfile.TemporaryDirectory(prefix="deql-serve-", ignore_cleanup_errors=True) as folder:
            logs.configure()
            exit_code = asyncio.run(_Supervisor(settings, listener, first, folder, ready).run())
    leave_behind(exit_code)  # a model that was being copied
    return exit_code


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens at this address; who connects waits until a worker accepts."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # A name such as localhost may mean either; the older kind of address is what people then try.
        family, kind, protocol, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise ParameterError(f"there is no address {host}: {_why(error)}") from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        # A socket of another process that is bound but does not listen yet is found out only here.
        listener.listen(socket.SOMAXCONN)
    except (OSError, OverflowError) as error:
        listener.close()
        raise ParameterError(
            f"cannot listen at {host} port {port}: {_why(error)}; choose another with --port, or 0 for a free one"
        ) from None
    return listener


async def _all(futures: list[asyncio.Future[None]]) -> bool:
    await asyncio.gather(*futures)
    return True


async def _unless_gone(answer: asyncio.Future[None]) -> None:
    with contextlib.suppress(WorkerGoneError):
        await answer


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _why(error: Exception) -> str:
    return reason(error) if isinstance(error, OSError) else str(error)


class _Supervisor:
    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        first: Snapshot,
        folder: str,
        ready: Callable[[str], None] | None,
    ) -> None:
        self._settings, self._listener, self._current, self._folder = settings, listener, first, folder
        self._counts = counts_file(folder, settings.workers)
        self._ready = ready
        # Under nohup, which has hangups ignored, the server should outlive its terminal.
        self._ends_with_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()
        self._members: set[Member] = set()
        self._keepers: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._exit_code = 0
        self._failed_starts = 0
        # Held while all workers swap, and while one is handed its first model: else it might be the old one for good.
        self._handing = asyncio.Lock()
        self._reloading = asyncio.Lock()
        self._queued: asyncio.Task[dict[str, Any]] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_end, number)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        started = [loop.create_future() for _ in range(self._settings.workers)]
        self._keepers = {loop.create_task(self._keep(place, one)) for place, one in enumerate(started)}
        ending = loop.create_task(self._stopping.wait())
        await asyncio.wait({ending, loop.create_task(_all(started))}, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            self._say_ready()
        await ending
        return await self._end()

    def _say_ready(self) -> None:
        host, port = self._listener.getsockname()[:2]
        url = f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
        log(
            "start", url=url, model=self._settings.model, checksum=self._current.checksum,
            workers=self._settings.workers,
        )  # fmt: skip
        notify("READY=1", f"STATUS=serving {self._settings.model} at {url}")
        if self._ready is not None:
            self._ready(url)

    # Workers

    async def _keep(self, place: int, started: asyncio.Future[None]) -> None:
        """Keep one worker running, until the end."""
        while not self._stopping.is_set():
            ready = False
            try:
                ready = await self._run_one(place, started)
            except Exception as error:  # no more processes, say: this must go on, or nobody answers any more
                log("worker_failed", logging.ERROR, error, reason=str(error))
            self._failed_starts += not ready
            if self._failed_starts >= _FAILED_STARTS and not self._stopping.is_set():
                log("give_up", logging.CRITICAL, reason=f"{_FAILED_STARTS} workers in a row ended while starting")
                self._exit_code = 1
                self._stopping.set()
            await self._pause(min(_SLOWEST_RESTART, 0.1 * 2**self._failed_starts))

    async def _run_one(self, place: int, started: asyncio.Future[None]) -> bool:
        """Run a worker as long as it lives; whether it ever answered."""
        async with self._handing:
            member = await Member.start({FOLDER: self._folder}, self._on_request)
            self._members.add(member)
            body = {"kind": "start", "settings": self._settings.to_json(), "place": place}
            files = self._current.files | {"socket": self._listener.fileno(), "counts": self._counts}
            answer = member.ask(body, files)
        if self._stopping.is_set():  # too late to be told with the others
            member.terminate()
        try:
            await asyncio.wait_for(answer, _LOAD_SECONDS)
            member.ready, self._failed_starts = True, 0
            if not started.done():
                started.set_result(None)
        except (WorkerError, TimeoutError):  # it has logged why
            member.kill()
        status = await member.ended()
        self._members.discard(member)
        self._forget(member, place)
        if not self._stopping.is_set():
            log("worker_died", logging.ERROR, worker=member.pid, exit=status, ready=member.ready)
        return member.ready

    def _forget(self, member: Member, place: int) -> None:
        from prometheus_client.multiprocess import mark_process_dead

        try:
            left(self._counts, place)
            mark_process_dead(member.pid, self._folder)  # type: ignore[no-untyped-call]
        except Exception as error:  # only numbers are wrong then
            log("forget", logging.ERROR, error, worker=member.pid)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    # The end

    def _on_end(self, number: int) -> None:
        if self._stopping.is_set() and number == signal.SIGINT:
            self._exit_code = 128 + number
            for member in self._members:
                member.kill()
        self._stopping.set()

    async def _end(self) -> int:
        log("stop", exit=self._exit_code)
        notify("STOPPING=1")
        self._listener.close()
        for member in self._members:
            member.terminate()
        _, late = await asyncio.wait(self._keepers, timeout=self._settings.grace + 3)
        if late:
            for member in self._members:
                log("worker_killed", logging.ERROR, worker=member.pid)
                member.kill()
            await asyncio.wait(late)
        log("stopped", exit=self._exit_code)
        return self._exit_code

    # Reloading

    def _on_hangup(self) -> None:
        if self._ends_with_terminal and not _has_terminal():  # its window was closed; nobody meant a reload
            self._on_end(signal.SIGHUP)
            return
        self._background(self._reload_for(None, 0))

    def _on_request(self, member: Member, body: dict[str, Any]) -> None:
        self._background(self._reload_for(member, body["number"]))

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reload_for(self, member: Member | None, number: int) -> None:
        """Reload, and tell the worker that asked, if one did."""
        if self._queued is None:  # who asks while a reload waits for another one to end is answered by that
            self._queued = asyncio.get_running_loop().create_task(self._reload_in_turn())
        answer: dict[str, Any]
        try:
            answer = {"result": await self._queued}
        except ReloadError as error:
            answer = {"refused": str(error)}
        if member is not None:
            with contextlib.suppress(WorkerError):
                member.send({"kind": "reloaded", "number": number} | answer)

    async def _reload_in_turn(self) -> dict[str, Any]:
        async with self._reloading:
            self._queued = None
            began = time.monotonic()
            notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
            outcome = "rejected"
            try:
                changed = await self._reload()
                outcome = "changed" if changed else "unchanged"
            except Exception as error:
                foreseen = isinstance(error, DeqlError)
                log("reload", logging.ERROR, None if foreseen else error, outcome=outcome, reason=str(error))
                raise ReloadError(str(error) or type(error).__name__) from None
            finally:
                self._count(outcome)
                notify("READY=1")
            ready = sum(member.ready for member in self._members)
            seconds = round(time.monotonic() - began, 3)
            answer: dict[str, Any] = {
                "checksum": self._current.checksum, "changed": changed, "workers": ready, "seconds": seconds,
            }  # fmt: skip
            log("reload", outcome=outcome, **answer)
            return answer

    async def _reload(self) -> bool:
        """Have all workers answer from the file as it is now; whether that is another model."""
        new = await aside(snapshot.take, Path(self._settings.model), self._current.checksum)
        if new.checksum == self._current.checksum:
            new.close()
            return False
        try:
            await self._hand_out(new)
        except BaseException:
            new.close()
            raise
        return True

    async def _hand_out(self, new: Snapshot) -> None:
        """Every worker prepares the model, and only if all can, every worker swaps.

        Workers may end and start meanwhile, with the old model; those are asked in the next round.
        """
        prepared: set[Member] = set()
        for _ in range(_ROUNDS):
            asked = self._members - prepared
            await self._prepare(asked, new)
            prepared |= asked
            async with self._handing:
                if self._members <= prepared:
                    await self._swap()
                    self._current.close()
                    self._current = new
                    return
        self._tell_all({"kind": "drop"})
        raise ReloadError(f"{self._settings.model} could not be loaded: workers end again and again")

    async def _prepare(self, members: set[Member], new: Snapshot) -> None:
        answers = [member.ask({"kind": "prepare"}, new.files) for member in members]
        try:
            await asyncio.wait_for(asyncio.gather(*map(_unless_gone, answers)), _LOAD_SECONDS)
        except (WorkerError, TimeoutError) as error:
            self._tell_all({"kind": "drop"})
            raise ReloadError(f"{self._settings.model} could not be loaded: {error or 'it took too long'}") from None

    async def _swap(self) -> None:
        swapped = {member: member.ask({"kind": "swap"}) for member in self._members}
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*swapped.values(), return_exceptions=True), _SWAP_SECONDS)
        for member, answer in swapped.items():
            if answer.cancelled() or answer.exception() is not None:  # it starts again, with the new model
                log("worker_killed", logging.ERROR, worker=member.pid, reason="it did not take up the new model")
                member.kill()

    def _count(self, outcome: str) -> None:
        """Have it counted, by any one worker."""
        for member in self._members:
            with contextlib.suppress(WorkerError):
                member.send({"kind": "count", "outcome": outcome})
                return

    def _tell_all(self, body: dict[str, Any]) -> None:
        for member in self._members:
            with contextlib.suppress(WorkerError):
                member.send(body)
