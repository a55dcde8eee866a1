"""Whatever the API's own description allows, or nearly allows, is answered as described and never with a 5xx."""

from __future__ import annotations

import hypothesis
import pytest

import deql

pytest.importorskip("fastapi", reason="the service needs the extra serve")
pytest.importorskip("schemathesis", reason="the contract is tested with schemathesis")

import schemathesis
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from deql.serve.api import create_app
from deql.serve.serving_model import ModelHolder, ServingModel
from deql.serve.settings import Settings
from tests.conftest import BASKETS

CHECKS = [
    schemathesis.checks.not_a_server_error, status_code_conformance, content_type_conformance,
    response_schema_conformance,
]  # fmt: skip


def app():
    pairs = [(user, item) for user, items in BASKETS.items() for item in items]
    model = deql.DEQL(1.0, 0.3, 0.5).fit(deql.Interactions.from_pairs(*zip(*pairs, strict=True)))
    curve = {"metric": "m", "b": [0.0], "values": {"m": [1.0]}, "errors": {"m": [0.0]}, "best": {"m": 0.0},
             "parameters": {}}  # fmt: skip
    return create_app(ModelHolder(ServingModel(model, curve=curve)), Settings({"x": "x.deql"}, token="t", quiet=True))


schema = schemathesis.openapi.from_asgi("/openapi.json", app(), headers={"Authorization": "Bearer t"})


@schema.parametrize()
@hypothesis.settings(max_examples=12, deadline=None)
def test_no_answer_is_a_surprise(case):
    if "item" in (case.path_parameters or {}) and len(case.path_parameters["item"]) % 2:  # else none would be known
        case.path_parameters["item"] = "egg"
    case.call_and_validate(headers={"Authorization": "Bearer t"}, checks=CHECKS)
