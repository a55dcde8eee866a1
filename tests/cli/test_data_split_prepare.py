"""``deql data split`` and ``deql data prepare`` as people type them."""

import json
from dataclasses import replace

import polars as pl
import pytest

import deql
from deql.cli import run
from deql.datasets.public import PRESETS, Shape
from deql.split import load_split, split_leave_last, split_strong, split_weak
from tests.cli.test_cli import answer, refusal
from tests.split.common import fingerprint


@pytest.fixture
def ratings(tmp_path):
    """Thirty users and eight items by a formula, with ratings and times."""
    rows = [
        {"user_id": f"u{u:02}", "item_id": i, "rating": 1 + (u + 3 * i) % 5, "timestamp": 1000 * (u * i % 7) + i}
        for u in range(30)
        for i in range(8)
        if (5 * u + 3 * i + u * i) % 8 < 6
    ]
    path = tmp_path / "ratings.csv"
    pl.DataFrame(rows).write_csv(path)
    return path


@pytest.fixture
def out(tmp_path):
    return tmp_path / "data.split"


class TestSplit:
    def test_is_what_python_would_split(self, capsys, ratings, out):
        data = deql.read_interactions(ratings, "user_id", "item_id", time="timestamp")
        for options, expected in (
            ([], split_strong(data)),
            (["--test-users", 0.2, "--validation-users", 0.3, "--held-out", 0.4, "--seed", 7],
             split_strong(data, 0.2, 0.3, 0.4, 7)),
            (["--protocol", "weak"], split_weak(data)),
            (["--protocol", "weak", "--held-out", 0.3, "--validation", 0, "--seed", 1], split_weak(data, 0.3, 0, 1)),
            (["--protocol", "leave-last"], split_leave_last(data)),
            (["--protocol", "leave-last", "--test", 2, "--validation", 0, "--time", "timestamp"],
             split_leave_last(data, 2, 0)),
        ):  # fmt: skip
            facts = answer(capsys, "data", "split", ratings, "-o", out, *options)
            found = load_split(out)
            assert fingerprint(found) == fingerprint(expected)
            assert facts["protocol"] == found.protocol == expected.protocol
            assert facts["parameters"] == found.parameters == expected.parameters
            assert facts["parts"] == found.sizes()
            assert facts["dropped"] == expected.dropped
            assert facts["bytes"] == out.stat().st_size

    def test_cleans_first_and_tells_each_step(self, capsys, ratings, out):
        facts = answer(capsys, "data", "split", ratings, "-o", out, "--min-weight", 3, "--min-users-per-item", 10,
                       "--min-items-per-user", 3, "--k-core", 3, "--binary")  # fmt: skip
        table = deql.read_interactions(ratings, "user_id", "item_id", min_weight=3)
        expected = split_strong(deql.clean(table, binary=True, min_users_per_item=10, min_items_per_user=3, k_core=3))
        assert fingerprint(load_split(out)) == fingerprint(expected)
        assert [step["what"] for step in facts["steps"]] == [step.what for step in expected.train.steps]
        assert facts["steps"][-1]["what"] == "3-core kept"
        assert facts["steps"][-1]["interactions"] == expected.train.steps[-1].interactions

    def test_shows_steps_sizes_and_the_file(self, capsys, ratings, out):
        assert run(["data", "split", str(ratings), "-o", str(out), "--min-weight", "3"]) == 0
        shown, said = capsys.readouterr()
        assert "rating ≥ 3" in said
        assert "wrote" in said
        assert "held out" in shown
        assert "strong split, test_users=0.1" in shown

    def test_says_nothing_but_json_with_json(self, capsys, ratings, out):
        assert run(["data", "split", str(ratings), "-o", str(out), "--user", "1", "--item", "2", "--json"]) == 0
        shown, said = capsys.readouterr()
        assert json.loads(shown)["file"] == str(out)
        assert said == ""

    def test_titles_are_kept(self, capsys, ratings, tmp_path, out):
        pl.DataFrame({"item_id": range(8), "title": [f"Book {i}" for i in range(8)]}).write_csv(tmp_path / "books.csv")
        answer(capsys, "data", "split", ratings, "-o", out, "--items", tmp_path / "books.csv")
        train = load_split(out).train
        assert train.titles.tolist() == [f"Book {item}" for item in train.items.tolist()]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--protocol", "strong", "--validation", 0.1], "--validation does not belong to the protocol strong"),
            (["--protocol", "strong", "--test", 1], "--test does not belong to the protocol strong"),
            (["--protocol", "weak", "--test-users", 0.1], "--test-users does not belong to the protocol weak"),
            (["--protocol", "leave-last", "--seed", 1], "--seed does not belong to the protocol leave-last"),
            (["--protocol", "leave-last", "--held-out", 0.1], "--held-out does not belong to the protocol leave-last"),
            (["--protocol", "leave-last", "--validation", 0.5], "validation must be a whole number"),
            (["--protocol", "leave-last", "--validation", "nan"], "validation must be a whole number"),
            (["--protocol", "sideways"], "sideways"),
            (["--held-out", 1.5], "--held-out must be a share between 0 and 1"),
            (["--seed", -1], "seed must be a whole number from 0 up"),
            (["--k-core", 0], "--k-core must be a whole number from 1 up"),
            (["--k-core", 50], "nothing is left after the step “50-core kept”"),
            (["--user", "who"], "has no column 'who'"),
            (["--time", "when"], "has no column 'when'"),
        ],
    )
    def test_what_is_wrong_is_said_and_nothing_is_written(self, capsys, ratings, out, options, message):
        assert message in refusal(capsys, "data", "split", ratings, "-o", out, *options)
        assert sorted(file.name for file in out.parent.iterdir()) == ["ratings.csv"]

    def test_a_file_without_times(self, capsys, tmp_path, out):
        (tmp_path / "pairs.csv").write_text("user_id,item_id\n1,2\n1,3\n2,3\n")
        assert "--time" in refusal(capsys, "data", "split", tmp_path / "pairs.csv", "-o", out,
                                   "--protocol", "leave-last")  # fmt: skip

    def test_nowhere_to_write(self, capsys, ratings, tmp_path):
        assert "there is no folder" in refusal(capsys, "data", "split", ratings, "-o", tmp_path / "none" / "a.split")
        assert "is a folder" in refusal(capsys, "data", "split", ratings, "-o", tmp_path)


