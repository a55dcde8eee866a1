"""The page "Your first day with your own data" does what it says: every block is run, and what it shows is compared."""

import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from deql.cli import run
from tests.pages import run_page

pytestmark = pytest.mark.slow

for module, extra in (("fastapi", "serve"), ("jinja2", "report"), ("matplotlib", "report")):
    pytest.importorskip(module, reason=f"the page uses the extra {extra}")

PAGE = Path(__file__).parents[1] / "docs" / "first-day.md"


@pytest.fixture
def shell(capsys):
    """Runs what is typed in a shell and gives what it prints; servers end with the test."""
    servers = []

    def typed(words, refused):
        if words[:2] == ["deql", "serve"]:
            servers.append(serve(words))
            return ""
        if words[0] == "curl":
            if shutil.which("curl") is None:
                pytest.skip("the end of the page needs curl")
            return subprocess.run(words, capture_output=True, text=True, check=True, timeout=20).stdout
        assert words[0] == "deql", f"{words} is not run"
        code = run(words[1:])
        printed = capsys.readouterr()
        assert code == (2 if refused else 0), printed.err
        return printed.err + printed.out

    yield typed
    for server in servers:
        server.send_signal(signal.SIGTERM)
        server.wait(20)


def serve(words):
    """Start a server, and wait until it answers: the first time it has to compile."""
    address = f"http://127.0.0.1:{words[words.index('--port') + 1]}/ready"
    process = subprocess.Popen([sys.executable, "-m", *[one for one in words if one != "&"]], stderr=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return process
        except OSError:
            time.sleep(0.05)
    process.kill()
    raise AssertionError("the server did not start")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.mark.serve
def test_every_block_runs_and_prints_what_it_shows(tmp_path, monkeypatch, capsys, shell):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    run_page(PAGE, PAGE.read_text("utf-8").replace("8000", str(free_port())), shell, capsys)


def test_the_page_is_found_first():
    readme = (PAGE.parents[1] / "README.md").read_text("utf-8")
    assert re.search(r"\]\((.*?)\)", readme.partition("## More")[2])[1] == "docs/first-day.md"
    assert "first-day.md" in readme.partition("## More")[0]
