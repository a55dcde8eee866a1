"""Errors as HTTP answers: a status, a code that does not change, and one sentence."""

from __future__ import annotations

import json

from starlette.responses import Response

__all__ = ["ApiError", "error_response"]


class ApiError(Exception):
    """A request that cannot be answered as asked.

    Attributes
    ----------
    status : int
    code : str
        What programs may rely on; the sentence may change.
    message : str
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def error_response(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    """The JSON that every error is answered with.

    Examples
    --------
    >>> error_response(404, "not_found", "there is no /tea").body
    b'{"error": {"code": "not_found", "message": "there is no /tea"}}'
    """
    body = json.dumps({"error": {"code": code, "message": message}})
    return Response(body, status, headers, media_type="application/json")
