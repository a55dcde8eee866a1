"""``deql update``: files in, a model out that is what a fit on the changed data gives; the journal, and kills."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import deql
from deql._system.threads import set_threads
from deql.cli.app import run
from deql.io.journal import read_records
from deql.io.model_file import checksum, model_checksum, replacing
from deql.models.certificate import Certificate

USERS, ITEMS = 60, 24


def pairs():
    generator = np.random.default_rng(5)
    rows, columns = np.nonzero(generator.random((USERS, ITEMS)) < generator.uniform(0.05, 0.5, ITEMS))
    return [f"u{row}" for row in rows], [f"i{column}" for column in columns]


def table(path, *rows, schema=("user", "item")):
    pl.DataFrame(rows, schema=list(schema), orient="row").write_csv(path)
    return path


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Tables of a day, and models of the table that they change."""
    folder = tmp_path_factory.mktemp("shop")
    users, items = pairs()
    pl.DataFrame({"user": users, "item": items}).write_csv(folder / "data.csv")
    seconds = np.arange(len(users)) * 3600.0
    pl.DataFrame({"user": users, "item": items, "time": seconds}).write_csv(folder / "timed.csv")
    table(folder / "add.csv", ("u1", "new item"), ("new", "i2"), ("new", "i3"), ("u2", items[0]))
    table(folder / "remove.csv", (users[0], items[0]), (users[-1], items[-1]))
    (folder / "forget.txt").write_text("u5\nu6\n")
    table(folder / "forget.csv", ("u5", 1), ("u6", 2), schema=("user_id", "reason"))
    (folder / "retire.txt").write_text("item\ni4\n")
    fit = ["fit", str(folder / "data.csv"), "--l2", "3", "--dtype", "float64"]
    assert run([*fit, "--keep-data", "-o", str(folder / "kept.deql")]) == 0
    assert run([*fit, "--hash-users", "-o", str(folder / "hashed.deql")]) == 0
    assert run([*fit, "-o", str(folder / "plain.deql")]) == 0
    assert run(["fit", str(folder / "data.csv"), "-m", "popularity", "-o", str(folder / "popular.deql")]) == 0
    fading = ["--half-life", "3d", "--keep-data"]
    assert run(["fit", str(folder / "timed.csv"), "--l2", "3", *fading, "-o", str(folder / "fading.deql")]) == 0
    return folder


