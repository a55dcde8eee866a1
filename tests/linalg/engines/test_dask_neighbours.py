"""Neighbourhoods on a small cluster of real processes, against the same on one machine."""

import copy
import pickle
from types import SimpleNamespace

import numpy as np
import pytest

import deql
from deql.engines import Neighbours, Problem
from deql.errors import ClusterError, NotPositiveDefiniteError, ParameterError, TooLargeError
from deql.linalg.engines import dask_cluster, dask_connection, dask_neighbours
from deql.linalg.engines.dask_cluster import WorkerFacts
from deql.linalg.engines.dask_neighbours import _check_memory
from deql.linalg.gram import user_weights
from deql.priors import LowPass
from tests.clusters import assert_nothing_left, kill_one, started
from tests.models.contract import interactions

pytest.importorskip("distributed", reason="the extra cluster is not installed")
pytestmark = pytest.mark.cluster


def quiet(_label):
    return None


def no_stage(label):
    raise AssertionError(f"{label} was begun")


@pytest.fixture
def make(random_matrix):
    def problem(n, weighted=False, dtype="float32"):
        R = random_matrix(3 * n, n, seed=n, weighted=weighted)
        return Problem(R, np.linspace(5.0, 9.0, n), user_weights(R, 0.5) if weighted else None, dtype)

    return problem


