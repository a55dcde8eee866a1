"""``deql evaluate`` and ``deql compare`` as people type them, nonsense included."""

import json
import os

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array

import deql
from deql.cli import run
from tests.cli.published import write_published
from tests.cli.test_cli import answer, refusal


@pytest.fixture(scope="module")
def goods():
    """250 customers who buy goods in pairs, so that one of a pair foretells the other."""
    generator = np.random.default_rng(1)
    pairs = generator.random((250, 12)) < 0.3
    pairs[np.arange(250), generator.integers(0, 12, 250)] = True
    names = [f"good {i}" for i in range(24)]
    return deql.Interactions.from_csr(csr_array(np.repeat(pairs, 2, axis=1).astype(float)), items=names)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, goods):
    """The same customers as a table, a split file and a published split."""
    place = tmp_path_factory.mktemp("contest")
    rows = np.repeat(np.arange(goods.n_users), np.diff(goods.matrix.indptr))
    frame = {"user": [f"u{row}" for row in rows], "item": goods.items[goods.matrix.indices].tolist()}
    pl.DataFrame(frame).write_csv(place / "goods.csv")
    deql.split_strong(deql.read_interactions(place / "goods.csv"), seed=2).save(place / "goods.split")
    write_published(place / "published", goods.matrix)
    return place


def by_name(facts):
    return {model["name"]: model for model in facts["models"]}


