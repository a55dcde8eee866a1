"""How a server begins and ends."""

from __future__ import annotations

import http.client
import json
import logging
import os
import signal
import socket
import subprocess
import threading
import time
from multiprocessing import Pipe, spawn
from types import SimpleNamespace

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("uvicorn", reason="needs the extra serve")

from uvicorn.supervisors.multiprocess import Process

from deql.errors import ModelFileError, ParameterError
from deql.serve import monitoring, server, shared_model, supervisor
from deql.serve.settings import Settings
from deql.serve.snapshot import ReloadError
from tests.serve.running import Server, compile_kernels, is_running, save_broken, save_model, wait_for

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
    running = Server(
        save_model(tmp_path / "shop.deql"), tmp_path / "log", _UNDER_NOHUP + _ENDLESS_RELOADS, slave, threads=1,
        timeout=5.0, grace=5.0,
    )  # fmt: skip
    try:
        running.wait()
        status, answer = running.reload()
        assert (status, answer["error"]["code"]) == (404, "not_found")  # without a token there is no admin
        slave.close()
        master.close()
        wait_for((tmp_path / "shop.asked").exists)
        running.recommend()
        _end_in_the_middle(running)
    finally:
        running.close()


def _end_in_the_middle(running):
    workers = running.workers()
    body = json.dumps({"histories": [["tea"]]}).encode()
    with socket.create_connection(("127.0.0.1", running.port), 20) as slow:
        head = "POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        slow.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:5])
        running.recommend()  # on another connection, so that the first is surely known
        running.process.send_signal(signal.SIGTERM)
        wait_for(lambda: is_refused(running.port), 4)
        slow.sendall(body[5:])
        answer = b""
        while piece := slow.recv(10000):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b'"recommendations"' in answer
    assert running.process.wait(20) == 0
    assert not any(is_running(pid) for pid in workers)
    assert running.events("stopped")[-1]["exit"] == 0


def test_nothing_is_reset_when_it_ends_under_load(tmp_path):
    """32 connections that ask without a pause: whatever was sent is answered, and every last answer says so."""
    running = Server(save_model(tmp_path / "shop.deql"), tmp_path / "log", workers=2, threads=1, quiet=True)
    try:
        running.wait()
        seen = [Client(running.port) for _ in range(32)]
        clients = [threading.Thread(target=client.run) for client in seen]
        for client in clients:
            client.start()
        wait_for(lambda: all(client.answered > 20 for client in seen))
        assert running.end() == 0
        for client in clients:
            client.join()
    finally:
        running.close()
    assert [client.failures for client in seen if client.failures] == []


class Client:
    """Asks on one connection, and on the next once it is closed, until none is taken any more."""

    def __init__(self, port):
        self._port, self.answered, self.failures = port, 0, []

    def run(self):
        while not self.failures:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
            try:
                connection.connect()
            except ConnectionError:
                return
            try:
                while self._ask(connection):
                    pass
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(f"{error!r} after {self.answered} answers")
            finally:
                connection.close()

    def _ask(self, connection):
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/recommend", b'{"histories": [["tea"]], "k": 2}', headers)
        response = connection.getresponse()
        if response.status != 200 or b'"recommendations"' not in response.read():
            self.failures.append(f"status {response.status}")
        self.answered += 1
        return response.getheader("connection") != "close"


def is_refused(port):
    try:
        socket.create_connection(("127.0.0.1", port), 20).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_port_that_is_taken(tmp_path):
    with server.bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ParameterError, match=rf"cannot listen at 127\.0\.0\.1 port {port}: address already in use"):
            server.run(Settings({"none": str(tmp_path / "none.deql")}, port=port))
    with pytest.raises(ParameterError, match=r"there is no address no\.such\.host\.invalid"):
        server.bind("no.such.host.invalid", 8000)


def test_a_file_that_is_no_model(tmp_path):
    with pytest.raises(ModelFileError, match="there is no model file"):
        server.run(Settings({"none": str(tmp_path / "none.deql")}, port=0))


