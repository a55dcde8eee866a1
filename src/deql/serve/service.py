"""The whole service as one ASGI app: the API, its numbers for Prometheus, and the guard before both."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from deql.serve.app import create_api
from deql.serve.errors import error_response
from deql.serve.guard import Guard, internal_message
from deql.serve.host import Host
from deql.serve.metrics import CONTENT_TYPE, Metrics
from deql.serve.settings import Settings

__all__ = ["create_app"]


def create_app(host: Host, settings: Settings, metrics: Metrics | None = None) -> Guard:
    """What a worker runs, and tests call without one.

    Parameters
    ----------
    host : Host
        Where the model is.
    settings : Settings
    metrics : Metrics, optional
        Where things are counted; new ones if none are given.
    """
    metrics = metrics or Metrics()
    api = create_api(host, settings, metrics.batch)

    @api.get("/metrics", tags=["operations"], response_model=None, responses={200: {"content": {"text/plain": {}}}})
    def numbers() -> Response:
        """What Prometheus reads."""
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    @api.exception_handler(Exception)
    async def of_ours(request: Request, error: Exception) -> Response:
        return error_response(500, "internal", internal_message(request.state.request_id))

    return Guard(api, settings, metrics)
