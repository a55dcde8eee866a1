"""``deql prune``: a smaller model, what it cost, and one line for what is wrong."""

import json

import polars as pl
import pytest

import deql
from deql.cli.app import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("pruned")
    data = deql.datasets.debian()[:400].without_empty()
    rows, columns = data.matrix.nonzero()
    pl.DataFrame({"user": data.users[rows].tolist(), "item": data.items[columns].tolist()}).write_csv(path / "all.csv")
    split = deql.split_strong(data)
    split.save(path / "split.deql")
    deql.EDLAE(l2=10.0, dropout=0.3).fit(split.train).save(path / "model.deql")
    deql.EASE(l2=10.0).fit(split.train, keep_data=True).save(path / "kept.deql")
    deql.EASE(l2=10.0, engine=deql.engines.Neighbours(k=5)).fit(split.train).save(path / "sparse.deql")
    deql.Popularity().fit(split.train).save(path / "popular.deql")
    return path


def refusal(capsys, *arguments):
    capsys.readouterr()
    assert run([*map(str, arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err.strip().splitlines()[-1]


def test_writes_the_smaller_model(folder, tmp_path, capsys):
    out = tmp_path / "small.deql"
    assert run(["prune", str(folder / "model.deql"), "--per-item", "9", "-o", str(out)]) == 0
    said, told = capsys.readouterr()
    model, small = deql.load(folder / "model.deql"), deql.load(out)
    assert said.startswith(f"9 weights for each of {len(model.items_):,} items saved as {out} (")
    assert "deql: pruned to 9 weights an item" in told
    assert "give a target" in told
    assert small.checksum() == model.prune(9).checksum()
    assert out.stat().st_size < (folder / "model.deql").stat().st_size / 3


def test_keeps_400_unless_it_is_said(folder, tmp_path, capsys):
    out = tmp_path / "small.deql"
    assert run(["prune", str(folder / "model.deql"), "-o", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["per_item"] == 400


@pytest.mark.parametrize("data", ["split.deql", "all.csv"])
def test_says_what_it_costs(folder, tmp_path, capsys, data):
    out = tmp_path / "small.deql"
    asked = ["prune", folder / "model.deql", "--per-item", 9, "-o", out, "--data", folder / data, "--json"]
    assert run([*map(str, asked)]) == 0
    said, told = capsys.readouterr()
    facts = json.loads(said)
    split = deql.load_split(folder / data) if data == "split.deql" else deql.split_strong(
        deql.read_interactions(folder / data)
    )  # fmt: skip
    expected = deql.evaluate(deql.load(folder / "model.deql"), split.test, ("ndcg@20", "recall@20")).means
    assert facts["before"] == pytest.approx(expected)
    assert facts["after"] == pytest.approx(deql.evaluate(deql.load(out), split.test, ("ndcg@20", "recall@20")).means)
    assert facts["file"] == str(out)
    assert facts["file_bytes"] == out.stat().st_size
    assert "it looks too good" in told


def test_on_the_data_that_a_model_kept(folder, tmp_path, capsys):
    assert run(["prune", str(folder / "kept.deql"), "--per-item", "9", "-o", str(tmp_path / "small.deql")]) == 0
    assert "of the model's own data" in capsys.readouterr().err


class TestRefusals:
    def test_without_a_file_to_write(self, folder, capsys):
        told = refusal(capsys, "prune", folder / "model.deql")
        assert told == "deql: error: say with -o where to save the smaller model"

    def test_over_what_is_read(self, folder, capsys):
        before = (folder / "model.deql").read_bytes()
        told = refusal(capsys, "prune", folder / "model.deql", "-o", folder / "model.deql")
        assert "is used twice in this command" in told
        assert (folder / "model.deql").read_bytes() == before

    @pytest.mark.parametrize(
        ("model", "options", "message"),
        [
            ("popular.deql", (), "is a Popularity, which has no P to prune"),
            ("sparse.deql", (), "holds some entries of P alone, and cannot be pruned"),
            ("nowhere.deql", (), "nowhere.deql"),
            ("model.deql", ("--per-item", 0), "--per-item must be a whole number from 1 up, got 0"),
            ("model.deql", ("--data", "nowhere.csv"), "nowhere.csv"),
            ("model.deql", ("--weight", "rating"), "--weight: what is read is --data FILE, which is not given"),
        ],
    )
    def test_others(self, folder, tmp_path, capsys, model, options, message):
        told = refusal(capsys, "prune", folder / model, "-o", tmp_path / "small.deql", *options)
        assert message in told
        assert not list(tmp_path.iterdir())


def test_a_pruned_model_is_not_compared_as_if_it_were_whole(folder, tmp_path, capsys):
    small = tmp_path / "small.deql"
    deql.load(folder / "model.deql").prune(9).save(small)
    said = refusal(capsys, "compare", folder / "all.csv", "ease:l2=10", small)
    assert "small.deql is pruned, and a fit on every split would not be: use deql evaluate" in said
    assert "edlae:l2=10,dropout=0.3 to compare" in said


def test_neighbourhoods_are_compared_as_neighbourhoods(folder, capsys):
    asked = ["compare", folder / "all.csv", folder / "sparse.deql", "ease:l2=10,engine=neighbours,k=5", "--splits", 2]
    assert run([*map(str, asked), "--json"]) == 0
    one, other = json.loads(capsys.readouterr().out)["models"].values()
    assert one == other
