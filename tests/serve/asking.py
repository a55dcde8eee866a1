"""Asks an ASGI app directly: no socket, no client library."""

from __future__ import annotations

import asyncio
import json


class Asker:
    """An app to be asked."""

    def __init__(self, app):
        self.app = app

    def ask(self, method, path, body=None, headers=None):
        """Status and answer; a body that is not bytes is sent as JSON."""
        return self.together([(method, path, body, headers)])[0]

    def headers(self, method, path, body=None, headers=None):
        """The headers of an answer."""
        return asyncio.run(self._exchange(method, path, body, headers))["headers"]

    def together(self, requests):
        """The same for requests that are all under way at once."""

        async def all_of_them():
            return await asyncio.gather(*(self._send(*request) for request in requests))

        return asyncio.run(all_of_them())

    async def _send(self, *request):
        answer = await self._exchange(*request)
        text = answer["body"]
        return answer["status"], json.loads(text) if text[:1] in (b"{", b"[") else text.decode()

    async def _exchange(self, method, path, body=None, headers=None):
        route, _, query = path.partition("?")
        sent = {"content-type": "application/json"} | (headers or {})
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        if content:
            sent["content-length"] = str(len(content))
        scope = {
            "type": "http", "http_version": "1.1", "method": method, "path": route, "raw_path": route.encode(),
            "query_string": query.encode(), "root_path": "", "scheme": "http", "server": ("test", 80), "state": {},
            "client": ("test", 1), "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
        }  # fmt: skip
        answer = {"body": b""}

        told = []

        async def receive():
            if told:
                await asyncio.Event().wait()  # the client stays
            told.append(True)
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message):
            answer["status"] = message.get("status", answer.get("status"))
            answer["body"] += message.get("body", b"")
            answer["headers"] = answer.get("headers") or {
                name.decode(): value.decode() for name, value in message.get("headers", [])
            }

        await self.app(scope, receive, send)
        return answer
