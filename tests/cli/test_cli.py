"""The command line as people type it, nonsense included."""

import json

import numpy as np
import polars as pl
import pytest

import deql
from deql.cli import run
from deql.cli.app import app


def answer(capsys, *arguments):
    capsys.readouterr()
    assert run([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refusal(capsys, *arguments):
    """Exit code 2 and one line on standard error, nothing on standard output."""
    capsys.readouterr()
    assert run([*map(str, arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    lines = err.strip().splitlines()
    assert [line for line in lines if line.startswith("deql: error: ")] == lines[-1:]
    return lines[-1]


def test_fit_saves_what_python_would_fit(capsys, tmp_path, events):
    path = tmp_path / "a.deql"
    facts = answer(capsys, "fit", events, "-o", path, "-m", "edlae", "--l2", 2, "--dropout", 0.4, "--user-power", 0.5)
    assert (facts["users"], facts["items"], facts["interactions"]) == (4, 5, 10)
    assert facts["bytes"] == path.stat().st_size
    expected = deql.EDLAE(2.0, 0.4, user_power=0.5).fit(deql.read_interactions(events))
    np.testing.assert_array_equal(deql.load(path).weights(), expected.weights())


@pytest.mark.parametrize(
    "kind",
    ["deql", "ease", "lae", "dlae", "edlae", "rlae", "rdlae", "popularity", "slim", "lowrankdeql:rank=2"],
)
def test_every_model_can_be_fitted_and_asked(capsys, tmp_path, events, kind):
    path = tmp_path / "m.deql"
    assert answer(capsys, "fit", events, "-o", path, "-m", kind)["model"].lower() == kind.partition(":")[0]
    found = answer(capsys, "recommend", path, "tea", "-k", 2)
    assert len(found["recommendations"]) == 2


def test_fit_takes_a_model_with_its_parameters(capsys, tmp_path, events):
    path = tmp_path / "m.deql"
    facts = answer(capsys, "fit", events, "-o", path, "-m", "lowrankdeql:rank=2,dropout=0.5", "--l2", 3)
    assert (facts["parameters"]["rank"], facts["parameters"]["l2"], facts["engine"]) == (2, 3.0, "dense")
    expected = deql.LowRankDEQL(2, 3.0, 0.5).fit(deql.read_interactions(events))
    np.testing.assert_array_equal(deql.load(path).weights(), expected.weights())


def test_recommend_one_history(capsys, model_file):
    found = answer(capsys, "recommend", model_file, "tea", "oat", "-k", 2)
    ids, scores = deql.load(model_file).recommend([["tea", "oat"]], k=2)
    assert [entry["item"] for entry in found["recommendations"]] == ids[0].tolist()
    assert [entry["score"] for entry in found["recommendations"]] == scores[0].tolist()
    assert found["from_popularity"] is False


def test_recommend_with_filters(capsys, model_file):
    found = answer(
        capsys, "recommend", model_file, "tea", "--exclude", "jam", "--candidate", "jam", "--candidate", "egg"
    )
    assert [entry["item"] for entry in found["recommendations"]] == ["egg"]
    found = answer(capsys, "recommend", model_file, "tea", "--include-seen")
    assert len(found["recommendations"]) == 5


def test_recommend_without_a_history_is_popularity_and_says_so(capsys, model_file):
    found = answer(capsys, "recommend", model_file)
    assert found["from_popularity"] is True
    run(["recommend", str(model_file)])
    assert "popularity order" in capsys.readouterr().err


def test_unknown_items_are_noted_with_a_suggestion(capsys, model_file):
    run(["recommend", str(model_file), "jamm", "tea"])
    err = capsys.readouterr().err
    assert "did you mean jam?" in err
    assert "ignored 1 unknown item" in err


def test_recommend_for_many_users(capsys, tmp_path, events, model_file):
    rows = answer(capsys, "recommend", model_file, "--histories", events, "-k", 2)
    expected = deql.load(model_file).recommend(deql.read_interactions(events), k=2)
    assert [row["item"] for row in rows] == expected.ids.ravel().tolist()
    assert [row["rank"] for row in rows[:2]] == [1, 2]
    for out in (tmp_path / "r.csv", tmp_path / "r.parquet"):
        assert run(["recommend", str(model_file), "--histories", str(events), "-k", "2", "-o", str(out)]) == 0
        frame = pl.read_csv(out) if out.suffix == ".csv" else pl.read_parquet(out)
        assert frame["item"].to_list() == expected.ids.ravel().tolist()
    assert not list(tmp_path.glob(".*tmp"))


def test_similar_and_explain(capsys, model_file):
    model = deql.load(model_file)
    found = answer(capsys, "similar", model_file, "jam", "-k", 2)
    assert [entry["item"] for entry in found["similar"]] == model.similar_items("jam", k=2)[0].tolist()
    why = answer(capsys, "explain", model_file, "egg", "jam", "oat")
    assert why["score"] == model.explain(["jam", "oat"], "egg").score
    assert sum(part["value"] for part in why["parts"]) + why["rest"] == why["score"]


def test_tables_are_for_people_and_names_are_not_markup(capsys, model_file):
    for command in (["recommend", "tea"], ["similar", "tea"], ["explain", "[red]egg", "tea", "jam"]):
        assert run([command[0], str(model_file), *command[1:]]) == 0
        assert "[red]egg" in capsys.readouterr().out


def test_integer_ids_are_typed_as_numbers(capsys, tmp_path):
    path = tmp_path / "numbers.csv"
    pl.DataFrame({"user": [1, 1, 2, 2, 3], "item": [10, 20, 10, 20, 30]}).write_csv(path)
    run(["fit", str(path), "-o", str(tmp_path / "n.deql"), "--l2", "1"])
    found = answer(capsys, "recommend", tmp_path / "n.deql", "10", "-k", 1)
    assert found["recommendations"][0]["item"] == 20
    assert "whole numbers" in refusal(capsys, "recommend", tmp_path / "n.deql", "ten")


class TestNonsense:
    def test_usage(self, capsys):
        assert "Missing argument" in refusal(capsys, "fit")
        assert "No such command" in refusal(capsys, "frobnicate")
        assert "no such option" in refusal(capsys, "demo", "--loud").lower()

    def test_data(self, capsys, tmp_path, events):
        out = tmp_path / "x.deql"
        assert "no file" in refusal(capsys, "fit", tmp_path / "none.csv", "-o", out)
        (tmp_path / "none").mkdir()
        assert "folder without files" in refusal(capsys, "fit", tmp_path / "none", "-o", out)
        assert "no column 'who'" in refusal(capsys, "fit", events, "-o", out, "--user", "who")
        empty = tmp_path / "empty.csv"
        empty.write_text("")
        assert "empty" in refusal(capsys, "fit", empty, "-o", out)
        assert not out.exists()

    def test_parameters(self, capsys, tmp_path, events):
        out = tmp_path / "x.deql"
        assert "l2 must be" in refusal(capsys, "fit", events, "-o", out, "--l2", -1)
        assert "--b does not belong to the model ease" in refusal(
            capsys, "fit", events, "-o", out, "-m", "ease", "--b", 1
        )
        assert "dropout must be" in refusal(capsys, "fit", events, "-o", out, "--dropout", 1)
        assert "did you mean slim?" in refusal(capsys, "fit", events, "-o", out, "-m", "slym")
        assert "l1 is given twice" in refusal(capsys, "fit", events, "-o", out, "-m", "slim:l1=1,l1=2")
        assert "l2 is given twice" in refusal(capsys, "fit", events, "-o", out, "-m", "slim:l2=1", "--l2", 2)
        assert "at most the number of items, 5" in refusal(capsys, "fit", events, "-o", out, "-m", "lowrankdeql:rank=6")
        assert "say lowrankdeql:solver=sparse" in refusal(
            capsys, "fit", events, "-o", out, "-m", "lowrankdeql", "--engine", "torch"
        )
        assert "leave out -m slim" in refusal(capsys, "fit", events, "-m", "slim", "--dry-run")
        assert "'--l2'" in refusal(capsys, "fit", events, "-o", out, "--l2", "lots")
        assert "no folder" in refusal(capsys, "fit", events, "-o", tmp_path / "none" / "x.deql")
        assert not out.exists()

    def test_singular_data_is_explained(self, capsys, tmp_path, events):
        message = refusal(capsys, "fit", events, "-o", tmp_path / "x.deql", "-m", "ease", "--l2", 0)
        assert "set l2 above 0" in message

    def test_model_files(self, capsys, tmp_path, events, model_file):
        assert "no model file" in refusal(capsys, "recommend", tmp_path / "none.deql", "tea")
        assert "not a deql model file" in refusal(capsys, "recommend", events, "tea")
        whole = model_file.read_bytes()
        model_file.write_bytes(whole[:-20])
        assert "cut short" in refusal(capsys, "recommend", model_file, "tea")
        model_file.write_bytes(whole[:-20] + bytes(20))
        assert "damaged" in refusal(capsys, "recommend", model_file, "tea")

    def test_questions(self, capsys, tmp_path, events, model_file):
        assert "did you mean jam?" in refusal(capsys, "similar", model_file, "jma")
        assert "does not know" in refusal(capsys, "explain", model_file, "moon", "tea")
        assert "does not know" in refusal(capsys, "recommend", model_file, "moon", "--strict")
        assert "does not know" in refusal(capsys, "recommend", model_file, "tea", "--exclude", "moon")
        assert "k must be" in refusal(capsys, "recommend", model_file, "tea", "-k", 0)
        assert "not both" in refusal(capsys, "recommend", model_file, "tea", "--histories", events)
        assert ".csv or .parquet" in refusal(
            capsys, "recommend", model_file, "--histories", events, "-o", tmp_path / "r.xlsx"
        )


def test_help_and_version(capsys):
    assert run([]) == 0
    assert "deql demo" in capsys.readouterr().out
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"deql {deql.__version__}"
    for command in app.registered_commands:
        assert run([command.name, "--help"]) == 0
        assert "Usage: deql" in capsys.readouterr().out


def test_interruption_is_quiet(capsys, monkeypatch, events, tmp_path):
    def stop(*_arguments, **_named):
        raise KeyboardInterrupt

    monkeypatch.setattr("deql.linalg.engines.memory.invert", stop)
    assert run(["fit", str(events), "-o", str(tmp_path / "x.deql")]) == 130
    assert "Traceback" not in capsys.readouterr().err
    assert not (tmp_path / "x.deql").exists()


def test_parts_of_nothing_have_no_bars(capsys, tmp_path, events):
    deql.CustomLinear(np.zeros((5, 5))).fit(deql.read_interactions(events)).save(tmp_path / "zero.deql")
    assert run(["explain", str(tmp_path / "zero.deql"), "tea", "oat"]) == 0
    assert "█" not in capsys.readouterr().out
