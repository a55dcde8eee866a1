"""Who takes the next connection."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from itertools import pairwise

import pytest

from deql.serve import door as door_module
from deql.serve.door import Counts, Door, counts_file, left

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


@pytest.fixture
def others(tmp_path):
    """The file of two workers' counts; the other one's is in place 1."""
    file = counts_file(str(tmp_path), 2)
    yield file
    os.close(file)


def watch(others, happen):
    """Run ``happen(listener, connections)`` with a door open to the listener."""

    async def with_a_door():
        listener, connections, counts = Listener(), set(), Counts(others, 0)
        door = Door(listener, counts, connections, lambda: Talk(connections))
        try:
            await happen(listener, connections)
        finally:
            door.close()
            seen = len(listener.times)
            await asyncio.sleep(0.02)
            assert len(listener.times) == seen  # it takes no more, though it may have been waiting to
        return counts.least

    return asyncio.run(with_a_door())


def test_who_has_more_waits(others, monkeypatch):
    monkeypatch.setattr(door_module, "_MOMENT", 0.01)
    other = Counts(others, 1)

    async def happen(listener, connections):
        assert min(await listener.pauses(5)) >= 0.009  # the other has fewer, but does not take any
        other.say(2**20)
        assert min(await listener.pauses(5)) < 0.009
        other.say(0)
        assert max(await listener.pauses(5)) >= 0.009
        left(others, 1)  # nobody waits for who is gone
        assert min(await listener.pauses(5)) < 0.009
        assert len(connections) > 10
        other.say(5)

    assert watch(others, happen) == 5  # nor for this worker, once its door is closed


def test_no_more_descriptors(others, monkeypatch, caplog):
    monkeypatch.setattr(door_module, "_FULL_SECONDS", 0.01)

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

    watch(others, happen)
