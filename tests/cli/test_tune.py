"""``deql tune`` and ``deql fit --auto`` as people type them, nonsense included."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest

import deql
from deql.cli import run
from deql.cli.model_specs import parse_spec
from deql.evaluation.model_groups import parameters
from deql.split import read_lightgcn_split
from deql.tuning.space import NAMED, with_axes
from deql.tuning.tuning_data import all_interactions
from tests.cli.published import write_published
from tests.cli.test_cli import answer, refusal

AXES = ["--l2", "3,30", "--dropout", "0.2,0.5", "--user-power", "0", "--b", "0,0.5,1", "--popularity-power", "0,0.2"]
AXES += ["--prior", "none"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A part of the bundled data as a table, a split file and a published split."""
    place = tmp_path_factory.mktemp("tune")
    some = deql.datasets.debian().take_users(np.arange(0, 17_432, 20))
    some = some.take_items(np.sort(np.argsort(-some.matrix.sum(axis=0), kind="stable")[:300]))
    rows = np.repeat(np.arange(some.n_users), np.diff(some.matrix.indptr))
    frame = {"user": some.users[rows].tolist(), "item": some.items[some.matrix.indices].tolist()}
    pl.DataFrame(frame).write_csv(place / "events.csv")
    table = deql.read_interactions(place / "events.csv")
    deql.split_strong(table, seed=3).save(place / "events.split")
    write_published(place / "published", table.matrix)
    return place


def shown(capsys, *arguments):
    """What a command that went well has on standard output and on standard error."""
    capsys.readouterr()
    assert run([*map(str, arguments)]) == 0
    return capsys.readouterr()


def saved(path):
    model = deql.load(path)
    return model.get_params(), model.weights()


def steps(content):
    """What the lines of a journal are."""
    return [json.loads(line).get("step") for line in content.splitlines()]