@pytest.fixture
def here(shop, tmp_path, monkeypatch):
    """A copy of it, which a test may change, as the working folder."""
    shutil.copytree(shop, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(capsys, *arguments):
    capsys.readouterr()
    assert run([*map(str, arguments)]) == 0, capsys.readouterr().err
    return capsys.readouterr()


def answer(capsys, *arguments):
    return json.loads(told(capsys, *arguments, "--json").out)


def files():
    return {path.name: path.read_bytes() for path in Path().iterdir() if path.is_file()}


def refusal(capsys, *arguments, out="out.deql"):
    """The sentence that a command is refused with; it has written nothing."""
    before = files()
    capsys.readouterr()
    given = [*map(str, arguments), *(["-o", out] if out else [])]
    assert run(given) == 2, capsys.readouterr().out
    printed, err = capsys.readouterr()
    assert printed == ""
    assert files() == before
    last = err.strip().splitlines()[-1]
    assert last.startswith("deql: error: ")
    return last.removeprefix("deql: error: ")


def check_refitted(model, atol=1e-10):
    """That a model is what a fit on its own data gives."""
    fresh = type(model)(**model.fitted_params_)
    fresh._fit_on(model.data_, model.until_)
    np.testing.assert_allclose(model.weights(), fresh.weights(), rtol=1e-8, atol=atol)


class TestUpdate:
    def test_everything_at_once(self, capsys, here):
        users, items = pairs()
        shown = told(
            capsys, "update", "kept.deql", "--add", "add.csv", "--remove", "remove.csv", "--forget-users", "forget.txt",
            "--retire-items", "retire.txt", "--method", "low-rank", "-o", "out.deql",
        )  # fmt: skip
        assert "1 new user" in shown.out
        assert "1 item retired" in shown.out
        assert "low rank; residual" in shown.out
        assert "and saved as out.deql" in shown.out
        model = deql.load("out.deql")
        check_refitted(model)
        assert model.items_[-1] == "new item"
        assert "i4" not in model.items_
        assert not {"u5", "u6"} & set(model.data_.users)
        wanted = {*zip(users, items, strict=True)} - {(users[0], items[0]), (users[-1], items[-1])}
        wanted |= {("u1", "new item"), ("new", "i2"), ("new", "i3"), ("u2", items[0])}
        wanted = {(user, item) for user, item in wanted if user not in ("u5", "u6") and item != "i4"}
        assert set(model.data_.to_frame().select("user", "item").iter_rows()) == wanted

    def test_for_machines(self, capsys, here):
        found = answer(capsys, "update", "kept.deql", "--forget-users", "forget.csv", "-o", "kept.deql")
        [report] = found["updates"]
        assert report["plan"]["changes"]["forgotten_users"] == 2
        assert report["method"] in ("low rank", "refit")
        assert found["after"] == model_checksum("kept.deql") == deql.load("kept.deql").checksum()
        assert found["bytes"] == os.path.getsize("kept.deql")
        assert (found["file"], found["journal"], found["certificate"]) == ("kept.deql", None, None)

    def test_of_a_model_in_shards_the_bytes_are_those_of_its_files(self, capsys, here):
        for name in ("first", "second"):
            deql.load("kept.deql").save(name, shards=True)
        found = answer(capsys, "update", "first", "--add", "add.csv", "--journal", "log", "-o", "second")
        again = answer(capsys, "update", "first", "--replay", "log", "-o", "second")
        size = sum(file.stat().st_size for file in Path("second").iterdir())
        assert found["bytes"] == again["bytes"] == size > 8 * ITEMS**2 / 2

    def test_dry_run(self, capsys, here):
        before = sorted(os.listdir())
        shown = told(capsys, "update", "kept.deql", "--forget-users", "forget.txt", "--dry-run")
        assert "2 users gone" in shown.out
        plan = answer(capsys, "update", "kept.deql", "--add", "add.csv", "--dry-run")
        assert plan["until"] is None
        assert plan["plan"]["changes"]["new_users"] == 1
        assert set(plan["plan"]["seconds"]) == {"low rank", "refit"}
        shown = told(capsys, "update", "plain.deql", "--data", "data.csv", "--dry-run")
        assert "The data are the model's, and would be kept." in shown.out
        assert "fades" in told(capsys, "update", "fading.deql", "--until", "1970-02-01", "--dry-run").out
        aged = answer(capsys, "update", "fading.deql", "--until", "1970-02-01", "--dry-run")
        assert aged == {"plan": None, "until": 31 * 86400.0}
        assert "do not fade" in refusal(capsys, "update", "kept.deql", "--until", "1970-02-01", "--dry-run", out=None)
        assert sorted(os.listdir()) == before

    def test_hashed_users_are_found(self, capsys, here):
        told(capsys, "update", "hashed.deql", "--forget-users", "forget.txt", "--add", "add.csv", "-o", "out.deql")
        model = deql.load("out.deql")
        assert model.n_users_ == USERS - 2 + 1
        check_refitted(model)
        assert "there are no users " in refusal(capsys, "update", "out.deql", "--forget-users", "forget.txt")

    def test_quantised_rows_stay(self, capsys, here):
        deql.load("kept.deql").save("rows.deql", quantized_rows=True)
        told(capsys, "update", "rows.deql", "--forget-users", "forget.txt", "-o", "rows.deql")
        told(capsys, "update", "kept.deql", "--forget-users", "forget.txt", "-o", "kept.deql")
        rows, plain = deql.load("rows.deql"), deql.load("kept.deql")
        assert rows.quantized_rows_ is not None
        assert plain.quantized_rows_ is None
        assert rows.recommend([["i1"]], k=5).ids.tolist() == plain.recommend([["i1"]], k=5).ids.tolist()

    def test_without_data_new_users_can_come(self, capsys, here):
        table("more.csv", ("n1", "i2"), ("n1", "i9"))
        assert "--new-users" in refusal(capsys, "update", "plain.deql", "--add", "more.csv")
        assert "cannot forget users" in refusal(capsys, "update", "plain.deql", "--forget-users", "forget.txt")
        told(capsys, "update", "plain.deql", "--add", "more.csv", "--new-users", "-o", "out.deql")
        told(capsys, "update", "kept.deql", "--add", "more.csv", "-o", "kept.deql")
        np.testing.assert_allclose(deql.load("out.deql").weights(), deql.load("kept.deql").weights(), atol=1e-10)

    def test_data_can_be_given_once(self, capsys, here):
        shown = told(capsys, "update", "plain.deql", "--data", "data.csv", "-o", "out.deql")
        assert "saved with its data" in shown.out
        told(capsys, "update", "out.deql", "--forget-users", "forget.txt", "-o", "out.deql")
        told(
            capsys, "update", "plain.deql", "--data", "data.csv", "--hash-users", "--forget-users", "forget.txt",
            "-o", "two.deql",
        )  # fmt: skip
        assert deql.load("two.deql").user_salt_ is not None
        np.testing.assert_allclose(deql.load("out.deql").weights(), deql.load("two.deql").weights(), atol=1e-10)
        assert "cleaned the same way" in refusal(capsys, "update", "plain.deql", "--data", "add.csv")

    def test_ids_that_look_like_numbers_are_text_where_the_model_has_text(self, capsys, here):
        table("numbers.csv", (7, 8), (7, 9))
        told(capsys, "update", "kept.deql", "--add", "numbers.csv", "-o", "out.deql")
        assert deql.load("out.deql").data_.history("7") == ["8", "9"]

    def test_times_and_aging(self, capsys, here):
        assert "say --time with one of" in refusal(capsys, "update", "fading.deql", "--add", "add.csv")
        table("later.csv", ("u1", "i9", 1.2e6), ("n", "i1", 1.2e6), schema=("user", "item", "time"))
        told(capsys, "update", "fading.deql", "--add", "later.csv", "--until", "1970-01-20", "-o", "out.deql")
        model = deql.load("out.deql")
        assert model.until_ == 19 * 86400
        check_refitted(model, atol=1e-5)
        assert "--half-life" in refusal(capsys, "update", "kept.deql", "--until", "1970-01-20")


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["kept.deql"], "say what changes: --add, --remove"),
            (["popular.deql", "--add", "add.csv"], "popular.deql is a Popularity, which has no inverse to update"),
            (["none.deql", "--add", "add.csv"], "there is no model file none.deql"),
            (["data.csv", "--add", "add.csv"], "data.csv is not a deql model file"),
            (["kept.deql", "--add", "none.csv"], "none.csv"),
            (["kept.deql", "--forget-users", "none.txt"], "there is no file none.txt with the ids of users"),
            (["kept.deql", "--forget-users", "empty"], "empty has no ids of users"),
            (["kept.deql", "--retire-items", "empty"], "empty has no ids of items"),
            (["kept.deql", "--add", "empty"], "empty"),
            (["kept.deql", "--forget-users", "unknown"], "there is no user 'nobody' to forget"),
            (["kept.deql", "--retire-items", "unknown"], "the model does not know the item 'nobody'"),
            (["kept.deql", "--remove", "add.csv"], "there is no interaction of user"),
            (["none.deql", "--add", "none.csv", "--until", "soon"], "--until must be a time"),
            (["kept.deql", "--add", "add.csv", "--k-core", "3"], "--k-core looks at all data, and belongs to --data"),
            (["kept.deql", "--add", "add.csv", "--hash-users"], "--hash-users goes with --data"),
            (["kept.deql", "--forget-users", "forget.txt", "--new-users"], "--new-users goes with --add FILE"),
            (["fading.deql", "--until", "1970-02-01", "--method", "refit"], "--method goes with --add, --remove"),
            (["kept.deql", "--add", "add.csv", "--certificate", "c.json"], "--certificate goes with --forget-users"),
            (["kept.deql", "--add", "add.csv", "--journal", "kept.deql"], "kept.deql is used twice in this command"),
            (["kept.deql", "--add", "add.csv", "--journal", "add.csv"], "add.csv is used twice in this command"),
            (["kept.deql", "--add", "add.csv", "--journal", "data.csv"], "data.csv is not a journal of updates"),
            (["kept.deql", "--data", "data.csv", "--journal", "log"], "--journal cannot hold what --data gives"),
            (["kept.deql", "--replay", "log", "--add", "add.csv"], "--replay does what its log says: leave out --add"),
            (["kept.deql", "--replay", "log", "--method", "refit"], "its log says: leave out --method"),
            (["kept.deql", "--replay", "log", "--weight", "w"], "its log says: leave out --weight"),
            (["kept.deql", "--replay", "none"], "the journal none cannot be read"),
            (["kept.deql", "--replay", "data.csv"], "not a journal of updates: name another with --replay"),
            (["kept.deql", "--add", "add.csv", "--forget-users", "u1"], "cannot be forgotten and added to at once"),
            (["plain.deql", "--add", "add.csv", "--method", "refit", "--new-users"], "a refit needs the data"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else "",
    )
    def test_one_sentence_and_nothing_written(self, capsys, here, arguments, said):
        (here / "empty").write_text("")
        (here / "unknown").write_text("nobody\n")
        (here / "u1").write_text("u1\n")
        assert said in refusal(capsys, "update", *arguments)

    def test_the_model_to_write(self, capsys, here):
        (here / "folder").mkdir()
        asked = ["update", "kept.deql", "--forget-users", "forget.txt"]
        assert "say with -o where to save the model" in refusal(capsys, *asked, out=None)
        assert "folder is a folder" in refusal(capsys, *asked, out="folder")
        assert "forget.txt is used twice" in refusal(capsys, *asked, out="forget.txt")
        assert "there is no folder" in refusal(capsys, *asked, out="none/out.deql")


