"""Partitions, and commands whose work a cluster does."""

import json

import numpy as np
import polars as pl
import pytest

import deql
from deql.linalg.engines import dask_connection, tile_folder
from deql.linalg.planner import calibration
from tests.cli.test_engine_options import ran, refusal

pytest.importorskip("distributed", reason="the extra cluster is not installed")
pytestmark = pytest.mark.cluster


@pytest.fixture
def events(tmp_path, random_matrix):
    path = tmp_path / "events.csv"
    matrix = random_matrix(60, 40, seed=3).tocoo()
    lines = [f"u{user},i{item}" for user, item in zip(matrix.row, matrix.col, strict=True)]
    path.write_text("\n".join(["user,item", *lines]) + "\n")
    return path


@pytest.fixture
def parts(capsys, events, tmp_path):
    assert ran(capsys, "data", "partition", events, "-o", tmp_path / "parts", "--partitions", 3)[0] == 0
    return tmp_path / "parts"


@pytest.fixture
def address(dask_client):
    return dask_client.scheduler.address


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(calibration, "_SECONDS", 0.01)
    monkeypatch.setattr(dask_connection, "_PATIENCE", 0.5)


class TestPartitions:
    def test_are_written_and_fitted_on(self, capsys, events, tmp_path):
        said = ran(capsys, "data", "partition", events, "-o", tmp_path / "parts", "--partitions", 3)
        table = deql.read_interactions(events)
        counts = f"60 users, {table.n_items} items, {table.n_interactions:,} interactions"
        assert said[:2] == (0, "")
        assert said[2].endswith(f"deql: wrote {counts} in 3 parts to {tmp_path / 'parts'}\n")
        for data, name in ((events, "a"), (tmp_path / "parts", "b")):
            code, _, err = ran(capsys, "fit", data, "-o", tmp_path / f"{name}.deql", "--l2", 3)
            assert code == 0
            assert f"read {counts}" in err
        one, other = (deql.load(tmp_path / f"{name}.deql") for name in "ab")
        np.testing.assert_array_equal(one.weights(), other.weights())

    def test_as_json_and_with_options(self, capsys, events, tmp_path):
        told = ran(capsys, "data", "partition", events, "-o", tmp_path / "p", "--item", "item", "--json")
        assert json.loads(told[1])["partitions"] == 1

    def test_of_several_files_as_a_shell_makes_of_a_pattern(self, capsys, events, tmp_path):
        header, *rows = events.read_text().splitlines()
        for place in range(3):
            (tmp_path / f"log-{place}.csv").write_text("\n".join([header, *rows[place::3]]) + "\n")
        named = [tmp_path / "log-0.csv", tmp_path / "log-[12].csv"]
        code, _, err = ran(
            capsys, "data", "partition", *named, "-o", tmp_path / "p", "--user", "user", "--item", "item"
        )
        assert (code, err.count("deql:")) == (0, 1)
        whole, parts = deql.read_interactions(events), deql.read_partitions(tmp_path / "p").to_interactions()
        assert parts.users.tolist() == whole.users.tolist()
        assert (parts.matrix != whole.matrix).nnz == 0
        (tmp_path / "other.csv").write_text("item,user\ni1,u1\n")
        said = refusal(capsys, "data", "partition", named[0], tmp_path / "other.csv", "-o", tmp_path / "q")
        assert "other.csv has other columns than" in said
        said = refusal(capsys, "data", "partition", events, tmp_path / "p", "-o", tmp_path / "q")
        assert "is partitioned already: name the table" in said
        assert not (tmp_path / "q").exists()

    def test_are_told_of(self, capsys, events, parts, tmp_path):
        code, out, _ = ran(capsys, "data", "info", parts)
        assert code == 0
        whole = deql.read_interactions(events)
        for words in (["users", "60"], ["interactions", f"{whole.n_interactions:,}"], ["partitions", "3"]):
            assert words in [line.split() for line in out.splitlines()]
        assert f"read {whole.n_interactions:,}" in " ".join(out.split())
        told = json.loads(ran(capsys, "data", "info", parts, "--json")[1])
        assert (told["users"], told["items"], told["partitions"], told["weighted"]) == (60, whole.n_items, 3, False)
        assert told["steps"] == [{"what": "read", "rows": whole.n_interactions}]
        assert "partitioned already: leave out --user" in refusal(capsys, "data", "info", parts, "--user", "user")

    def test_plans_and_other_models(self, capsys, parts, tmp_path):
        code, out, _ = ran(capsys, "fit", parts, "--dry-run", "--engine", "neighbours", "--neighbours", 7)
        assert code == 0
        assert "by the neighbours engine" in out
        assert ran(capsys, "fit", parts, "-o", tmp_path / "s.deql", "-m", "slim")[0] == 0

    def test_refusals(self, capsys, events, parts, tmp_path):
        out = "-o", tmp_path / "m.deql"
        assert refusal(capsys, "fit", parts, *out, "--user", "user").endswith("partitioned already: leave out --user")
        assert "--auto needs all interactions in memory" in refusal(capsys, "fit", parts, *out, "--auto")
        assert "--keep-data needs all interactions" in refusal(capsys, "fit", parts, *out, "--keep-data")
        assert "--hash-users needs all interactions" in refusal(capsys, "fit", parts, *out, "--hash-users")
        assert "is a folder of partitions" in refusal(capsys, "evaluate", parts, "ease")
        assert "is a folder of partitions" in refusal(capsys, "data", "convert", parts, "-o", tmp_path / "e.csv")
        again = refusal(capsys, "data", "partition", parts, "-o", tmp_path / "more")
        assert "is partitioned already: name the table" in again
        assert str(parts) in refusal(capsys, "data", "partition", events, "-o", parts)
        none = refusal(capsys, "data", "partition", events, "-o", tmp_path / "p", "--partitions", 0)
        assert "--partitions must be a whole number from 1 up, got 0" in none
        assert "no-such.csv" in refusal(capsys, "data", "partition", tmp_path / "no-such.csv", "-o", tmp_path / "p")
        assert not (tmp_path / "p").exists()

    @pytest.mark.parametrize(("rows", "what"), [("a,x\nb,x", "item, 'x'"), ("a,x\na,y", "user, 'a'")])
    def test_a_single_user_or_item_is_no_data(self, capsys, tmp_path, rows, what):
        (tmp_path / "one.csv").write_text(f"user,item\n{rows}\n")
        said = ran(capsys, "data", "partition", tmp_path / "one.csv", "-o", tmp_path / "parts")[2]
        assert "1 " + what.partition(",")[0] in said
        assert "in 1 part to" in said
        for data in (tmp_path / "one.csv", tmp_path / "parts"):
            refused = refusal(capsys, "fit", data, "-o", tmp_path / "m.deql")
            assert f"has a single {what}: nothing can be learned from one" in refused


