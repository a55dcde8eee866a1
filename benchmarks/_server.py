"""A server in processes of its own, as people start it, and what it takes."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

SECONDS_TO_START = 600.0


class Memory(NamedTuple):
    """MiB of a server's processes together; what they share counts once."""

    anonymous: float
    file: float
    shared: float

    @property
    def own(self) -> float:
        """What is the server's alone: pages of files can go whenever others need the room."""
        return self.anonymous + self.shared


class Server:
    """A server that was started as people do."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, token: str) -> None:
        self.process, self.token = process, token
        address = urllib.parse.urlsplit(url)
        self.host, self.port = str(address.hostname), int(address.port or 80)

    def processes(self) -> list[int]:
        """Its own number and those of all that it started."""
        parents = {}
        for status in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        family = [self.process.pid]
        for one in family:
            family += [child for child, parent in parents.items() if parent == one]
        return family

    def memory(self) -> Memory:
        """What it holds now. A file in memory takes what it takes, however much of it a process has looked at."""
        gauges = {"Pss_Anon": 0, "Pss_File": 0}
        in_memory: dict[str, int] = {}
        for process in self.processes():
            for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]:
                name, value = line.split()[:2]
                if name[:-1] in gauges:
                    gauges[name[:-1]] += int(value) * 1024
            for line in Path(f"/proc/{process}/maps").read_text().splitlines():
                place, _, offset, _, file, *name = line.split()
                if name[:1] and name[0].startswith("/memfd:"):
                    first, last = (int(end, 16) for end in place.split("-"))
                    in_memory[file] = max(in_memory.get(file, 0), int(offset, 16) + last - first)
        return Memory(*(value / 2**20 for value in (*gauges.values(), sum(in_memory.values()))))

    def cpu_seconds(self) -> float:
        ticks = 0
        for process in self.processes():
            ticks += sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def reload(self) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://{self.host}:{self.port}/v1/admin/reload",
            method="POST",
            headers={"Authorization": f"Bearer {self.token}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"the reload was refused: {error.read().decode()}") from None


@contextmanager
def serving(model: Path, log: Path, options: list[str]) -> Iterator[Server]:
    """A server of this model, until the block ends."""
    token = secrets.token_urlsafe()
    program = Path(sys.executable).with_name("deql")
    command = [str(program), "serve", str(model), "--port", "0", *options]
    with log.open("wb") as lines:
        process = subprocess.Popen(command, stdout=lines, stderr=lines, env=os.environ | {"DEQL_TOKEN": token})
    try:
        yield Server(process, _address(process, log), token)
        process.send_signal(signal.SIGTERM)
        if process.wait(60):
            raise RuntimeError(f"the server ended with {process.returncode}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until the log says where the server listens."""
    end = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < end and process.poll() is None:
        for line in log.read_text().splitlines():
            with suppress(ValueError):
                if (told := json.loads(line)).get("event") == "start":
                    return str(told["url"])
        time.sleep(0.1)
    raise RuntimeError(f"the server did not start:\n{log.read_text()[-2000:]}")