def updates(here):
    """Five updates of each kind, as they are typed."""
    table(here / "one.csv", ("u9", "i1"), ("brand new", "i7"))
    table(here / "many.csv", *((f"m{number}", f"i{number % ITEMS}") for number in range(40)))
    table(here / "weighted.csv", ("u9", "i1", 0.1), ("u3", "i2", 1 / 3), schema=("user", "item", "weight"))
    (here / "u1").write_text("u1\n")
    return [
        ["--add", "one.csv", "--method", "low-rank"],
        ["--forget-users", "forget.txt", "--remove", "remove.csv"],
        ["--add", "many.csv", "--method", "refit"],
        ["--add", "weighted.csv", "--weight", "weight", "--method", "low-rank"],
        ["--retire-items", "retire.txt", "--forget-users", "u1", "--method", "low-rank"],
    ]


def journalled(capsys, here, model="kept.deql"):
    shutil.copy(model, "first.deql")
    for typed in updates(here):
        told(capsys, "update", model, *typed, "--journal", "log", "-o", model)


class TestJournal:
    @pytest.mark.parametrize("model", ["kept.deql", "hashed.deql", "rows.deql"])
    def test_replayed_it_gives_the_same_file(self, capsys, here, model):
        deql.load("kept.deql").save("rows.deql", quantized_rows=True)
        journalled(capsys, here, model)
        for threads in (1, 2):
            try:
                set_threads(threads)
                shown = told(capsys, "update", "first.deql", "--replay", "log", "-o", "again.deql")
            finally:
                set_threads(None)
            assert "5 updates done again" in shown.out
            assert (here / "again.deql").read_bytes() == (here / model).read_bytes()
        lines = read_records(here / "log", "updates")
        assert [line["step"] for line in lines] == ["update", "written"] * 5
        taken = [line["method"] for line in lines if line["step"] == "update"]
        assert taken[0] == taken[3] == "low rank"
        assert taken[2] == "refit"
        if model == "hashed.deql":
            assert "u5" not in (here / "log").read_text()

    def test_aging_is_replayed(self, capsys, here):
        table("later.csv", ("u1", "i9", 1.2e6), ("n", "i1", 1.2e6), schema=("user", "item", "time"))
        asked = ["--add", "later.csv", "--until", "1970-01-20", "--journal", "log"]
        told(capsys, "update", "fading.deql", *asked, "-o", "out.deql")
        told(capsys, "update", "out.deql", "--until", "1970-01-25", "--journal", "log", "-o", "out.deql")
        told(capsys, "update", "fading.deql", "--replay", "log", "-o", "again.deql")
        assert (here / "again.deql").read_bytes() == (here / "out.deql").read_bytes()

    def test_a_prior_that_is_given_again_is_read_again(self, capsys, here):
        rows = [(f"i{number}", "sweet" if number % 3 else "sour") for number in range(ITEMS)]
        table("items.csv", *rows, schema=("item", "kind"))
        fit = ["data.csv", "--l2", "3", "--keep-data", "--prior", "features:items.csv,l2=0.5"]
        told(capsys, "fit", *fit, "-o", "first.deql")
        table("one.csv", ("u9", "i1"), ("brand new", "i7"))
        assert "item 'i4'" in (said := refusal(capsys, "update", "first.deql", "--retire-items", "retire.txt"))
        assert "--item-features" in said
        again = [["--item-features", "items.csv"], [], ["--item-features", "items.csv", "--method", "refit"]]
        model = "first.deql"
        for options, asked in zip(again, (["--add", "one.csv"], ["--forget-users", "forget.txt"]) * 2, strict=False):
            told(capsys, "update", model, *asked, *options, "--journal", "log", "-o", "out.deql")
            model = "out.deql"
        told(capsys, "update", "first.deql", "--replay", "log", "-o", "again.deql")
        assert (here / "again.deql").read_bytes() == (here / "out.deql").read_bytes()

    def test_of_another_model(self, capsys, here):
        shutil.copy("kept.deql", "first.deql")
        asked = ["--forget-users", "forget.txt", "--journal", "log"]
        told(capsys, "update", "kept.deql", *asked, "-o", "kept.deql")
        assert "log is the journal of another model: name another with --journal" in refusal(
            capsys, "update", "hashed.deql", *asked
        )
        assert "log goes on from this model to a later one" in refusal(capsys, "update", "first.deql", *asked)
        assert "log is the journal of another model" in refusal(capsys, "update", "kept.deql", "--replay", "log")

    def test_a_line_whose_model_was_never_written_is_dropped(self, capsys, here):
        asked = [["--add", "add.csv", "--journal", "log"], ["--forget-users", "forget.txt", "--journal", "log"]]
        told(capsys, "update", "kept.deql", *asked[0], "-o", "kept.deql")
        shutil.copy("kept.deql", "before.deql")
        told(capsys, "update", "kept.deql", *asked[1], "-o", "after.deql")
        lines = (here / "log").read_bytes().splitlines(keepends=True)
        for kept, file, note in (
            (lines[:-1], "before.deql", True),  # ended before the model was there
            (lines[:-1], "after.deql", False),  # or right after
            ([*lines[:-2], lines[-2][:30]], "before.deql", False),  # or in the middle of the line
        ):
            (here / "log").write_bytes(b"".join(kept))
            shown = told(capsys, "update", file, "--remove", "remove.csv", "--journal", "log", "-o", "out.deql")
            assert ("was ended before its model was there" in shown.err) == note
            told(capsys, "update", "out.deql", "--add", "remove.csv", "--journal", "log", "-o", "out.deql")
            methods = [line for line in read_records(here / "log", "updates") if line["step"] == "update"]
            assert len(methods) == (4 if file == "after.deql" else 3)

    def test_replay_tells_an_update_that_was_not_confirmed(self, capsys, here):
        told(capsys, "update", "kept.deql", "--add", "add.csv", "--journal", "log", "-o", "out.deql")
        lines = (here / "log").read_bytes().splitlines(keepends=True)
        (here / "log").write_bytes(b"".join(lines[:-1]))
        shown = told(capsys, "update", "kept.deql", "--replay", "log", "-o", "again.deql")
        assert "may have been ended" in shown.err
        assert (here / "again.deql").read_bytes() == (here / "out.deql").read_bytes()

    def test_what_it_still_tells_of_the_forgotten(self, capsys, here):
        (here / "new").write_text("new\n")
        told(capsys, "update", "kept.deql", "--add", "add.csv", "--journal", "log", "-o", "out.deql")
        shown = told(capsys, "update", "out.deql", "--forget-users", "forget.txt", "--journal", "log", "-o", "out.deql")
        assert "log names who was forgotten" in shown.err
        shown = told(capsys, "update", "out.deql", "--forget-users", "new", "--journal", "log", "-o", "out.deql")
        assert "log still holds what was added of them" in shown.err
        assert "begin a new journal from out.deql" in shown.err

    def test_damage_is_told(self, capsys, here):
        told(capsys, "update", "kept.deql", "--add", "add.csv", "--journal", "log", "-o", "out.deql")
        head, line, written = (here / "log").read_text().splitlines(keepends=True)
        replay = ["update", "kept.deql", "--replay", "log"]
        for wrong, said in (
            (
                line.replace('"i2"', '"i3"'),
                "line 2 of log is damaged: a batch of changes is damaged: its items are not",
            ),
            (line.replace('"i2"', '"i6"'), "line 2 of log gives another model here, with deql "),
            (line.replace('"method"', '"way"'), "line 2 of log is damaged: it has no method"),
            (line.replace('"refit"', '"magic"').replace('"low rank"', '"magic"'), "its method is 'magic'"),
            ("", "log has no updates"),
        ):
            (here / "log").write_text(head + wrong + written)
            assert said in refusal(capsys, *replay)
        (here / "log").write_text(head + line.replace('"version": "', '"version": "9.') + written)
        told(capsys, *replay, "-o", "again.deql")

    def test_a_failed_update_leaves_no_journal(self, capsys, here, monkeypatch):
        def fails(*_given, **_named):
            raise deql.DataError("no")

        monkeypatch.setattr("deql.cli.update.apply_entry", fails)
        refusal(capsys, "update", "kept.deql", "--add", "add.csv", "--journal", "log")


