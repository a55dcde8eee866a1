"""What is said about requests that cannot be answered: one form, and codes that programs can rely on."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from deql.errors import DeqlError, UnknownItemError, name_some
from deql.serve.middleware import internal_message
from deql.serve.request_context import CHECKSUM
from deql.serve.schemas import WEIGHTED, ApiError, error_response
from deql.serve.serving_model import ModelHolder

__all__ = ["add_errors"]

_KINDS_OF_ID = ("int", "str")


def add_errors(api: FastAPI, holder: ModelHolder) -> None:
    """Have everything that an app may raise answered as an error of ours."""

    @api.exception_handler(ApiError)
    async def of_api(request: Request, error: ApiError) -> Response:
        # How long an update takes nobody knows; the next one may well be asked for a little later.
        headers = {"Retry-After": "5"} if error.code == "update_running" else None
        return error_response(error.status, error.code, error.message, headers)

    @api.exception_handler(Exception)
    async def of_ours(request: Request, error: Exception) -> Response:
        return error_response(500, "internal", internal_message(request.state.request_id))

    @api.exception_handler(DeqlError)
    async def of_library(request: Request, error: DeqlError) -> Response:
        return error_response(
            422, "unknown_item" if isinstance(error, UnknownItemError) else "invalid_request", str(error)
        )

    @api.exception_handler(RequestValidationError)
    async def of_schema(request: Request, error: RequestValidationError) -> Response:
        _note_model(request, holder, error.body)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if request.method == "POST" and not re.fullmatch(r"application/(.*\+)?json", kind):
            return error_response(
                415,
                "unsupported_media_type",
                "the body must be JSON, sent with the header Content-Type: application/json",
            )
        if error.errors()[0]["type"] == "json_invalid":
            return await of_http(request, HTTPException(400))  # which is what FastAPI raises for other bodies
        return error_response(422, "invalid_request", _validation_message(error))

    @api.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> Response:
        codes = {400: "invalid_json", 404: "not_found", 405: "method_not_allowed", 415: "unsupported_media_type"}
        path = name_some([request.url.path])
        headers = dict(error.headers or {})
        if error.status_code == 405 and headers.get("Allow", "GET") == "GET":  # files say nothing
            headers["Allow"] = "GET, HEAD"
        messages = {
            400: "the body is not JSON",
            404: f"there is no {path} here: see /docs",
            405: f"{path} takes {headers.get('Allow')} only: see /docs",
        }
        if error.status_code == 400:
            _note_model(request, holder, None)
        return error_response(
            error.status_code, codes.get(error.status_code, "invalid_request"),
            messages.get(error.status_code, str(error.detail)), headers,
        )  # fmt: skip


def _validation_message(error: RequestValidationError) -> str:
    """The first thing that is wrong with a request, and how many more there are."""
    found: Sequence[Any] = error.errors()
    # An item with a weight is no id either, but what is wrong with it is what is wrong with the weight.
    found = [one for one in found if WEIGHTED in one["loc"] and one["type"] != "dict_type"] or found
    place, *_ = places = list(dict.fromkeys(_place(one["loc"]) for one in found))
    first = found[0]
    what = first["msg"][:1].lower() + first["msg"][1:]
    if first["loc"][-1] in _KINDS_OF_ID:
        of_user = not {"user", "forget_users"}.isdisjoint(first["loc"])
        what = f"{'a user' if of_user else 'an item'} id must be an integer or text"
    more = f" (and {len(places) - 1:,} more)" if len(places) > 1 else ""
    return f"{name_some([place])[1:-1]}: {what}{more}"


def _place(where: Sequence[Any]) -> str:
    """Where in a request something is wrong; an item that is neither integer nor text is wrong twice, in one place."""
    inside = where[1:-1] if where[-1] in _KINDS_OF_ID else where[1:]
    return ".".join(str(part) for part in inside if part != WEIGHTED) or {"query": "the address"}.get(
        where[0], "the body"
    )


def _note_model(request: Request, holder: ModelHolder, body: Any) -> None:
    """Say with the answer whose it would have been, as far as it can be told."""
    name = body.get("model") if isinstance(body, dict) else request.query_params.get("model")
    with contextlib.suppress(ApiError):
        setattr(request.state, CHECKSUM, holder.get(name if isinstance(name, str) else None).checksum)
