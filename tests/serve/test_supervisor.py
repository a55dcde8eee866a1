"""How a server begins and ends."""

from __future__ import annotations

import json
import logging
import signal
import socket
import subprocess
import time

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("uvicorn", reason="needs the extra serve")

from deql.errors import ModelFileError, ParameterError
from deql.serve import logs, member, supervisor
from deql.serve.settings import Settings
from tests.serve.running import Server, is_running, save_model, wait_for

pytestmark = pytest.mark.serve


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ends")
    running = Server(save_model(folder / "shop.deql"), folder / "log", threads=1, timeout=5.0, grace=5.0)
    try:
        yield running.wait()
    finally:
        running.close()


def test_without_a_token_there_is_no_admin(server):
    status, answer = server.reload()
    assert (status, answer["error"]["code"]) == (404, "not_found")


def test_told_to_end_it_answers_what_it_has(server):
    workers = server.workers()
    body = json.dumps({"histories": [["tea"]]}).encode()
    with socket.create_connection(("127.0.0.1", server.port), 20) as slow:
        head = "POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        slow.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:5])
        server.recommend()  # on another connection, so that the first is surely known
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: server.events("stop"))
        time.sleep(0.3)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port), 20)
        slow.sendall(body[5:])
        answer = b""
        while piece := slow.recv(10000):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b'"recommendations"' in answer
    assert server.process.wait(20) == 0
    assert not any(is_running(pid) for pid in workers)
    assert server.events("stopped")[-1]["exit"] == 0


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


def test_workers_that_never_start(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(member.sys, "executable", subprocess.check_output(["which", "false"], text=True).strip())
    monkeypatch.setattr(supervisor, "_SLOWEST_RESTART", 0.01)
    monkeypatch.setattr(logs, "configure", lambda: None)
    told = []
    with caplog.at_level(logging.INFO):
        assert supervisor.run(Settings(str(save_model(tmp_path / "shop.deql")), port=0, workers=2), told.append) == 1
    assert not told
    assert "give_up" in caplog.messages


def test_systemd_is_told(tmp_path, monkeypatch):
    from deql.serve.systemd import notify

    notify("READY=1")  # nobody listens
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        notify("READY=1", "STATUS=well")
        assert listener.recv(100) == b"READY=1\nSTATUS=well"
