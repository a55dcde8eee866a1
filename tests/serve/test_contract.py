"""The API is what its own description says: nothing that it allows, or nearly allows, is answered otherwise."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies as st

import deql

pytest.importorskip("fastapi", reason="the service needs the extra serve")
pytest.importorskip("schemathesis", reason="the contract is tested with schemathesis")

import jsonschema_rs
import schemathesis
from schemathesis.specs.openapi import checks

from deql.serve.api import create_app
from deql.serve.serving_model import ModelHolder, ServingModel
from deql.serve.settings import Settings
from tests.conftest import BASKETS
from tests.serve.asking import Asker

CHECKS = [
    schemathesis.checks.not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
    checks.response_headers_conformance, checks.response_schema_conformance, checks.negative_data_rejection,
    checks.unsupported_method, checks.allow_header_conformance,
]  # fmt: skip
PROOF = {"authorization": "Bearer t"}


def app(token="t"):
    pairs = [(user, item) for user, items in BASKETS.items() for item in items]
    model = deql.DEQL(1.0, 0.3, 0.5).fit(deql.Interactions.from_pairs(*zip(*pairs, strict=True)))
    curve = {"metric": "m", "b": [0.0], "values": {"m": [1.0]}, "errors": {"m": [0.0]}, "best": {"m": 0.0},
             "parameters": {}}  # fmt: skip
    served = [ServingModel(model, "c0ffee", curve=curve), ServingModel(deql.SLIM().fit(model_data()), served_as="slim")]
    return create_app(ModelHolder(*served), Settings({"x": "x.deql"}, token=token, quiet=True))


def model_data():
    return deql.Interactions.from_pairs(list("aabbc"), [7, 8, 7, 9, 8])


schema = schemathesis.openapi.from_asgi("/openapi.json", app(), headers=PROOF)


@schema.parametrize()
@hypothesis.settings(max_examples=25, deadline=None)
def test_no_answer_is_a_surprise(case):
    if "item" in (case.path_parameters or {}) and len(case.path_parameters["item"]) % 2:  # else none would be known
        case.path_parameters["item"] = "egg"
    case.call_and_validate(headers=PROOF, checks=CHECKS)


@pytest.fixture(scope="module", params=[None, "t"], ids=["open", "token"])
def described(request):
    """The description of a server, with and without a token."""
    return request.param, Asker(app(request.param)).ask("GET", "/openapi.json", headers=PROOF)[1]


def operations(document):
    return [(path, operation) for path, methods in document["paths"].items() for operation in methods.values()]


def every(value, key):
    """What stands under a key, wherever in a document."""
    if isinstance(value, dict):
        yield from (inner for name, inner in value.items() if name == key)
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from every(inner, key)


def test_the_description_is_whole(described):
    _, document = described
    assert document["openapi"].startswith("3.1.")
    for reference in every(document, "$ref"):
        found = document
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]
    for kind in (*document["components"]["schemas"].values(), *every(document["paths"], "schema")):
        jsonschema_rs.meta.validate(kind | {"$schema": "https://json-schema.org/draft/2020-12/schema"})
    ids = [operation["operationId"] for _, operation in operations(document)]
    assert len(set(ids)) == len(ids)
    assert all(name.isidentifier() and "v1" not in name for name in ids)
    for path, operation in operations(document):
        in_path = [given["name"] for given in operation.get("parameters", []) if given["in"] == "path"]
        assert in_path == (["item"] if "{item}" in path else [])
        assert operation["tags"]
        assert operation["description"]
        assert all(response["description"] for response in operation["responses"].values())
    for version in ("/v1/", "/health", "/ready", "/metrics"):
        assert any(path.startswith(version) for path in document["paths"])


def test_tokens_are_described_where_they_are_wanted(described):
    token, document = described
    assert set(document["components"].get("securitySchemes", {})) == ({"bearer", "basic"} if token else set())
    for path, operation in operations(document):
        if token is None:
            assert "security" not in operation
            assert "401" not in operation["responses"]
        else:
            schemes = {name for way in operation["security"] for name in way}
            bearer_only = path.startswith("/v1/admin/") or path == "/v1/update"
            assert schemes == (set() if path == "/health" else {"bearer"} if bearer_only else {"bearer", "basic"})
            assert ("401" in operation["responses"]) == bool(schemes)
    for path in ("/v1/admin/reload", "/v1/update"):
        assert (path in document["paths"]) == (token is not None)


@pytest.fixture(scope="module")
def asker():
    return Asker(app())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
    | st.sampled_from(["egg", "tea", "slim", 7, 10**400, "\ud800", 1e308, -0.0]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip
VALID = {
    "/v1/recommend": {"histories": [["egg", "tea"]], "k": 3, "explain": 2},
    "/v1/explain": {"history": ["egg", "tea"], "item": "oat"},
    "/v1/admin/reload": None,
    "/v1/update": {"add": [{"user": "ann", "item": "tea", "weight": 2}], "forget_users": ["bob"]},
}


@pytest.mark.parametrize("path", VALID)
@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(data=st.data())
def test_no_body_is_answered_with_a_500(asker, path, data):
    """Any JSON at all, and bodies of which one field is anything."""
    properties = {
        "/v1/recommend": "RecommendRequest", "/v1/explain": "ExplainRequest", "/v1/update": "UpdateRequest",
    }  # fmt: skip
    body = data.draw(JSON)
    if path in properties and data.draw(st.integers(0, 4)):
        names = schema.raw_schema["components"]["schemas"][properties[path]]["properties"]
        body = VALID[path] | {data.draw(st.sampled_from(sorted(names))): body}
    status, answer = asker.ask("POST", path, body, PROOF)
    assert status in (200, 400, 404, 409, 422), answer
    if status != 200:
        assert set(answer) == {"error"}
        assert set(answer["error"]) == {"code", "message"}
        assert len(answer["error"]["message"]) < 300


@pytest.mark.parametrize(
    "path", [path for path, operation in operations(schema.raw_schema) if "parameters" in operation]
)
@hypothesis.settings(max_examples=100, deadline=None)
@hypothesis.given(data=st.data())
def test_no_address_is_answered_with_a_500(asker, path, data):
    names = [given["name"] for given in schema.raw_schema["paths"][path]["get"]["parameters"] if given["in"] == "query"]
    values = st.text("0123456789.-+eE_ ", max_size=6) | st.sampled_from(
        ["1", "true", "yes", "inf", "9" * 5000, "1e999", "egg", "slim", "%00", "%FF", "%F0%9F%92%A3", "[]", "%22"]
    )
    name = data.draw(st.sampled_from([*names, "else"]))
    item = data.draw(st.sampled_from(["egg", "7", "9" * 5000, "", "/", "a\n"]))
    status, answer = asker.ask("GET", f"{path.format(item=item)}?{name}={data.draw(values)}", headers=PROOF)
    assert status in ((422,) if name == "else" else (200, 404, 422)), answer
