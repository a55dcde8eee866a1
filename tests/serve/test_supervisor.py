"""Workers that hang are noticed soon, replaced, and kept waiting for by nobody."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from types import SimpleNamespace

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("uvicorn", reason="needs the extra serve")

from deql.io.model_file import checksum
from deql.serve import pulse, supervisor
from deql.serve.monitoring import JsonLogFormatter
from deql.serve.pulse import Pulses
from deql.serve.settings import Settings
from tests.serve.running import Server, is_running, save_model, wait_for

pytestmark = [pytest.mark.serve, pytest.mark.slow]

_SECONDS = 15.0
"""For a worker to be missed and a new one to be there, on a busy machine; the first alone takes 5.5."""


@contextmanager
def two_workers(folder):
    running = Server(save_model(folder / "shop.deql"), folder / "log", workers=2, threads=1, token="tea")
    try:
        yield running.wait()
    finally:
        left = running.workers() if running.process.poll() is None else []
        running.close()
        for pid in left:  # who is stopped does not hear that the server is gone
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    return time.monotonic()


def test_a_worker_that_hangs_is_replaced(tmp_path):
    with two_workers(tmp_path) as running:
        old = running.workers()
        began = stop(old[0])
        wait_for(lambda: len(set(running.workers()) - set(old)) == 1, _SECONDS)
        assert time.monotonic() - began < _SECONDS
        assert not is_running(old[0])
        assert running.events("worker_died")[-1]["worker"] == old[0]
        assert running.events("worker_died")[-1]["hung"]
        wait_for(lambda: running.reload()[1]["workers"] == 2, _SECONDS)  # who has only just started has more time
        # All of them, so that whoever asks waits for one that is well.
        workers = running.workers()
        for pid in workers:
            stop(pid)
        running.recommend()
        wait_for(lambda: len(running.workers()) == 2 and not set(running.workers()) & set(workers), _SECONDS)
        assert running.end() == 0


def test_a_worker_that_dies_does_not_wait_for_one_that_hangs(tmp_path):
    with two_workers(tmp_path) as running:
        hung, dead = running.workers()
        stop(hung)
        # By then it is asked whether it is well, which cannot be seen from here.
        time.sleep(pulse._PING_SECONDS + 2 * supervisor._CHECK_SECONDS)
        os.kill(dead, signal.SIGKILL)
        began = time.monotonic()
        wait_for(lambda: len(set(running.workers()) - {hung, dead}) == 1, _SECONDS)
        assert is_running(hung)  # the other was replaced before this one was missed
        assert time.monotonic() - began < pulse._HUNG_SECONDS


def test_a_reload_does_not_wait_for_a_worker_that_hangs(tmp_path):
    with two_workers(tmp_path) as running:
        old = running.workers()
        save_model(running.model, l2=2.0)
        began = stop(old[0])
        running.process.send_signal(signal.SIGHUP)
        [told] = wait_for(lambda: running.events("reload"), _SECONDS)
        assert time.monotonic() - began < pulse._HUNG_SECONDS
        assert told["outcome"] == "changed"
        assert running.recommend() == checksum(running.model)
        wait_for(lambda: len(set(running.workers()) - set(old)) == 1, _SECONDS)
        wait_for(lambda: len([one for one in running.workers() if one != old[0]]) == 2, _SECONDS)
        assert {running.recommend() for _ in range(20)} == {checksum(running.model)}  # the new one has it, too


class FakeProcess:
    """A worker of uvicorn's that answers pings if it is told to."""

    def __init__(self, pid):
        self.pid = pid
        self.parent_conn, self._theirs = Pipe()

    def answer(self):
        while self._theirs.poll():
            assert self._theirs.recv() == b"ping"
            self._theirs.send(True)


class LateProcess:
    """A worker that has ended, or ends some looks after it was killed."""

    def __init__(self, pid, looks):
        self.pid, self.process, self._looks, self.killed = pid, self, looks, 0

    def is_alive(self):
        self._looks -= self.killed > 0
        return self._looks > 0

    def kill(self):
        self.killed += 1


def test_who_does_not_end_is_killed_once(tmp_path, monkeypatch, caplog):
    now = 0.0

    def sleep(seconds):
        nonlocal now
        now += seconds

    monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    ended, late = LateProcess(7, 0), LateProcess(8, 5)
    with socket.socket() as listener:
        ending = supervisor.Supervisor(Settings({"shop": "shop.deql"}), listener, {}, str(tmp_path), None)
        ending._manager = SimpleNamespace(processes=[ended, late], terminate_all=lambda: None, signal_queue=[])
        ending._end()
        ending._share.close()
    assert (ended.killed, late.killed) == (0, 1)
    [told] = [json.loads(JsonLogFormatter().format(one)) for one in caplog.records if one.message == "worker_killed"]
    assert told["worker"] == 8


def test_silence():
    now, pulses = 100.0, Pulses(lambda pid: pid < 9)
    well, silent, starting, unheard = (FakeProcess(pid) for pid in (7, 8, 9, 10))
    processes = [well, silent, starting, unheard]

    def look(seconds, step=0.1):
        nonlocal now
        for _ in range(round(seconds / step)):
            now += step
            pulses.look(processes, now)
            well.answer()

    pulses.look(processes, now)
    silent.answer()
    starting.answer()
    look(4.9)
    assert (pulses.silence(7), pulses.silence(9)) == (pytest.approx(0.0, abs=0.2), 0.0)
    assert pulses.silence(8) == pytest.approx(4.4, abs=0.3)  # from the second ping on
    assert not any(pulses.is_hung(pid) for pid in (7, 8, 9))
    look(0.9)
    assert [pulses.is_hung(pid) for pid in (7, 8, 9)] == [False, True, False]  # who starts has more time
    look(15)
    assert [pulses.is_hung(pid) for pid in (9, 10)] == [True, False]  # who has never answered has yet more
    look(100)
    assert pulses.is_hung(10)
    silent.answer()
    look(0.2)
    assert not pulses.is_hung(8)
    silent._theirs.close()  # it ends
    look(1.0)
    processes.remove(silent)
    look(0.1)
    assert not pulses.is_hung(8)
    look(3600, step=3600)  # who looks was stopped itself
    assert not pulses.is_hung(7)
