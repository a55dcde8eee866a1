"""What the world does to a server: bad files, slow and large clients, wrong tokens, and workers that die."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("uvicorn", reason="needs the extra serve")

from deql.io.model_file import checksum
from deql.serve.api import create_app
from deql.serve.monitoring import FOLDER
from deql.serve.serving_model import ModelHolder, ServingModel
from deql.serve.settings import Settings
from tests.serve.asking import Asker
from tests.serve.running import (
    Asking,
    Server,
    basic,
    is_running,
    recommend,
    replace,
    save_broken,
    save_model,
    wait_for,
)

pytestmark = [pytest.mark.serve, pytest.mark.slow]

TOKEN = "tëa for two"
TIMEOUT = 1.0


@contextmanager
def started(folder):
    model = save_model(folder / "shop.deql")
    running = Server(model, folder / "log", workers=2, threads=1, token=TOKEN, timeout=TIMEOUT)
    try:
        yield running.wait()
    finally:
        running.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with started(tmp_path_factory.mktemp("faults")) as running:
        yield running


@pytest.fixture
def server(shared):
    """A server for tests that leave its processes alone; whatever the last one did, it has the first model again."""
    save_model(shared.model)
    assert shared.reload()[0] == 200
    return shared


def test_bad_files_change_nothing(server):
    good = server.model.read_bytes()
    before = server.recommend()

    def refused(why):
        status, answer = server.reload()
        assert (status, answer["error"]["code"]) == (409, "model_rejected")
        assert why in answer["error"]["message"]
        assert str(server.model) in answer["error"]["message"]
        assert server.events("reload")[-1]["reason"] == answer["error"]["message"]

    with Asking(server) as asking:
        server.model.write_bytes(b"garbage")  # in place: the file that was mapped is cut short
        refused("not a deql model file")
        replace(server.model, b"\0" * 5000)
        refused("not a deql model file")
        replace(server.model, good[: len(good) // 2])
        refused("cut short")
        replace(server.model, good[:-1] + bytes([good[-1] ^ 1]))
        refused("checksum")
        save_broken(server.model)
        refused("its gain is not finite")
        server.model.unlink()
        refused("there is no model file")
        assert server.ask("GET", "/ready") == (200, {"status": "ready", "checksum": before})
        assert set(asking.checksums) == {before}
        save_model(server.model, l2=2.0)
        status, answer = server.reload()
    assert status == 200
    new = {"checksum": checksum(server.model), "changed": True}
    models = [{"name": "shop", **new}]
    assert answer == {**new, "workers": 2, "seconds": answer["seconds"], "models": models}
    assert set(asking.checksums) <= {before, answer["checksum"]}
    assert {server.recommend() for _ in range(6)} == {answer["checksum"]}
    assert server.reload()[1]["changed"] is False


def test_a_request_keeps_to_its_model(tmp_path, monkeypatch):
    old, new = (ServingModel.open(save_model(tmp_path / f"{l2}.deql", l2=l2)) for l2 in (1.0, 2.0))
    host = ModelHolder(old)
    asker, rank = Asker(create_app(host, Settings({"shop": "shop.deql"}, quiet=True))), old.rank

    def swapped_meanwhile(queries):
        host.swap(new)
        return rank(queries)

    monkeypatch.setattr(old, "rank", swapped_meanwhile)
    assert recommend(asker) == old.checksum
    assert recommend(asker) == new.checksum


def test_models_side_by_side(tmp_path):
    """Each is reloaded, or refused, on its own; all workers have both."""
    first, other = save_model(tmp_path / "shop.deql"), save_model(tmp_path / "b.deql", l2=2.0)
    server = Server(first, tmp_path / "log", workers=2, threads=1, token=TOKEN, beside={"other": str(other)})
    try:
        server.wait()

        def asked():
            """The checksums that either model answers with."""
            paths = (f"/v1/model?model={name}" for name in ("shop", "other"))
            return [{server.ask("GET", path)[1]["checksum"] for _ in range(6)} for path in paths]

        before = [checksum(path) for path in (first, other)]
        assert asked() == [{one} for one in before]
        os.kill(server.workers()[0], signal.SIGKILL)  # who takes its place has both, too
        first.write_bytes(b"garbage")
        save_model(other, l2=3.0)
        wait_for(lambda: len(server.events("worker_died")) == 1 and len(server.workers()) == 2)
        status, answer = server.reload()
        assert (status, answer["error"]["code"]) == (409, "model_rejected")
        assert f"{first} is not a deql model file" in answer["error"]["message"]
        assert answer["error"]["message"].endswith("; replaced: other")
        assert str(other) not in answer["error"]["message"]
        assert asked() == [{before[0]}, {checksum(other)}]
        save_model(first, l2=4.0)
        _, answer = server.reload()
        assert (answer["changed"], answer["checksum"]) == (True, checksum(first))
        assert answer["models"] == [
            {"name": "shop", "checksum": checksum(first), "changed": True},
            {"name": "other", "checksum": checksum(other), "changed": False},
        ]
        assert asked() == [{checksum(first)}, {checksum(other)}]
        assert server.end() == 0
    finally:
        server.close()


def test_hangup_and_reloads_at_once(server):
    save_model(server.model, l2=3.0)
    seen = len(server.events("reload"))
    with Asking(server) as asking:
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: len(server.events("reload")) > seen)
        expected = checksum(server.model)
        assert {server.recommend() for _ in range(6)} == {expected}
        save_model(server.model, l2=4.0)
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(server.reload())) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [status for status, _ in answers] == [200] * 6
    assert {answer["checksum"] for _, answer in answers} == {checksum(server.model)}
    assert len(set(asking.checksums)) <= 3


def test_old_copies_are_let_go(server):
    def copies():
        """How many nameless files each worker has mapped: the model's copy, and the rows of P."""
        maps = [Path(f"/proc/{pid}/maps").read_text().splitlines() for pid in server.workers()]
        return [len({line.split()[4] for line in lines if line.endswith("(deleted)")}) for lines in maps]

    wait_for(lambda: copies() == [2, 2])
    files = len(os.listdir(f"/proc/{server.process.pid}/fd"))
    for l2 in (5.0, 6.0, 7.0):
        save_model(server.model, l2=l2)
        assert server.reload()[1]["changed"]
        server.recommend()
    wait_for(lambda: len(os.listdir(f"/proc/{server.process.pid}/fd")) == files, 10)  # the answer comes a moment before
    wait_for(lambda: copies() == [2, 2])


