"""Lists and evaluations by parts of users, on a small cluster of real processes."""

import json
import shutil
import subprocess
import sys
import time
import warnings
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import deql
import deql.cluster
from deql.cluster import recommendation, tasks
from deql.engines import Neighbours
from deql.errors import ClusterError, DataError, ModelFileError, ParameterError, UnknownItemError
from deql.linalg.engines import dask_cluster, dask_connection, dask_tasks
from tests.clusters import assert_nothing_left, kill_one, started
from tests.models.contract import CASES, cases, interactions

pytest.importorskip("distributed", reason="the extra cluster is not installed")
pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def data():
    made = interactions(users=200, seed=2)
    return deql.Interactions(made.matrix, np.array([f"user {u}" for u in range(200)], object), made.items)


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "shop.deql"
    deql.DEQL(l2=2.0, b=1.0).fit(data).save(path)
    return path


@pytest.fixture(scope="module")
def parts(data, tmp_path_factory):
    place = tmp_path_factory.mktemp("table")
    pairs = data.matrix.tocoo()
    table = pl.DataFrame({"user": data.users[pairs.row], "item": data.items[pairs.col]})
    table.write_parquet(place / "table.parquet")
    return deql.read_partitions(place / "table.parquet", "user", "item", folder=place / "parts", partitions=6)


def lists(folder):
    """All rows of a folder of lists, by user."""
    return pl.read_parquet(folder / "part-*.parquet").sort("user", "rank")


def lists_here(model, data, tmp_path, **options):
    written = deql.load(model).write_recommendations(tmp_path / "here.parquet", data, **options)
    return pl.read_parquet(tmp_path / "here.parquet").sort("user", "rank"), written


