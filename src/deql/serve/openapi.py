"""What /openapi.json says beyond what FastAPI finds out by itself: who may ask, and what any answer may be."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from deql.serve.request_context import is_admin

__all__ = ["complete", "operation_id"]

_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "The token that the server was started with."},
    "basic": {"type": "http", "scheme": "basic", "description": "The token as the password, with any user name."},
}
_CHECKSUM = {"description": "The checksum of the model that was asked.", "schema": {"type": "string"}}


def operation_id(route: APIRoute) -> str:
    """What programs that are made from the description call an operation: as its function here is called."""
    return route.name


def complete(api: FastAPI, *, has_token: bool) -> None:
    """Have an app describe tokens, the answers of whatever stands before it, and the header of models.

    Parameters
    ----------
    api : FastAPI
    has_token : bool
        Whether requests must show one. A server without a token cares for the name it is called by instead.
    """
    made_by_fastapi = api.openapi

    def openapi() -> dict[str, Any]:
        if api.openapi_schema is None:
            described = made_by_fastapi()
            if has_token:
                described["components"]["securitySchemes"] = _SCHEMES
            for path, methods in described["paths"].items():
                for operation in methods.values():
                    _complete_one(path, operation, has_token)
        assert api.openapi_schema is not None
        return api.openapi_schema

    api.openapi = openapi  # type: ignore[method-assign]


def _complete_one(path: str, operation: dict[str, Any], has_token: bool) -> None:
    responses = operation["responses"]
    if has_token:
        bearer: list[dict[str, list[str]]] = [{"bearer": []}]  # alone, as browsers send Basic unasked
        operation["security"] = [] if path == "/health" else bearer if is_admin(path) else [*bearer, {"basic": []}]
        if path != "/health":
            responses["401"] = _error("No token, or not the right one")
    else:
        responses["421"] = _error("Called by a name that is not this server's")
    if path != "/health":
        responses["503"] = _error("Try again in a second")
    if _asks_a_model(operation):
        for response in responses.values():
            response["headers"] = {"X-Model-Checksum": _CHECKSUM}
    operation["responses"] = dict(sorted(responses.items()))


def _error(description: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}}
    return {"description": description, "content": content}


def _asks_a_model(operation: dict[str, Any]) -> bool:
    in_query = any(parameter["name"] == "model" for parameter in operation.get("parameters", []))
    return in_query or "requestBody" in operation
