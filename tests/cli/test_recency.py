"""``--half-life`` and specifications with a half-life: times are found, and what is missing is told."""

import json

import numpy as np
import polars as pl
import pytest

import deql
from deql.cli import run
from tests.cli.test_cli import answer, refusal


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    generator = np.random.default_rng(5)
    path = tmp_path_factory.mktemp("recency") / "events.csv"
    frame = {
        "user": generator.integers(0, 60, 900),
        "item": generator.integers(0, 20, 900),
        "timestamp": generator.integers(0, 100 * 86400, 900),
    }
    pl.DataFrame(frame).write_csv(path)
    pl.DataFrame(frame).drop("timestamp").write_csv(path.with_name("timeless.csv"))
    return path


@pytest.mark.parametrize("typed", [["-m", "ease:l2=5,half_life=30d"], ["-m", "ease:l2=5", "--half-life", "30d"]])
def test_fit_finds_the_times(capsys, table, tmp_path, typed):
    out = tmp_path / "one.deql"
    told = answer(capsys, "fit", str(table), *typed, "-o", str(out), "--keep-data")
    assert told["parameters"]["half_life"] == "30d"
    data = deql.read_interactions(table, time=True)
    model, same = deql.load(out), deql.EASE(5.0, half_life="30d").fit(data)
    assert model.until_ == same.until_ == data.times.max()
    assert np.array_equal(model.weights(), same.weights())
    assert np.array_equal(model.data_.times, data.times)


def test_evaluate_and_compare_find_them_too(capsys, table):
    specs = ["ease:l2=5", "ease:l2=5,half_life=10d"]
    told = answer(capsys, "evaluate", str(table), *specs, "--protocol", "weak")
    first, second = (one["means"]["ndcg@20"] for one in told["models"])
    assert first != second
    assert "half_life" not in told["models"][0]["parameters"]
    told = answer(capsys, "compare", str(table), *specs, "--splits", "2")
    assert "half_life=10d" in json.dumps(told)


def test_tune_and_auto(capsys, table, tmp_path):
    out, axes = tmp_path / "one.deql", ["--l2", "5", "--dropout", "0.3", "--user-power", "0", "--prior", "none"]
    arguments = [str(table), "-o", str(out), "--validation", "last", *axes, "--half-life", "10d,40d, none"]
    told = answer(capsys, "tune", *arguments)
    assert told["space"]["half_life"] == ["10d", "40d", None]
    assert deql.load(out).half_life in ("10d", "40d", None)
    answer(capsys, "fit", str(table), "--auto", "--half-life", "12h", "--prior", "none", "-o", str(out))
    assert deql.load(out).half_life == "12h"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["fit", "{}", "--half-life", "soon", "-o", "x.deql"],
            "--half-life must be a number above 0 in the unit",
        ),
        (["fit", "{}", "-m", "ease:half_life=0d", "-o", "x.deql"], "ease:half_life=0d: half_life must be a number"),
        (["fit", "{}", "-m", "slim", "--half-life", "3d", "-o", "x.deql"], "--half-life does not belong to the model"),
        (["tune", "{}", "--half-life", "30d,6mo", "-o", "x.deql"], "--half-life 30d,6mo: half_life must be a number"),
    ],
)
def test_nonsense_is_refused(capsys, table, arguments, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert told in refusal(capsys, *(one.format(table) for one in arguments))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", [["fit", "-o", "x.deql", "--half-life", "3d"], ["evaluate", "ease:half_life=3d"]])
def test_a_table_without_times_is_told(capsys, table, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = refusal(capsys, command[0], str(table.with_name("timeless.csv")), *command[1:])
    assert "time" in words
    assert "--time" in words
    assert not list(tmp_path.iterdir())


def test_a_split_without_times_is_told(capsys, table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    deql.split_strong(deql.read_interactions(table)).save(tmp_path / "s.split")
    words = refusal(capsys, "fit", "s.split", "--half-life", "3d", "-o", "x.deql")
    assert "half_life needs to know when things happened" in words
    assert run(["fit", "--help"]) == 0
