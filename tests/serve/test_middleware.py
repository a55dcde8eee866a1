"""The middleware and the connections before it, without processes."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
from contextlib import asynccontextmanager
from functools import partial

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("uvicorn", reason="needs the extra serve")

import uvicorn
from uvicorn.server import ServerState

from deql.serve import middleware, request_context
from deql.serve.access import shows_token
from deql.serve.connection import _MOST_SPARE, ClientConnection
from deql.serve.middleware import RequestMiddleware
from deql.serve.monitoring import JsonLogFormatter, Metrics
from deql.serve.request_context import STARTED
from deql.serve.settings import Limits, Settings

pytestmark = pytest.mark.serve


async def echo(scope, receive, send):
    message = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": message["body"]})


async def flood(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(50):
        await send({"type": "http.response.body", "body": b"x" * 2**20, "more_body": True})


async def slow(scope, receive, send):
    await asyncio.sleep(5)


async def late(scope, receive, send):
    await asyncio.sleep(0.3)
    await echo(scope, receive, send)


async def broken(scope, receive, send):
    raise RuntimeError("secret")


class Request:
    """One request to an app, as a server would put it."""

    def __init__(self, path="/recommend", body=(), headers=(), method="POST", patient=True):
        self.scope = {
            "type": "http",
            "method": method,
            "path": path,
            "headers": list(headers),
            "client": ("1.2.3.4", 5),
        }
        self._pieces = [
            {"type": "http.request", "body": piece, "more_body": place < len(body) - 1}
            for place, piece in enumerate(body)
        ]
        self._patient = patient
        self.sent = []

    async def receive(self):
        if self._pieces:
            return self._pieces.pop(0)
        if self._patient:
            await asyncio.sleep(5)
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.sent.append(message)

    async def go(self, app):
        await app(self.scope, self.receive, self.send)
        return self

    @property
    def status(self):
        return self.sent[0]["status"]

    @property
    def headers(self):
        return dict(self.sent[0]["headers"])

    @property
    def body(self):
        assert not self.sent[-1].get("more_body")
        return b"".join(message["body"] for message in self.sent[1:])

    @property
    def code(self):
        return json.loads(self.body)["error"]["code"]


def ask(app, *given, **named):
    settings = Settings({"shop": "shop.deql"}, timeout=0.05, limits=Limits(body=10), **named.pop("settings", {}))
    return asyncio.run(Request(*given, **named).go(RequestMiddleware(app, settings, Metrics())))


def chunked(*pieces):
    return {"body": pieces, "headers": [(b"transfer-encoding", b"chunked")]}


def test_bodies_are_read_before_the_app_is_asked():
    assert ask(echo, **chunked(b"12345", b"67890")).body == b"1234567890"
    assert ask(echo, **chunked(b"12345", b"678901", b"more")).code == "body_too_large"
    assert ask(echo, body=[b"1" * 11], headers=[(b"content-length", b"11")]).status == 413
    assert ask(echo, body=[b"1"], headers=[(b"content-length", b"9" * 5000)]).status == 413
    late = ask(echo, **chunked(b"12345"), patient=True)
    assert late.body == b"12345"
    late = ask(echo, body=(), headers=[(b"content-length", b"5")])
    assert (late.status, late.code, late.headers[b"connection"]) == (408, "request_timeout", b"close")
    assert not ask(echo, body=(), headers=[(b"content-length", b"5")], patient=False).sent  # the client left


def test_what_is_refused_is_read_to_its_end(monkeypatch):
    left = Request(**chunked(*[b"x" * 20] * 5))
    asyncio.run(left.go(RequestMiddleware(echo, Settings({"shop": "shop.deql"}, limits=Limits(body=10)), Metrics())))
    assert left.status == 413
    assert not left._pieces
    monkeypatch.setattr(request_context, "_DRAIN_SECONDS", 0.01)
    endless = Request(body=[], headers=[(b"content-length", b"50")])
    asyncio.run(endless.go(RequestMiddleware(echo, Settings({"shop": "shop.deql"}, limits=Limits(body=10)), Metrics())))
    assert endless.code == "body_too_large"


def test_a_long_body_waits_for_none_that_is_parsed(monkeypatch):
    """Two that go on for longer, one parsed, one of what administers, which parses nothing, keep no slot."""
    monkeypatch.setattr(middleware, "_LONG_BODY", 5)
    monkeypatch.setattr(middleware, "_LONG_AT_ONCE", 1)

    async def together():
        over = asyncio.Event()

        async def app(scope, receive, send):
            if scope["path"] == "/parsed":
                scope["state"].pop(request_context.PARSED)()
            if scope["path"] != "/echo":
                await over.wait()
            await echo(scope, receive, send)

        whole = RequestMiddleware(app, Settings({"shop": "shop.deql"}, token="tea", timeout=2.0), Metrics())
        body, headers = [b"123456"], [(b"content-length", b"6"), (b"authorization", b"Bearer tea")]
        paths = ("/v1/admin/reload", "/parsed", "/echo", "/echo")
        requests = [Request(path, body, headers) for path in paths]
        tasks = [asyncio.ensure_future(request.go(whole)) for request in requests]
        await asyncio.gather(*tasks[2:])
        over.set()
        await asyncio.gather(*tasks)
        return [request.status for request in requests]

    assert asyncio.run(together()) == [200] * 4


def test_slow_and_broken_apps(caplog):
    late = ask(slow)
    assert (late.status, late.code) == (503, "timed_out")
    wrong = ask(broken, headers=[(b"x-request-id", b"tea-1")])
    assert (wrong.status, wrong.code) == (500, "internal")
    assert b"secret" not in wrong.body
    assert b"tea-1" in wrong.body
    [record] = [record for record in caplog.records if record.getMessage() == "error"]
    line = JsonLogFormatter().format(record)
    assert "\n" not in line
    assert "secret" in json.loads(line)["traceback"]
    assert json.loads(line)["id"] == "tea-1"


def test_overload():
    app = RequestMiddleware(slow, Settings({"shop": "shop.deql"}, timeout=0.2, pending=2), Metrics())

    async def many():
        return await asyncio.gather(*(Request().go(app) for _ in range(4)), Request("/health").go(app))

    *answers, health = asyncio.run(many())
    assert sorted(answer.code for answer in answers) == ["overloaded"] * 2 + ["timed_out"] * 2
    assert all(b"retry-after" in answer.headers for answer in answers)
    assert health.code == "timed_out"  # it was let through


def test_headers_of_every_answer():
    for path, app in (("/", echo), ("/docs", echo), ("/recommend", echo), ("/recommend", broken)):
        headers = ask(app, path, body=[b""]).headers
        policy = headers[b"content-security-policy"]
        assert policy.startswith(b"default-src 'none';")
        assert (b"script-src 'self'" in policy) == (path in ("/", "/docs"))
        assert headers[b"x-content-type-options"] == b"nosniff"
        assert headers[b"cache-control"] == b"no-store"
        assert not any(name.startswith(b"access-control") for name in headers)
    for sent in (b"", b"a b", b"x" * 65, b"a\nb", "é".encode()):
        assert len(ask(echo, body=[b""], headers=[(b"x-request-id", sent)]).headers[b"x-request-id"]) == 16
    assert ask(echo, body=[b""], headers=[(b"x-request-id", b"Tea-1.b_c")]).headers[b"x-request-id"] == b"Tea-1.b_c"


def test_tokens():
    token = "tëa".encode()
    assert shows_token(b"Bearer " + token, token)
    assert shows_token(b"bearer  " + token, token)
    assert not shows_token(b"Bearer " + "tëa".encode("latin-1"), token)
    assert shows_token(b"Basic bWU6dGVhOnR3bw==", b"tea:two")  # the password begins at the first colon
    assert not shows_token(b"Basic bWU6dGVhOnR3bw==", b"tea:two", basic=False)
    assert not shows_token(b"", b"")
    given = {"settings": {"token": "tea"}}
    assert ask(echo, **given).headers[b"www-authenticate"].startswith(b"Basic ")
    assert ask(echo, "/admin/reload", **given).headers[b"www-authenticate"].startswith(b"Bearer ")
    assert ask(echo, body=[b"1"], headers=[(b"authorization", b"Bearer tea")], **given).status == 200
    assert ask(echo, "/health", body=[b""], **given).status == 200


def test_request_log(caplog):
    with caplog.at_level(logging.INFO, "deql.serve"):
        ask(echo, "/" + "\n\x1b[31m" * 100, body=[b"private"], headers=[(b"content-length", b"7")])
        ask(echo, body=[b""], settings={"quiet": True})
    [record] = caplog.records
    line = JsonLogFormatter().format(record)
    assert "private" not in line
    assert line.isprintable()
    event = json.loads(line)
    assert {"event", "time", "level", "pid", "id", "method", "ms"} < set(event)
    assert (event["status"], event["client"], event["bytes"], len(event["route"])) == (200, "1.2.3.4", 7, 200)


PARSERS = [
    "h11",
    pytest.param(
        "httptools", marks=pytest.mark.skipif(not importlib.util.find_spec("httptools"), reason="needs httptools")
    ),
]


@asynccontextmanager
async def listening(parser, app, seconds=0.2, **given):
    """A server with little patience, in this process, of an app or a whole service: its port and its connections."""
    module = importlib.import_module(f"uvicorn.protocols.http.{parser}_impl")
    base = module.H11Protocol if parser == "h11" else module.HttpToolsProtocol
    settings = Settings({"shop": "shop.deql"}, host="a", timeout=seconds, connections=4, quiet=True, **given)
    config = uvicorn.Config(
        app if isinstance(app, RequestMiddleware) else RequestMiddleware(app, settings, Metrics()),
        http=partial(ClientConnection, parser=base), log_config=None, ws="none", proxy_headers=False,
        timeout_keep_alive=1,
    )  # fmt: skip
    config.load()
    state = ServerState()
    made = partial(config.http_protocol_class, config, state, {})
    server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], state.connections
    finally:
        server.close()
        await server.wait_closed()
        if state.tasks:  # an answer that is read already, and not yet put away
            await asyncio.wait(state.tasks, timeout=0.5)


@pytest.mark.parametrize("parser", PARSERS)
def test_a_client_that_does_not_listen(parser):
    async def stall():
        async with listening(parser, flood) as (port, connections):
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await asyncio.sleep(0.1)
            assert len(connections) == 1
            await asyncio.sleep(0.4)
            assert not connections
            writer.close()

    asyncio.run(stall())


async def talk(port, *pieces, pause=0.05):
    """All that a server answers to pieces that are sent one after the other."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(pause)
        return await asyncio.wait_for(reader.read(), 3)
    except ConnectionError:
        return b"reset"
    finally:
        writer.close()


