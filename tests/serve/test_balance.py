"""Who takes the next connection."""

from __future__ import annotations

import array
import asyncio
import errno
import fcntl
import socket
import time
from itertools import pairwise

import pytest

from deql.serve import balance
from deql.serve.balance import _NOBODY, BalancedServer, prepare_counts
from deql.serve.monitoring import FOLDER, JsonLogFormatter

pytestmark = pytest.mark.serve


class Listener:
    """A socket that always has somebody waiting, or fails to say so."""

    def __init__(self):
        self._near, self._far = socket.socketpair()
        self._far.send(b"x")  # readable from now on
        self.failure, self.callers = None, []
        self.times = []  # at which it was asked

    def fileno(self):
        return self._near.fileno()

    def setblocking(self, flag):
        assert flag is False

    def accept(self):
        self.times.append(time.monotonic())
        if self.failure is not None:
            raise self.failure
        ours, theirs = socket.socketpair()
        self.callers.append(theirs)
        return ours, None

    async def pauses(self, count):
        """The seconds between this many times that it is asked from now on."""
        first = len(self.times)
        while len(self.times) <= first + count:
            await asyncio.sleep(0.001)
        return [later - sooner for sooner, later in pairwise(self.times[first : first + count + 1])]

    def close(self):
        for one in (self._near, self._far, *self.callers):
            one.close()


class Talk(asyncio.Protocol):
    def __init__(self, connections):
        self._connections = connections

    def connection_made(self, transport):
        self._connections.add(self)

    def connection_lost(self, error):
        self._connections.discard(self)


class Other:
    """Another worker, as this one sees it: a count in the file, in a place of its own."""

    def __init__(self, path):
        self._path = path
        self.say(0)

    def say(self, count):
        with self._path.open("r+b") as file:
            file.write(array.array("i", [count]).tobytes())

    @property
    def counts(self):
        return array.array("i", self._path.read_bytes()).tolist()


@pytest.fixture
def other(tmp_path, monkeypatch):
    """The first of two workers; its place is taken."""
    path = tmp_path / "counts"
    path.write_bytes(array.array("i", [_NOBODY] * 3).tobytes())
    lock = fcntl.lockf

    def taken(file, flags, length, start):
        if start == 0:
            raise BlockingIOError
        lock(file, flags, length, start)

    monkeypatch.setattr(fcntl, "lockf", taken)
    return Other(path)


def watch(other, happen):
    """Run ``happen(listener, connections)`` with a server that takes connections from the listener."""

    async def with_a_server():
        listener, connections = Listener(), set()
        loop = asyncio.get_running_loop()
        balanced = BalancedServer(loop, listener, lambda: Talk(connections), other._path)
        try:
            await happen(listener, connections)
        finally:
            if listener.failure is None:
                listener.failure = BlockingIOError()  # nobody waits any more
            balanced.close()
            seen = len(listener.times)
            await asyncio.sleep(0.02)
            assert len(listener.times) == seen  # it takes no more, though it may have been waiting to
        return other.counts

    return asyncio.run(with_a_server())


def test_as_many_places_as_old_and_new_workers_need(tmp_path, monkeypatch, caplog):
    prepare_counts(str(tmp_path), 2)
    [counts] = tmp_path.iterdir()
    assert array.array("i", counts.read_bytes()).tolist() == [_NOBODY] * 5
    monkeypatch.setenv(FOLDER, str(tmp_path))
    taken = set(range(4))

    def lock(file, flags, length, start):
        if start // 4 in taken:
            raise BlockingIOError
        taken.add(start // 4)

    monkeypatch.setattr(fcntl, "lockf", lock)

    async def start(loop, listener):
        return await loop.create_server(lambda: Talk(set()), sock=listener)

    listener, loop = Listener(), balance.new_event_loop()
    listener.failure = BlockingIOError()
    try:
        loop.run_until_complete(start(loop, listener)).close()
        with pytest.raises(SystemExit):
            loop.run_until_complete(start(loop, listener))
    finally:
        loop.close()
        listener.close()
    [record] = [record for record in caplog.records if record.getMessage() == "worker_failed"]
    assert "all 5 places for counts of connections are taken" in JsonLogFormatter().format(record)


def test_who_has_more_waits(other, monkeypatch):
    monkeypatch.setattr(balance, "_MOMENT", 0.01)

    async def happen(listener, connections):
        assert min(await listener.pauses(5)) >= 0.009  # the other has fewer, but does not take any
        other.say(2**20)
        assert min(await listener.pauses(5)) < 0.009
        other.say(0)
        assert max(await listener.pauses(5)) >= 0.009
        other.say(_NOBODY)  # nobody waits for who is gone
        assert min(await listener.pauses(5)) < 0.009
        assert len(connections) > 10
        other.say(5)

    assert watch(other, happen) == [5, _NOBODY, _NOBODY]  # nor for this worker, once it takes no more


def test_no_more_descriptors(other, monkeypatch, caplog):
    monkeypatch.setattr(balance, "_FULL_SECONDS", 0.01)

    async def happen(listener, connections):
        listener.failure = OSError(errno.EMFILE, "Too many open files")
        assert min((await listener.pauses(3))[1:]) >= 0.009  # not as often as the loop turns
        assert "accept" in caplog.messages
        listener.failure = BlockingIOError()  # another took it
        await listener.pauses(3)
        assert not connections
        listener.failure = None
        await listener.pauses(3)
        assert connections

    watch(other, happen)