def test_a_model_that_answers_nonsense(tmp_path, monkeypatch, caplog):
    """Its file is whole, and still nothing is served: one sentence, for which the program ends with 2."""
    monkeypatch.setattr(monitoring, "configure_logs", lambda: None)
    path, told = save_broken(tmp_path / "shop.deql"), []
    compile_kernels()
    with pytest.raises(ModelFileError, match=r"shop\.deql.*gain is not finite"):
        server.run(Settings({"shop": str(path)}, port=0, workers=2, threads=1), told.append)
    assert not told
    assert "give_up" not in caplog.messages


def no_thread(*given):
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("fault", ["program", "thread"])
def test_workers_that_never_start(tmp_path, monkeypatch, caplog, fault):
    if fault == "program":
        false = subprocess.check_output(["which", "false"], text=True).strip()
        monkeypatch.setattr(spawn, "_python_exe", os.fsencode(false))
    else:
        monkeypatch.setattr(Process, "start", no_thread)
    monkeypatch.setattr(supervisor, "_CHECK_SECONDS", 0.01)
    monkeypatch.setattr(monitoring, "configure_logs", lambda: None)
    told = []
    before = signal.getsignal(signal.SIGTERM), dict(os.environ)
    with caplog.at_level(logging.INFO):
        given = Settings({"shop": str(save_model(tmp_path / "shop.deql"))}, port=0, workers=2)
        assert server.run(given, told.append) == 1
    assert not told
    assert "give_up" in caplog.messages
    assert (signal.getsignal(signal.SIGTERM), dict(os.environ)) == before


def test_late_answers_answer_no_other_question(monkeypatch):
    killed = []
    monkeypatch.setattr(shared_model.WorkerProcess, "kill", lambda self: killed.append(self.pid))
    ours, theirs = Pipe()
    worker = shared_model.WorkerProcess(ours, 7)
    with pytest.raises(shared_model.WorkerGoneError, match="did not answer within"):
        worker.ask({"kind": "prepare"}, None, 0.01)
    assert killed == [7]  # so that what it says too late is not heard
    ours, theirs = Pipe()
    worker = shared_model.WorkerProcess(ours, 7)
    shared_model.send(theirs, {"failed": "no memory"})
    with pytest.raises(shared_model.WorkerError, match="no memory"):
        worker.ask({"kind": "prepare"}, None, 1.0)
    shared_model.send(theirs, {})
    worker.ask({"kind": "swap"}, None, 1.0)
    assert [shared_model.receive(theirs)[0]["kind"] for _ in range(2)] == ["prepare", "swap"]
    theirs.close()
    with pytest.raises(shared_model.WorkerGoneError):
        worker.ask({"kind": "swap"}, None, 1.0)


class FakeWorker:
    """A worker that at some of what it is asked fails (False), never answers (None) or ends (0)."""

    ready = True

    def __init__(self, **answers):
        self.answers, self.asked, self.killed, self.pid = answers, [], False, id(self)

    def ask(self, body, files, seconds):
        self.asked.append(body["kind"])
        does = self.answers.get(body["kind"], True)
        if does is False:
            raise shared_model.WorkerError("no memory")
        if not does:
            raise shared_model.WorkerGoneError("it ended")

    def kill(self):
        self.killed = True


@pytest.fixture
def shared(tmp_path):
    """The model that workers share; who it is handed to is up to the test."""
    old = SimpleNamespace(close=lambda: None, files="old")
    share = shared_model.SharedModel(Settings({"shop": "shop.deql"}), {"shop": old}, str(tmp_path), lambda: None)

    def hand_out(*workers):
        new = SimpleNamespace(files="new")
        share.workers, share.current = {worker.pid: worker for worker in workers}, {"shop": old}
        share.hand_out("shop", new)
        return share.current["shop"] is new

    yield share, hand_out
    share.close()


def test_all_workers_swap_or_none(shared):
    share, hand_out = shared
    good, bad = FakeWorker(), FakeWorker(prepare=False)
    with pytest.raises(ReloadError, match=r"shop\.deql could not be loaded: no memory"):
        hand_out(good, bad)
    assert good.asked == ["prepare", "drop"]
    assert share.current["shop"].files == "old"
    workers = [FakeWorker(), FakeWorker(swap=None), FakeWorker(swap=False)]
    assert hand_out(*workers)
    # It starts again, with the new model; who does not answer was ended when it was not waited for any more.
    assert [one.killed for one in workers] == [False, False, True]
    workers = [FakeWorker(), FakeWorker(prepare=0, swap=0)]
    assert hand_out(*workers)  # one that ends is no reason to refuse a model
    assert workers[0].asked == ["prepare", "swap"]
    with pytest.raises(ReloadError, match="workers end again and again"):
        hand_out(FakeWorker(prepare=0), FakeWorker(prepare=0))
    assert share.current["shop"].files == "old"


