"""The Dask engine on a small cluster of real processes, against the memory engine."""

import copy
import gc
import pickle
import shutil
import socket
import threading
import time
from contextlib import ExitStack, suppress

import numpy as np
import pytest

pytest.importorskip("distributed", reason="the extra cluster is not installed")
import dask

import deql
from deql.data.matrices import canonical
from deql.engines import Dask, Memory, Problem
from deql.errors import ClusterError, NotPositiveDefiniteError, ParameterError, TooLargeError
from deql.linalg.engines import dask_cluster, dask_connection, dask_needs, dask_sweep, dask_tiles
from deql.linalg.engines.dask_cluster import Cluster, WorkerFacts
from deql.linalg.engines.dask_gram import gram_products, load_rows
from deql.linalg.engines.dask_layout import Layout, Strip, choose_layout, place_groups
from deql.linalg.engines.dask_needs import AHEAD, FitNeeds, needs_of
from deql.linalg.gram import user_weights
from tests.clusters import assert_nothing_left, kill_one, started
from tests.models.contract import CASES, interactions

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

NARROW = Layout(330, 64, 24, (0, 128, 192, 330))
"""Pivots narrower than tiles, which are narrower than segments."""


@pytest.fixture
def client(dask_client):
    return dask_client


def problem(n, dtype="float32", weighted=False, seed=0):
    generator = np.random.default_rng(seed)
    R = canonical(generator.random((2 * n, n)) * (generator.random((2 * n, n)) < np.linspace(0.02, 0.2, n)))
    if not weighted:
        R.data[:] = 1
    return Problem(R, np.linspace(5.0, 9.0, n), user_weights(R, 0.5) if weighted else None, dtype)


def quiet(_label):
    return None


def no_stage(label):
    raise AssertionError(f"{label} was begun")


def assert_same(found, expected, tolerance=1e-5):
    P, Q = found.precision.to_dense(), expected.precision.to_dense()
    assert found.precision.dtype == expected.precision.dtype
    np.testing.assert_allclose(P, Q, atol=tolerance * np.abs(Q).max())
    np.testing.assert_array_equal(P, P.T)


@pytest.mark.parametrize("n", [1, 7, 300, 1100])
@pytest.mark.parametrize(("dtype", "weighted"), [("float32", False), ("float64", True)])
def test_agrees_with_the_memory_engine(client, n, dtype, weighted):
    given = problem(n, dtype, weighted)
    found = Dask(client).solve(given, quiet)
    assert found.engine == "dask"
    assert_same(found, Memory().solve(given, quiet), 1e-5 if dtype == "float32" else 1e-12)
    assert_nothing_left(client)


def test_pivots_narrower_than_tiles_and_shards(client, tmp_path, monkeypatch):
    given = problem(330, weighted=True)
    monkeypatch.setattr(dask_needs, "choose_layout", lambda n, threads: NARROW)
    assert_same(Dask(client, folder=tmp_path).solve(given, quiet), Memory().solve(given, quiet))


def test_no_more_panels_are_held_than_are_counted_with(client, monkeypatch):
    monkeypatch.setattr(dask_needs, "choose_layout", lambda n, threads: NARROW)
    monkeypatch.setattr(dask_sweep.dask_tiles, "update", _slow_update)
    updates, submit, held = {}, Cluster.submit, []

    def noted(cluster, name, function, *arguments, **options):
        if name == "factor":
            held.append(sum(any(one.status == "pending" for one in of_pivot) for of_pivot in updates.values()))
        future = submit(cluster, name, function, *arguments, **options)
        if name == "update":
            updates.setdefault(arguments[1], []).append(future)
        return future

    monkeypatch.setattr(Cluster, "submit", noted)
    given = problem(330)
    assert_same(Dask(client).solve(given, quiet), Memory().solve(given, quiet))
    assert len(held) == len(NARROW.pivots)
    assert max(held) == AHEAD  # and the panel of the pivot that is handed out