class TestPrepare:
    @pytest.fixture
    def folder(self, tmp_path, monkeypatch):
        (tmp_path / "train.txt").write_text("0 0 1\n1 1 2\n")
        (tmp_path / "test.txt").write_text("0 2\n1 0\n")
        monkeypatch.setitem(PRESETS, "gowalla", replace(PRESETS["gowalla"], paper=Shape(3, 2, 6)))
        return tmp_path

    def test_the_papers_counts(self, capsys, folder, out):
        facts = answer(capsys, "data", "prepare", "gowalla", "--from", folder, "-o", out)
        assert facts["protocol"] == load_split(out).protocol == "published"
        assert [row["same"] for row in facts["paper"]] == [True] * 5
        assert run(["data", "prepare", "gowalla", "--from", str(folder), "-o", str(out)]) == 0
        assert "These are the paper's counts." in capsys.readouterr().out

    def test_other_counts_are_said_plainly(self, capsys, folder, out):
        assert run(["data", "prepare", "yelp2018", "--from", str(folder), "-o", str(out)]) == 0
        shown = capsys.readouterr().out
        assert "These are not the paper's counts" in shown
        assert "38,048" in shown
        assert shown.count("differs") == 5

    def test_a_guess_is_called_one(self, capsys, tmp_path, out):
        rows = [{"reviewerID": f"A{u}", "asin": f"B{i}", "overall": 5.0} for u in range(20) for i in range(12)]
        (tmp_path / "Video_Games_5.json").write_text("\n".join(map(json.dumps, rows)) + "\n")
        assert run(["data", "prepare", "games", "--from", str(tmp_path), "-o", str(out), "--seed", "3"]) == 0
        assert "this is a guess" in capsys.readouterr().out
        assert load_split(out).seed == 3

    @pytest.mark.parametrize(
        ("name", "options", "message"),
        [
            ("ml20m", [], "has no file ratings.csv: get the data set ml20m from GroupLens, MovieLens 20M"),
            ("gowalla", ["--seed", 1], "--seed does not belong to gowalla, whose split is published"),
            ("nothing", [], "unknown data set 'nothing': say one of ml20m"),
        ],
    )
    def test_what_is_wrong_is_said_and_nothing_is_written(self, capsys, folder, out, name, options, message):
        assert message in refusal(capsys, "data", "prepare", name, "--from", folder, "-o", out, *options)
        assert not out.exists()
