"""Whatever call fails, nothing is lost, the error is clear, and the next try succeeds.

`python -m tests.faults` tries every fault of every operation and counts them; here most allocations and opens are not
tried.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("matplotlib", reason="needs the extra report")

from tests.faults.injection import build

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="the shim is for Linux"), pytest.mark.slow]

GROUPS = {
    "models": r"(save|load) (?!split)",
    "data": r"(write|read) (\.|partitions)|(save|load) split",
    "long work": r"journal|tune|disk fit|reload",
    "commands": r"deql ",
}


@pytest.fixture(scope="module", autouse=True)
def compiler(tmp_path_factory):
    try:
        build(tmp_path_factory.mktemp("shim"))
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(f"the shim cannot be compiled: {error}")


@pytest.mark.parametrize("group", GROUPS)
def test_every_call_that_can_fail(group):
    from tests.faults.operations import operations

    names = [name for name in operations() if re.match(GROUPS[group], name)]
    command = [sys.executable, "-m", "tests.faults", "--quick", *names]
    # Not pytest's own folder for it, whose name may be too long for a socket's.
    with tempfile.TemporaryDirectory(prefix="deql-") as temporary:
        known = os.environ | {"TMPDIR": temporary}
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=known)
        left = os.listdir(temporary)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert not left
    # That calls are caught at all, of every library: each operation that writes has a write that failed.
    lines = done.stdout.splitlines()
    for name in names:
        [counted] = [line.removeprefix(f"{name}: ") for line in lines if line.startswith(f"{name}: ")]
        assert re.match(r"[1-9]\d* faults \(", counted), (name, counted)
        if re.match("save|write|deql", name):
            assert re.search(r"\(write [1-9]", counted), (name, counted)
            assert re.search(r", rename [1-9]", counted), (name, counted)


def test_to_know_the_operations_begins_none(tmp_path, monkeypatch):
    from tests.faults.operations import operations

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    threads = threading.active_count()
    assert "reload" in operations()
    assert not os.listdir(tmp_path)
    assert threading.active_count() <= threads


def test_every_operation_is_in_a_group():
    from tests.faults.operations import operations

    assert all(sum(bool(re.match(pattern, name)) for pattern in GROUPS.values()) == 1 for name in operations())