class TestFit:
    def test_by_the_dask_engine(self, capsys, parts, tmp_path, address):
        shared = tmp_path / "shared"
        ending = ("--l2", 3, "--engine", "dask", "--scheduler", address)
        code, out, _ = ran(
            capsys, "fit", parts, "-o", tmp_path / "m.deql", "--shards", *ending, "--folder", shared, "--json"
        )
        assert code == 0
        assert json.loads(out)["engine"] == "dask"
        assert list(shared.iterdir()) == []  # what the workers wrote is in the model now
        assert ran(capsys, "fit", parts, "-o", tmp_path / "here.deql", "--l2", 3)[0] == 0
        one, other = (deql.load(tmp_path / f"{name}.deql").weights() for name in ("m", "here"))
        np.testing.assert_allclose(one, other, atol=1e-5)

    def test_by_neighbourhoods(self, capsys, events, tmp_path, address):
        for place, more in (("here", ()), ("there", ("--scheduler", address))):
            code, out, _ = ran(
                capsys,
                "fit",
                events,
                "-o",
                tmp_path / f"{place}.deql",
                "--neighbours",
                7,
                "--engine",
                "neighbours",
                *more,
            )
            assert code == 0
            assert "(neighbours engine, residual" in out
        one, other = (deql.load(tmp_path / f"{place}.deql").weights() for place in ("here", "there"))
        np.testing.assert_array_equal(one, other)

    def test_by_neighbourhoods_with_a_prior(self, capsys, events, tmp_path):
        of_neighbours = "fit", events, "--neighbours", 7, "-o", tmp_path / "m.deql"
        code, _, err = ran(capsys, *of_neighbours, "--prior", "lowpass:rank=3")
        assert code == 0
        assert "the prior, a low pass, has the weight 1" in err
        assert ran(capsys, "fit", events, "-m", "ease", "-o", tmp_path / "whole.deql")[0] == 0
        said = refusal(capsys, *of_neighbours, "--prior", f"model:{tmp_path / 'whole.deql'}")
        assert "the neighbours engine takes thin priors, and this one is n × n weights: take a low pass" in said

    @pytest.mark.parametrize("engine", ["dask", "neighbours"])
    def test_a_dry_run_looks_at_the_cluster_and_fits_nothing(self, capsys, events, address, engine, tmp_path):
        before = sorted(tmp_path.iterdir())
        code, out, _ = ran(capsys, "fit", events, "--dry-run", "--engine", engine, "--scheduler", address)
        assert code == 0
        assert f"would be fitted by the {engine} engine" in out
        assert "The cluster has 3 workers with 3 threads" in out
        code, out, _ = ran(capsys, "fit", events, "--dry-run", "--engine", engine, "--scheduler", address, "--json")
        assert "3 workers" in json.loads(out)["cluster"]
        assert sorted(tmp_path.iterdir()) == before

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (
                ["--engine", "dask", "--scheduler", "tcp://127.0.0.1:9"],
                "no Dask scheduler answers at tcp://127.0.0.1:9",
            ),
            (["--scheduler", "nowhere.json"], "there is no scheduler file nowhere.json"),
            (["--engine", "dask"], "no Dask cluster is named: say --scheduler"),
            (["--engine", "neighbours", "--scheduler", "tcp://127.0.0.1:9"], "no Dask scheduler answers at"),
            (
                ["--engine", "memory", "--scheduler", "tcp://a:1"],
                "--scheduler is the dask or neighbours engine's: leave it out with --engine memory",
            ),
            (["--engine", "dask", "--scheduler", ""], "the scheduler's address is empty: say one such as tcp://"),
            (
                ["--engine", "dask", "--memory", "1GiB"],
                "--memory is the disk engine's: leave it out with --engine dask",
            ),
            (["--engine", "dask", "--neighbours", "5"], "--neighbours is the neighbours engine's: leave it out with"),
            (["--neighbours", "0"], "--neighbours must be a whole number from 1 up, got 0"),
            (["--neighbours", "5", "--auto"], "--neighbours does not go with --auto"),
            (["--neighbours", "5", "-m", "slim"], "--neighbours does not belong to the model slim"),
            (["--scheduler", "http://x", "--engine", "dask"], "http://x names no Dask scheduler"),
        ],
    )
    def test_refusals(self, capsys, events, tmp_path, arguments, said):
        assert said in refusal(capsys, "fit", events, "-o", tmp_path / "m.deql", *arguments)
        assert not (tmp_path / "m.deql").exists()

    def test_the_shared_folder_may_hold_data_and_the_model(self, capsys, parts, tmp_path, address):
        """Where tiles of a disk engine lie, too, of which nothing is kept here."""
        (tmp_path / tile_folder.MANIFEST).write_text("{}")
        arguments = ("fit", parts, "--l2", 3, "--engine", "dask", "--folder", tmp_path)
        code, _, err = ran(capsys, *arguments, "-o", tmp_path / "m.deql", "--scheduler", "tcp://127.0.0.1:9")
        assert code == 2
        assert "goes on from there" not in err
        assert ran(capsys, *arguments, "-o", tmp_path / "m.deql", "--scheduler", address)[0] == 0
        assert deql.load(tmp_path / "m.deql").engine_ == "dask"
        assert (tmp_path / tile_folder.MANIFEST).is_file()

    def test_the_shared_folder_may_be_that_of_the_data_and_not_a_model_file(self, capsys, events, tmp_path, address):
        dask = ("--engine", "dask", "--scheduler", address, "--folder")
        said = refusal(capsys, "fit", events, "-o", tmp_path / "m.deql", *dask, tmp_path / "m.deql")
        assert "m.deql would be a file, and is the --folder of the workers" in said
        logs = tmp_path / "logs"
        logs.mkdir()
        events.rename(logs / "events.csv")
        for _ in range(2):
            assert ran(capsys, "fit", logs, "-o", tmp_path / "m.deql", *dask, logs)[0] == 0

    def test_a_folder_that_is_a_file(self, capsys, events, tmp_path, address):
        arguments = ("fit", events, "-o", tmp_path / "m.deql", "--scheduler", address, "--folder", events)
        assert "is not a folder: name one for --folder" in refusal(capsys, *arguments)