def test_silent_workers_are_left_only_where_another_has_answered(shared, monkeypatch):
    """All are silent while a model of millions of items holds Python's lock: that is no reason to end them all."""
    monkeypatch.setattr(shared_model, "_SILENT_SECONDS", 0.01)
    share, hand_out = shared
    share._silence = lambda pid: 60.0
    together = threading.Barrier(2)

    class Busy(FakeWorker):
        def ask(self, body, files, seconds):
            together.wait(10)
            time.sleep(0.02)
            assert not share.is_left(self.pid)
            together.wait(10)

    class Hung(FakeWorker):
        def ask(self, body, files, seconds):
            wait_for(lambda: share.is_left(self.pid), 10)
            raise shared_model.WorkerGoneError("it hangs")

    assert hand_out(Busy(), Busy())
    assert hand_out(FakeWorker(), Hung())
    share._silence = lambda pid: 0.0
    assert not share.is_left(7)


def test_a_worker_that_is_left_is_ended(monkeypatch, caplog):
    killed = []
    monkeypatch.setattr(shared_model.WorkerProcess, "kill", lambda self: killed.append(self.pid))
    ours, theirs = Pipe()
    with pytest.raises(shared_model.WorkerGoneError, match="or hangs"):
        shared_model.WorkerProcess(ours, 7, lambda pid: True).ask({"kind": "prepare"}, None, 10.0)
    assert killed == [7]
    assert "worker_killed" in caplog.messages
    theirs.close()


def test_workers_that_start_during_a_reload(shared):
    share, hand_out = shared
    ours, theirs = Pipe()
    late, told = shared_model.WorkerProcess(ours, 8), []
    late.tell = lambda body, files: told.append(files)
    starting = threading.Thread(target=share.admit, args=(late,))

    class Watched(FakeWorker):
        def ask(self, body, files, seconds):
            if body["kind"] == "prepare":
                starting.start()
                time.sleep(0.05)
            assert not told
            super().ask(body, files, seconds)

    assert hand_out(Watched())
    shared_model.send(theirs, {})
    starting.join()
    assert told == [None, "new"]  # it waited for it; the first are its settings
    assert share.ready == 2


def test_reloads_that_wait_together_are_answered_together(shared, monkeypatch):
    share, _ = shared
    told, go_on, answers, clock = [], threading.Event(), [], []

    def tell():
        told.append(go_on.wait(10))
        return {"refused": str(len(told))}

    def now():
        clock.append(time.monotonic())
        return clock[-1]

    monkeypatch.setattr(shared_model, "time", SimpleNamespace(monotonic=now, monotonic_ns=time.monotonic_ns))
    share._reload_and_tell = tell
    threads = [threading.Thread(target=lambda: answers.append(share.reload()["refused"])) for _ in range(6)]
    threads[0].start()
    wait_for(lambda: share.is_reloading, 10)
    seen = len(clock)
    for thread in threads[1:]:
        thread.start()
    wait_for(lambda: len(clock) == seen + 5, 10)  # all have asked
    go_on.set()
    for thread in threads:
        thread.join()
    assert sorted(answers) == ["1"] + ["2"] * 5


@pytest.mark.parametrize("entered", [False, True])
def test_workers_that_end_before_they_are_ready(shared, entered):
    """One that ends while it waits for a reload is forgotten before it is entered."""
    share, _ = shared
    ours, theirs = Pipe()
    worker = shared_model.WorkerProcess(ours, 8)
    if entered:
        worker.tell = lambda body, files: theirs.close() if files else None
    else:
        theirs.close()
        assert not share.forget(8)
    with pytest.raises(shared_model.WorkerGoneError):
        share.admit(worker)
    assert not share.workers


def test_systemd_is_told(tmp_path, monkeypatch):
    notify = monitoring.notify_systemd
    notify("READY=1")  # nobody listens
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        notify("READY=1", "STATUS=well")
        assert listener.recv(100) == b"READY=1\nSTATUS=well"