def _slow_update(group, pivot, layout, rows, columns, found):
    """Those that the next pivots do not wait for take longest."""
    start, _ = layout.pivots[pivot]
    if not any(strip.left <= start < strip.right or strip.top <= start < strip.bottom for strip in group.strips):
        time.sleep(0.05)
    return dask_tiles.update(group, pivot, layout, rows, columns, found)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("threads", [2, 5])
def test_threads_that_share_a_strip_change_no_bit(weighted, threads):
    given = problem(60, weighted=weighted)
    rows = load_rows(given.parts(3))
    for strip in (Strip(20, 60, 0, 20), Strip(59, 60, 40, 60), Strip(0, 60, 0, 60)):
        one, several = (gram_products(rows, strip, count) for count in (1, threads))
        assert one.tobytes() == several.tobytes()


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if getattr(case.make(), "engine", "") == "auto"])
def test_the_contract_of_every_model(client, name, tmp_path):
    data, make = interactions(), CASES[name].make
    expected, found = make().fit(data), make().set_params(engine=Dask(client)).fit(data)
    X = interactions(users=30, seed=1).matrix
    one, other = (model.recommend(X, k=5) for model in (found, expected))
    assert one.ids.tolist() == other.ids.tolist()
    np.testing.assert_allclose(one.scores, other.scores, rtol=1e-4, atol=1e-6)
    found.save(tmp_path / "model.deql")
    loaded = deql.load(tmp_path / "model.deql")
    assert loaded.engine_ == "dask"
    assert loaded.recommend(X, k=5).scores.tobytes() == one.scores.tobytes()