class TestEvaluate:
    def test_a_split_file_as_in_python(self, capsys, folder):
        facts = answer(capsys, "evaluate", folder / "goods.split", "ease:l2=5", "popularity", "--metrics", "ndcg@5")
        split = deql.load_split(folder / "goods.split")
        expected = deql.evaluate(deql.EASE(5.0).fit(split.train), split.test, ["ndcg@5"])
        assert by_name(facts)["EASE l2=5"]["means"] == expected.means
        assert by_name(facts)["EASE l2=5"]["standard_errors"]["ndcg@5"] == pytest.approx(
            expected.standard_errors["ndcg@5"]
        )
        assert by_name(facts)["EASE l2=5"]["parameters"]["l2"] == 5
        assert facts["users"] == len(expected.users)
        assert facts["split"]["seed"] == 2
        assert list(by_name(facts)) == ["EASE l2=5", "Popularity"]

    def test_on_validation(self, capsys, folder):
        facts = answer(capsys, "evaluate", folder / "goods.split", "popularity", "--on", "validation", "--intervals")
        split = deql.load_split(folder / "goods.split")
        expected = deql.evaluate(deql.Popularity().fit(split.train), split.validation)
        (found,) = facts["models"]
        assert found["means"] == expected.means
        low, high = found["intervals"]["ndcg@20"]
        assert low < expected.means["ndcg@20"] < high

    def test_a_table_is_split(self, capsys, folder):
        facts = answer(
            capsys, "evaluate", folder / "goods.csv", "ease:l2=5", "--protocol", "weak", "--held-out", 0.3, "--seed", 4
        )
        split = deql.split_weak(deql.read_interactions(folder / "goods.csv"), held_out=0.3, seed=4)
        assert facts["models"][0]["means"] == deql.evaluate(deql.EASE(5.0).fit(split.train), split.test).means
        assert facts["split"]["protocol"] == "weak"

    def test_a_published_split(self, capsys, folder):
        assert run(["evaluate", str(folder / "published"), "ease:l2=5", "popularity"]) == 0
        out, err = capsys.readouterr()
        assert "EASE l2=5" in out
        assert "Mean ± standard error over" in out
        assert "published split" in err
        command = ["evaluate", folder / "published", "popularity", "--on", "validation"]
        assert "no validation part" in refusal(capsys, *command)

    def test_a_model_file_is_judged_as_it_is(self, capsys, folder, tmp_path, goods, toy):
        split = deql.load_split(folder / "goods.split")
        few = split.train.take_items(np.arange(20))
        deql.EASE(5.0).fit(few).save(tmp_path / "few.deql")
        assert run(["evaluate", str(folder / "goods.split"), str(tmp_path / "few.deql"), "popularity"]) == 0
        out, err = capsys.readouterr()
        assert "few.deql" in out
        assert "knows 20 of the 24 items" in err
        assert "as it was saved" in err
        deql.EASE(5.0).fit(toy).save(tmp_path / "other.deql")
        capsys.readouterr()
        assert "knows none of the items" in last_error(
            capsys, "evaluate", folder / "goods.split", tmp_path / "other.deql"
        )

    def test_report_and_values_of_users(self, capsys, folder, tmp_path):
        pytest.importorskip("matplotlib", reason="reports need matplotlib")
        page, values = tmp_path / "page.html", tmp_path / "values.parquet"
        command = ["evaluate", folder / "goods.split", "ease:l2=5", "popularity", "--metrics", "recall@5"]
        facts = answer(capsys, *command, "--report", page, "--save-per-user", values)
        assert facts["models"][0]["means"].keys() == {"recall@5"}
        text = page.read_text(encoding="utf-8")
        assert "Evaluation on goods.split" in text
        assert "recall@k by k" in text
        frame = pl.read_parquet(values)
        assert frame.columns == ["model", "user", "recall@5"]
        means = dict(frame.group_by("model").agg(pl.col("recall@5").mean()).iter_rows())
        assert means == pytest.approx({name: model["means"]["recall@5"] for name, model in by_name(facts).items()})
        assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "values.parquet"]

    def test_nonsense(self, capsys, folder, tmp_path):
        data = folder / "goods.split"
        assert "did you mean ease?" in refusal(capsys, "evaluate", data, "eaze")
        assert "Missing argument" in refusal(capsys, "evaluate", data)
        assert "no file" in refusal(capsys, "evaluate", tmp_path / "none.csv", "ease")
        assert "auc" in refusal(capsys, "evaluate", data, "ease", "--metrics", "auc@3")
        assert "at least one" in refusal(capsys, "evaluate", data, "ease", "--metrics", ",")
        assert "split already, so --seed, --protocol cannot" in refusal(
            capsys, "evaluate", data, "ease", "--seed", 3, "--protocol", "weak"
        )
        assert "--k-core cannot be chosen" in refusal(capsys, "evaluate", folder / "published", "ease", "--k-core", 3)
        assert "no folder" in refusal(capsys, "evaluate", data, "ease", "--report", tmp_path / "none" / "x.html")
        assert ".parquet or .csv" in refusal(capsys, "evaluate", data, "ease", "--save-per-user", tmp_path / "x.xlsx")
        assert "no model file" in refusal(capsys, "evaluate", data, tmp_path / "none.deql")
        assert "validation" in last_error(capsys, "evaluate", folder / "goods.csv", "ease", "--validation", 0.1)
        broken = tmp_path / "broken.split"
        broken.write_bytes(data.read_bytes()[:-30])
        assert "broken.split" in refusal(capsys, "evaluate", broken, "ease")

    def test_interruption_leaves_nothing(self, capsys, folder, tmp_path, monkeypatch):
        pytest.importorskip("matplotlib", reason="reports need matplotlib")

        def stop(*_arguments, **_named):
            raise KeyboardInterrupt

        monkeypatch.setattr("deql.linalg.engines.memory.invert", stop)
        for command in ("evaluate", "compare"):
            arguments = [command, str(folder / "goods.csv"), "ease", "popularity", "--report", str(tmp_path / "x.html")]
            assert run(arguments) == 130
            assert "Traceback" not in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []

    def test_leave_last_finds_the_times(self, capsys, tmp_path):
        rows = [f"u{user},{(user + 3 * step) % 7},{100 - step}" for user in range(20) for step in range(4)]
        (tmp_path / "t.csv").write_text("user,item,timestamp\n" + "\n".join(rows))
        told = [tmp_path / "t.csv", "popularity", "--protocol", "leave-last"]
        facts = answer(capsys, "evaluate", *told, "--validation", 0)
        assert facts["split"]["parameters"] == {"test": 1, "validation": 0}
        assert facts["split"]["seed"] is None
        assert "--seed does not belong to the protocol leave-last" in refusal(capsys, "evaluate", *told, "--seed", 3)
        assert "--splits does not belong" in refusal(capsys, "compare", *told, "ease", "--splits", 3)

    def test_a_folder_that_may_not_be_read(self, capsys, folder, monkeypatch):
        def refuse(*_arguments, **_named):
            raise PermissionError(13, "Permission denied", "secret/goods.csv")

        monkeypatch.setattr("deql.cli.data_source._is_container", refuse)
        assert "secret/goods.csv cannot be used: permission denied" in refusal(
            capsys, "evaluate", folder / "goods.csv", "ease"
        )


