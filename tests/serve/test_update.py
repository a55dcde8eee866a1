"""Batches of changes that are sent to a server: what it serves is a refit, and whatever fails changes nothing."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("uvicorn", reason="needs the extra serve")

import deql
from deql.errors import DataError, ModelFileError
from deql.io.model_file import checksum
from deql.serve import update_process, updates
from deql.serve.api import create_app
from deql.serve.serving_model import ModelHolder, ServingModel
from deql.serve.settings import Settings
from deql.serve.update_process import interactions_of, update_file
from deql.serve.updates import Updates
from tests.serve.asking import Asker
from tests.serve.running import Asking, Server, _command, basic, wait_for

pytestmark = pytest.mark.serve

PAIRS = [("ann", "tea"), ("ann", "jam"), ("bob", "tea"), ("bob", "egg"), ("bob", "oat"), ("cid", "jam"), ("cid", "oat"),
         ("dan", "egg")]  # fmt: skip
BATCH = {
    "add": [{"user": "eve", "item": "rye"}, {"user": "eve", "item": "tea"}, {"user": "ann", "item": "oat"}],
    "remove": [{"user": "cid", "item": "jam"}], "forget_users": ["dan"],
}  # fmt: skip
AFTERWARDS = [("ann", "tea"), ("ann", "jam"), ("ann", "oat"), ("bob", "tea"), ("bob", "egg"), ("bob", "oat"),
              ("cid", "oat"), ("eve", "rye"), ("eve", "tea")]  # fmt: skip


def fitted(pairs=PAIRS, **how):
    model = deql.DEQL(l2=1.0, dropout=0.3, b=0.25, user_power=0.5, dtype="float64")
    return model.fit(deql.Interactions.from_pairs(*zip(*pairs, strict=True)), **how)


def dense(model):
    """W by ids, whatever the order of the columns."""
    order, n = np.argsort(model.items_).astype(np.int32), len(model.items_)
    return model._weights_at(np.repeat(order, n), np.tile(order, n)).reshape(n, n)


def assert_refitted(path, pairs):
    found, expected = deql.load(path), fitted(pairs)
    assert sorted(found.items_) == sorted(expected.items_)
    np.testing.assert_allclose(dense(found), dense(expected), atol=1e-8)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("updated")
    fitted().save(folder / "bare.deql")
    running = Server(
        _kept(folder / "shop.deql"), folder / "log", workers=2, threads=1, token="token",
        beside={"bare": str(folder / "bare.deql")},
    )  # fmt: skip
    yield running.wait()
    running.close()


def _kept(path):
    fitted(keep_data=True).save(path)
    return path


@pytest.fixture
def shop(server):
    """The server, as it began."""
    _kept(server.model)
    assert server.reload()[0] == 200
    return server


def update(server, authorization="Bearer token", **batch):
    """Status, answer and headers."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    headers = {"Content-Type": "application/json"} | ({"Authorization": authorization} if authorization else {})
    try:
        connection.request("POST", "/v1/update", json.dumps(batch), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read()), response.headers
    finally:
        connection.close()


def checksum_of_an_answer(server):
    status, answer = server.ask("POST", "/recommend", b'{"histories": [["tea"]], "k": 2}')
    assert status == 200, answer
    return answer["checksum"]


def test_a_batch_is_a_refit_while_others_ask(shop):
    old = checksum(shop.model)
    with Asking(shop, lambda: checksum_of_an_answer(shop)) as asking:
        status, answer, _ = update(shop, **BATCH)
        wait_for(lambda: asking.checksums[-1:] != [old])
    assert status == 200, answer
    assert list(dict.fromkeys(asking.checksums)) == [old, answer["checksum"]]
    assert asking.checksums.count(old) > 20
    assert np.quantile(asking.seconds, 0.95) < 0.5
    assert_refitted(shop.model, AFTERWARDS)
    assert checksum(shop.model) == answer["checksum"]  # which is what a restart loads
    assert answer["report"]["plan"]["changes"] == {
        "added": 3, "removed": 2, "new_users": 1, "changed_users": 2, "forgotten_users": 1, "new_items": 1,
        "retired_items": 0,
    }  # fmt: skip
    [best] = shop.ask("POST", "/recommend", b'{"histories": [["oat"]], "k": 3}')[1]["results"]
    expected = deql.load(shop.model).recommend([["oat"]], k=3).ids[0].tolist()
    assert [one["item"] for one in best["recommendations"]] == expected
    told = shop.ask("GET", "/model")[1]
    assert told["data"]["users"] == 4
    assert told["updated"].startswith(time.strftime("%Y-", time.gmtime()))
    assert shop.ask("GET", "/model?model=bare")[1]["updated"] is None
    [*_, logged] = shop.events("update")
    assert (logged["outcome"], logged["new_users"], logged["checksum"]) == ("updated", 1, answer["checksum"])


