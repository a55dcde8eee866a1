"""Engines on the command line: plans, fits on disk that go on, and what is refused."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import deql
from deql._system.threads import thread_count
from deql.cli import run
from deql.linalg.planner import calibration


@pytest.fixture
def events(tmp_path, random_matrix):
    path = tmp_path / "events.csv"
    matrix = random_matrix(60, 40, seed=3).tocoo()
    lines = [f"u{user},i{item}" for user, item in zip(matrix.row, matrix.col, strict=True)]
    path.write_text("\n".join(["user,item", *lines]) + "\n")
    return path


@pytest.fixture(autouse=True)
def threads():
    yield
    deql.set_threads(None)


def ran(capsys, *arguments):
    capsys.readouterr()
    code = run([*map(str, arguments)])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err


def refusal(capsys, *arguments):
    code, out, err = ran(capsys, *arguments)
    assert (code, out) == (2, "")
    return err.strip().splitlines()[-1]


def test_a_dry_run_prints_the_plan_and_writes_nothing(capsys, events, tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "_SECONDS", 0.01)
    before = sorted(tmp_path.iterdir())
    code, out, _ = ran(capsys, "fit", events, "--dry-run")
    assert code == 0
    assert out.startswith("39 items in float32 would be fitted by the memory engine: ")
    code, out, _ = ran(capsys, "fit", events, "--dry-run", "--json", "--dtype", "float64", "--engine", "disk")
    assert code == 0
    plan = json.loads(out)
    assert (plan["engine"], plan["dtype"], plan["n"]) == ("disk", "float64", 39)
    assert plan["seconds"] > 0
    code, out, _ = ran(capsys, "fit", events, "--dry-run", "--json", "-o", tmp_path / "a.deql")
    assert json.loads(out)["free"]["folder"] == str(tmp_path)
    assert sorted(tmp_path.iterdir()) == before


def test_the_engine_that_ran_and_its_residual_are_told(capsys, events, tmp_path):
    _, out, _ = ran(capsys, "fit", events, "-o", tmp_path / "a.deql", "--json")
    facts = json.loads(out)
    assert facts["engine"] == "memory"
    assert 0 <= facts["residual"] < 1e-4
    _, out, _ = ran(capsys, "fit", events, "-o", tmp_path / "a.deql")
    assert " s (memory engine, residual " in out
    _, out, _ = ran(capsys, "fit", events, "-o", tmp_path / "a.deql", "-m", "popularity", "--json")
    assert json.loads(out)["engine"] is None


def test_a_fit_on_disk_gives_the_same_and_leaves_no_tiles(capsys, events, tmp_path):
    for engine in ("memory", "disk"):
        out = tmp_path / f"{engine}.deql"
        code, text, _ = ran(capsys, "fit", events, "-o", out, "--engine", engine, "--memory", "1GiB", "--json")
        assert code == 0
        facts = json.loads(text)
        assert facts["engine"] == engine
        assert "folder" not in facts["parameters"]
    one, other = (deql.load(tmp_path / f"{engine}.deql") for engine in ("memory", "disk"))
    np.testing.assert_allclose(one.weights(), other.weights(), atol=1e-5)
    assert {path.name for path in tmp_path.iterdir()} == {"events.csv", "memory.deql", "disk.deql"}
    assert str(tmp_path).encode() not in (tmp_path / "disk.deql").read_bytes(), "no place of this machine in a model"


def test_an_interrupted_fit_on_disk_goes_on_with_the_same_command(capsys, events, tmp_path, monkeypatch):
    from deql.linalg.engines.disk import DiskTiles

    command = ["fit", events, "-o", tmp_path / "a.deql", "--engine", "disk"]

    def interrupt(self, start, stop, panel):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(DiskTiles, "scatter", interrupt)
        code, _, err = ran(capsys, *command)
    tiles = tmp_path / ".a.deql.tiles"
    assert code == 130
    assert f"the tiles are kept in {tiles}\n" in err
    assert f"what was done is kept in {tiles}: the same command goes on from there\n" in err
    assert err.endswith("deql: interrupted\n")
    assert tiles.is_dir()
    assert not (tmp_path / "a.deql").exists()
    filled = []
    monkeypatch.setattr(DiskTiles, "fill", lambda *given: filled.append(given))
    code, _, err = ran(capsys, *command)
    assert code == 0
    assert f"{tiles} has tiles: if they are of this fit, it goes on with them\n" in err
    assert not filled, "the Gram matrix was there"
    assert not tiles.exists()
    expected = deql.DEQL().fit(deql.read_interactions(events)).weights()
    np.testing.assert_allclose(deql.load(tmp_path / "a.deql").weights(), expected, atol=1e-5)


def interrupted(*_):
    raise KeyboardInterrupt


def test_tiles_that_are_no_use_get_one_piece_of_advice(capsys, events, tmp_path, monkeypatch):
    """Of another fit, or damaged: what was said before and after contradicted that they are to be deleted."""
    from deql.linalg.engines.disk import DiskTiles

    command = ["fit", events, "-o", tmp_path / "a.deql", "--engine", "disk", "--folder", tmp_path / "tiles"]
    with monkeypatch.context() as patch:
        patch.setattr(DiskTiles, "scatter", interrupted)
        assert ran(capsys, *command)[0] == 130
    for other in (["--l2", "7"], []):
        if not other:
            for path in (tmp_path / "tiles").glob("*.bin"):
                path.write_bytes(bytes(path.stat().st_size))
        code, _, err = ran(capsys, *command, *other)
        assert code == 2
        assert "going on" not in err
        assert "the same command goes on" not in err
        assert err.count("delete") == 1


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_a_signal_to_end_ends_as_cleanly(events, tmp_path):
    """The process sends it to itself in the middle of the sweep."""
    start = (
        "import os, signal\n"
        "from deql.linalg.engines.disk import DiskTiles\n"
        "DiskTiles.scatter = lambda *given: os.kill(os.getpid(), signal.SIGTERM)\n"
        "from deql.cli.app import main; main()"
    )
    arguments = [sys.executable, "-c", start, "fit", events, "-o", tmp_path / "a.deql", "--engine", "disk"]
    process = subprocess.run([*map(str, arguments)], capture_output=True, text=True)
    assert process.returncode == 128 + signal.SIGTERM
    assert process.stdout == ""
    lines = process.stderr.splitlines()
    assert lines[-1] == "deql: terminated"
    assert "the same command goes on from there" in lines[-2]
    assert "Traceback" not in process.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"events.csv", ".a.deql.tiles"}


def test_the_number_of_threads(capsys, events, tmp_path):
    assert ran(capsys, "fit", events, "-o", tmp_path / "a.deql", "--threads", 1)[0] == 0
    assert thread_count() == 1
    assert "number of threads must be a whole number from 1 to 1,024" in refusal(
        capsys, "fit", events, "-o", tmp_path / "a.deql", "--threads", 0
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "say with -o where to save the model, or ask for --dry-run"),
        (["--dry-run", "-m", "popularity"], "--dry-run plans one inverse: leave out -m popularity"),
        (["--dry-run", "--auto"], "--dry-run plans one inverse: leave out --auto"),
        (["--auto", "-o", "a.deql", "--engine", "disk"], "--engine does not go with --auto"),
        (["--auto", "-o", "a.deql", "--memory", "1GiB"], "--memory does not go with --auto"),
        (["-o", "a.deql", "-m", "popularity", "--engine", "disk"], "--engine does not belong to the model popularity"),
        (["--dry-run", "--engine", "gpu"], "'gpu'"),
        (["--dry-run", "--memory", "lots"], "memory must be a number of bytes such as '4GiB'"),
        (
            ["--dry-run", "--engine", "disk", "--memory", "1"],
            "--engine disk cannot be used: it needs memory of at least",
        ),
        (["--dry-run", "--engine", "torch", "--device", "cuda:99"], "--engine torch cannot be used: "),
        (["--dry-run", "--device", "cuda:99"], "--engine torch cannot be used: "),
        (["--dry-run", "--engine", "torch", "--device", "tpu"], "error: --device must be 'cuda', 'cuda:1' or 'cpu'"),
        (["--dry-run", "--arithmetic", "half"], "error: --arithmetic must be one of float32, fp16x3"),
        (["--dry-run", "--precision", "half"], "arithmetic must be one of float32, fp16x3"),
        (
            ["--dry-run", "--precision", "tf32", "--arithmetic", "tf32"],
            "given twice, as --arithmetic and as --precision",
        ),
        (
            ["--dry-run", "--engine", "memory", "--folder", "tiles"],
            "error: --folder is the disk engine's: leave it out with --engine memory",
        ),
        (["-o", "a.deql", "--l2", "-1"], "error: --l2 must be a number from 0 up, got -1.0"),
        (["-o", "a.deql", "--folder", "events.csv"], "events.csv is not a folder: name one for --folder"),
    ],
)
def test_what_cannot_be(capsys, events, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert said in refusal(capsys, "fit", "events.csv", *arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["events.csv"]