class TestTune:
    def test_of_several_metrics_the_first_decides(self, capsys, folder, tmp_path):
        command = ["tune", folder / "events.split", *AXES]
        one = answer(capsys, *command, "-o", tmp_path / "one.deql", "--metrics", "recall@10")
        facts = answer(capsys, *command, "-o", tmp_path / "two.deql", "--metrics", "recall@10,ndcg@5")
        assert facts["metric"] == one["metric"] == "recall@10"
        assert facts["best"] == one["best"] | {"ndcg@5": facts["best"]["ndcg@5"]}
        text, _ = shown(capsys, *command, "-o", tmp_path / "two.deql", "--metric", "recall@10,ndcg@5")
        assert "--metrics recall@10,ndcg@5" in text

    def test_a_split_as_in_python(self, capsys, folder, tmp_path):
        out = tmp_path / "shop.deql"
        facts = answer(capsys, "tune", folder / "events.split", "-o", out, *AXES, "--metric", "recall@10")
        space = {"l2": [3, 30], "dropout": [0.2, 0.5], "user_power": 0, "b": [0, 0.5, 1], "popularity_power": [0, 0.2]}
        space |= {"prior": None}
        expected = deql.tune(deql.load_split(folder / "events.split"), space, "recall@10")
        assert facts["leaderboard"] == expected.table.to_dicts()
        assert facts["sentence"] == expected.sentence
        assert (facts["inverses"], facts["models"], facts["complete"]) == (4, 24, True)
        assert (facts["file"], facts["bytes"]) == (str(out), out.stat().st_size)
        np.testing.assert_array_equal(deql.load(out).weights(), expected.model.weights())
        assert facts["journal"] == str(tmp_path / "shop.tuning.jsonl")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["shop.deql", "shop.tuning.jsonl"]

    def test_a_model_in_shards_is_replaced_by_one(self, capsys, folder, tmp_path):
        out = tmp_path / "shop.deql"
        deql.Popularity().fit(deql.load_split(folder / "events.split").train).save(out, shards=True)
        facts = answer(capsys, "tune", folder / "events.split", "-o", out, *AXES)
        assert facts["bytes"] == sum(file.stat().st_size for file in out.iterdir())
        assert deql.load(out).l2 == facts["best"]["l2"]

    def test_a_table_is_split_and_the_command_that_judges_is_shown(self, capsys, folder, tmp_path):
        data = tmp_path / "my events.csv"
        data.write_bytes((folder / "events.csv").read_bytes())
        options = ["--held-out", 0.3, "--test-users", 0.2, "--seed", 5, "--header", "--k-core", 3]
        out = tmp_path / "it's.deql"
        text, notes = shown(capsys, "tune", data, "-o", out, *AXES, "--metric", "ndcg@5", *options)
        table = deql.clean(deql.read_interactions(data), k_core=3)
        split = deql.split_strong(table, 0.2, held_out=0.3, seed=5)
        assert deql.load(out).items_.tolist() == split.train.items.tolist()
        space = {"l2": [3, 30], "dropout": [0.2, 0.5], "user_power": 0, "b": [0, 0.5, 1], "popularity_power": [0, 0.2]}
        space |= {"prior": None}
        expected = deql.tune(split, space, "ndcg@5", seed=5)
        np.testing.assert_array_equal(deql.load(out).weights(), expected.model.weights())
        assert expected.sentence in text
        assert ("← best" if expected.curve.best("ndcg@5") == expected.best["b"] else "← taken") in text
        assert f"{split.train.n_users:,} users × " in notes

        command = shlex.split(text.splitlines()[-1])
        assert command[:2] == ["deql", "evaluate"]
        facts = answer(capsys, *command[1:])
        assert facts["models"][0]["means"] == deql.evaluate(expected.model, split.test, ["ndcg@5"]).means

    def test_a_published_split_has_no_validation_part(self, capsys, folder, tmp_path):
        facts = answer(capsys, "tune", folder / "published", "-o", tmp_path / "p.deql", *AXES, "--seed", 7)
        assert "no validation part" in facts["how"]
        found, train = deql.load(tmp_path / "p.deql"), read_lightgcn_split(folder / "published").train
        expected = type(found)(**found.get_params()).fit(train)
        np.testing.assert_array_equal(found.weights(), expected.weights())
        command = ["tune", folder / "published", "-o", tmp_path / "q.deql", *AXES, "--seed", 7, "--xi", "0.1,0.3"]
        text, _ = shown(capsys, *command)
        assert shlex.split(text.splitlines()[-1]) == [
            "deql", "evaluate", str(folder / "published"), str(tmp_path / "q.deql")
        ]  # fmt: skip

    def test_named_spaces(self, capsys, folder, tmp_path):
        paper = answer(capsys, "tune", folder / "events.split", "-o", tmp_path / "a.deql", "--space", "paper",
                       "--l2", 10, "--dropout", "0.2")  # fmt: skip
        assert paper["models"] == 9
        assert paper["space"]["b"] == [0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0]
        assert (paper["space"]["l2"], paper["space"]["dropout"]) == ([10], [0.2])

    def test_a_budget_and_no_screening(self, capsys, folder, tmp_path):
        command = [
            "tune",
            folder / "events.split",
            "-o",
            tmp_path / "a.deql",
            "--space",
            "quick",
            "--prior",
            "none",
            "--budget",
        ]
        facts = answer(capsys, *command, 3, "--no-prune")
        assert (facts["inverses"], facts["looks"]) == (2, [])
        assert answer(capsys, *command, 4, "--no-prune")["inverses"] == 3
        assert steps((tmp_path / "a.tuning.jsonl").read_bytes()).count("point") == 3

    def test_the_time_is_told_first(self, capsys, folder, tmp_path):
        _, notes = shown(capsys, "tune", folder / "events.split", "-o", tmp_path / "a.deql", "--space", "quick")
        lines = notes.splitlines()
        (told,) = [place for place, line in enumerate(lines) if ", and the fit of the winner" in line]
        assert "for the walk, about " in lines[told]
        assert " for the prior, about 4 for EASE and EDLAE to compare with" in lines[told]
        (first,) = [place for place, line in enumerate(lines) if line.startswith("deql: 1 of about ")]
        assert told < first
        _, notes = shown(capsys, "fit", folder / "events.split", "-o", tmp_path / "b.deql", "--auto")
        assert "compare with, and the fit of the winner" in notes

    def test_it_goes_on_with_the_journal(self, capsys, folder, tmp_path):
        out, journal = tmp_path / "shop.deql", tmp_path / "shop.tuning.jsonl"
        command = ["tune", folder / "events.split", "-o", out, *AXES]
        text, notes = shown(capsys, *command)
        assert f"every point is kept in {journal}" in notes
        before, whole = saved(out), journal.read_bytes()
        lines = whole.splitlines(keepends=True)
        journal.write_bytes(b"".join(lines[:4]) + lines[4][:30])
        again, notes = shown(capsys, *command)
        assert f"going on with 3 points from {journal}" in notes
        assert again == text
        assert saved(out)[0] == before[0]
        np.testing.assert_array_equal(saved(out)[1], before[1])
        assert steps(journal.read_bytes()) == steps(whole)

        other = tmp_path / "other.jsonl"
        shown(capsys, *command, "--journal", other)
        assert steps(other.read_bytes()) == steps(whole)

    def test_report(self, capsys, folder, tmp_path):
        pytest.importorskip("matplotlib", reason="reports need matplotlib")
        page = tmp_path / "page.html"
        _, notes = shown(capsys, "tune", folder / "events.split", "-o", tmp_path / "a.deql", *AXES, "--report", page)
        assert "Tuning on events.split" in page.read_text(encoding="utf-8")
        assert f"wrote {page}" in notes

    @pytest.mark.parametrize("source", ["events.csv", "events.split"])
    def test_refit_on_everything(self, capsys, folder, tmp_path, source):
        out = tmp_path / "shop.deql"
        text, _ = shown(capsys, "tune", folder / source, "-o", out, *AXES, "--refit", "all")
        table = deql.read_interactions(folder / "events.csv")
        if source == "events.split":  # which has not all of the table
            table = all_interactions(deql.load_split(folder / source))
        found = deql.load(out)
        assert found.n_users_ == table.n_users
        expected = type(found)(**found.get_params()).fit(table)
        order = [found.items_.tolist().index(item) for item in table.items.tolist()]
        np.testing.assert_allclose(found.weights()[np.ix_(order, order)], expected.weights(), atol=1e-5)
        # A fit of the same parameters on the training part is what the test part can say something about.
        typed = "As it can be typed: "
        spec = next(line for line in text.splitlines() if line.startswith(typed)).removeprefix(typed)
        command = shlex.split(text.splitlines()[-1])
        assert command == ["deql", "evaluate", str(folder / source), spec]
        assert answer(capsys, *command[1:])["models"][0]["means"]

    @pytest.mark.parametrize(("refit", "keep"), [("train", "--keep-data"), ("all", "--hash-users")])
    @pytest.mark.parametrize("source", ["events.csv", "events.split"])
    def test_keeps_the_data_that_the_winner_was_fitted_on(self, capsys, folder, tmp_path, source, refit, keep):
        out = tmp_path / "shop.deql"
        shown(capsys, "tune", folder / source, "-o", out, *AXES, "--refit", refit, keep)
        found = deql.load(out)
        assert (found.user_salt_ is not None) == (keep == "--hash-users")
        assert found.data_.n_users == found.n_users_
        again = type(found)(**found.get_params()).fit(found.data_)
        np.testing.assert_allclose(found.weights(), again.weights(), atol=1e-5)

    def test_the_winner_can_be_typed(self, capsys, folder, tmp_path):
        out, again = tmp_path / "a.deql", tmp_path / "b.deql"
        ridges = ["--l2", "3.0000000000000004,0.1", "--b", "0.30000000000000004", "--user-power", "0.7"]
        facts = answer(capsys, "tune", folder / "events.split", "-o", out, *AXES, *ridges)
        answer(capsys, "fit", folder / "events.split", "-m", facts["spec"], "-o", again)
        assert parse_spec(facts["spec"]).get_params() == deql.load(out).get_params()
        assert saved(again)[0] == saved(out)[0]
        np.testing.assert_array_equal(saved(again)[1], saved(out)[1])
        bounded = answer(capsys, "tune", folder / "events.split", "-o", tmp_path / "c.deql", *AXES[:6], "--b", "0",
                         "--xi", "0.35", "--popularity-power", "0.1", "--dtype", "float64")  # fmt: skip
        assert parse_spec(bounded["spec"]).get_params() == deql.load(tmp_path / "c.deql").get_params()

    def test_dry_run(self, capsys, folder, tmp_path, monkeypatch):
        monkeypatch.setattr("deql.tuning.trainer.Trainer.fit", None)
        text, _ = shown(capsys, "tune", folder / "events.split", *AXES, "--dry-run")
        assert text.startswith("This would take ")
        assert " 1 s: 4 inverses of under 1 s for the grid, about 3 for EASE and EDLAE to compare with" in text
        assert "The space has 4 points." in text.replace("\n", " ")
        facts = answer(capsys, "tune", folder / "events.split", "-o", tmp_path / "a.deql", *AXES, "--dry-run")
        assert (facts["points"], facts["inverses"], facts["baselines"], facts["fits"]) == (4, 4, 3, 1)
        assert not list(tmp_path.iterdir())
        assert "say with -o where" in refusal(capsys, "tune", folder / "events.split")

    def test_optuna(self, capsys, folder, tmp_path, monkeypatch):
        command = ["tune", folder / "events.split", "-o", tmp_path / "a.deql", "--search", "optuna", "--budget", "3"]
        monkeypatch.setitem(sys.modules, "optuna", None)
        assert "deql[tune]" in refusal(capsys, *command)
        assert not list(tmp_path.iterdir())
        monkeypatch.undo()
        pytest.importorskip("optuna", reason="an extra")
        assert answer(capsys, *command)["inverses"] == 2