@pytest.mark.parametrize("parser", PARSERS)
def test_impatience(parser):
    async def everything():
        good = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
        last = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        async with listening(parser, echo) as (port, _):
            first = await asyncio.gather(
                talk(port, b"G", b"E", b"T"), talk(port), talk(port, b"tea\r\n\r\n"), talk(port, last)
            )
            long = await talk(port, b"GET / HTTP/1.1\r\nA: " + b"a" * 70_000)
            second = await talk(port, good, b"GET / HT")  # after an answer, the time begins with the next request
            patient = [asyncio.create_task(talk(port, b"GET")) for _ in range(4)]
            await asyncio.sleep(0.05)
            many = await talk(port, good)
            await asyncio.gather(*patient)
        return *first, long, second, many

    dripping, silent, garbage, fine, long, second, many = asyncio.run(everything())
    assert dripping.startswith(b"HTTP/1.1 408 ")
    assert json.loads(dripping.partition(b"\r\n\r\n")[2])["error"]["code"] == "request_timeout"
    assert silent == b""
    assert garbage.startswith(b"HTTP/1.1 400 ")
    assert fine.startswith(b"HTTP/1.1 200 ")
    assert long.startswith(b"HTTP/1.1 431 ")
    assert second.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 408 " in second
    assert many.startswith(b"HTTP/1.1 503 ")
    for refused in (dripping, garbage, many):  # has what every answer has
        for name in (b"x-request-id", b"content-security-policy", b"referrer-policy", b"cache-control"):
            assert b"\r\n" + name + b": " in refused