class TestRecommend:
    def test_of_a_table_and_of_partitions(self, capsys, events, parts, tmp_path, address):
        model = tmp_path / "m.deql"
        assert ran(capsys, "fit", events, "-o", model)[0] == 0
        assert ran(capsys, "recommend", model, "--histories", parts, "-o", tmp_path / "l.parquet", "-k", 3)[0] == 0
        expected = pl.read_parquet(tmp_path / "l.parquet").sort("user", "rank")
        for data, name in ((events, "a"), (parts, "b")):
            out = tmp_path / name
            code, _, err = ran(
                capsys, "recommend", model, "--histories", data, "-k", 3, "--scheduler", address, "-o", out
            )
            assert code == 0
            assert f"wrote 180 rows for 60 users to {out}" in err
            assert pl.read_parquet(out / "part-*.parquet").sort("user", "rank").equals(expected)

    def test_refusals(self, capsys, events, parts, tmp_path, address):
        model = tmp_path / "m.deql"
        assert ran(capsys, "fit", events, "-o", model)[0] == 0
        there = ("--scheduler", address)
        goes_with = "--scheduler goes with --histories"
        assert goes_with in refusal(capsys, "recommend", model, "i1", *there)
        assert goes_with in refusal(capsys, "recommend", model, "--histories", events, *there)
        ends = refusal(capsys, "recommend", model, "--histories", events, *there, "-o", tmp_path / "lists.csv")
        assert "name a folder with -o" in ends
        assert "name a folder" in refusal(capsys, "recommend", model, "--histories", events, *there, "-o", events)
        typed = refusal(capsys, "recommend", model, "--histories", parts, "--user", "user")
        assert typed.endswith("is partitioned already: leave out --user")


class TestEvaluate:
    def test_gives_what_is_given_here(self, capsys, events, tmp_path, address):
        model = tmp_path / "m.deql"
        assert ran(capsys, "fit", events, "-o", model)[0] == 0
        command = ("evaluate", events, model, f"again={model}", "--json")
        here, there = ran(capsys, *command), ran(capsys, *command, "--scheduler", address)
        assert here[0] == there[0] == 0
        assert here[1] == there[1]

    def test_refusals(self, capsys, events, address):
        said = refusal(capsys, "evaluate", events, "ease:l2=3", "--scheduler", address)
        assert "--scheduler evaluates model files that the workers see: fit" in said
