"""The page "Your first day with your own data" does what it says: every block is run, and what it shows is compared."""

import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

import pytest

from deql.cli import run

for module, extra in (("fastapi", "serve"), ("jinja2", "report"), ("matplotlib", "report")):
    pytest.importorskip(module, reason=f"the page uses the extra {extra}")

PAGE = Path(__file__).parents[1] / "docs" / "first-day.md"

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-+]\d+)?(?:\b ?(?:s|min|MiB|KiB)\b)?")


class Block(NamedTuple):
    line: int
    kind: str
    text: str


def blocks(page):
    return [Block(page[: match.start()].count("\n") + 1, match[1], match[2]) for match in _BLOCK.finditer(page)]


def numbers(line):
    return [float(one.replace(",", "")) for one in _NUMBER.findall(line) if one[-1].isdecimal()]


def alike(wanted, found):
    """Whether two lines have the same words, and numbers that differ by 2 % at most; times and sizes may be any.

    What is left out of a line is marked with "…", and then the rest of it is to be the same.
    """
    if "…" in wanted:
        return re.search(".*".join(map(re.escape, wanted.strip().split("…"))), found) is not None
    words = [" ".join(_NUMBER.sub(" # ", line).split()) for line in (wanted, found)]
    if words[0] != words[1]:
        return False
    pairs = zip(numbers(wanted), numbers(found), strict=True)
    return all(abs(one - other) <= 0.02 * abs(one) + 1e-9 for one, other in pairs)


def missing(shown, printed):
    """The first line of a block of output that was not printed, or not in this order."""
    rest = iter(printed.splitlines())
    wanted = [line for line in shown.splitlines() if line.strip() not in ("", "…")]
    return next((line for line in wanted if not any(alike(line, found) for found in rest)), None)


def commands(text):
    """The lines of a shell block as words, without comments; a line that ends in a backslash goes on."""
    lines = text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


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
    page = PAGE.read_text("utf-8").replace("8000", str(free_port()))
    names, printed = {"__name__": "__main__"}, ""
    parts = blocks(page)
    for (line, kind, text), following in zip(parts, [*parts[1:], None], strict=True):
        if kind == "text":
            assert missing(text, printed) is None, f"{PAGE.name}, the output in line {line}, of:\n{printed}"
        elif kind == "python":
            exec(compile(text, f"{PAGE.name} from line {line}", "exec"), names)
            both = capsys.readouterr()
            printed = both.err + both.out
        else:
            assert kind == "shell", f"{PAGE.name}, line {line}: {kind} is not run"
            refused = following is not None and following.text.startswith("deql: error: ")
            printed = "".join(shell(words, refused) for words in commands(text))


@pytest.mark.parametrize(
    ("shown", "printed", "lacking"),
    [
        ("a 1,000\n…\nc 0.500", "x\na  1,001\nb\nc 0.505\n", None),
        ("took 1.5 s", "took 900 s", None),
        ('{"a": 1, …{"b": 2, …', '{"a": 1, "x": 3, [{"b": 2, "y": 4}]}', None),
        ('{"a": 1, …{"b": 2, …', '{"a": 1, "x": 3, [{"b": 3, "y": 4}]}', '{"a": 1, …{"b": 2, …'),
        ("a 1\nb 2", "b 2\na 1", "b 2"),
        ("l2=3", "l2=30", "l2=3"),
        ("EASE 0.75", "EASE 0.70", "EASE 0.75"),
        ("EASE 0.75", "DEQL 0.75", "EASE 0.75"),
    ],
)
def test_output_is_compared(shown, printed, lacking):
    assert missing(shown, printed) == lacking


def test_the_page_is_found_first():
    readme = (PAGE.parents[1] / "README.md").read_text("utf-8")
    assert re.search(r"\]\((.*?)\)", readme.partition("## More")[2])[1] == "docs/first-day.md"
    assert "first-day.md" in readme.partition("## More")[0]