KILLS = {
    "half written": (
        "import deql.io.container as c\n"
        "def half(place, *rest):\n    place.write_bytes(b'half'); die()\n"
        "c.write_arrays = half\n"
    ),
    "before the name": "import pathlib; pathlib.Path.replace = lambda *given: die()\n",
    "after the name": "import deql.models.update_journal as j; j.UpdateJournal.confirm = lambda *given: die()\n",
}
"""What kills the process, and when."""


class TestKilled:
    @pytest.mark.parametrize("moment", KILLS)
    def test_the_model_is_the_old_or_the_new(self, capsys, here, moment):
        code = (
            "import os, signal, sys\n"
            "def die(): os.kill(os.getpid(), signal.SIGKILL)\n"
            f"{KILLS[moment]}"
            "from deql.cli.app import run\nsys.exit(run(sys.argv[1:]))"
        )
        asked = ["update", "kept.deql", "--forget-users", "forget.txt", "--journal", "log", "-o", "kept.deql"]
        before = (here / "kept.deql").read_bytes()
        done = subprocess.run([sys.executable, "-c", code, *asked], capture_output=True, timeout=60)
        assert done.returncode == -signal.SIGKILL, done.stderr
        model = deql.load("kept.deql")
        is_new = moment == "after the name"
        assert ((here / "kept.deql").read_bytes() == before) != is_new
        assert model.n_users_ == USERS - 2 * is_new
        again = ["--add", "add.csv"] if is_new else asked[2:4]
        told(capsys, "update", "kept.deql", *again, "--journal", "log", "-o", "kept.deql")
        assert not [name for name in os.listdir() if name.endswith(".tmp")]
        (here / "first.deql").write_bytes(before)
        told(capsys, "update", "first.deql", "--replay", "log", "-o", "again.deql")
        assert (here / "again.deql").read_bytes() == (here / "kept.deql").read_bytes()


