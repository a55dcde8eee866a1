"""How a server begins and ends."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
from types import SimpleNamespace

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("uvicorn", reason="needs the extra serve")

from deql.errors import ModelFileError, ParameterError
from deql.serve import logs, member, supervisor
from deql.serve.channel import pair
from deql.serve.host import ReloadError
from deql.serve.settings import Settings
from tests.serve.running import Server, is_running, save_model, wait_for

pytestmark = pytest.mark.serve


_UNDER_NOHUP = """
import fcntl, signal, termios
fcntl.ioctl(0, termios.TIOCSCTTY)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
"""

_ENDLESS_RELOADS = """
import time
from pathlib import Path
from deql.serve import snapshot
take = snapshot.take
def endless(path, known=""):
    if known:
        path.with_suffix(".asked").touch()
        time.sleep(3600)
    return take(path, known)
snapshot.take = endless
"""


@pytest.fixture
def terminal():
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb", 0) as master, os.fdopen(theirs, "rb", 0) as slave:
        yield master, slave


def test_from_its_start_to_its_end(tmp_path, terminal):
    """Started with nohup in a terminal that is closed, and told to end in the middle of a request and of a reload."""
    master, slave = terminal
    server = Server(
        save_model(tmp_path / "shop.deql"), tmp_path / "log", _UNDER_NOHUP + _ENDLESS_RELOADS, slave, threads=1,
        timeout=5.0, grace=5.0,
    )  # fmt: skip
    try:
        server.wait()
        status, answer = server.reload()
        assert (status, answer["error"]["code"]) == (404, "not_found")  # without a token there is no admin
        slave.close()
        master.close()
        wait_for((tmp_path / "shop.asked").exists)
        server.recommend()
        _end_in_the_middle(server)
    finally:
        server.close()


def _end_in_the_middle(server):
    workers = server.workers()
    body = json.dumps({"histories": [["tea"]]}).encode()
    with socket.create_connection(("127.0.0.1", server.port), 20) as slow:
        head = "POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        slow.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:5])
        server.recommend()  # on another connection, so that the first is surely known
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: is_refused(server.port), 4)
        slow.sendall(body[5:])
        answer = b""
        while piece := slow.recv(10000):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b'"recommendations"' in answer
    assert server.process.wait(20) == 0
    assert not any(is_running(pid) for pid in workers)
    assert server.events("stopped")[-1]["exit"] == 0


def is_refused(port):
    try:
        socket.create_connection(("127.0.0.1", port), 20).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_port_that_is_taken(tmp_path):
    with supervisor.bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ParameterError, match=rf"cannot listen at 127\.0\.0\.1 port {port}: address already in use"):
            supervisor.run(Settings(str(tmp_path / "none.deql"), port=port))
    with pytest.raises(ParameterError, match=r"there is no address no\.such\.host\.invalid"):
        supervisor.bind("no.such.host.invalid", 8000)


def test_a_file_that_is_no_model(tmp_path):
    with pytest.raises(ModelFileError, match="there is no model file"):
        supervisor.run(Settings(str(tmp_path / "none.deql"), port=0))


async def no_thread(*given):
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("fault", ["program", "thread"])
def test_workers_that_never_start(tmp_path, monkeypatch, caplog, fault):
    if fault == "program":
        monkeypatch.setattr(member.sys, "executable", subprocess.check_output(["which", "false"], text=True).strip())
    else:
        monkeypatch.setattr(member.Member, "start", no_thread)
    monkeypatch.setattr(supervisor, "_SLOWEST_RESTART", 0.01)
    monkeypatch.setattr(logs, "configure", lambda: None)
    told = []
    with caplog.at_level(logging.INFO):
        assert supervisor.run(Settings(str(save_model(tmp_path / "shop.deql")), port=0, workers=2), told.append) == 1
    assert not told
    assert "give_up" in caplog.messages


def test_late_answers_answer_no_other_question():
    async def ask():
        ours, theirs = pair()
        worker = member.Member(SimpleNamespace(pid=7), ours, lambda *given: None)
        questions = [worker.ask({"kind": "prepare"}) for _ in range(2)]
        first, second = (theirs.receive().body["number"] for _ in questions)
        theirs.send({"kind": "done", "number": first, "failed": "no memory"})
        with pytest.raises(member.WorkerError, match="no memory"):
            await questions[0]
        assert not questions[1].done()
        theirs.send({"kind": "done", "number": second})
        await questions[1]
        theirs.close()
        await asyncio.sleep(0.01)
        with pytest.raises(member.WorkerError):
            await worker.ask({"kind": "swap"})

    asyncio.run(ask())


class FakeMember:
    """A worker that at some of what it is asked fails (False), never answers (None) or ends (0)."""

    def __init__(self, **answers):
        self.answers, self.asked, self.killed, self.pid = answers, [], False, 7

    def ask(self, body, files=None):
        self.asked.append(body["kind"])
        answer = asyncio.get_running_loop().create_future()
        does = self.answers.get(body["kind"], True)
        if does is not None:
            failure = member.WorkerError("no memory") if does is False else member.WorkerGoneError("it ended")
            answer.set_result(None) if does else answer.set_exception(failure)
        return answer

    def send(self, body, files=None):
        self.asked.append(body["kind"])

    def kill(self):
        self.killed = True


def test_all_workers_swap_or_none(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "_SWAP_SECONDS", 0.05)

    async def hand_out(*members):
        old, new = SimpleNamespace(close=lambda: None), SimpleNamespace(files={})
        held = supervisor._Supervisor(Settings("shop.deql"), None, old, str(tmp_path), None)
        held._members = set(members)
        try:
            await held._hand_out(new)
        finally:
            taken.append(held._current is new)

    taken = []
    good, bad = FakeMember(), FakeMember(prepare=False)
    with pytest.raises(ReloadError, match=r"shop\.deql could not be loaded: no memory"):
        asyncio.run(hand_out(good, bad))
    assert good.asked == ["prepare", "drop"]
    members = [FakeMember(), FakeMember(swap=None), FakeMember(swap=False)]
    asyncio.run(hand_out(*members))
    assert [one.killed for one in members] == [False, True, True]  # they start again, with the new model
    members = [FakeMember(), FakeMember(prepare=0, swap=0)]
    asyncio.run(hand_out(*members))  # one that ends is no reason to refuse a model
    assert members[0].asked == ["prepare", "swap"]
    assert taken == [False, True, True]


def test_workers_that_start_during_a_reload(tmp_path):
    async def hand_out(endlessly):
        held = supervisor._Supervisor(
            Settings("shop.deql"), None, SimpleNamespace(close=lambda: None), str(tmp_path), None
        )

        class Replaced(FakeMember):
            def ask(self, body, files=None):
                if body["kind"] == "prepare":
                    held._members = {Replaced(prepare=0) if endlessly else FakeMember()}
                return super().ask(body, files)

        held._members = {Replaced(prepare=0)}
        await held._hand_out(SimpleNamespace(files={}))
        return [one.asked for one in held._members]

    assert asyncio.run(hand_out(endlessly=False)) == [["prepare", "swap"]]
    with pytest.raises(ReloadError, match="workers end again and again"):
        asyncio.run(hand_out(endlessly=True))


def test_systemd_is_told(tmp_path, monkeypatch):
    from deql.serve.systemd import notify

    notify("READY=1")  # nobody listens
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        notify("READY=1", "STATUS=well")
        assert listener.recv(100) == b"READY=1\nSTATUS=well"
