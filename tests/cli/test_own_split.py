"""A folder with tables train, validation and test as one's own split, wherever commands take DATA."""

import json

import polars as pl
import pytest

import deql
from deql.cli import run
from tests.cli.published import write_published
from tests.data.reading import put


@pytest.fixture(scope="module")
def split():
    data = deql.datasets.debian().take_users(slice(0, 900))
    data = deql.clean(data.without_empty(), min_users_per_item=5, min_items_per_user=4)
    return deql.split_weak(data, seed=1)


def write(part, path):
    rows = [(user, item) for user in part.users.tolist() for item in part.history(user)]
    frame = pl.DataFrame(rows, schema=["package", "names"], orient="row")
    frame.write_parquet(path) if path.suffix == ".parquet" else frame.write_csv(path)


@pytest.fixture(scope="module")
def folder(split, tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    write(split.train, folder / "train.csv")
    write(split.validation.held_out, folder / "valid.parquet")
    write(split.test.held_out, folder / "test.csv")
    return folder


def test_evaluate_as_python_does(folder, split, capsys):
    assert run(["evaluate", str(folder), "ease:l2=10", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    mine = deql.Split(split.train, split.validation.held_out, split.test.held_out)
    expected = deql.evaluate(deql.EASE(10.0).fit(mine.train), mine.test)
    assert found["models"][0]["means"] == pytest.approx(expected.means)
    assert found["split"]["protocol"] == "given"


@pytest.mark.parametrize(
    "command",
    [
        ["compare", "DATA", "popularity", "ease:l2=10"],
        ["evaluate", "DATA", "popularity", "--on", "validation", "--user", "package", "--item", "names"],
        ["fit", "DATA", "--dry-run", "--encoding", "latin-1", "--on-missing", "skip"],
        ["tune", "DATA", "--space", "quick", "--budget", "1", "-o", "OUT"],
    ],
)
def test_every_command_takes_it(folder, tmp_path, command):
    names = {"DATA": str(folder), "OUT": str(tmp_path / "m.deql")}
    assert run([names.get(word, word) for word in command]) == 0


def test_fit_learns_from_train_only(folder, split, tmp_path):
    assert run(["fit", str(folder), "--l2", "10", "-o", str(tmp_path / "m.deql")]) == 0
    assert deql.load(tmp_path / "m.deql").items_.tolist() == split.train.items.tolist()


def test_info_shows_the_parts(folder, split, tmp_path, capsys):
    split.save(tmp_path / "a.split")
    write_published(tmp_path / "published", split.train.matrix)
    for data, protocol, parts in (
        (folder, "given", ["train", "validation", "test"]),
        (tmp_path / "a.split", "weak", ["train", "validation", "test"]),
        (tmp_path / "published", "published", ["train", "test"]),
    ):
        assert run(["data", "info", str(data), "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert facts["file"] == str(data)
        assert facts["protocol"] == protocol
        assert [part["part"] for part in facts["parts"]] == parts
        assert run(["data", "info", str(data)]) == 0
        shown = capsys.readouterr().out
        assert all(part in shown for part in parts)
        assert deql.load_split(data).describe() in shown


def test_options_that_a_split_has_no_use_for(folder, split, tmp_path, capsys):
    write_published(tmp_path / "published", split.train.matrix)
    split.save(tmp_path / "a.split")
    for data, options in (
        (folder, ["--k-core", "5"]),
        (folder, ["--protocol", "weak"]),
        (folder, ["--held-out", "0.3"]),
        (tmp_path / "published", ["--user", "package"]),
        (tmp_path / "a.split", ["--encoding", "latin-1"]),
    ):
        assert run(["evaluate", str(data), "popularity", *options]) == 2
        assert f"{data} is split already, so {options[0]} cannot be chosen" in capsys.readouterr().err
    assert run(["evaluate", str(tmp_path / "published"), "popularity", "--encoding", "latin-1"]) == 0


def test_what_is_read_is_not_written_over(folder, capsys):
    for out in ("train.csv", "validation.csv"):
        assert run(["fit", str(folder), "--l2", "1", "-o", str(folder / out)]) == 2
    assert "would be read as data by the next command" in capsys.readouterr().err
    assert not (folder / "validation.csv").exists()


def test_bad_folders_in_one_sentence(tmp_path, capsys):
    put(tmp_path / "train.csv", "user,item\n1,2\n1,3\n2,2\n")
    put(tmp_path / "test.csv", "user,item\n9,2\n")
    assert run(["evaluate", str(tmp_path), "popularity"]) == 2
    assert "none of the users of test is in train (9)" in capsys.readouterr().err
    put(tmp_path / "test.csv", "user,item\n2,x\n")
    assert run(["evaluate", str(tmp_path), "popularity"]) == 2
    assert "items of train and of test are whole numbers on one side and text on the other" in capsys.readouterr().err