@pytest.mark.parametrize("part", ["header", "body"])
def test_a_byte_now_and_then(server, part):
    sent = b"POST /recommend HTTP/1.1\r\nHost: a\r\nAuthorization: " + basic(TOKEN).encode()
    sent += b"\r\nContent-Length: 1000\r\n\r\n" if part == "body" else b"\r\nX-Slow: "
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port), 0.1) as slow, Asking(server):
        slow.sendall(sent)
        answer = b""
        while not answer.endswith(b"}}"):
            assert time.monotonic() < began + 5
            with suppress(TimeoutError):
                answer += slow.recv(1000)
            if not answer:
                slow.sendall(b"x")
    assert time.monotonic() >= began + TIMEOUT - 0.1
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"request_timeout"' in answer
    assert b"connection: close" in answer.lower()


@pytest.mark.parametrize("chunked", [False, True])
def test_large_bodies(server, chunked):
    body = iter([b" " * 2**20] * 10) if chunked else b" " * 10 * 2**20
    status, answer = server.ask("POST", "/recommend", body)
    assert (status, answer["error"]["code"]) == (413, "body_too_large")
    server.recommend()


def test_tokens(server):
    for wrong in ("Bearer tea", "Bearer", "Bearer " + TOKEN[:-1], basic("tea"), "Basic é", "Digest x", TOKEN):
        for method, path in (("GET", "/model"), ("POST", "/recommend"), ("GET", "/nowhere"), ("POST", "/admin/reload")):
            status, answer = server.ask(method, path, authorization=wrong)
            assert (status, answer["error"]["code"]) == (401, "unauthorized")
    assert server.ask("GET", "/health", authorization="Bearer wrong") == (200, {"status": "ok"})
    assert server.ask("GET", "/model", authorization=basic(TOKEN))[0] == 200
    assert server.ask("POST", "/admin/reload", authorization=basic(TOKEN))[0] == 401  # a browser sends it unasked


def test_processes_that_are_killed(tmp_path):
    with started(tmp_path) as server:
        server.model.write_bytes(b"garbage")  # workers start from the copy
        old = server.workers()
        assert len(old) == 2
        expected = server.recommend()
        os.kill(old[0], signal.SIGKILL)
        wait_for(lambda: not is_running(old[0]))
        with Asking(server) as asking:
            new = wait_for(lambda: set(server.workers()) - set(old))
            assert wait_for(lambda: server.events("worker_died"))[-1]["exit"] == -signal.SIGKILL
            wait_for(lambda: any(event["pid"] in new for event in server.events("request")))
        assert set(asking.checksums) == {expected}

        workers = server.workers()
        assert len(workers) == 2
        settings = Path(f"/proc/{workers[0]}/environ").read_text().split("\0")
        [folder] = [Path(one.partition("=")[2]) for one in settings if one.startswith(FOLDER)]
        assert folder.is_dir()
        assert server.end(signal.SIGKILL) == -signal.SIGKILL
        wait_for(lambda: not any(is_running(pid) for pid in workers))
        assert not folder.exists()