def assert_same_bits(found, expected):
    one, other = found.precision, expected.precision
    assert found.residual == expected.residual
    for name in ("indptr", "columns", "data"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize(("n", "k"), [(2, 1), (40, 100), (300, 20)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_counts_give_the_same_bits(dask_client, make, n, k, dtype):
    given = make(n, dtype=dtype)
    assert_same_bits(Neighbours(k, dask_client).solve(given, quiet), Neighbours(k).solve(given, quiet))
    assert_nothing_left(dask_client)


def test_weights_agree_to_rounding(dask_client, make):
    given = make(120, weighted=True, dtype="float64")
    one, other = (Neighbours(200, client).solve(given, quiet).precision for client in (dask_client, None))
    np.testing.assert_array_equal(one.columns, other.columns)
    np.testing.assert_allclose(one.data, other.data, atol=1e-12 * np.abs(other.data).max())


def test_models_with_a_prior_and_partitions(dask_client, tmp_path):
    data = interactions()
    prior = LowPass(rank=4)
    one, other = (
        deql.DEQL(l2=2.0, b=1.0, prior=prior, engine=Neighbours(10, client)).fit(data) for client in (dask_client, None)
    )
    assert one.engine_ == "neighbours"
    assert one.recommend(data.matrix, k=5).scores.tobytes() == other.recommend(data.matrix, k=5).scores.tobytes()

    pairs = data.matrix.tocoo()
    lines = [f"{user},{item}" for user, item in zip(pairs.row, pairs.col, strict=True)]
    (tmp_path / "table.csv").write_text("\n".join(["user,item", *lines]))
    parts = deql.read_partitions(tmp_path / "table.csv", folder=tmp_path / "parts", partitions=7)
    one, other = (deql.EASE(l2=2.0, engine=Neighbours(10, client)).fit(parts) for client in (dask_client, None))
    np.testing.assert_array_equal(one.weights(), other.weights())
    assert_nothing_left(dask_client)


def test_a_worker_killed_while_columns_are_solved_changes_nothing(make, monkeypatch):
    monkeypatch.setattr(dask_neighbours, "_LONGEST_SPAN", 10)
    given, seen = make(300), []

    with started(2) as client:

        def stage(label):
            def report(done, total):
                seen.append((label, done))
                if label == "Neighbourhoods" and done == 5:
                    kill_one(client)

            return report

        found = Neighbours(20, client).solve(given, stage)
    assert seen[-1] == ("Neighbourhoods", 30)
    assert_same_bits(found, Neighbours(20).solve(given, quiet))


def test_a_matrix_that_is_not_positive_is_told_as_on_one_machine(dask_client, make):
    given = make(30)
    bad = Problem(given.matrix, -0.9 * (given.matrix**2).sum(axis=0))
    sentences = []
    for engine in (Neighbours(5, dask_client), Neighbours(5)):
        with pytest.raises(NotPositiveDefiniteError) as error:
            engine.solve(bad, quiet)
        sentences.append(str(error.value))
    assert sentences[0] == sentences[1]
    assert_nothing_left(dask_client)


@pytest.mark.parametrize("label", ["Pairs of items", "Neighbourhoods"])
def test_an_interruption_leaves_nothing_while_its_error_is_kept(dask_client, make, label):
    """A notebook keeps the last error, and with it all that its frames hold."""

    def stage(begun):
        def report(done, total):
            if begun == label:
                raise KeyboardInterrupt

        return report

    with pytest.raises(KeyboardInterrupt) as kept:
        Neighbours(5, dask_client).solve(make(300), stage)
    assert_nothing_left(dask_client)
    assert kept.tb is not None


class TestBadInput:
    def test_no_scheduler_and_no_workers(self, make, monkeypatch):
        monkeypatch.setattr(dask_connection, "_PATIENCE", 0.5)
        with pytest.raises(ClusterError, match="no Dask scheduler answers at"):
            Neighbours(5, scheduler="tcp://127.0.0.1:9").solve(make(7), no_stage)
        with pytest.raises(ClusterError, match="there is no scheduler file"):
            Neighbours(5, scheduler="nowhere.json").solve(make(7), no_stage)
        with started(0) as client, pytest.raises(ClusterError, match="has no workers"):
            Neighbours(5, client).solve(make(7), no_stage)

    def test_another_version(self, dask_client, make, monkeypatch):
        monkeypatch.setattr(dask_cluster, "__version__", "0.0.1")
        with pytest.raises(ClusterError, match="install the same version"):
            Neighbours(5, dask_client).solve(make(7), no_stage)

    def test_too_little_memory_for_the_sums(self, dask_client, make, monkeypatch):
        source = dask_cluster._PROBE.replace("dask_worker.memory_manager.memory_limit", "2**20")
        monkeypatch.setattr(dask_cluster, "_PROBE", source)

        def stage(label):
            assert label == "Pairs of items"

        with pytest.raises(TooLargeError, match=r"the pairs of 40 items .* may take 819 KiB: use workers with more"):
            Neighbours(5, dask_client).solve(make(40), stage)
        assert_nothing_left(dask_client)

    def test_each_thread_has_a_system_of_its_own(self):
        worker = WorkerFacts("tcp://a:1", "a", threads=4, memory=2**32)
        cluster = SimpleNamespace(workers={worker.address: worker})
        _check_memory(cluster, 10**5, 400, np.dtype("float32"), 2**30)
        with pytest.raises(TooLargeError, match=r"tcp://a:1 may take 4\.0 GiB"):
            _check_memory(cluster, 10**5, 20_000, np.dtype("float32"), 2**30)

    def test_parameters(self, dask_client):
        with pytest.raises(ParameterError, match="a client or a scheduler, not both"):
            Neighbours(5, dask_client, "tcp://a:1")
        with pytest.raises(ParameterError, match=r"client must be a distributed\.Client, got int"):
            Neighbours(5, 3)


def test_nothing_of_the_machine_is_kept_and_copies_travel(dask_client):
    engine = Neighbours(7, dask_client)
    assert engine.config == {"engine": "neighbours", "k": 7}
    assert copy.deepcopy(engine).client is dask_client
    assert pickle.loads(pickle.dumps(engine)) == Neighbours(7, scheduler=dask_client.scheduler.address)
    assert pickle.loads(pickle.dumps(Neighbours(7))) == Neighbours(7)
    assert repr(Neighbours(7, scheduler="tcp://a:1")) == "Neighbours(k=7, scheduler='tcp://a:1')"
