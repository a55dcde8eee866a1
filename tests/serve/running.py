"""A server in processes of its own, and what tests do to it."""

from __future__ import annotations

import base64
import functools
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from deql import EASE, Interactions
from deql.io.model_file import checksum
from deql.models import load
from deql.serve.rehearsal import rehearse
from deql.serve.serving_model import ServingModel
from deql.serve.settings import Settings

_EXPECTED = {}
"""For each model that was saved here, by its checksum: what it recommends to who has tea."""

_PROGRAM = """
import sys
from deql.serve.settings import Settings
from deql.serve.server import run
sys.exit(run(Settings.from_json(sys.argv[1])))
"""


def save_model(path, l2=1.0, last="oat"):
    """A model of four goods; other l2 make other checksums and scores."""
    _fitted(l2, last).save(path)
    best = load(path).recommend([["tea"]], k=2)
    _EXPECTED[checksum(path)] = list(zip(best.ids[0].tolist(), best.scores[0].tolist(), strict=True))
    return path


def save_broken(path):
    """A model with a gain that is no number, and the right checksum."""
    model = _fitted(1.0, "oat")
    model.gain_[1] = float("nan")
    model.save(path)
    return path


def _fitted(l2, last):
    pairs = [("ann", "tea"), ("ann", "jam"), ("bob", "tea"), ("bob", "egg"), ("cid", "jam"), ("cid", last)]
    return EASE(l2=l2).fit(Interactions.from_pairs(*zip(*pairs, strict=True)))


@functools.cache
def compile_kernels():
    """Once here, rather than in all processes of a server at the same time."""
    rehearse(ServingModel(_fitted(1.0, "oat").quantize_rows()))


def basic(password):
    return "Basic " + base64.b64encode(f"me:{password}".encode()).decode()


def wait_for(true, seconds=60.0):
    """Until something is so."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)
    return found


class Server:
    """``deql serve`` as a process; ``wait`` until it answers.

    ``before`` is run in the process first; ``stdin`` is its standard input, if not that of the tests; ``beside`` are
    the paths of other models, by their names.
    """

    def __init__(self, model: Path, log: Path, before="", stdin=None, **settings):
        compile_kernels()
        self.settings = Settings({model.stem: str(model)} | settings.pop("beside", {}), port=0, **settings)
        self.model, self.log = model, log
        program = [sys.executable, "-c", before + _PROGRAM, self.settings.to_json()]
        with log.open("wb") as file:
            self.process = subprocess.Popen(program, stdin=stdin, stderr=file, start_new_session=True)

    def wait(self):
        started = wait_for(lambda: self.events("start") or self.process.poll() is not None, 120)
        assert started is not True, self.log.read_text()
        self.port = int(started[0]["url"].rsplit(":", 1)[1].strip("/"))
        return self

    def events(self, name):
        """Its log's lines about something; every whole line is JSON."""
        lines = self.log.read_text().splitlines(keepends=True)
        return [event for line in lines if line.endswith("\n") if (event := json.loads(line))["event"] == name]

    def workers(self):
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in children if b"spawn_main" in _command(pid)]  # not Python's resource tracker

    def ask(self, method, path, body=None, authorization=None):
        """Status and answer of a request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        headers = {"Content-Type": "application/json"}
        if authorization is None and self.settings.token:
            authorization = f"Bearer {self.settings.token}"
        if authorization:
            headers["Authorization"] = authorization.encode()  # http.client's own choice is Latin-1
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def recommend(self):
        return recommend(self)

    def reload(self):
        return self.ask("POST", "/admin/reload")

    def end(self, number=signal.SIGTERM):
        """Send a signal and wait; the exit status."""
        self.process.send_signal(number)
        return self.process.wait(30)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def recommend(server):
    """The checksum of an answer, whose list is that of the model with this checksum."""
    status, answer = server.ask("POST", "/recommend", b'{"histories": [["tea"]], "k": 2}')
    assert status == 200, answer
    best = [(one["item"], one["score"]) for one in answer["results"][0]["recommendations"]]
    assert best == _EXPECTED[answer["checksum"]]
    return answer["checksum"]


class Asking:
    """While this is entered, a client asks without a pause: ``checksums`` of its answers, and their ``seconds``."""

    def __init__(self, server, ask=None):
        self._ask_once = ask or server.recommend
        self.checksums, self.seconds, self.failures = [], [], []

    def __enter__(self):
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()
        return self

    def _ask(self):
        while not self._over.is_set():
            began = time.monotonic()
            try:
                self.checksums.append(self._ask_once())
            except Exception as error:
                self.failures.append(repr(error))
            self.seconds.append(time.monotonic() - began)

    def __exit__(self, *error):
        self._over.set()
        self._thread.join()
        assert not self.failures
        assert self.checksums


def _command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def replace(path, content: bytes):
    """As most programs do: written beside and renamed."""
    beside = path.with_suffix(".new")
    beside.write_bytes(content)
    os.replace(beside, path)
