"""Bytes on a socket that no client library would send: each is answered in the form of all errors."""

from __future__ import annotations

import asyncio
import json

import pytest

import deql

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("uvicorn", reason="needs the extra serve")

from deql.serve.api import create_app
from deql.serve.rehearsal import rehearse
from deql.serve.serving_model import ModelHolder, ServingModel
from deql.serve.settings import Settings
from tests.serve.test_middleware import PARSERS, listening, talk

pytestmark = [pytest.mark.serve, pytest.mark.parametrize("parser", PARSERS)]


@pytest.fixture(scope="module")
def model(toy):
    served = ServingModel(deql.EASE(l2=1.0).fit(toy), "c0ffee")
    rehearse(served)
    return served


@pytest.fixture
def say(parser, model):
    """What is answered to a request: its status, its headers and its body."""

    def said(first, *lines, body=b"", token=None, parser=parser):
        settings = Settings({"shop": "shop.deql"}, timeout=5, connections=4, quiet=True, token=token)
        sent = b"\r\n".join([first, *lines, b"Connection: close", b"", body])

        async def once():
            async with listening(parser, create_app(ModelHolder(model), settings)) as (port, _):
                return await talk(port, sent)

        head, _, rest = asyncio.run(once()).partition(b"\r\n\r\n")
        status, *headers = head.decode("latin-1").split("\r\n")
        return int(status.split()[1]), dict(line.lower().split(": ", 1) for line in headers), rest

    return said


LOCAL = b"Host: localhost"


def code(answer):
    status, headers, body = answer
    assert headers["content-type"] == "application/json"
    assert headers["x-content-type-options"] == "nosniff"
    error = json.loads(body)["error"]
    assert set(error) == {"code", "message"}
    assert "\n" not in error["message"]
    return status, error["code"]


def test_more_than_one_host(say):
    assert say(b"GET /v1/model HTTP/1.1", LOCAL)[0] == 200
    for second in (LOCAL, b"host: evil.example"):
        assert code(say(b"GET /v1/model HTTP/1.1", LOCAL, second)) == (400, "invalid_request")
        assert code(say(b"GET /health HTTP/1.1", LOCAL, second, token="t")) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"http://localhost/health", 200),
        (b"http://127.0.0.1:8000/v1/model?model=model", 200),
        (b"HTTP://LOCALHOST:80/v1/items/egg/similar?k=2", 200),
        (b"http://evil.example/v1/model", 421),
        (b"http://evil.example:80/health", 421),
        (b"https://localhost@evil.example/v1/model", 421),
        (b"http://localhost.evil.example/v1/model", 421),
        (b"http://evil.example", 421),
        (b"http://localhost", 200),
        (b"http://[::1/v1/model", 400),
        (b"tea", 400),
        (b"*", 400),
    ],
)
def test_addresses_that_name_a_host(say, target, status):
    """It counts, and not the header."""
    answer = say(b"GET " + target + b" HTTP/1.1", LOCAL)
    assert answer[0] == status
    if status != 200:
        assert code(answer) == (status, {421: "misdirected", 400: "invalid_request"}[status])


def test_with_a_token_an_address_may_name_any_host(say):
    proof = b"Authorization: Bearer t"
    assert say(b"GET http://shop.example/v1/model HTTP/1.1", b"Host: shop.example", proof, token="t")[0] == 200
    assert code(say(b"GET http://shop.example/v1/model HTTP/1.1", LOCAL, token="t")) == (401, "unauthorized")
    asked = b"POST http://shop.example/v1/admin/reload HTTP/1.1"
    assert say(asked, LOCAL, b"Authorization: Basic bWU6dA==", token="t")[1]["www-authenticate"].startswith("bearer")


@pytest.mark.parametrize("size", [60_000, 70_000, 200_000])
@pytest.mark.parametrize("where", ["one header", "many headers", "address"])
def test_long_headers(say, where, size):
    """More than is documented is refused however it arrives: the whole request at once, too."""
    first, lines = b"GET /v1/items?q=e HTTP/1.1", [b"X-Long: " + b"a" * size]
    if where == "many headers":
        lines = [b"X-%d: " % number + b"a" * 90 for number in range(size // 100)]
    if where == "address":
        first, lines = b"GET /v1/items/" + b"a" * size + b"/similar HTTP/1.1", []
    answer = say(first, LOCAL, *lines)
    if size < 2**16:
        assert answer[0] == (404 if where == "address" else 200)
    else:
        assert code(answer) == (431, "invalid_request")


@pytest.mark.parametrize("path", [b"/", b"/docs", b"/page/main.js"])
def test_ranges_of_files(say, path):
    first = b"GET " + path + b" HTTP/1.1"
    assert say(first, LOCAL, b"Range: bytes=0-3")[0] == 206
    for wrong in (b"bytes=abc", b"bytes=", b"tea", b"bytes=5-2", b"bytes=--"):
        assert code(say(first, LOCAL, b"Range: " + wrong)) == (400, "invalid_request")
    beyond = say(first, LOCAL, b"Range: bytes=99999999-")
    assert code(beyond) == (416, "invalid_request")
    assert beyond[1]["content-range"].startswith("bytes */")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (b"/", 200), (b"/docs", 200), (b"/page/main.js", 200), (b"/openapi.json", 200), (b"/health", 200),
        (b"/ready", 200), (b"/metrics", 200), (b"/v1/models", 200), (b"/v1/model", 200), (b"/v1/items?q=e", 200),
        (b"/v1/items/egg/similar", 200), (b"/v1/items/egg/neighbours", 200), (b"/v1/model/diagonal", 200),
        (b"/v1/model/curve", 404), (b"/model", 200), (b"/nowhere", 404), (b"/v1/recommend", 405),
    ],
)  # fmt: skip
def test_head_is_get_without_a_body(say, path, status):
    got, head = (say(method + b" " + path + b" HTTP/1.1", LOCAL) for method in (b"GET", b"HEAD"))
    assert (got[0], head[0], head[2]) == (status, status, b"")
    assert set(got[1]) == set(head[1])
    if path not in (b"/metrics", b"/v1/model", b"/v1/recommend"):  # which tell the time, or the method
        assert got[1]["content-length"] == head[1]["content-length"] == str(len(got[2]))


def test_what_a_path_takes(say):
    answer = say(b"DELETE /v1/model HTTP/1.1", LOCAL)
    assert code(answer) == (405, "method_not_allowed")
    assert sorted(answer[1]["allow"].split(", ")) == ["get", "head"]