def test_a_bad_batch_changes_nothing(shop):
    before = shop.model.with_name("bare.deql").read_bytes()
    status, answer, _ = update(shop, model="bare", forget_users=["zoe"])
    assert (status, answer["error"]["code"]) == (422, "invalid_request")
    assert "this model cannot forget users: it does not have its data" in answer["error"]["message"]
    assert shop.model.with_name("bare.deql").read_bytes() == before
    assert shop.events("update")[-1]["code"] == "invalid_request"


def test_a_file_that_somebody_changed_is_not_written_over(shop):
    fitted(PAIRS[1:], keep_data=True).save(shop.model)
    theirs = shop.model.read_bytes()
    status, answer, _ = update(shop, forget_users=["ann"])
    assert (status, answer["error"]["code"]) == (409, "model_changed")
    assert "reload it first" in answer["error"]["message"]
    assert shop.model.read_bytes() == theirs


def test_only_a_bearer_may_update(shop):
    for shown in (None, "Bearer wrong", basic("token")):  # a browser sends the last unasked
        status, _, headers = update(shop, shown, forget_users=["ann"])
        assert (status, headers["WWW-Authenticate"]) == (401, 'Bearer realm="deql"')


def _children(server):
    """Processes of Python's making that any thread of the server started; ``workers`` are those of the first."""
    tasks = Path(f"/proc/{server.process.pid}/task").glob("*/children")
    children = [pid for task in tasks for pid in task.read_text().split()]
    return [int(pid) for pid in children if b"spawn_main" in _command(pid)]


@contextmanager
def stopped_update(server):
    """An update in the middle of which its process was stopped; who asked for it, and that process."""
    answers = []
    asking = threading.Thread(target=lambda: answers.append(update(server, forget_users=["ann"])))
    asking.start()
    [pid] = wait_for(lambda: set(_children(server)) - set(server.workers()))
    os.kill(pid, signal.SIGSTOP)
    try:
        yield pid, answers
    finally:
        asking.join(20)


def test_one_at_a_time_and_a_process_that_is_killed(shop):
    before = shop.model.read_bytes()
    with stopped_update(shop) as (pid, answers):
        status, answer, headers = update(shop, forget_users=["bob"])
        assert (status, answer["error"]["code"]) == (409, "update_running")
        assert int(headers["Retry-After"]) > 0
        assert shop.ask("POST", "/recommend", b'{"histories": [["tea"]]}')[0] == 200
        os.kill(pid, signal.SIGKILL)
    [(status, answer, _)] = answers
    assert (status, answer["error"]["code"]) == (503, "update_failed")
    assert answer["error"]["message"].endswith("exit code -9, perhaps for lack of memory; the model is as it was")
    assert shop.model.read_bytes() == before


def test_who_leaves_has_the_update_all_the_same(shop):
    done = len(shop.events("update"))
    connection = http.client.HTTPConnection("127.0.0.1", shop.port)
    headers = {"Content-Type": "application/json", "Authorization": "Bearer token"}
    connection.request("POST", "/v1/update", json.dumps({"forget_users": ["ann"]}), headers)
    connection.close()
    wait_for(lambda: len(shop.events("update")) > done)
    assert shop.events("update")[-1]["outcome"] == "updated"
    assert_refitted(shop.model, PAIRS[2:])
    metrics = _text(shop, "/metrics")
    assert 'deql_updates_total{outcome="updated"}' in metrics
    assert "deql_update_seconds_count" in metrics


def _text(server, path):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", path, headers={"Authorization": "Bearer token"})
    try:
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def test_a_server_that_ends_ends_its_update(shop):
    """The last of these tests: the server is gone then."""
    before = shop.model.read_bytes()
    with stopped_update(shop) as (pid, answers):
        assert shop.end() == 0
    [(status, answer, _)] = answers
    assert (status, answer["error"]["code"]) == (503, "update_failed")
    assert "the server is ending" in answer["error"]["message"]
    assert shop.model.read_bytes() == before
    assert not [one.name for one in shop.model.parent.iterdir() if one.name.endswith(".tmp")]
    assert not os.path.exists(f"/proc/{pid}")


