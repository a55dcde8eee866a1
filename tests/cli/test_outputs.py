"""What commands write: never over what they read, never into what is no plain file, and known before the work."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

import deql
from tests.cli.test_cli import answer, refusal


@pytest.fixture
def goods(tmp_path):
    rows = [f"u{user},{item}" for user in range(30) for item in ("tea", "jam", f"x{user % 4}", f"y{user % 3}")]
    path = tmp_path / "goods.csv"
    path.write_text("user,item\n" + "\n".join(rows) + "\n")
    return path


def test_a_device_is_left_alone(capsys, goods):
    assert "not a plain file" in refusal(capsys, "fit", goods, "-m", "popularity", "-o", "/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_folder_that_may_not_be_written_to(capsys, goods, monkeypatch):
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode, **named: not mode & os.W_OK and access(path, mode))
    assert "may not be written to" in refusal(capsys, "data", "split", goods, "-o", goods.with_name("x.split"))


def test_a_link_is_followed_and_files_have_the_usual_mode(capsys, goods, tmp_path):
    (tmp_path / "link.deql").symlink_to(tmp_path / "real.deql")
    (tmp_path / "usual").touch()
    answer(capsys, "fit", goods, "-m", "popularity", "-o", tmp_path / "link.deql")
    assert (tmp_path / "link.deql").is_symlink()
    assert (tmp_path / "real.deql").stat().st_mode == (tmp_path / "usual").stat().st_mode
    assert deql.load(tmp_path / "real.deql").n_users_ == 30


def test_a_matrix_goes_through_every_command(capsys, goods, tmp_path):
    answer(capsys, "data", "convert", goods, "-o", tmp_path / "m.npz")
    assert answer(capsys, "data", "info", tmp_path / "m.npz")["users"] == 30
    answer(capsys, "fit", tmp_path / "m.npz", "-m", "popularity", "-o", tmp_path / "m.deql")
    assert "leave out --time" in refusal(capsys, "data", "info", tmp_path / "m.npz", "--time", "when")


def test_a_terminal_that_lacks_letters_shows_others(goods):
    command = "import sys; from deql.cli import main; sys.argv[1:] = sys.argv[1:]; main()"
    done = subprocess.run(
        [sys.executable, "-c", command, "data", "info", str(goods)],
        env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert b"density" in done.stdout


def test_a_pipe_is_no_file(capsys, tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for command in (["data", "info"], ["evaluate"], ["fit", "--dry-run"]):
        models = ["popularity"] if command == ["evaluate"] else []
        assert "not a plain file" in refusal(capsys, *command, tmp_path / "pipe.csv", *models)


def test_codes_that_a_terminal_obeys_are_not_printed(capsys, goods, tmp_path):
    answer(capsys, "fit", goods, "-m", "popularity", "-o", tmp_path / "m.deql")
    assert "\x1b" not in refusal(capsys, "similar", tmp_path / "m.deql", "\x1b[31mred")


def test_titles_that_nobody_named(capsys, goods, tmp_path):
    table = tmp_path / "three.csv"
    table.write_text("item,price,colour\ntea,3,green\n")
    err = refusal_after_notes(capsys, "fit", goods, "--items", table, "-o", tmp_path / "m.deql")
    assert "no column that looks like titles" in err


def test_nobody_to_judge(capsys, tmp_path):
    (tmp_path / "ones.csv").write_text("user,item\n" + "".join(f"{user},{user % 3}\n" for user in range(40)))
    err = refusal_after_notes(capsys, "data", "split", tmp_path / "ones.csv", "-o", tmp_path / "x.split")
    assert "no test user has two items" in err
    assert not (tmp_path / "x.split").exists()


def refusal_after_notes(capsys, *arguments):
    from deql.cli import run

    assert run(list(map(str, arguments))) == 2
    out, err = capsys.readouterr()
    assert not out
    return err.strip().splitlines()[-1]


def test_python_mistakes_get_our_errors():
    data = deql.Interactions.from_pairs(list("aabbcc"), ["x", "y", "x", "z", "y", "z"])
    split = deql.split_weak(data, validation=0)
    model = deql.EASE(1.0).fit(split.train)
    for mistake, told in (
        (lambda: deql.evaluate(model, split), "such as split.test, got Split"),
        (lambda: deql.evaluate(deql.EASE, split.test), "expected a model"),
        (lambda: deql.evaluate(model, split.test, None), "metrics must be"),
        (lambda: deql.clean(data, min_weight="4"), "min_weight must be"),
        (lambda: deql.clean("events.csv"), "expected Interactions"),
        (lambda: deql.split_strong(None), "expected Interactions"),
        (lambda: deql.compare([model], data, seed="a"), "seed must be"),
    ):
        with pytest.raises(deql.DeqlError, match=told):
            mistake()
    assert deql.clean(data.matrix, binary=True).n_users == 3
    found = deql.compare((one for one in (deql.EASE(1.0), deql.EASE(9.0))), data, 2, protocol="weak", validation=0)
    assert len(found.names) == 2