class TestInterruption:
    def test_the_best_so_far_is_saved(self, capsys, folder, tmp_path, monkeypatch):
        from deql.tuning.trainer import Trainer

        whole, asked = Trainer.evaluate, []

        def evaluate(self, point, rules, metrics):
            asked.append(point)
            if len(asked) == 3:
                raise KeyboardInterrupt
            return whole(self, point, rules, metrics)

        monkeypatch.setattr(Trainer, "evaluate", evaluate)
        out = tmp_path / "a.deql"
        command = [*map(str, ["tune", folder / "events.split", "-o", out, *AXES])]
        assert run(command) == 130
        text, notes = capsys.readouterr()
        assert "Best: " in text
        assert "the same command goes on" in notes
        assert deql.load(out).l2 in (3, 30)
        assert steps((tmp_path / "a.tuning.jsonl").read_bytes()).count("point") == 2
        monkeypatch.undo()
        assert "going on with 2 points" in shown(capsys, *command).err
        assert answer(capsys, *command)["complete"] is True

        monkeypatch.setattr(Trainer, "evaluate", evaluate)
        asked.clear()
        auto = ["fit", folder / "events.split", "-o", tmp_path / "f.deql", "--auto", "--dropout", "0.2"]
        assert run([*map(str, auto)]) == 130
        assert "the best of 2" in capsys.readouterr().err
        assert deql.load(tmp_path / "f.deql").dropout == 0.2

    @pytest.mark.skipif(os.name != "posix", reason="sends a signal")
    @pytest.mark.parametrize("points", [0, 2])
    def test_a_real_signal(self, capsys, folder, tmp_path, points):
        out, journal = tmp_path / "a.deql", tmp_path / "a.tuning.jsonl"
        ridges = ",".join(map(str, range(1, 401)))
        command = ["tune", folder / "events.split", "-o", out, *AXES, "--l2", ridges, "--search", "grid", "--no-prune"]
        # A process that is started in the background may ignore the signal.
        start = (
            "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "from deql.cli.app import main; main()"
        )
        arguments = [sys.executable, "-c", start, *map(str, command)]
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        notes = process.stderr.readline()
        while (
            points
            and process.poll() is None
            and (not journal.exists() or len(journal.read_bytes().splitlines()) <= points)
        ):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        notes += process.communicate(timeout=120)[1]
        assert process.returncode == 130, notes
        assert notes.endswith("deql: interrupted\n")
        assert "Traceback" not in notes
        found = steps(journal.read_bytes()).count("point") if journal.exists() else 0
        assert points <= found < 800
        assert out.exists() == (found > 0) == ("the same command goes on with the search" in notes)
        if found:
            assert deql.load(out).l2 in range(1, 401)
            assert answer(capsys, *command, "--budget", found)["inverses"] == found
        assert not list(tmp_path.glob(".*tmp"))