class TestCompare:
    def test_a_table_as_in_python(self, capsys, folder):
        models = ["popularity", "ease:l2=5", "ease:l2=500"]
        facts = answer(
            capsys, "compare", folder / "goods.csv", *models, "--splits", 3, "--seed", 1, "--metrics", "ndcg@5",
            "--baseline", "popularity", "--test-users", 0.2,
        )  # fmt: skip
        data = deql.read_interactions(folder / "goods.csv")
        expected = deql.compare(
            {"Popularity": deql.Popularity(), "EASE l2=5": deql.EASE(5.0), "EASE l2=500": deql.EASE(500.0)},
            data, 3, ["ndcg@5"], baseline="Popularity", seed=1, test_users=0.2,
        )  # fmt: skip
        assert facts == expected.to_dict()
        assert [split["seed"] for split in facts["splits"]] == [1, 2, 3]

    @pytest.mark.parametrize(
        ("form", "sign"), [("text", "←"), ("markdown", "|---|"), ("latex", r"\toprule"), ("json", '"tests"')]
    )
    def test_formats(self, capsys, folder, tmp_path, form, sign):
        out = tmp_path / "table"
        command = ["compare", str(folder / "goods.split"), "popularity", "ease:l2=5", "--as", form]
        assert run(command) == 0
        printed = capsys.readouterr().out
        assert sign in printed
        assert run([*command, "--out", str(out)]) == 0
        assert out.read_text(encoding="utf-8") == printed
        assert capsys.readouterr().out == ""

    def test_a_fixed_split_is_tested_over_users(self, capsys, folder):
        facts = answer(capsys, "compare", folder / "published", "popularity", "ease:l2=5", "--metrics", "ndcg@5")
        assert facts["protocol"] == "published"
        assert facts["deviations"]["EASE l2=5"]["ndcg@5"] is None
        tests = {test["over"]: test for test in facts["tests"]}
        assert tests["users"]["t_holm"] < 0.05
        assert tests["splits"]["t"] is None

    def test_report(self, capsys, folder, tmp_path):
        pytest.importorskip("matplotlib", reason="reports need matplotlib")
        page = tmp_path / "page.html"
        command = ["compare", str(folder / "goods.csv"), "popularity", "ease:l2=5", "--splits", "2"]
        assert run([*command, "--report", str(page)]) == 0
        assert "Comparison on goods.csv" in page.read_text(encoding="utf-8")
        assert f"wrote {page}" in capsys.readouterr().err

    @pytest.mark.parametrize("source", ["goods.csv", "goods.split"])
    def test_model_files_are_fitted_anew_and_may_have_names(self, capsys, folder, tmp_path, goods, source):
        deql.DEQL(7.0, 0.4, 2.0).fit(goods.take_users(np.arange(40))).save(tmp_path / "shop.deql")
        given = [f"mine={tmp_path / 'shop.deql'}", "other=ease:l2=5", "popularity", tmp_path / "shop.deql"]
        facts = answer(capsys, "compare", folder / source, *given, "--metrics", "ndcg@5", "--baseline", "mine")
        models = {"mine": deql.DEQL(7.0, 0.4, 2.0), "other": deql.EASE(5.0), "Popularity": deql.Popularity()}
        data = deql.read_interactions(folder / source) if source.endswith("csv") else deql.load_split(folder / source)
        expected = deql.compare(models | {"shop.deql": models["mine"]}, data, metrics=["ndcg@5"], baseline="mine")
        assert facts == expected.to_dict()
        capsys.readouterr()
        assert run(["compare", str(folder / source), *map(str, given[:3]), "--metrics", "ndcg@5"]) == 0
        said = (
            "note: mine is fitted anew on every split, with the parameters it was saved with: deql:l2=7,dropout=0.4,b=2"
        )
        assert said in capsys.readouterr().err

    @pytest.mark.parametrize("baseline", ["other", "ease:l2=5", "other=ease:l2=5"])
    def test_a_named_baseline(self, capsys, folder, baseline):
        command = ["compare", folder / "goods.split", "popularity", "other=ease:l2=5", "--metrics", "ndcg@5"]
        assert answer(capsys, *command, "--baseline", baseline)["baseline"] == "other"

    def test_evaluate_takes_names_too(self, capsys, folder, tmp_path, goods):
        deql.EASE(5.0).fit(goods).save(tmp_path / "shop.deql")
        facts = answer(capsys, "evaluate", folder / "goods.split", f"mine={tmp_path / 'shop.deql'}", "b=ease:l2=3")
        assert [(one["name"], one["parameters"]["l2"]) for one in facts["models"]] == [("mine", 5.0), ("b", 3.0)]

    def test_in_a_terminal(self, capsys, folder, monkeypatch):
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        monkeypatch.setattr("deql.cli.compare.progress_wanted", lambda: False)
        assert run(["compare", str(folder / "goods.split"), "popularity", "ease:l2=5", "--metrics", "ndcg@5"]) == 0
        assert "Bold: best." in capsys.readouterr().out

    def test_nonsense(self, capsys, folder, tmp_path, goods):
        data = folder / "goods.csv"
        assert "at least two models" in last_error(capsys, "compare", data, "ease")
        assert "'easy' is not one of the models: EASE, Popularity" in refusal(
            capsys, "compare", data, "ease", "popularity", "--baseline", "easy"
        )
        # It was: "'ease' is not one of the models".
        assert "'ease' may be any of EASE l2=1, EASE l2=2: say which one, such as --baseline ease:l2=1" in refusal(
            capsys, "compare", data, "ease:l2=1", "ease:l2=2", "--baseline", "ease"
        )
        assert "the name a is given twice" in refusal(capsys, "compare", data, "a=ease", "a=popularity")
        assert "a name goes before a model" in refusal(capsys, "compare", data, "=ease", "popularity")
        assert "there is no model 'shop'" in refusal(capsys, "compare", data, "mine=shop", "popularity")
        assert "split already, so --splits" in refusal(
            capsys, "compare", folder / "goods.split", "ease", "popularity", "--splits", 3
        )
        assert "splits must be" in last_error(capsys, "compare", data, "ease", "popularity", "--splits", 0)
        assert "no folder" in refusal(capsys, "compare", data, "ease", "popularity", "-o", tmp_path / "none" / "x")
        deql.CustomLinear(np.eye(goods.n_items)).fit(goods).save(tmp_path / "m.deql")
        assert "weights of its own" in refusal(capsys, "compare", data, "ease", tmp_path / "m.deql")
        assert "contradict" in refusal(capsys, "compare", data, "ease", "popularity", "--as", "latex", "--json")
        assert "mse needs" in last_error(capsys, "compare", data, "ease", "popularity", "--metrics", "mse")


def last_error(capsys, *arguments):
    """Exit code 2, nothing on standard output, and the error as the last line after what was told of the data."""
    capsys.readouterr()
    assert run([*map(str, arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    line = err.strip().splitlines()[-1]
    assert line.startswith("deql: error: ")
    return line


@pytest.mark.data
@pytest.mark.skipif("DEQL_DATA" not in os.environ, reason="needs the public data sets in $DEQL_DATA")
def test_a_public_split_in_one_line(capsys):
    folder = os.path.join(os.environ["DEQL_DATA"], "amazon-beauty")
    assert run(["evaluate", folder, "ease:l2=80", "popularity", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["split"]["parts"][0]["items"] == 3570
    means = {name: model["means"] for name, model in by_name(facts).items()}
    assert means["EASE l2=80"]["ndcg@20"] > 5 * means["Popularity"]["ndcg@20"]