@pytest.mark.parametrize("parser", PARSERS)
def test_probes_have_connections_of_their_own(parser):
    """However many there are that say nothing: those beyond the limit go, the oldest first, when others come."""

    async def ask():
        async with listening(parser, echo, seconds=5) as (port, connections):
            idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
            await asyncio.sleep(0.05)
            assert len(connections) == 4 + _MOST_SPARE
            answers = {
                path: await talk(port, f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
                for path in ("/health", "/ready", "/metrics", "/model")
            }
            refused = [await asyncio.wait_for(reader.read(), 3) for reader, _ in idle[4:20]]
            idle[0][1].write(b"GET /model HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            answers["first"] = await asyncio.wait_for(idle[0][0].read(), 3)
            for _, writer in idle:
                writer.close()
            return answers, refused

    answers, refused = asyncio.run(ask())
    assert answers.pop("/model").startswith(b"HTTP/1.1 503 ")
    assert all(answer.startswith(b"HTTP/1.1 200 ") for answer in answers.values()), answers
    assert b"connection: close" in answers["/health"].lower()
    assert all(answer.startswith(b"HTTP/1.1 503 ") for answer in refused)


@pytest.mark.parametrize("parser", PARSERS)
def test_probes_are_answered_however_many_requests_there_are(parser):
    async def ask():
        async with listening(parser, late, seconds=5, pending=1) as (port, _):
            first = asyncio.create_task(talk(port, b"GET /model HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
            await asyncio.sleep(0.05)
            request = "GET {} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
            others = [talk(port, request.format(path).encode()) for path in ("/ready", "/metrics", "/model")]
            return [await first, *await asyncio.gather(*others)]

    assert [answer[9:12] for answer in asyncio.run(ask())] == [b"200", b"200", b"200", b"503"]


@pytest.mark.parametrize("parser", PARSERS)
def test_a_request_on_its_way_when_the_server_ends(parser):
    async def ask():
        async with listening(parser, echo, seconds=5) as (port, connections):
            (reader, writer), (silent, other) = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
            writer.write(request)
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 3)
            for connection in list(connections):
                connection.shutdown()
            writer.write(request)
            last = await asyncio.wait_for(reader.read(), 3)
            assert await asyncio.wait_for(silent.read(), 3) == b""
            for one in (writer, other):
                one.close()
            return last

    last = asyncio.run(ask())
    assert b"HTTP/1.1 200 " in last
    assert b"connection: close" in last.lower()


@pytest.mark.parametrize("parser", PARSERS)
def test_what_comes_after_the_headers_does_not_count_as_headers(parser):
    async def all_at_once():
        async with listening(parser, echo, seconds=5) as (port, _):
            head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 200000\r\n\r\n"
            return await talk(port, head + b"x" * 200_000)

    answer = asyncio.run(all_at_once())
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b"x" * 1000) == 200


def test_requests_without_end_before_the_first_answer():
    pytest.importorskip("httptools")

    async def pipeline():
        async with listening("httptools", slow, seconds=5) as (port, connections):
            answer = await talk(port, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 200)
            return answer, len(connections)

    answer, connections = asyncio.run(pipeline())
    assert answer in (b"", b"reset")
    assert connections == 0


@pytest.mark.parametrize("parser", PARSERS)
def test_the_clock_runs_from_the_first_byte(parser):
    ages = []

    async def app(scope, receive, send):
        ages.append(asyncio.get_running_loop().time() - scope["state"][STARTED])
        await echo(scope, receive, send)

    async def drip():
        async with listening(parser, app, seconds=5) as (port, _):
            again = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
            return await talk(port, b"GET / HTTP/1.1\r\n", b"Host: ", b"a\r\n\r\n", again)

    assert asyncio.run(drip()).count(b"HTTP/1.1 200 ") == 2
    first, second = ages
    assert first >= 0.09
    assert second < first  # each request has its own


def test_what_headers_took_is_gone_for_the_rest():
    late = Request(body=(), headers=[(b"content-length", b"5")])

    async def go():
        late.scope["state"] = {STARTED: asyncio.get_running_loop().time() - 100}
        await asyncio.wait_for(
            late.go(RequestMiddleware(echo, Settings({"shop": "shop.deql"}, timeout=99), Metrics())), 5
        )

    asyncio.run(go())
    assert late.code == "request_timeout"


@pytest.mark.parametrize(
    ("settings", "name", "passes"),
    [
        ({}, b"localhost:8000", True),
        ({}, b"127.0.0.1", True),
        ({}, b"[::1]:80", True),
        ({}, b"evil.example:8000", False),
        ({}, b"localhost.evil.example", False),
        ({}, b"", True),
        ({"host": "0.0.0.0"}, b"shop.example", False),
        ({"host": "0.0.0.0"}, b"10.1.2.3:8000", True),
        ({"host": "0.0.0.0"}, b"10.1.2.3.evil.example", False),
        ({"host": "shop.example"}, b"SHOP.example:80", True),
    ],
)
def test_without_a_token_it_has_no_foreign_name(settings, name, passes):
    asked = ask(echo, body=[b"tea"], headers=[(b"host", name), (b"content-length", b"3")], settings=settings)
    assert asked.status == (200 if passes else 421)
    assert passes or asked.code == "misdirected"


def test_with_a_token_it_may_be_called_anything():
    headers = [(b"host", b"shop.example"), (b"content-length", b"3"), (b"authorization", b"Bearer t")]
    assert ask(echo, body=[b"tea"], headers=headers, settings={"token": "t"}).status == 200