@pytest.mark.parametrize("with_folder", [True, False])
def test_a_worker_killed_in_mid_fit_changes_nothing(with_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(dask_sweep, "_WRITTEN", 1e12)  # a checkpoint at once, and then by what it took
    monkeypatch.setattr(dask_sweep, "_CHECKPOINTS_COST", 1e6)
    given = problem(1500)
    with started(3) as client:
        seen = []

        def stage(label):
            def report(done, total):
                seen.append((label, done))
                if label == "Inverse" and done == total // 2 and seen.count((label, done)) == 1:
                    kill_one(client)

            return report

        found = Dask(client, folder=tmp_path if with_folder else None).solve(given, stage)
        assert ("Inverse", 1) in seen
        assert (seen.count(("Inverse", 1)) == 1) is with_folder  # from a checkpoint, not from the beginning
        assert_nothing_left(client)
    assert_same(found, Memory().solve(given, quiet))
    assert not list(tmp_path.glob(".deql-fit*"))


def test_tiles_that_do_not_fit_into_memory_are_spilled(tmp_path):
    given, spilled = problem(1500), []
    settings = {"target": 0.0005, "spill": False, "pause": False, "terminate": False}
    with (
        dask.config.set({f"distributed.worker.memory.{name}": value for name, value in settings.items()}),
        started(2, memory_limit="2GiB", local_directory=tmp_path) as client,  # 1 MiB for tiles of 4.6 MB in all
    ):

        def stage(label):
            def report(done, total):
                if label == "Inverse":
                    spilled.append(sum(client.run(lambda dask_worker: len(dask_worker.data.slow)).values()))

            return report

        found = Dask(client).solve(given, stage)
    assert max(spilled) > 5
    assert_same(found, Memory().solve(given, quiet))


@pytest.mark.parametrize("with_folder", [True, False])
def test_every_stage_is_told(client, tmp_path, with_folder):
    seen = []

    def stage(label):
        seen.append(label)
        return lambda done, total: seen.append((done, total))

    Dask(client, folder=tmp_path if with_folder else None).solve(problem(300), stage)
    labels = [one for one in seen if isinstance(one, str)]
    assert labels == ["Gram matrix", "Inverse", "Writing P" if with_folder else "Gathering P"]
    begins = [place for place, one in enumerate(seen) if isinstance(one, str)]
    for at in (*begins[1:], len(seen)):
        assert seen[at - 1][0] == seen[at - 1][1]  # each to its end


def test_a_folder_that_is_full_is_one_sentence(client, tmp_path, monkeypatch):
    monkeypatch.setattr(dask_sweep, "_WRITTEN", 1e12)
    monkeypatch.setattr(dask_sweep.dask_tiles, "save_group", _no_room)
    with pytest.raises(ClusterError, match=r"a checkpoint cannot be written to .*: no space left on device"):
        Dask(client, folder=tmp_path).solve(problem(1500), quiet)
    assert_nothing_left(client)
    assert not list(tmp_path.iterdir())


def _no_room(group, path):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(("when", "at"), [("Inverse", 2), ("Writing P", 3)])
def test_an_interruption_leaves_nothing(client, tmp_path, when, at):
    def stage(label):
        def report(done, total):
            if label == when and done == at:
                raise KeyboardInterrupt

        return report

    with pytest.raises(KeyboardInterrupt):
        Dask(client, folder=tmp_path).solve(problem(1500), stage)
    assert_nothing_left(client)
    assert not list(tmp_path.iterdir())


def test_shards_that_cannot_be_mapped_are_removed(client, tmp_path, monkeypatch):
    def fail(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(dask_sweep, "map_shards", fail)
    with pytest.raises(KeyboardInterrupt):
        Dask(client, folder=tmp_path).solve(problem(300), quiet)
    assert not list(tmp_path.iterdir())


class TestWhoRemovesP:
    def fitted(self, client, folder):
        return deql.EASE(l2=3.0, engine=Dask(client, folder=folder)).fit(interactions())

    def test_it_goes_with_the_last_model_on_it(self, client, tmp_path):
        (tmp_path / ".deql-precision-0").mkdir()  # as NFS leaves one where files were mapped until the end
        model = self.fitted(client, tmp_path)
        other = model.with_rule(popularity_power=0.5)
        (kept,) = tmp_path.iterdir()
        assert {file.suffix for file in kept.iterdir()} == {".safetensors"}
        X = interactions(users=5, seed=1).matrix
        before = other.recommend(X, k=3).scores
        model.fit(interactions(), keep_data=False)  # a P of its own
        gc.collect()
        assert kept.is_dir()
        assert len(list(tmp_path.iterdir())) == 2
        assert other.recommend(X, k=3).scores.tobytes() == before.tobytes()
        del other
        gc.collect()
        assert not kept.exists()
        del model
        gc.collect()
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("place", ["model.deql", "shared"])
    def test_a_saved_model_keeps_its_own(self, client, tmp_path, place):
        model, path = self.fitted(client, tmp_path / "shared"), tmp_path / place
        model.save(path, shards=True)
        expected = model.precision_.to_dense()
        del model
        gc.collect()
        assert not list((tmp_path / "shared").glob(".deql*"))
        assert deql.load(path).precision_.to_dense().tobytes() == expected.tobytes()


def test_a_matrix_that_is_not_positive_is_told_as_in_memory(client):
    given = problem(300)
    for added, column in ((-1e4, None), (0.0, 299)):
        plus = np.array(given.added)
        plus[299] = added if column is None else plus[299] - 1.0000001 * _schur(given)
        bad = Problem(given.matrix, plus, None, "float64")
        with pytest.raises(NotPositiveDefiniteError) as error:
            Dask(client).solve(bad, quiet)
        assert error.value.indices == [299]
    assert_nothing_left(client)


def _schur(given):
    """What the last column has of its own: 1 / P_nn."""
    exact = Problem(given.matrix, given.added, None, "float64")
    return 1.0 / Memory().solve(exact, quiet).precision.diagonal()[-1]


class TestBadInput:
    def test_no_scheduler(self, monkeypatch):
        monkeypatch.setattr(dask_connection, "_PATIENCE", 0.5)
        with pytest.raises(ClusterError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
            Dask(scheduler="tcp://127.0.0.1:9").solve(problem(7), no_stage)
        with pytest.raises(ClusterError, match=r"there is no scheduler file nowhere\.json"):
            Dask(scheduler="nowhere.json").solve(problem(7), no_stage)
        with pytest.raises(ClusterError, match=r"^there is no scheduler file x+: name one"):
            Dask(scheduler=5000 * "x").solve(problem(7), no_stage)

    def test_a_file_that_no_scheduler_wrote(self, tmp_path):
        for content in ("user,item", '{"a": 1}', "[]", ""):
            (tmp_path / "other.json").write_text(content)
            with pytest.raises(ClusterError, match=r"other\.json is no scheduler file"):
                Dask(scheduler=tmp_path / "other.json").solve(problem(7), no_stage)

    @pytest.mark.parametrize("said", [b"", b"HTTP/1.0 400 Bad request\r\n\r\n"])
    def test_something_else_that_listens(self, monkeypatch, said):
        monkeypatch.setattr(dask_connection, "_PATIENCE", 0.5)

        def answer(listener):
            with suppress(OSError):
                while True:
                    connection = held.enter_context(listener.accept()[0])
                    connection.sendall(said)

        with ExitStack() as held, socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=answer, args=[listener], daemon=True)
            thread.start()
            address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
            with pytest.raises(ClusterError, match=f"no Dask scheduler answers at {address}"):
                Dask(scheduler=address).solve(problem(7), no_stage)
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
        with pytest.raises(ClusterError, match="no Dask cluster is named"):
            Dask().solve(problem(7), no_stage)

    def test_no_workers(self):
        with started(0) as client, pytest.raises(ClusterError, match="has no workers"):
            Dask(client).solve(problem(7), no_stage)

    def test_another_version(self, client, monkeypatch):
        monkeypatch.setattr(dask_cluster, "__version__", "0.0.1")
        with pytest.raises(ClusterError, match=r"have deql .*, and here is 0\.0\.1: install the same"):
            Dask(client).solve(problem(7), no_stage)

    def test_no_deql(self, client, monkeypatch):
        source = dask_cluster._PROBE.replace("import deql\n", "import no_such_deql as deql\n")
        monkeypatch.setattr(dask_cluster, "_PROBE", source)
        with pytest.raises(ClusterError, match="deql is not installed on the workers"):
            Dask(client).solve(problem(7), no_stage)

    def test_a_folder_that_workers_do_not_see(self, client, tmp_path, monkeypatch):
        source = dask_cluster._PROBE.replace("os.path.join(folder, token))", "os.path.join(folder, 'else', token))")
        monkeypatch.setattr(dask_cluster, "_PROBE", source)
        with pytest.raises(ClusterError, match=r"cannot use the folder .*no such file or directory"):
            Dask(client, folder=tmp_path).solve(problem(7), no_stage)
        assert not list(tmp_path.iterdir())

    def test_too_little_memory(self, client, monkeypatch):
        source = dask_cluster._PROBE.replace("dask_worker.memory_manager.memory_limit", "2**20")
        monkeypatch.setattr(dask_cluster, "_PROBE", source)
        sentence = (
            r"^1,500 items in float32 need .* of memory on the cluster, and its 3 workers may take 2 MiB: "
            "use larger workers, or the disk engine$"
        )
        with pytest.raises(TooLargeError, match=sentence):
            Dask(client).solve(problem(1500), no_stage)

    def test_too_little_room_in_the_folder(self, client, tmp_path, monkeypatch):
        plan = Dask(client, folder=tmp_path).examine(1500)
        assert plan.in_folder > 2 * plan.tiles
        assert plan.room > plan.in_folder
        assert "for P and a checkpoint, and has" in str(plan)
        assert "folder" not in str(Dask(client).examine(1500))
        little = shutil._ntuple_diskusage(2**30, 2**30 - 2**20, 2**20)
        monkeypatch.setattr(dask_needs.shutil, "disk_usage", lambda folder: little)
        sentence = (
            r"^1,500 items in float32 take .* of the folder .*, for P and a checkpoint, and 1 MiB are free there: "
            "make room, or name another folder$"
        )
        for begin in (lambda engine: engine.solve(problem(1500), no_stage), lambda engine: engine.examine(1500)):
            with pytest.raises(TooLargeError, match=sentence):
                begin(Dask(client, folder=tmp_path))
        assert not list(tmp_path.iterdir())

    def test_parameters(self, client):
        with pytest.raises(ParameterError, match="a client or a scheduler, not both"):
            Dask(client, scheduler="tcp://a:1")
        with pytest.raises(ParameterError, match=r"client must be a distributed\.Client, got int"):
            Dask(3)


def test_an_address_does_as_well_and_copies_travel(client):
    engine = Dask(scheduler=client.scheduler.address)
    assert_same(engine.solve(problem(30), quiet), Memory().solve(problem(30), quiet))
    assert copy.deepcopy(Dask(client)).client is client
    assert pickle.loads(pickle.dumps(Dask(client))) == engine


@pytest.mark.parametrize("n", [600, 5000, 12_000, 100_000])
@pytest.mark.parametrize("workers", [2, 4, 9])
def test_groups_are_spread_evenly(n, workers):
    layout = choose_layout(n, workers)
    placed = place_groups(layout, dict.fromkeys(map(str, range(workers)), 1))
    assert sum(map(layout.numbers, layout.groups)) == layout.stored
    if n > 4096:
        most = max(sum(layout.numbers(g) for g in placed if placed[g] == str(w)) for w in range(workers))
        assert most / layout.stored < 1.5 / workers


def test_no_worker_holds_much_of_the_matrix():
    layout = choose_layout(12_000, 4)
    placed = place_groups(layout, dict.fromkeys("abcd", 1))
    shares = [sum(layout.numbers(g) for g in placed if placed[g] == worker) / layout.stored for worker in "abcd"]
    assert max(shares) < 0.3
    left = place_groups(layout, dict.fromkeys("abc", 1))  # one is lost
    assert max(sum(layout.numbers(g) for g in left if left[g] == w) / layout.stored for w in "abc") < 0.45


def test_threads_that_started_are_gone_when_the_client_is_its_own(client):
    before = threading.active_count()
    Dask(scheduler=client.scheduler.address).solve(problem(7), quiet)
    assert threading.active_count() <= before + 2


def workers(*each):
    """Of so many threads and GiB."""
    return {
        name: WorkerFacts(name, name, threads, int(gib * 2**30))
        for name, (threads, gib) in zip("abcdefgh", each, strict=False)
    }


def of_items(n, there, parts=()):
    return FitNeeds(choose_layout(n, sum(one.threads for one in there.values())), "float32", parts)


class TestMemory:
    def test_the_number_of_workers_that_is_named_suffices(self):
        there = workers(*[(1, 16)] * 4)
        with pytest.raises(TooLargeError, match=r"its 4 workers may take 64 GiB: use \d+ such workers, or") as error:
            of_items(300_000, there).check_memory(there)
        enough = int(str(error.value).split("use ")[1].split()[0])
        many = {str(number): WorkerFacts(str(number), "", 1, 16 * 2**30) for number in range(enough)}
        of_items(300_000, many).check_memory(many)

    def test_each_worker_has_room_for_its_own_share(self):
        even, uneven = workers((1, 8), (1, 8), (1, 8)), workers((1, 20), (1, 20), (1, 2))
        of_items(60_000, even).check_memory(even)
        sentence = r"^60,000 items in float32 need .* GiB of memory on the worker c, whose share goes by its threads, "
        with pytest.raises(TooLargeError, match=sentence + r"and it may take 2\.0 GiB: use"):
            of_items(60_000, uneven).check_memory(uneven)

    def test_interactions_count(self):
        there = workers((1, 8), (1, 8), (1, 8))
        of_items(60_000, there, parts=(2**30,) * 3).check_memory(there)
        with pytest.raises(TooLargeError, match=r"on the worker [abc], .* use more or larger workers"):
            of_items(60_000, there, parts=(8 * 2**30,)).check_memory(there)  # one part is one worker's
        given = problem(40)
        plain, weighted = (needs_of(problem(40, weighted=one), there) for one in (False, True))
        assert sum(plain.parts) == pytest.approx(2 * given.matrix.nnz * (given.matrix.data.itemsize + 4), abs=9)
        assert sum(weighted.parts) - sum(plain.parts) == pytest.approx(16 * given.matrix.nnz, abs=9)