def test_a_certificate_is_written_beside_the_model(capsys, here):
    before = model_checksum("kept.deql")
    told(
        capsys, "update", "kept.deql", "--forget-users", "forget.txt", "--certificate", "c.json", "-o", "kept.deql",
        "--add", "add.csv",
    )  # fmt: skip
    certificate = Certificate.load("c.json")
    assert (certificate.before, certificate.after) == (before, model_checksum("kept.deql"))
    assert certificate.among(["u5", "u6", "u7"]).tolist() == [True, True, False]
    users, _ = pairs()
    assert certificate.interactions == sum(user in ("u5", "u6") for user in users)


def refused(capsys, *arguments):
    """What an update says that does nothing at all."""
    capsys.readouterr()
    before = files()
    assert run([*map(str, arguments)]) == 2
    assert files() == before
    return capsys.readouterr().err


def test_one_process_at_a_time_updates_a_file_in_its_place(here, capsys):
    arguments = ["update", "kept.deql", "--add", "add.csv", "-o"]
    with replacing(Path("kept.deql"), checksum("kept.deql")):
        assert "another process is updating kept.deql" in refused(capsys, *arguments, "kept.deql")
        assert run([*arguments, "other.deql"]) == 0


def test_a_file_that_is_replaced_while_it_is_read_is_not_written_over(here, capsys, monkeypatch):
    def load_and_replace(path):
        model = deql.load(path)
        os.replace("plain.deql", path)
        return model

    monkeypatch.setattr("deql.cli.update.load_updatable", load_and_replace)
    assert run(["update", "kept.deql", "--add", "add.csv", "-o", "kept.deql"]) == 2
    assert "kept.deql was replaced while it was read" in capsys.readouterr().err
    assert deql.load("kept.deql").data_ is None