class TestAuto:
    def test_a_table_is_fitted_whole(self, capsys, folder, tmp_path):
        out = tmp_path / "a.deql"
        facts = answer(capsys, "fit", folder / "events.csv", "-o", out, "--auto", "--l2", 10, "--dropout", 0.3,
                       "--prior", "none")  # fmt: skip
        table = deql.read_interactions(folder / "events.csv")
        quick = with_axes(NAMED["quick"], {"l2": 10, "dropout": 0.3, "prior": None})
        best = deql.tune(table, quick)
        assert facts["tuning"]["best"] == best.best
        assert (facts["tuning"]["inverses"], facts["tuning"]["sentence"]) == (len(quick.user_power), best.sentence)
        assert facts["tuning"]["spec"] == best.spec
        rule = {name: best.best[name] for name in ("b", "popularity_power", "user_power")}
        expected = deql.DEQL(10.0, 0.3, **rule).fit(table)
        np.testing.assert_array_equal(deql.load(out).weights(), expected.weights())
        assert facts["parameters"] == parameters(expected)

    def test_a_split_is_fitted_on_its_training_part(self, capsys, folder, tmp_path):
        out = tmp_path / "a.deql"
        text, _ = shown(capsys, "fit", folder / "events.split", "-o", out, "--auto", "--l2", 10, "--zero-diagonal",
                        "--user-power", 0.5, "--popularity-power", 0.1, "--dtype", "float64")  # fmt: skip
        assert "Best: DEQL l2=10" in text
        assert f"saved as {out}" in text
        found = deql.load(out)
        assert (found.b, found.user_power, found.popularity_power, found.dtype) == (0, 0.5, 0.1, "float64")
        assert found.dropout in NAMED["quick"].dropout
        train = deql.load_split(folder / "events.split").train
        expected = deql.EDLAE(10.0, found.dropout, user_power=0.5, popularity_power=0.1, dtype="float64").fit(train)
        np.testing.assert_allclose(found.weights(), expected.weights(), atol=1e-12)

    def test_xi_means_no_b(self, capsys, folder, tmp_path):
        command = ["fit", folder / "events.split", "-o", tmp_path / "a.deql", "--auto", "--xi", 0.2, "--l2", 10]
        facts = answer(capsys, *command)
        assert (facts["model"], facts["parameters"]["xi"]) == ("RDLAE", 0.2)

    def test_nonsense(self, capsys, folder, tmp_path):
        command = ["fit", folder / "events.split", "-o", tmp_path / "a.deql", "--auto"]
        assert "leave out -m ease" in refusal(capsys, *command, "-m", "ease")
        assert "--b and --zero-diagonal exclude" in refusal(capsys, *command, "--zero-diagonal", "--b", 1)
        assert "--b and --xi exclude" in refusal(capsys, *command, "--xi", 0.2, "--b", 1)
        assert "dropout must be" in refusal(capsys, *command, "--dropout", 1)
        assert "dtype must be" in refusal(capsys, *command, "--dtype", "float16")
        assert not list(tmp_path.iterdir())


