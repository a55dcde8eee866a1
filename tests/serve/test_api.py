"""The API answers what the library answers, and errors have codes that programs can rely on."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import NamedTuple
from urllib.parse import quote

import numpy as np
import pytest

import deql

pytest.importorskip("fastapi", reason="the service needs the extra serve")
pytest.importorskip("prometheus_client", reason="the service needs the extra serve")

from deql.serve.answers import _parts
from deql.serve.api import create_app
from deql.serve.rehearsal import rehearse
from deql.serve.serving_model import ModelHolder, ServingModel
from deql.serve.settings import Limits, Settings
from deql.serve.snapshot import ReloadError
from tests.serve.asking import Asker

LIMITS = Limits(k=50, histories=3, history=8, reasons=12)
BASE = {"dropout": 0.3, "b": 0.5, "dtype": "float64"}


def asker(served, **settings):
    rehearse(served)
    return Asker(create_app(ModelHolder(served), Settings({"x": "x.deql"}, limits=LIMITS, quiet=True, **settings)))


@pytest.fixture(scope="module")
def model(toy):
    return deql.DEQL(1.0, **BASE).fit(toy)


@pytest.fixture(scope="module")
def api(model):
    return asker(ServingModel(model, "c0ffee", ["tea", "nothing"]))


@pytest.fixture(scope="module")
def numbered():
    """Ids are integers, items have titles, and one of these is no text that UTF-8 could hold."""
    data = deql.Interactions.from_pairs(list("aabbccd"), [7, -3, 7, 20, -3, 20, 7])
    titles = np.array(["Green tea", "Éclair 7", "half \ud800"], object)
    return deql.EASE(l2=1.0).fit(dataclasses.replace(data, titles=titles))


def plain(found, row=0):
    return [
        (item, score) for item, score in zip(found.ids[row].tolist(), found.scores[row], strict=True) if score == score
    ]


def listed(answer, row=0):
    return [(one["item"], one["score"]) for one in answer["results"][row]["recommendations"]]


@pytest.mark.parametrize(
    ("asked", "options"),
    [
        ({}, {}),
        ({"k": 2}, {"k": 2}),
        ({"k": 50}, {"k": 50}),
        ({"exclude_seen": False}, {"exclude_seen": False}),
        ({"exclude": ["rye", "unheard of"]}, {"exclude": ["rye"]}),
        ({"candidates": ["oat", "jam"], "exclude": []}, {"candidates": ["oat", "jam"]}),
        ({"candidates": ["oat", "gold", "jam"]}, {"candidates": ["oat", "jam"]}),
        ({"candidates": []}, {"candidates": []}),
    ],
)
def test_recommends_what_the_library_does(api, model, asked, options):
    histories = [["egg", "tea", "egg"], []]
    status, answer = api.ask("POST", "/recommend", {"histories": histories} | asked)
    found = model.recommend(histories, **options)
    assert (status, answer["checksum"]) == (200, "c0ffee")
    assert [listed(answer, row) for row in (0, 1)] == [plain(found, row) for row in (0, 1)]
    assert [one["from_popularity"] for one in answer["results"]] == [False, True]


@pytest.mark.parametrize(
    "change",
    [{"b": 2.0}, {"b": 0.0}, {"zero_diagonal": True}, {"popularity_power": -0.5}, {"b": 1, "popularity_power": 0.5}],
)
def test_another_rule_is_with_rule(api, model, change):
    other = model.with_rule(**change)
    _, answer = api.ask("POST", "/recommend", {"histories": [["egg"]], "exclude_seen": False} | change)
    assert listed(answer) == plain(other.recommend([["egg"]], exclude_seen=False))
    query = "&".join(f"{name}={json.dumps(value)}" for name, value in change.items())
    _, answer = api.ask("GET", f"/items/egg/similar?k=3&{query}")
    assert [one["item"] for one in answer["similar"]] == other.similar_items("egg", 3)[0].tolist()
    _, answer = api.ask("GET", f"/model/diagonal?{query}")
    assert sum(answer["counts"]) == 5
    assert answer["least"] == other.diagonal().min()
    _, answer = api.ask("POST", "/explain", {"history": ["egg", "jam"], "item": "oat"} | change)
    assert answer["score"] == other.explain(["egg", "jam"], "oat").score


def test_requests_at_once_do_not_mix(api, model):
    """All are ranked in one batch, whatever they want."""
    bodies = [
        {"histories": [[item]], "k": k, "exclude_seen": seen} | rule
        for item in ("egg", "tea") for k in (1, 3) for seen in (True, False) for rule in ({}, {"b": 2.0})
    ]  # fmt: skip
    answers = api.together([("POST", "/recommend", body) for body in bodies])
    for body, (status, answer) in zip(bodies, answers, strict=True):
        ruled = model.with_rule(b=2.0) if "b" in body else model
        expected = ruled.recommend(body["histories"], k=body["k"], exclude_seen=body["exclude_seen"])
        assert status == 200
        assert listed(answer) == plain(expected)


def test_reasons_add_up(api, model):
    _, answer = api.ask("POST", "/recommend", {"histories": [["egg", "tea", "jam"]], "explain": 2})
    for one in answer["results"][0]["recommendations"]:
        why = model.explain(["egg", "tea", "jam"], one["item"], k=2)
        assert [(part["item"], part["value"]) for part in one["because"]] == list(why)
        assert sum(part["value"] for part in one["because"]) + one["rest"] == one["score"]


def test_unknown_items(api):
    body = {"histories": [["egg", "gold", "gold"], ["half a letter: \ud800"]]}
    status, answer = api.ask("POST", "/recommend", body)
    assert (status, [one["unknown"] for one in answer["results"]]) == (200, [["gold", "gold"], body["histories"][1]])
    assert answer["results"][1]["from_popularity"]
    assert answer["unknown_candidates"] == []
    _, answer = api.ask("POST", "/recommend", body | {"candidates": ["gold", "tea", 7, "gold"]})
    assert answer["unknown_candidates"] == ["gold", 7, "gold"]
    assert [one["item"] for one in answer["results"][0]["recommendations"]] == ["tea"]
    for path, wrong in [
        ("/recommend", body | {"strict": True}),
        ("/recommend", {"histories": [["egg"]], "candidates": ["gold"]}),
        ("/recommend", {"histories": [["egg"]], "candidates": ["egg", "gold"], "strict": True}),
        ("/recommend", {"histories": [[{"item": "gold", "weight": 2}]], "strict": True}),
        ("/explain", {"history": ["egg"], "item": "gold"}),
        ("/explain", {"history": ["gold"], "item": "egg", "strict": True}),
    ]:
        status, answer = api.ask("POST", path, wrong)
        assert (status, answer["error"]["code"]) == (422, "unknown_item")
        assert "gold" in answer["error"]["message"]
    assert api.ask("GET", "/items/gold/similar")[1]["error"]["code"] == "unknown_item"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"histories": [["egg"]], "k": 0}, 422, "invalid_request"),
        ({"histories": [["egg"]], "k": -1}, 422, "invalid_request"),
        ({"histories": [["egg"]], "k": 1.5}, 422, "invalid_request"),
        ({"histories": [["egg"]], "k": "5"}, 422, "invalid_request"),
        ({"histories": [["egg"]], "k": 51}, 422, "limit_exceeded"),
        ({"histories": [["egg"]], "k": 10**30}, 422, "limit_exceeded"),
        ({"histories": [["egg"]], "k": 10**4000}, 422, "limit_exceeded"),
        (b'{"histories": [["egg"]], "k": ' + b"9" * 5000 + b"}", 400, "invalid_json"),
        (b'{"histories": [[' + b"9" * 5000 + b"]]}", 400, "invalid_json"),
        ({"histories": [[10**4000]], "strict": True}, 422, "unknown_item"),
        ({"histories": [[]] * 4}, 422, "limit_exceeded"),
        ({"histories": [["egg"] * 9]}, 422, "limit_exceeded"),
        ({"histories": [["egg"]], "candidates": ["egg"] * 9}, 422, "limit_exceeded"),
        ({"histories": [["egg"]] * 3, "k": 5, "explain": 1}, 422, "limit_exceeded"),
        ({"histories": [["egg", "tea", "jam"]], "k": 5, "explain": 10**9}, 422, "limit_exceeded"),
        ({"histories": "egg"}, 422, "invalid_request"),
        ({"histories": ["egg"]}, 422, "invalid_request"),
        ({"histories": [[True]]}, 422, "invalid_request"),
        ({"histories": [[1.5]]}, 422, "invalid_request"),
        ({"histories": [[None]]}, 422, "invalid_request"),
        ({"histories": [[["egg"]]]}, 422, "invalid_request"),
        ({"histories": [["egg"]], "kk": 3}, 422, "invalid_request"),
        ({"histories": [[{"item": "egg"}]]}, 422, "invalid_request"),
        ({"histories": [[{"weight": 2}]]}, 422, "invalid_request"),
        ({"histories": [{"egg": 2}]}, 422, "invalid_request"),
        ({"histories": [[["egg", 2]]]}, 422, "invalid_request"),
        ({"histories": [[{"item": "egg", "weight": 2}] * 9]}, 422, "limit_exceeded"),
        ({"histories": [["egg"]], "b": -1}, 422, "invalid_request"),
        ({"histories": [["egg"]], "b": "NaN"}, 422, "invalid_request"),
        (b'{"histories": [["egg"]], "b": Infinity}', 422, "invalid_request"),
        ({}, 422, "invalid_request"),
        ([], 422, "invalid_request"),
        (b"{", 400, "invalid_json"),
        (b"\xff", 400, "invalid_json"),
        (b"[" * 5000, 400, "invalid_json"),
        (b"[" * 100_000 + b"]" * 100_000, 400, "invalid_json"),
        (b'{"histories": ' + b"[" * 900 + b"]" * 900 + b"}", 422, "invalid_request"),
        (b'{"histories": [], "model": ' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"}", 422, "invalid_request"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_said_in_one_sentence(api, body, status, code):
    got, answer = api.ask("POST", "/recommend", body)
    assert (got, answer["error"]["code"]) == (status, code)
    assert code != "invalid_json" or answer["error"]["message"] == "the body is not JSON"
    assert 5 < len(answer["error"]["message"]) < 200
    assert "\n" not in answer["error"]["message"]


WEIGHTED = {"egg": 0.1, "tea": -3.0, "jam": 2.5}


def in_json(mapping):
    return [{"item": item, "weight": weight} for item, weight in mapping.items()]


@pytest.mark.parametrize("exclude_seen", [True, False])
def test_weighted_histories_are_those_of_the_library(api, model, exclude_seen):
    body = {"histories": [in_json(WEIGHTED), ["egg"], in_json({"tea": 7})], "k": 5, "exclude_seen": exclude_seen}
    status, answer = api.ask("POST", "/recommend", body)
    found = model.recommend([WEIGHTED, ["egg"], {"tea": 7.0}], k=5, exclude_seen=exclude_seen)
    assert status == 200
    assert [listed(answer, row) for row in range(3)] == [plain(found, row) for row in range(3)]


def test_weighted_histories_have_reasons(api, model):
    _, answer = api.ask("POST", "/recommend", {"histories": [in_json(WEIGHTED)], "explain": 2})
    for one in answer["results"][0]["recommendations"]:
        assert [(part["item"], part["value"]) for part in one["because"]] == list(
            model.explain(WEIGHTED, one["item"], 2)
        )
        assert sum(part["value"] for part in one["because"]) + one["rest"] == one["score"]
    _, answer = api.ask("POST", "/explain", {"history": in_json(WEIGHTED), "item": "oat"})
    why = model.explain(WEIGHTED, "oat")
    assert (answer["score"], [(part["item"], part["value"]) for part in answer["parts"]]) == (why.score, list(why))


def test_some_items_may_have_a_weight(api, model):
    """Those of one item add up, and what weighs nothing is not in the history."""
    histories = [
        ["egg", {"item": "tea", "weight": 3}],
        ["egg", "egg", {"item": "tea", "weight": 1}, {"item": "tea", "weight": 0.5}],
        ["egg", {"item": "tea", "weight": 0}, {"item": "gold", "weight": 0}],
    ]
    _, answer = api.ask("POST", "/recommend", {"histories": histories, "strict": True})
    expected = model.recommend([{"egg": 1, "tea": 3}, {"egg": 2, "tea": 1.5}, ["egg"]])
    assert [listed(answer, row) for row in range(3)] == [plain(expected, row) for row in range(3)]
    assert not answer["results"][2]["from_popularity"]
    _, answer = api.ask("POST", "/recommend", {"histories": [[{"item": "tea", "weight": 0}]]})
    assert answer["results"][0]["from_popularity"]


def test_weighted_and_other_histories_are_ranked_together(api, model):
    histories = [WEIGHTED, ["egg", "jam"], {"oat": 1e-9}, {"oat": 1e9, "rye": 0.1}, []] * 3
    given = [in_json(one) if isinstance(one, dict) else one for one in histories]
    answers = api.together([("POST", "/recommend", {"histories": [one], "k": 4}) for one in given])
    for history, (status, answer) in zip(histories, answers, strict=True):
        assert (status, listed(answer)) == (200, plain(model.recommend([history], k=4)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_quantised_rows_do_not_change_weighted_lists(random_matrix, dtype):
    model = deql.DEQL(20.0, 0.3, 0.5, dtype=dtype).fit(random_matrix(300, 150))
    served = ServingModel(deql.DEQL(20.0, 0.3, 0.5, dtype=dtype).fit(random_matrix(300, 150)).quantize_rows())
    generator = np.random.default_rng(3)
    drawn = [generator.permutation(150)[: generator.integers(1, 8)].tolist() for _ in range(3)]
    histories = [{item: float(generator.normal() * 10.0 ** generator.integers(-6, 6)) for item in one} for one in drawn]
    _, answer = asker(served).ask("POST", "/recommend", {"histories": [in_json(one) for one in histories], "k": 50})
    assert [listed(answer, row) for row in range(3)] == [
        plain(model.recommend(histories, k=50), row) for row in range(3)
    ]


@pytest.mark.parametrize(
    ("item", "place", "said"),
    [
        ({"item": "egg", "weight": "2"}, ".weight", "input should be a valid number"),
        ({"item": "egg", "weight": True}, ".weight", "input should be a valid number"),
        ({"item": "egg", "weight": None}, ".weight", "input should be a valid number"),
        (b'{"item": "egg", "weight": NaN}', ".weight", "input should be a finite number"),
        (b'{"item": "egg", "weight": 1e999}', ".weight", "input should be a finite number"),
        ({"item": "egg", "weight": 1e300}, ".weight", "input should be less than or equal to 1000000000"),
        ({"item": "egg", "weight": -(10**400)}, ".weight", ""),
        ({"item": "egg"}, ".weight", "field required"),
        ({"item": 1.5, "weight": 1}, ".item", "an item id must be an integer or text"),
        ({"item": "egg", "weight": 1, "stars": 5}, "", "there is no parameter 'stars'"),
        ({"egg": 2}, "", "there is no parameter 'egg'"),
        (1.5, "", "an item id must be an integer or text"),
    ],
)
def test_what_is_wrong_with_a_weight_is_told(api, item, place, said):
    sent = item if isinstance(item, bytes) else json.dumps(item).encode()
    for path, body, where in (
        ("recommend", b'{"histories": [["tea"], ["egg", ' + sent + b"]]}", "histories.1.1"),
        ("explain", b'{"item": "jam", "history": ["egg", ' + sent + b"]}", "history.1"),
    ):
        status, answer = api.ask("POST", f"/v1/{path}", body)
        assert (status, answer["error"]["code"]) == (422, "invalid_request")
        assert answer["error"]["message"].startswith(f"{where}{place}: {said}")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("b", True), ("b", "1"), ("b", " 1"), ("popularity_power", False), ("popularity_power", "0.5"),
        ("zero_diagonal", "yes"), ("zero_diagonal", 1), ("zero_diagonal", "true"), ("k", "5"), ("k", 5.0), ("k", True),
        ("model", 1), ("b", 10**400), ("unheard of", 1), ("q", "e"),
    ],
)  # fmt: skip
def test_one_strictness_for_all_fields(api, name, value):
    """A value of another type is no value, in a body as in an address, where numbers are written as in JSON."""
    for path, body in (("recommend", {"histories": [["egg"]]}), ("explain", {"history": ["egg"], "item": "jam"})):
        status, answer = api.ask("POST", f"/v1/{path}", body | {name: value})
        assert (status, answer["error"]["code"]) == (422, "invalid_request")
        assert api.ask("POST", f"/v1/{path}?{name}=1", body)[0] == 422  # not there, either
    if name == "model" or isinstance(value, str):  # in an address a name is text, and a text that is a number is one
        return
    sent = quote(json.dumps(value))
    for path in ("items/egg/similar", "items/egg/neighbours", *["model/diagonal"] * (name != "k")):
        status, answer = api.ask("GET", f"/v1/{path}?{quote(name)}={sent}")
        assert (path, status, answer["error"]["code"]) == (path, 422, "invalid_request")


@pytest.mark.parametrize(
    "query", ["zero_diagonal=yes", "zero_diagonal=1", "zero_diagonal=True", "b=%201", "b=1_0", "b=inf", "b=", "b=null",
              "k=5.0", "k=05", "k=%2B5", "k=0x5", "k=" + "9" * 5000, "c=1"]
)  # fmt: skip
def test_addresses_are_as_strict(api, query):
    status, answer = api.ask("GET", f"/v1/items/egg/similar?{query}")
    assert (status, answer["error"]["code"]) == (422, "invalid_request")
    assert len(answer["error"]["message"]) < 200


def test_parameters_where_there_are_none(api):
    for path in ("/health", "/ready", "/metrics", "/v1/models", "/v1/model", "/v1/model/curve", "/v1/items"):
        status, answer = api.ask("GET", f"{path}?unheard=of")
        assert (status, answer["error"]["message"]) == (422, "the address: there is no parameter 'unheard'")


def test_errors_around_the_questions(api):
    for method, path, status, code in [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/page/../app.py", 404, "not_found"),
        ("GET", "/recommend", 405, "method_not_allowed"),
        ("GET", "/items?limit=0", 422, "invalid_request"),
        ("GET", "/items?limit=x", 422, "invalid_request"),
        ("GET", "/model/curve", 404, "no_curve"),
        ("POST", "/admin/reload", 404, "not_found"),
        ("GET", "/items/egg/similar?k=51", 422, "limit_exceeded"),
        ("GET", "/items/egg/neighbours?k=0", 422, "invalid_request"),
        ("GET", "/items/egg/similar?c=1", 422, "invalid_request"),
    ]:
        got, answer = api.ask(method, path)
        assert (path, got, answer["error"]["code"]) == (path, status, code)
    for kind in ("application/x-www-form-urlencoded", "text/json", "application/jsonx", ""):
        got, answer = api.ask("POST", "/recommend", b'{"histories": []}', {"content-type": kind})
        assert (got, answer["error"]["code"]) == (415, "unsupported_media_type")
    for path in ("/docs/", "/health/", "/page", "/items/egg/similar/"):  # nobody is sent elsewhere
        assert api.ask("GET", path)[1]["error"]["code"] == "not_found"


def test_pages_and_health_can_be_looked_for(api):
    for path in ("/", "/docs", "/health", "/page/main.js"):
        assert {api.ask(method, path)[0] for method in ("HEAD", "GET")} == {200}


def test_items_by_name(api):
    _, answer = api.ask("GET", "/items?q=E")
    assert [one["item"] for one in answer["items"]] == ["egg", "tea", "rye"]
    _, answer = api.ask("GET", "/items?limit=2")
    assert (answer["items"][0], answer["more"]) == ({"item": "tea", "count": 6}, True)


def test_neighbourhood(api, model):
    W, at = model.weights(), model._item_index
    _, answer = api.ask("GET", "/items/jam/neighbours?k=2")
    names = [node["item"] for node in answer["nodes"]]
    strength = {item: max(abs(W[at["jam"], at[item]]), abs(W[at[item], at["jam"]])) for item in at if item != "jam"}
    assert names == ["jam", *sorted(strength, key=strength.__getitem__, reverse=True)[:2]]
    assert {(edge["from"], edge["to"]) for edge in answer["edges"]} == {(s, t) for s in names for t in names if s != t}
    for edge in answer["edges"]:
        assert edge["weight"] == pytest.approx(W[at[edge["from"]], at[edge["to"]]], rel=1e-12)
    assert [node["self"] for node in answer["nodes"]] == pytest.approx(model.diagonal()[[at[item] for item in names]])


def test_integer_ids_and_titles(numbered):
    api = asker(ServingModel(numbered))
    status, answer = api.ask("POST", "/recommend", {"histories": [[7], ["7"]], "k": 1})
    assert status == 200
    assert set(answer["results"][0]["recommendations"][0]) == {"item", "title", "score"}
    assert answer["results"][1]["unknown"] == ["7"]
    assert api.ask("GET", "/items/-3/similar")[1]["title"] == "Green tea"
    for path in ("/items/x/similar", "/items/7.0/similar", "/items/--3/similar", "/items/²/similar"):
        assert api.ask("GET", path)[0] == 404
    # By name without accents, and by id.
    assert api.ask("GET", "/items?q=eclair")[1]["items"][0]["item"] == 7
    assert [one["item"] for one in api.ask("GET", "/items?q=7")[1]["items"]] == [7]
    assert api.ask("GET", "/items?q=20")[1]["items"][0]["title"] == "half \ud800"
    assert api.ask("GET", "/model")[1]["data"]["ids"] == "integers"


def test_ids_of_another_type_are_told(numbered):
    api = asker(ServingModel(numbered))
    for path, body in (
        ("recommend", {"histories": [[20, "7"]], "strict": True}),
        ("recommend", {"histories": [[20]], "candidates": ["7"]}),
        ("explain", {"history": [20], "item": "7"}),
    ):
        status, answer = api.ask("POST", f"/v1/{path}", body)
        assert (status, answer["error"]["code"]) == (422, "unknown_item")
        assert answer["error"]["message"].endswith("; the model's ids are whole numbers and '7' is text: give 7")
    # Titles are for people: programs say ids.
    assert api.ask("POST", "/v1/recommend", {"histories": [["Green tea"]]})[1]["results"][0]["unknown"] == ["Green tea"]


def test_ids_with_slashes(toy):
    names = np.array(["a/b", "a", "c/similar", "ü %", "a line\nbreak"], object)
    model = deql.EASE(l2=1.0).fit(deql.Interactions.from_csr(toy.matrix, items=names))
    api = asker(ServingModel(model))
    for name in names:
        assert api.ask("GET", f"/items/{name}/similar")[1]["item"] == name


def test_nobody_waits_for_a_long_body_of_errors(api):
    """Of half a million errors one is told, and the others are not even looked for."""
    wrong = b'{"histories": [[' + b"1.5," * 200_000 + b"1.5]]}"
    names = b'{"histories": [["egg"]]' + b"".join(b', "a%d": 1' % number for number in range(50_000)) + b"}"
    inside = b'{"histories": [[{"item": "egg"' + names.partition(b"]]")[2] + b"]]}"
    weights = b'{"histories": [[' + b'{"item": 1, "weight": "x"},' * 30_000 + b"1]]}"
    for body in (wrong, names, inside, weights):
        spent = []
        for _ in range(2):  # what the collector does for other tests' objects meanwhile does not count
            began = time.process_time()
            assert api.ask("POST", "/recommend", body)[1]["error"]["code"] == "invalid_request"
            spent.append(time.process_time() - began)
        assert min(spent) < 0.5


@pytest.fixture(scope="module")
def with_prior(toy):
    thin = np.random.default_rng(3).random((2, toy.n_items, 2))
    return deql.DEQL(1.0, **BASE, prior=(thin[0], thin[1]), prior_weight=0.3).fit(toy).quantize_rows()


def test_the_weight_of_a_prior_is_part_of_the_rule(with_prior):
    api = asker(ServingModel(with_prior, "c0ffee", ["tea"]))
    _, told = api.ask("GET", "/model")
    assert told["rule"]["prior_weight"] == 0.3
    assert told["prior"].startswith("Matrix(")
    for change in ({}, {"prior_weight": 0}, {"prior_weight": 0.9, "b": 2.0}):
        other = with_prior.with_rule(**change)
        _, answer = api.ask("POST", "/recommend", {"histories": [["egg"]]} | change)
        assert listed(answer) == plain(other.recommend([["egg"]]))
        _, answer = api.ask("POST", "/explain", {"history": ["egg", "jam"], "item": "oat"} | change)
        assert answer["score"] == sum(part["value"] for part in answer["parts"])
        assert answer["score"] == other.explain(["egg", "jam"], "oat").score
    for wrong in (-0.1, "0.5", True):
        assert api.ask("POST", "/recommend", {"histories": [["egg"]], "prior_weight": wrong})[0] == 422


def test_a_prior_that_a_file_kept_the_product_of_is_named_as_it_is_typed(toy, tmp_path):
    features = {item: {"price": place} for place, item in enumerate(toy.items.tolist())}
    deql.DEQL(1.0, **BASE, prior=deql.priors.ItemFeatures(features, l2=2.0)).fit(toy).save(tmp_path / "m.deql")
    api = asker(ServingModel(deql.load(tmp_path / "m.deql"), "c0ffee", ["tea"]))
    assert api.ask("GET", "/model")[1]["prior"] == "features:l2=2"


def test_without_a_prior_there_is_no_weight_to_change(api):
    status, answer = api.ask("POST", "/recommend", {"histories": [["egg"]], "prior_weight": 0.5})
    assert (status, answer["error"]["code"]) == (422, "no_prior")
    assert api.ask("GET", "/model")[1]["prior"] is None


def test_features_that_items_share_are_told(model):
    class Part(NamedTuple):
        item: str
        value: float
        shared: tuple[str, ...]

    parts = [Part("egg", 1.0, ("red", "round")), Part("jam", 0.5, ())]
    told = _parts(ServingModel(model), parts)
    assert told == [{"item": "egg", "value": 1.0, "shared": ["red", "round"]}, {"item": "jam", "value": 0.5}]


def test_the_model_is_told(api, model):
    _, answer = api.ask("GET", "/model")
    assert (answer["model"], answer["parameters"]["l2"], answer["rule"]) == (
        "DEQL", 1.0, {"b": 0.5, "zero_diagonal": False, "popularity_power": 0.0},
    )  # fmt: skip
    assert answer["data"] == {"users": 7, "items": 5, "interactions": 15, "titles": False, "ids": "text"}
    assert answer["example"] == [{"item": "tea"}]
    assert answer["limits"] == vars(LIMITS)


def test_the_example_is_a_history_like_any_other(toy):
    """The most popular items, where none is given; in the order of columns, as kernels want histories."""
    served = ServingModel(deql.EASE(l2=1.0).fit(toy))
    assert served.example == sorted(served.example)
    assert {served.items[column] for column in served.example} == {"tea", "egg", "jam"}


@pytest.mark.parametrize("kind", ["Popularity", "SLIM", "LowRankDEQL"])
def test_models_without_a_rule(toy, kind):
    model = getattr(deql, kind)().fit(toy)
    api = asker(ServingModel(model))
    assert api.ask("GET", "/model")[1]["rule"] is None
    _, answer = api.ask("POST", "/recommend", {"histories": [["egg"]], "explain": 3})
    assert listed(answer) == plain(model.recommend([["egg"]]))
    status, answer = api.ask("POST", "/recommend", {"histories": [["egg"]], "b": 1.0})
    assert (status, answer["error"]["code"]) == (422, "rule_fixed")
    assert api.ask("GET", "/items/egg/neighbours")[0] == 200


def test_not_ready_and_reload(model):
    host = ModelHolder()
    api = Asker(create_app(host, Settings({"x": "x.deql"}, token="t", quiet=True)))
    proof = {"authorization": "Bearer t"}
    status, answer = api.ask("GET", "/ready", headers=proof)
    assert (status, answer["error"]["code"]) == (503, "not_ready")
    assert api.ask("GET", "/health") == (200, {"status": "ok"})
    assert api.ask("POST", "/admin/reload", headers=proof)[1]["error"]["code"] == "model_rejected"

    async def reload():
        host.swap(ServingModel(model, "new"))
        return {"checksum": "new", "changed": True, "workers": 1, "seconds": 0.1, "models": []}

    host.reload = reload
    assert api.ask("POST", "/admin/reload", headers=proof)[1]["changed"]
    assert api.ask("GET", "/ready", headers=proof) == (200, {"status": "ready", "checksum": "new"})

    async def refuse():
        raise ReloadError("the file is empty")

    host.reload = refuse
    status, answer = api.ask("POST", "/admin/reload", headers=proof)
    assert (status, answer["error"]) == (409, {"code": "model_rejected", "message": "the file is empty"})
    assert api.ask("GET", "/ready", headers=proof)[0] == 200


def test_a_failing_query_fails_alone(model, monkeypatch):
    """Those who only waited for the same batch are answered."""
    served = ServingModel(model)
    real = served._rank_alike

    def sometimes(queries):
        if any(query.k == 3 for query in queries):
            raise MemoryError("too much")
        return real(queries)

    monkeypatch.setattr(served, "_rank_alike", sometimes)
    api = asker(served)
    answers = api.together([("POST", "/recommend", {"histories": [["egg"]], "k": k}) for k in (2, 3, 4)])
    assert [status for status, _ in answers] == [200, 500, 200]


@pytest.fixture(scope="module")
def two(model, toy):
    slim = deql.SLIM().fit(toy.take_items(np.arange(4)))
    served = [ServingModel(model, "c0ffee"), ServingModel(slim, "beef", served_as="small one")]
    return Asker(create_app(ModelHolder(*served), Settings({"x": "x.deql"}, limits=LIMITS, quiet=True)))


def test_several_models(two, model):
    _, answer = two.ask("GET", "/v1/models")
    assert [(one["name"], one["model"], one["checksum"], one["items"]) for one in answer["models"]] == [
        ("model", "DEQL", "c0ffee", 5), ("small one", "SLIM", "beef", 4),
    ]  # fmt: skip
    assert [one["rule"] for one in answer["models"]] == [
        {"b": 0.5, "zero_diagonal": False, "popularity_power": 0.0}, None,
    ]  # fmt: skip
    history = {"histories": [["egg"]]}
    for name, checksum in ((None, "c0ffee"), ("model", "c0ffee"), ("small one", "beef")):
        _, answer = two.ask("POST", "/v1/recommend", history | ({} if name is None else {"model": name}))
        assert answer["checksum"] == checksum
    for path in ("items", "items/egg/similar", "items/egg/neighbours", "model", "model/diagonal"):
        assert two.headers("GET", f"/v1/{path}?model=small%20one")["x-model-checksum"] == "beef"
        assert two.headers("GET", f"/v1/{path}")["x-model-checksum"] == "c0ffee"
    assert two.ask("GET", "/v1/model?model=small%20one")[1]["name"] == "small one"
    assert two.ask("GET", "/v1/items?model=small%20one")[1]["items"] != two.ask("GET", "/v1/items")[1]["items"]
    body = {"history": ["egg"], "item": "jam", "model": "small one"}
    assert two.ask("POST", "/v1/explain", body)[1]["checksum"] == "beef"


def test_a_model_that_is_not_there(two):
    for method, path, body in [
        ("POST", "/v1/recommend", {"histories": [["egg"]], "model": "gold"}),
        ("POST", "/v1/explain", {"history": ["egg"], "item": "tea", "model": "gold"}),
        ("GET", "/v1/items?model=gold", None), ("GET", "/v1/items/egg/similar?model=gold", None),
        ("GET", "/v1/items/egg/neighbours?model=gold", None), ("GET", "/v1/model?model=gold", None),
        ("GET", "/v1/model/diagonal?model=gold", None), ("GET", "/v1/model/curve?model=gold", None),
    ]:  # fmt: skip
        status, answer = two.ask(method, path, body)
        message = "there is no model 'gold' here, but 'model', 'small one'"
        assert (status, answer["error"]) == (404, {"code": "unknown_model", "message": message})


@pytest.mark.parametrize("change", [{"b": 1.0}, {"b": "x"}, {"k": 51}, {"strict": True, "histories": [["gold"]]}])
def test_errors_say_which_model_was_asked(two, change):
    """So that a page that knows another model hears of it whatever it asks."""
    body = {"histories": [["egg"]], "model": "small one"} | change
    assert two.ask("POST", "/v1/recommend", body)[0] == 422
    assert two.headers("POST", "/v1/recommend", body)["x-model-checksum"] == "beef"
    assert two.headers("POST", "/v1/recommend", b"{")["x-model-checksum"] == "c0ffee"
    for path in ("items/egg/similar?k=x&model=small%20one", "items/gold/similar?model=small%20one"):
        assert two.headers("GET", f"/v1/{path}")["x-model-checksum"] == "beef"
    assert "x-model-checksum" not in two.headers("GET", "/health")


def test_paths_without_a_version_still_answer(two):
    for path in ("items?q=e", "items/egg/similar", "items/egg/neighbours", "model", "model/diagonal", "model/curve"):
        assert two.ask("GET", f"/{path}") == two.ask("GET", f"/v1/{path}")
    body = {"histories": [["egg"]]}
    assert two.ask("POST", "/recommend", body) == two.ask("POST", "/v1/recommend", body)
    assert all(path.startswith("/v1/") or path in ("/health", "/ready", "/metrics")
               for path in two.ask("GET", "/openapi.json")[1]["paths"])  # fmt: skip