class TestRecommend:
    def test_gives_what_one_machine_gives(self, dask_client, model, data, tmp_path):
        options = {"k": 4, "exclude": [data.items[0]], "reasons": 2, "exclude_seen": False}
        written = deql.cluster.recommend(model, data, dask_client, tmp_path / "lists", users_per_part=30, **options)
        expected, counts = lists_here(model, data, tmp_path, **options)
        assert written == counts
        assert len(list((tmp_path / "lists").glob("part-*.parquet"))) == 7
        assert lists(tmp_path / "lists").equals(expected)
        assert_nothing_left(dask_client)

    def test_of_partitions_too_and_by_an_address(self, dask_client, model, data, parts, tmp_path):
        address = dask_client.scheduler.address
        written = deql.cluster.recommend(model, parts, address, tmp_path / "lists", k=3)
        expected, counts = lists_here(model, parts.to_interactions(), tmp_path, k=3)
        assert written == counts
        assert lists(tmp_path / "lists").equals(expected)

    @pytest.mark.parametrize("case", cases())
    def test_of_every_kind_of_model(self, dask_client, data, tmp_path, case):
        case.make().fit(data).save(tmp_path / "m.deql")
        deql.cluster.recommend(tmp_path / "m.deql", data, dask_client, tmp_path / "lists", k=3, users_per_part=120)
        assert lists(tmp_path / "lists").equals(lists_here(tmp_path / "m.deql", data, tmp_path, k=3)[0])

    def test_of_neighbourhoods_and_of_shards(self, dask_client, data, tmp_path):
        deql.EASE(l2=2.0, engine=Neighbours(k=3)).fit(data).save(tmp_path / "sparse.deql")
        CASES["EASE"].make().fit(data).save(tmp_path / "sharded.deql", shards=True)
        for name in ("sparse", "sharded"):
            model = tmp_path / f"{name}.deql"
            deql.cluster.recommend(model, data, dask_client, tmp_path / name, k=3, users_per_part=120)
            assert lists(tmp_path / name).equals(lists_here(model, data, tmp_path, k=3)[0])

    def test_makes_only_what_is_missing(self, dask_client, model, data, tmp_path):
        folder = tmp_path / "lists"
        first = deql.cluster.recommend(model, data, dask_client, folder, users_per_part=50)
        before = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
        whole = lists(folder)
        (folder / "part-00002.parquet").unlink()
        (folder / "part-00001.parquet").write_bytes((folder / "part-00001.parquet").read_bytes()[:-9])
        again = deql.cluster.recommend(model, data, dask_client, folder, users_per_part=50)
        assert again == first
        assert lists(folder).equals(whole)
        changed = {file.name for file in folder.iterdir() if before[file.name] != file.stat().st_mtime_ns}
        assert changed == {"part-00001.parquet", "part-00002.parquet"}

    def test_lists_that_were_asked_for_otherwise_are_not_mixed(self, dask_client, model, data, parts, tmp_path):
        folder = tmp_path / "lists"
        deql.cluster.recommend(model, data, dask_client, folder, k=3)
        with pytest.raises(DataError, match=r"holds lists that were asked for otherwise \(k\): name another folder"):
            deql.cluster.recommend(model, data, dask_client, folder, k=4)
        with pytest.raises(DataError, match=r"asked for otherwise \(data, parts\)"):
            deql.cluster.recommend(model, parts, dask_client, folder, k=3)
        (folder / recommendation.ASKED).write_text("{")
        with pytest.raises(DataError, match="asked for otherwise"):
            deql.cluster.recommend(model, data, dask_client, folder, k=3)
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "letter.txt").write_text("dear")
        with pytest.raises(DataError, match="is a folder with other files in it"):
            deql.cluster.recommend(model, data, dask_client, tmp_path / "full")

    def test_sets_of_ids_are_asked_for_in_one_order(self):
        ids = {f"item {number}" for number in range(40)} | {3, 12}
        assert recommendation._listed(ids) == [3, 12, *sorted(one for one in ids if isinstance(one, str))]
        assert recommendation._listed(iter("ba")) == ["b", "a"]
        assert recommendation._listed(None) is None

    def test_goes_on_where_the_partitions_lie_elsewhere_by_now(self, dask_client, model, parts, tmp_path):
        first = deql.cluster.recommend(model, parts, dask_client, tmp_path / "lists", k=3)
        shutil.copytree(parts.folder, tmp_path / "mounted")
        moved = deql.read_partitions(tmp_path / "mounted")
        (tmp_path / "lists" / "part-00002.parquet").unlink()
        assert deql.cluster.recommend(model, moved, dask_client, tmp_path / "lists", k=3) == first
        other = replace(moved, items=moved.items[::-1])
        with pytest.raises(DataError, match=r"asked for otherwise \(data\)"):
            deql.cluster.recommend(model, other, dask_client, tmp_path / "lists", k=3)

    def test_of_nobody(self, dask_client, model, data, tmp_path):
        nobody = deql.Interactions(data.matrix[:0], data.users[:0], data.items)
        assert deql.cluster.recommend(model, nobody, dask_client, tmp_path / "lists") == (0, 0, 0)

    def test_a_worker_killed_in_the_middle_changes_nothing(self, model, data, tmp_path, monkeypatch):
        seen = []
        with started(2) as client:

            def run_and_kill(*given):
                for number, found in dask_tasks.run_tasks(*given):
                    seen.append(number)
                    if len(seen) == 3:
                        kill_one(client)
                    yield number, found

            monkeypatch.setattr(recommendation, "run_tasks", run_and_kill)
            written = deql.cluster.recommend(model, data, client, tmp_path / "lists", k=3, users_per_part=10)
        expected, counts = lists_here(model, data, tmp_path, k=3)
        assert sorted(seen) == list(range(20))
        assert written == counts
        assert lists(tmp_path / "lists").equals(expected)

    def test_unknown_items_are_told_of_once_or_refused(self, dask_client, model, data, tmp_path):
        items = data.items.copy()
        items[-1] = "a thing"
        other = deql.Interactions(data.matrix, data.users, items)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            deql.cluster.recommend(model, other, dask_client, tmp_path / "lists", k=3, users_per_part=20)
        assert len([one for one in told if "a thing" in str(one.message)]) == 1
        with pytest.warns(UserWarning, match="a thing"):
            expected, _ = lists_here(model, other, tmp_path, k=3)
        assert lists(tmp_path / "lists").equals(expected)
        with pytest.raises(UnknownItemError, match="a thing"):
            deql.cluster.recommend(model, other, dask_client, tmp_path / "strict", strict=True)
        assert not (tmp_path / "strict").exists()


@pytest.fixture(scope="module")
def split(data):
    return deql.split_strong(data, test_users=0.4, validation_users=0.1, seed=1)