# Without processes


def test_without_a_token_nobody_may_update():
    api = Asker(create_app(ModelHolder(ServingModel(fitted())), Settings({"x": "x.deql"}, quiet=True)))
    status, answer = api.ask("POST", "/update", {"forget_users": ["ann"]}, {"host": "localhost"})
    assert (status, answer["error"]["code"]) == (403, "token_required")
    assert "--token" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ({}, "invalid_request", "there is nothing to change: give add, remove, forget_users or retire_items"),
        ({"add": [{"user": "a"}]}, "invalid_request", "add.0.item: field required"),
        ({"add": [{"user": 1.5, "item": "b"}]}, "invalid_request", "add.0.user: a user id must be an integer or text"),
        ({"forget_users": [True]}, "invalid_request", "forget_users.0: a user id must be an integer or text"),
        ({"retire_items": [None]}, "invalid_request", "retire_items.0: an item id must be an integer or text"),
        ({"add": [{"user": "a", "item": "b", "hue": 1}]}, "invalid_request", "add.0: there is no parameter 'hue'"),
        ({"remove": [{"user": "a", "item": "b", "weight": 1}]}, "invalid_request",
         "remove.0: there is no parameter 'weight'"),
        ({"add": [{"user": "a", "item": "b", "weight": "1"}]}, "invalid_request",
         "add.0.weight: input should be a valid number"),
        ({"model": "popular", "forget_users": ["a"]}, "not_updatable",
         "a Popularity cannot be updated: fit it again and reload it"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_body_is_told(body, code, said):
    popular = deql.Popularity().fit(deql.Interactions.from_pairs(list("aab"), list("xyx")))
    models = ServingModel(fitted(keep_data=True)), ServingModel(popular, served_as="popular")
    api = Asker(create_app(ModelHolder(*models), Settings({"x": "x.deql"}, token="t", quiet=True)))
    status, answer = api.ask("POST", "/update", body, {"authorization": "Bearer t"})
    assert (status, answer["error"]["code"], answer["error"]["message"]) == (422, code, said)


def test_records_become_interactions():
    records = [
        {"user": "ann", "item": "tea", "weight": 2.5, "time": 7}, {"user": "ann", "item": "jam", "time": 3},
        {"user": "bob", "item": "tea", "weight": -1, "time": 4}, {"user": "ann", "item": "tea", "time": 5},
        {"user": "bob", "item": "tea", "time": 9},
    ]  # fmt: skip
    found = interactions_of(records)
    assert (found.users.tolist(), found.items.tolist()) == (["ann", "bob"], ["jam", "tea"])
    assert found.matrix.toarray().tolist() == [[1.0, 3.5], [0.0, 0.0]]  # what adds up to nothing is not there
    assert found.times.tolist() == [3.0, 7.0]
    plain = interactions_of([{"user": 1, "item": 2}, {"user": 1, "item": 2}])
    assert (plain.matrix.toarray().tolist(), plain.times) == ([[1.0]], None)
    assert interactions_of([]) is None
    with pytest.raises(DataError, match="1 of 2 records have no time"):
        interactions_of([{"user": 1, "item": 2, "time": 5}, {"user": 1, "item": 3}])
    with pytest.raises(DataError, match="all of one kind"):
        interactions_of([{"user": 1, "item": 2}, {"user": "1", "item": 3}])


@pytest.mark.parametrize("with_rows", [False, True])
def test_quantised_rows_stay_with_their_file(tmp_path, with_rows):
    path = tmp_path / "shop.deql"
    fitted(keep_data=True).save(path, quantized_rows=with_rows)
    assert "report" in update_file(path, path, checksum(path), BATCH)
    assert (deql.load(path).quantized_rows_ is not None) == with_rows
    assert_refitted(path, AFTERWARDS)


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ({"forget_users": ["zoe"]}, "there is no user 'zoe' to forget"),
        ({"retire_items": ["rye"]}, "there is no item 'rye' to retire"),
        ({"remove": [{"user": "ann", "item": "egg"}]}, "no interaction of user 'ann' with item 'egg'"),
        ({"add": [{"user": 5, "item": "tea"}]}, "ids of users are text in the data and whole numbers in what is added"),
    ],
)
def test_what_is_wrong_with_a_batch_is_told(tmp_path, batch, said):
    path = _kept(tmp_path / "shop.deql")
    before = path.read_bytes()
    refused = update_file(path, path, checksum(path), batch)["refused"]
    assert (refused["status"], refused["code"]) == (422, "invalid_request")
    assert said in refused["message"]
    assert path.read_bytes() == before


