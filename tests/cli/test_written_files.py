"""No command writes over what it reads, whichever of its options names the file and by whatever way it is reached."""

import os

import pytest

import deql
from deql.cli import run
from deql.data.readers.files import would_be_read
from tests.cli.published import write_published
from tests.cli.test_cli import answer, refusal
from tests.cli.test_tune import AXES
from tests.paper.common import write_checkins

ROWS = [f"u{user},{item}" for user in range(30) for item in ("tea", "jam", f"x{user % 4}", f"y{user % 3}")]

# Everything a command can write, as TARGET, beside all it reads: DATA, and what it takes beside that.
OUTPUTS = {
    "fit": ["fit", "DATA", "-m", "popularity", "-o", "TARGET"],
    "fit --dry-run": ["fit", "DATA", "--dry-run", "-o", "TARGET"],
    "fit --auto": ["fit", "DATA", "--auto", "-o", "TARGET"],
    "tune": ["tune", "DATA", "-o", "TARGET", *AXES],
    "tune --journal": ["tune", "DATA", "-o", "OTHER", "--journal", "TARGET", *AXES],
    "tune --report": ["tune", "DATA", "-o", "OTHER", "--report", "TARGET", *AXES],
    "evaluate --report": ["evaluate", "DATA", "popularity", "--report", "TARGET"],
    "evaluate --save-per-user": ["evaluate", "DATA", "popularity", "--save-per-user", "TARGET"],
    "compare": ["compare", "DATA", "popularity", "ease", "-o", "TARGET"],
    "compare --report": ["compare", "DATA", "popularity", "ease", "--report", "TARGET"],
}
TABLE_OUTPUTS = OUTPUTS | {
    "convert": ["data", "convert", "DATA", "-o", "TARGET"],
    "split": ["data", "split", "DATA", "-o", "TARGET"],
}
MANY_OUTPUTS = {
    "recommend": ["recommend", "MODEL", "--histories", "DATA", "-o", "TARGET"],
}


@pytest.fixture
def place(tmp_path):
    """Tables alone, in a folder of parts, of a public data set and of a published split; titles, a model, a split."""
    (tmp_path / "parts" / "more").mkdir(parents=True)
    for name, rows in {
        "goods.csv": ROWS, "parts/a.csv": ROWS[:60], "parts/more/b.csv": ROWS[60:], "ratings.csv": ROWS
    }.items():  # fmt: skip
        (tmp_path / name).write_text("user,item\n" + "\n".join(rows) + "\n")
    (tmp_path / "known").mkdir()
    (tmp_path / "ratings.csv").rename(tmp_path / "known" / "ratings.csv")
    data = deql.read_interactions(tmp_path / "goods.csv", "user", "item")
    write_published(tmp_path / "published", data.matrix)
    (tmp_path / "titles.csv").write_text("item,title\n" + "".join(f"{item},{item}!\n" for item in data.items))
    deql.Popularity().fit(data).save(tmp_path / "model.csv")
    deql.split_strong(data).save(tmp_path / "goods.split.csv")
    return tmp_path


def all_files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused_and_unchanged(capsys, place, command, **words):
    """Exit code 2, and not one file is another than before."""
    before = all_files(place)
    words = {"OTHER": place / "other.deql", "MODEL": place / "model.csv", **words}
    said = refusal(capsys, *(words.get(word, word) for word in command))
    assert all_files(place) == before
    return said


# Ways to a file that is read: what is read, and what the output is named after.
WAYS = {
    "the file itself": ("goods.csv", "goods.csv"),
    "another spelling": ("goods.csv", "parts/../goods.csv"),
    "a part of a folder": ("parts", "parts/a.csv"),
    "a part deep in a folder": ("parts", "parts/more/b.csv"),
    "a part of a public data set": ("known", "known/ratings.csv"),
}


