"""Whether workers are well: each is pinged now and then, and how long one has been silent is known at any time.

uvicorn's own check waits for each answer in turn, so that one worker that hangs keeps the others from being looked at.
Here nothing waits: a ping is sent, and whether it was answered is seen at the next look.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Pulses"]

_HUNG_SECONDS = 5.0
"""Of silence, after which a worker is ended and replaced."""

_STARTING_SECONDS = 20.0
"""The same for one that starts: what it imports and compiles may keep Python from answering for a while."""

_FIRST_SECONDS = 120.0
"""The same before its first answer: from a cold disk, or with little of a processor, Python itself starts slowly."""

_MOST_A_LOOK = 0.5
"""Seconds of silence that one look adds at most: who looks may have been stopped as well, and hears answers later."""

_PING_SECONDS = 0.5


@dataclass
class _Pulse:
    process: Any
    is_asked: bool = False
    has_answered: bool = False
    silence: float = 0.0
    next_ping: float = 0.0


class Pulses:
    """What is known of the workers' health. One thread looks, others may ask.

    The workers are processes of uvicorn's, each with a pipe at whose other end a thread answers pings.

    Parameters
    ----------
    is_ready : callable
        Whether the worker with a process number has ever answered requests.
    """

    def __init__(self, is_ready: Callable[[int], bool]) -> None:
        self._is_ready = is_ready
        self._of: dict[int, _Pulse] = {}
        self._looked = 0.0

    def look(self, processes: Sequence[Any], now: float) -> None:
        """Hear who answered, and ping who is to be asked again, at this time; workers not given are forgotten."""
        passed, self._looked = min(now - self._looked, _MOST_A_LOOK), now
        known = self._of
        self._of = {process.pid: known.get(process.pid) or _Pulse(process) for process in processes}
        for pulse in self._of.values():
            try:
                self._look_at(pulse, now, passed)
            except (OSError, EOFError):  # it has ended
                pulse.silence += passed

    def _look_at(self, pulse: _Pulse, now: float, passed: float) -> None:
        pipe = pulse.process.parent_conn
        if pulse.is_asked:
            pulse.silence += passed
            if pipe.poll(0):
                pipe.recv()
                pulse.is_asked, pulse.has_answered, pulse.silence = False, True, 0.0
        elif now >= pulse.next_ping:
            pipe.send(b"ping")
            pulse.is_asked, pulse.next_ping = True, now + _PING_SECONDS

    def silence(self, pid: int) -> float:
        """Seconds since a worker that is ready left a ping without an answer; 0 for others."""
        pulse = self._of.get(pid)
        return pulse.silence if pulse is not None and self._is_ready(pid) else 0.0

    def is_hung(self, pid: int | None) -> bool:
        """Whether a worker has been silent for too long."""
        pulse = self._of.get(pid or 0)
        if pulse is None:
            return False
        if not pulse.has_answered:
            return pulse.silence > _FIRST_SECONDS
        return pulse.silence > (_HUNG_SECONDS if self._is_ready(pulse.process.pid) else _STARTING_SECONDS)