def test_a_model_without_its_data_takes_new_users(tmp_path):
    path = tmp_path / "bare.deql"
    fitted().save(path)
    batch = {"add": [{"user": "eve", "item": "tea"}, {"user": "eve", "item": "rye"}], "new_users": True}
    assert "report" in update_file(path, path, checksum(path), batch)
    assert_refitted(path, [*PAIRS, ("eve", "tea"), ("eve", "rye")])


def test_times_that_are_missing(tmp_path):
    path, data = (
        tmp_path / "shop.deql",
        interactions_of([{"user": 1, "item": 2, "time": 5}, {"user": 1, "item": 3, "time": 6}]),
    )
    deql.EASE(1.0).fit(data, keep_data=True).save(path)
    said = update_file(path, path, checksum(path), {"add": [{"user": 2, "item": 3}]})["refused"]
    assert said["message"] == 'the data have times and what is added has none: send a "time" with each'
    assert "report" in update_file(path, path, checksum(path), {"add": [{"user": 2, "item": 3, "time": 8}]})
    assert deql.load(path).data_.times.tolist() == [5.0, 6.0, 8.0]


def test_features_that_are_to_be_learned_anew(tmp_path):
    path, table = tmp_path / "shop.deql", tmp_path / "items.csv"
    table.write_text("item,kind\n" + "".join(f"{item},{item[0] > 'j'}\n" for item in ("egg", "jam", "oat", "tea")))
    data = deql.Interactions.from_pairs(*zip(*PAIRS, strict=True))
    deql.EASE(1.0, prior=deql.priors.ItemFeatures(table)).fit(data, keep_data=True).save(path)
    said = update_file(path, path, checksum(path), {"retire_items": ["egg"]})["refused"]["message"]
    assert said.endswith("item 'egg' would be gone: use deql update --item-features FILE, then reload the model")


def test_a_file_that_cannot_be_written(tmp_path, monkeypatch):
    path = _kept(tmp_path / "shop.deql")

    def full(self, path, **how):
        raise ModelFileError("the model could not be saved: no space left on device")

    monkeypatch.setattr(deql.DEQL, "save", full)
    said = update_file(path, path, checksum(path), BATCH)["refused"]
    assert (said["status"], said["code"]) == (503, "update_failed")
    assert said["message"] == "the model could not be saved: no space left on device; nothing was changed"


def test_a_file_that_is_changed_during_the_update(tmp_path, monkeypatch):
    path = _kept(tmp_path / "shop.deql")
    served = checksum(path)
    seen = iter([served, "another"])
    monkeypatch.setattr(update_process, "checksum", lambda path: next(seen))
    assert update_file(path, path, served, BATCH)["refused"]["code"] == "model_changed"
    assert checksum(path) == served


def test_a_model_that_is_not_taken_up(tmp_path, monkeypatch, caplog):
    def reject(name):
        raise DataError("a worker says no")

    share = SimpleNamespace(take_up=reject, ready=1)
    updating = Updates(Settings({"shop": "shop.deql"}), share)
    monkeypatch.setattr(updating, "_in_a_process", lambda *given: {"report": {}, "checksum": "new"})
    said = updating.update("shop", BATCH)["refused"]
    assert (said["status"], said["code"]) == (409, "model_rejected")
    assert said["message"] == ("shop.deql was updated, but the server goes on with the model it had: a worker says no")


def test_a_process_that_cannot_be_started(tmp_path, monkeypatch):
    path = _kept(tmp_path / "shop.deql")

    def fail(self):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(updates._SPAWN.Process, "start", fail)
    share = SimpleNamespace(copy_of=lambda name: (os.open(path, os.O_RDONLY), checksum(path)))
    updating = Updates(Settings({"shop": str(path)}), share)
    said = updating.update("shop", BATCH)["refused"]
    assert (said["status"], said["code"]) == (503, "update_failed")
    assert said["message"] == "the update was not done: resource temporarily unavailable; the model is as it was"
    updating.close()
    assert "the server is ending" in updating.update("shop", BATCH)["refused"]["message"]