class TestEvaluate:
    METRICS = ("recall@3", "ndcg@3", "coverage@3")

    def test_gives_what_one_machine_gives(self, dask_client, split, tmp_path):
        for name, case in CASES.items():
            if name in ("DEQL, thin prior", "SLIM", "Popularity"):
                case.make().fit(split.train).save(tmp_path / "m.deql")
                expected = deql.evaluate(deql.load(tmp_path / "m.deql"), split.test, self.METRICS)
                found = deql.cluster.evaluate(
                    tmp_path / "m.deql", split.test, self.METRICS, dask_client, users_per_part=7
                )
                assert found.means == expected.means
                assert found.skipped == expected.skipped
                assert found.users.tolist() == expected.users.tolist()
                for metric, values in expected.per_user.items():
                    assert found.per_user[metric].tobytes() == values.tobytes()
        assert_nothing_left(dask_client)

    def test_bad_metrics_are_told_before_the_work(self, dask_client, split, model):
        with pytest.raises(ParameterError, match="unknown metric"):
            deql.cluster.evaluate(model, split.test, "fame@3", dask_client)


class TestBadInput:
    def test_no_scheduler(self, model, data, tmp_path, monkeypatch):
        monkeypatch.setattr(dask_connection, "_PATIENCE", 0.5)
        with pytest.raises(ClusterError, match="no Dask scheduler answers at"):
            deql.cluster.recommend(model, data, "tcp://127.0.0.1:9", tmp_path / "lists")
        assert not (tmp_path / "lists").exists()

    def test_no_model_and_a_model_in_memory(self, data, model, tmp_path):
        with pytest.raises(ModelFileError, match="there is no"):
            deql.cluster.recommend(tmp_path / "none.deql", data, "tcp://127.0.0.1:9", tmp_path / "lists")
        with pytest.raises(ParameterError, match="workers read the model from a path that they share, got a DEQL"):
            deql.cluster.recommend(deql.load(model), data, "tcp://127.0.0.1:9", tmp_path / "lists")
        with pytest.raises(ParameterError, match="expected Interactions or partitions of them, got list"):
            deql.cluster.recommend(model, [["a"]], "tcp://127.0.0.1:9", tmp_path / "lists")

    def test_a_model_that_workers_do_not_see(self, dask_client, data, model, tmp_path, monkeypatch):
        monkeypatch.setattr(tasks.SharedModel, "key", property(lambda self: ("/nowhere/shop.deql", self.checksum, 0)))
        with pytest.raises(ClusterError, match=r"do not have the model .*: name a path that all workers share"):
            deql.cluster.recommend(model, data, dask_client, tmp_path / "lists")

    def test_another_model_at_the_path(self, dask_client, data, model, tmp_path, monkeypatch):
        monkeypatch.setattr(tasks.SharedModel, "key", property(lambda self: (str(self.path), "another", 0)))
        with pytest.raises(ClusterError, match=r"\(.* is another model there\)"):
            deql.cluster.recommend(model, data, dask_client, tmp_path / "lists")

    def test_a_task_that_fails_is_told_as_it_is_here(self, dask_client, data, model, parts, tmp_path):
        whole = json.loads((parts.folder / "partitions.json").read_text())
        assert whole["format"] == "deql-partitions"
        copy = tmp_path / "parts"
        copy.mkdir()
        for file in parts.folder.iterdir():
            (copy / file.name).write_bytes(file.read_bytes())
        broken = deql.read_partitions(copy)
        broken.parts[3].path.unlink()
        with pytest.raises(DataError, match=r"is missing: restore it"):
            deql.cluster.recommend(model, broken, dask_client, tmp_path / "lists")
        assert_nothing_left(dask_client)


def test_all_workers_gone_for_good_is_one_sentence(monkeypatch):
    monkeypatch.setattr(dask_tasks, "RETURNING", 1.0)
    with started(1) as client:
        future = dask_tasks.send(client, "wait", time.sleep, 60)
        client.cluster.scale(0)
        with pytest.raises(ClusterError, match="all workers of the Dask cluster are gone"):
            dask_tasks.first_done(client, [future])


def test_a_lost_scheduler_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(dask_cluster, "POLL", 0.1)
    file = tmp_path / "scheduler.json"
    command = ["-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
    scheduler = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            if file.is_file() and file.stat().st_size:
                break
            time.sleep(0.1)
        with dask_connection.connect(scheduler=file) as client:
            future = dask_tasks.send(client, "wait", time.sleep, 60)
            scheduler.kill()
            with pytest.raises(ClusterError, match=r"the Dask scheduler (cancelled the work|was lost)"):
                dask_tasks.first_done(client, [future])
            with pytest.raises(ClusterError, match="the connection to the Dask scheduler was lost"):
                dask_cluster.identities(client)
    finally:
        scheduler.kill()
        scheduler.wait()