@pytest.mark.parametrize("option", TABLE_OUTPUTS | MANY_OUTPUTS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("link", ["", "symlink", "hard link", "link to the folder"])
def test_what_is_read_is_not_written(capsys, place, option, way, link):
    read, target = (place / name for name in WAYS[way])
    if link == "symlink":
        (place / "link.csv").symlink_to(target)
        target = place / "link.csv"
    elif link == "hard link":
        os.link(target, place / "link.csv")
        target = place / "link.csv"
    elif link == "link to the folder":
        (place / "linked").symlink_to(place, target_is_directory=True)
        read = place / "linked" / WAYS[way][0]
    command = (TABLE_OUTPUTS | MANY_OUTPUTS)[option]
    assert "used twice" in refused_and_unchanged(capsys, place, command, DATA=read, TARGET=target)


@pytest.mark.parametrize("option", OUTPUTS)
@pytest.mark.parametrize(
    ("data", "target"),
    [("published", "published/train.txt"), ("published", "published/test.txt"), ("goods.split.csv", "goods.split.csv")],
)
def test_nor_is_a_split(capsys, place, option, data, target):
    if option == "evaluate --save-per-user" and target.endswith(".txt"):
        (place / "link.csv").symlink_to(place / target)
        target = "link.csv"
    said = refused_and_unchanged(capsys, place, OUTPUTS[option], DATA=place / data, TARGET=place / target)
    assert "used twice" in said


@pytest.mark.parametrize("option", TABLE_OUTPUTS)
def test_nor_are_titles(capsys, place, option):
    words = {"DATA": place / "goods.csv", "TARGET": place / "titles.csv"}
    command = [*TABLE_OUTPUTS[option], "--items", place / "titles.csv"]
    assert "used twice" in refused_and_unchanged(capsys, place, command, **words)


@pytest.mark.parametrize(
    "command",
    [
        ["recommend", "MODEL", "--histories", "DATA", "-o", "MODEL"],
        ["evaluate", "DATA", "MODEL", "--report", "MODEL"],
        ["evaluate", "DATA", "MODEL", "--save-per-user", "MODEL"],
    ],
)
def test_nor_are_models(capsys, place, command):
    assert "used twice" in refused_and_unchanged(capsys, place, command, DATA=place / "goods.csv")


@pytest.mark.parametrize(
    "command",
    [
        ["evaluate", "DATA", "ease", "--save-per-user", "ONE", "--report", "TWO"],
        ["compare", "DATA", "ease", "popularity", "-o", "ONE", "--report", "TWO"],
        ["tune", "DATA", "-o", "ONE", "--report", "TWO"],
        ["tune", "DATA", "-o", "ONE", "--journal", "TWO"],
    ],
)
def test_two_outputs_are_two_files_though_a_link_leads_nowhere_yet(capsys, place, command):
    (place / "two.csv").symlink_to(place / "new.csv")
    words = {"DATA": place / "goods.csv", "ONE": place / "new.csv", "TWO": place / "two.csv"}
    assert "used twice" in refused_and_unchanged(capsys, place, command, **words)


@pytest.mark.parametrize("option", TABLE_OUTPUTS | MANY_OUTPUTS)
@pytest.mark.parametrize("linked", [False, True])
def test_a_folder_of_parts_gets_no_new_one(capsys, place, option, linked):
    target = place / "parts" / "new.csv"
    if linked:
        (place / "nowhere.csv").symlink_to(target)
        target = place / "nowhere.csv"
    command = (TABLE_OUTPUTS | MANY_OUTPUTS)[option]
    said = refused_and_unchanged(capsys, place, command, DATA=place / "parts", TARGET=target)
    assert "read as data by the next command" in said


def test_beside_the_files_of_a_public_data_set_there_is_room(capsys, place):
    for _ in range(2):
        answer(capsys, "fit", place / "known", "-m", "popularity", "-o", place / "known" / "model.deql")
        answer(capsys, "data", "convert", place / "known", "-o", place / "known" / "goods.csv")
    assert would_be_read(place / "known", place / "known" / "u.data.gz")
    assert not would_be_read(place / "known", place / "known" / "other.csv")


def test_prepared_data_are_not_written_over(capsys, place):
    folder = place / "published"
    for name in ("train.txt", "test.txt"):
        before = all_files(folder)
        said = refusal(capsys, "data", "prepare", "gowalla", "--from", folder, "-o", folder / name)
        assert "used twice" in said
        assert all_files(folder) == before


def test_tiles_have_a_folder_of_their_own(capsys, place):
    """The disk engine removes files of its names: neither a model nor data may be one of them."""
    tiles = place / "tiles"
    tiles.mkdir()
    (tiles / "deql-tiles-0.bin").write_bytes((place / "goods.csv").read_bytes())
    before = all_files(tiles)
    for command in (
        ["fit", tiles / "deql-tiles-0.bin", "-o", place / "m.deql", "--engine", "disk", "--folder", tiles],
        ["fit", place / "goods.csv", "-o", tiles / "deql-tiles-1.bin", "--engine", "disk", "--folder", tiles],
    ):
        assert "name another --folder" in refusal(capsys, *command)
        assert all_files(tiles) == before


def test_reproduce_leaves_the_data_alone(capsys, place, monkeypatch):
    pytest.importorskip("matplotlib", reason="documents need matplotlib")
    monkeypatch.chdir(place)
    checkins = place / "data" / "gowalla-1"
    write_checkins(checkins)
    out = place / "out"
    out.mkdir()
    (out / "datasets.md").symlink_to(next(checkins.iterdir()))
    before = all_files(place / "data")
    for folder in (checkins, out):
        said = refusal(capsys, "reproduce", "datasets", "--data", place / "data", "--only", "gowalla-1", "-o", folder)
        assert "is read as data" in said
        assert all_files(place / "data") == before


def test_a_link_in_a_circle_is_no_traceback(capsys, place):
    (place / "circle.csv").symlink_to(place / "circle.csv")
    assert run(["fit", str(place / "circle.csv"), "-m", "popularity", "-o", str(place / "m.deql")]) == 2
    assert run(["fit", str(place / "goods.csv"), "-m", "popularity", "-o", str(place / "circle.csv")]) == 0
    assert deql.load(place / "circle.csv").n_users_ == 30
    assert "Traceback" not in capsys.readouterr().err


def test_a_model_in_shards_is_a_folder(capsys, place):
    """Known before the fit, which would be lost."""
    command = ["fit", "DATA", "-m", "popularity", "--shards", "-o", "TARGET"]
    data = place / "goods.csv"
    (place / "other.deql").write_text("mine")
    said = refused_and_unchanged(capsys, place, command, DATA=data, TARGET=place / "other.deql")
    assert said.endswith("other.deql is a file: name a folder to save the model in, or remove it")
    said = refused_and_unchanged(capsys, place, command, DATA=data, TARGET=place / "parts")
    assert "parts is a folder with other files in it" in said
    said = refused_and_unchanged(capsys, place, command, DATA=data, TARGET=place / "no" / "m.deql")
    assert "there is no folder" in said
    (place / "empty").mkdir()
    for more in (["--shards"], ["--shards"], []):  # a new model, another in its place, and that without being asked
        answer(capsys, "fit", data, "-m", "popularity", "-o", place / "empty", *more)
        assert deql.load(place / "empty").n_users_ == 30
    (place / "bare").mkdir()
    said = refused_and_unchanged(capsys, place, command[:4] + command[5:], DATA=data, TARGET=place / "bare")
    assert "bare is a folder: name a file to write" in said
    said = refused_and_unchanged(
        capsys, place, ["evaluate", "DATA", "popularity", "--report", "TARGET"], DATA=data, TARGET=place / "empty"
    )
    assert "empty is a folder: name a file to write" in said


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_model_folder_that_may_not_be_written_is_told(capsys, place):
    (place / "closed").mkdir(mode=0o500)
    command = ["fit", "DATA", "-m", "popularity", "--shards", "-o", "TARGET"]
    said = refused_and_unchanged(capsys, place, command, DATA=place / "goods.csv", TARGET=place / "closed")
    assert "may not be written to, so a model cannot be made there" in said


@pytest.mark.parametrize("command", ["fit", "data split", "tune"])
def test_a_dash_is_no_file(capsys, place, monkeypatch, command):
    monkeypatch.chdir(place)
    assert "name one" in refusal(capsys, *command.split(), "goods.csv", "-o", "-")
    assert not (place / "-").exists()