class TestNonsense:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (["--l2", "abc"], "--l2 must be numbers with commas between, such as 0.2,0.5, got 'abc'"),
            (["--l2", "10,-1"], "--l2 10,-1: l2 must be"),
            (["--user-power", "nan"], "--user-power nan: user_power must be"),
            (["--dropout", "0.5;0.6"], "--dropout must be numbers"),
            (["--b", ""], "--b must be numbers"),
            (["--xi", "0.1,"], "--xi must be numbers"),
            (["--budget", "0"], "a budget is a number"),
            (["--budget", "soon"], "a budget is a number"),
            (["--space", "papr"], "did you mean paper?"),
            (["--space", "moon"], "say default, quick, paper"),
            (["--search", "luck"], "'--search'"),
            (["--metric", "ndgc@20"], "unknown metric"),
            (["--metric", "coverage@20"], "does not say how good"),
            (["--dtype", "float16"], "dtype must be"),
            (["--seed", "-1"], "seed must be"),
            (["--prior", "none", "--prior-rank", "4"], "--prior-rank needs a prior: leave it out"),
            (["--protocol", "weak"], "split already"),
            (["--k-core", "3"], "split already"),
        ],
    )
    def test_options(self, capsys, folder, tmp_path, options, words):
        assert words in refusal(capsys, "tune", folder / "events.split", "-o", tmp_path / "a.deql", *options)
        assert not list(tmp_path.iterdir())

    def test_files(self, capsys, folder, tmp_path):
        data, out = tmp_path / "events.split", tmp_path / "a.deql"
        data.write_bytes((folder / "events.split").read_bytes())
        for files in (
            ["-o", data],
            ["-o", out, "--journal", data],
            ["-o", out, "--journal", out],
            ["-o", tmp_path / "a.tuning.jsonl", "--journal", tmp_path / "a.tuning.jsonl"],
            ["-o", out, "--report", out],
            ["-o", out, "--report", data],
            ["-o", out, "--report", tmp_path / "a.tuning.jsonl"],
        ):
            assert "used twice" in refusal(capsys, "tune", data, *files)
        assert "is a folder" in refusal(capsys, "tune", data, "-o", out, "--journal", tmp_path)
        assert "is a folder" in refusal(capsys, "tune", data, "-o", "")
        assert "no folder" in refusal(capsys, "tune", data, "-o", out, "--journal", tmp_path / "none" / "j.jsonl")
        assert "no file" in refusal(capsys, "tune", tmp_path / "none.csv", "-o", out)
        assert [path.name for path in tmp_path.iterdir()] == ["events.split"]

    def test_a_folder_of_tables_gets_no_other_files(self, capsys, folder, tmp_path):
        data = tmp_path / "tables"
        data.mkdir()
        (data / "events.csv").write_bytes((folder / "events.csv").read_bytes())
        assert "read as data by the next command" in refusal(capsys, "tune", data, "-o", data / "a.deql")
        assert [path.name for path in data.iterdir()] == ["events.csv"]
        assert answer(capsys, "tune", data, "-o", tmp_path / "a.deql", *AXES)["inverses"] == 4

    def test_journals(self, capsys, folder, tmp_path):
        command = ["tune", folder / "events.split", "-o", tmp_path / "a.deql", "--journal", tmp_path / "j.jsonl"]
        shown(capsys, *command, *AXES)
        journal, model = tmp_path / "j.jsonl", (tmp_path / "a.deql").read_bytes()
        whole = journal.read_bytes()
        other = refusal(capsys, *command, *AXES, "--metric", "ndcg@10")
        assert "of a search with other metric: name another with --journal" in other
        assert "with other space" in refusal(capsys, *command)
        lines = whole.splitlines(keepends=True)
        journal.write_bytes(b"".join([*lines[:2], b"rubbish\n", *lines[3:]]))
        assert "line 3 of" in refusal(capsys, *command, *AXES)
        journal.write_text("a,b\n1,2\n")
        assert "is not a journal of a search: name another with --journal" in refusal(capsys, *command, *AXES)
        assert journal.read_text() == "a,b\n1,2\n"
        assert (tmp_path / "a.deql").read_bytes() == model

    def test_data(self, capsys, tmp_path):
        data, out = tmp_path / "events.csv", tmp_path / "a.deql"
        for command in (["tune", data, "-o", out], ["fit", data, "-o", out, "--auto"]):
            data.write_text("")
            assert "empty" in refusal(capsys, *command)
            data.write_text("user,item\nann,tea\nann,jam\n")
            assert "single user" in refusal(capsys, *command)
            data.write_text("user,item\nann,tea\nann,jam\nbob,tea\nbob,oat\n")
            refusal(capsys, *command)
        assert [path.name for path in tmp_path.iterdir()] == ["events.csv"]


class TestValidation:
    """What is held out to choose on, as typed."""

    @pytest.fixture
    def lines(self, tmp_path):
        generator = np.random.default_rng(0)
        drawn = [generator.permutation(12)[: generator.integers(3, 9)].tolist() for _ in range(80)]
        for name, part in (("train", [line[:-1] for line in drawn]), ("test", [line[-1:] for line in drawn])):
            text = "".join(f"{user} {' '.join(map(str, line))}\n" for user, line in enumerate(part))
            (tmp_path / f"{name}.txt").write_text(text)
        return tmp_path

    def test_last_by_the_order_of_the_file(self, lines, capsys):
        fixed = ["--l2", 3, "--dropout", 0.3, "--user-power", 0, "--prior", "none", "--json"]
        told = shown(capsys, "tune", lines, "-o", lines / "m.deql", *fixed, "--validation", "last")
        assert json.loads(told.out)["how"].endswith(
            "the last 10% of each user's items were held out, by the order of the file"
        )

    def test_what_is_neither_a_word_nor_a_number(self, lines, capsys):
        assert run(["tune", str(lines), "--dry-run", "--validation", "lest"]) == 2
        assert "--validation must be auto, last, random, or a number, got 'lest'" in capsys.readouterr().err