def test_nothing_is_in_the_journal_of_users_whose_certificate_cannot_be_written(here, capsys, monkeypatch):
    def full(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("deql.models.certificate.sync", full)
    asked = ["update", "kept.deql", "--forget-users", "forget.txt", "--certificate", "gone.json", "--journal", "log"]
    assert "gone.json could not be written: no space" in refused(capsys, *asked, "-o", "kept.deql")


def test_a_journal_with_a_gap_takes_no_more(here, capsys):
    for name in ("add", "remove", "add"):
        assert run(["update", "kept.deql", f"--{name}", f"{name}.csv", "--journal", "log", "-o", "kept.deql"]) == 0
    lines = Path("log").read_text().splitlines(keepends=True)
    Path("log").write_text("".join(lines[:3] + lines[5:]))
    said = refused(capsys, "update", "kept.deql", "--retire-items", "retire.txt", "--journal", "log", "-o", "kept.deql")
    assert "log is broken: a line is missing" in said


def test_there_is_no_certificate_without_its_model_nor_the_model_without_it(capsys, here, monkeypatch):
    asked = ["update", "kept.deql", "--forget-users", "forget.txt", "--certificate", "c.json"]
    with monkeypatch.context() as patch:
        patch.setattr(deql.DEQL, "save", lambda *given, **named: (_ for _ in ()).throw(deql.ModelFileError("no room")))
        assert "no room" in refusal(capsys, *asked)
    with monkeypatch.context() as patch:
        patch.setattr(Certificate, "to_json", lambda self: (_ for _ in ()).throw(OSError(28, "No space left")))
        assert "c.json could not be written: no space left" in refusal(capsys, *asked)
