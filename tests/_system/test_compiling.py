"""What is told of compiling, and where its result is kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba import njit
from numba.core import event

from deql._system import compiling
from deql._system.progress import stages


@pytest.fixture
def told(monkeypatch):
    """What is told, beginning with nothing told."""
    found = []
    monkeypatch.setattr(compiling, "_listeners", [])
    compiling.announce_compiling(found.append)
    yield found
    event.unregister("numba:compile", compiling._listeners[0])


def kernel(module):
    """A function that is compiled at its first use and kept nowhere."""

    def add(x):
        return x + 1

    add.__module__ = module
    return njit(add)


def test_each_part_is_told_once_and_only_when_it_is_compiled(told):
    first, second = kernel("deql.ranking.kernels"), kernel("deql.ranking.kernels")
    assert told == []
    first(1)
    assert told == ["compiling the ranking, once on this machine: about 7 s"]
    first(2)
    first(2.0)
    second(1)
    assert len(told) == 1
    kernel("deql.models.slim.coordinate_descent")(1)
    assert told[1:] == ["compiling SLIM, once on this machine: about 3 s"]


def test_what_takes_no_time_and_what_is_not_ours_is_not_told(told):
    kernel("deql.evaluation.evaluator")(1)
    kernel("somebody.elses")(1)
    assert told == []


def test_the_parts_are_there():
    source = Path(compiling.__file__).parents[1]
    for module in compiling._PARTS:
        place = source.joinpath(*module.split(".")[1:])
        assert place.is_dir() or place.with_suffix(".py").is_file()


def test_in_python_it_is_told_with_the_progress(capsys, monkeypatch):
    monkeypatch.setattr(compiling, "_listeners", [])
    with stages(False):
        assert not compiling._listeners
    with stages(True):
        kernel("deql.linalg.gram")(1)
    event.unregister("numba:compile", compiling._listeners[0])
    assert "deql: compiling the Gram matrix, once on this machine: about 1 s" in capsys.readouterr().err


def test_the_first_run_says_so_and_the_next_does_not(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("user,item\n1,2\n1,3\n2,3\n")
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "deql", "data", "info", str(table), "--json"]
    said = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr.count("compiling")
        for _ in range(2)
    ]
    assert said == [1, 0]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_where_nothing_can_be_kept_a_folder_of_the_process_is(monkeypatch, told):
    monkeypatch.setattr(compiling, "_temporary", [])
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")  # so that it is put back
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    compiling.keep_compiled()  # the package's own folder can be written
    assert "NUMBA_CACHE_DIR" not in os.environ
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    compiling.keep_compiled("/proc/none")
    folder = Path(os.environ["NUMBA_CACHE_DIR"])
    assert (folder.is_dir(), folder.stat().st_mode & 0o777) == (True, 0o700)
    folder.rmdir()
    kernel("deql.models.slim.slim")(1)
    assert told == [
        "compiling SLIM, as every time, for the result can be kept nowhere: about 3 s "
        "(NUMBA_CACHE_DIR may name a folder for it)"
    ]


def test_the_time_of_compiling_is_measured():
    first = kernel("deql.ranking.kernels")
    with compiling.time_compiling() as once:
        first(1)
    with compiling.time_compiling() as again:
        first(2)
    assert sum(once) > 0
    assert sum(again) == 0
