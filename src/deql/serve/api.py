"""The web service: each question of the API, the page, and errors that programs can rely on.

Requests that wait at the same time are ranked together, and none waits for all of a long one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI
from fastapi import Path as InPath
from fastapi import Query as InQuery
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

import deql
from deql._system.formatting import as_json
from deql.errors import name_some
from deql.models.linear import LinearAutoencoder
from deql.serve import answer_schemas, answers, openapi, schemas
from deql.serve.errors import add_errors
from deql.serve.middleware import RequestMiddleware
from deql.serve.monitoring import Metrics
from deql.serve.request_context import CHECKSUM, PARSED, UPDATE
from deql.serve.schemas import ApiError
from deql.serve.serving_model import ModelHolder, Query, ServingModel
from deql.serve.settings import Settings
from deql.serve.snapshot import ReloadError
from deql.serve.turns import Batcher, LongAnswers

__all__ = ["PAGE", "create_app"]

PAGE = Path(__file__).with_name("page")

_SHORT = 500
"""Items in an answer that takes less time to make than to hand to another thread."""

_ABOUT = """Recommendations with exact reasons, from one symmetric inverse and two vectors.

Errors are `{"error": {"code": …, "message": …}}`; codes do not change between versions. An item is named by its id:
an integer where the model's ids are integers, else text. `b`, `zero_diagonal`, `popularity_power` and, where there is
a prior, `prior_weight` may be given with any question: they make another model on the same inverse, for that request.
`model` names one of the models where there are several; the header `X-Model-Checksum` of an answer, be it an error,
says which one was asked."""

RuleInQuery = Annotated[schemas.RuleQuery, InQuery()]
ModelInQuery = Annotated[schemas.ModelQuery, InQuery()]
ItemInPath = Annotated[str, InPath(description="Item id; slashes may be part of it.")]


class _AnyPath(Convertor[str]):
    """A part of an address that may hold slashes, as ``path`` may, and line breaks, too."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("any", _AnyPath())


async def _no_query(request: Request) -> None:
    """Refuse parameters in an address that takes none, as FastAPI does where it takes some."""
    if request.scope["query_string"]:
        unknown = next(iter(request.query_params), "")
        raise ApiError(422, "invalid_request", f"the address: there is no parameter {name_some([unknown])}")


_NO_QUERY = [Depends(_no_query)]


def create_app(holder: ModelHolder, settings: Settings, metrics: Metrics | None = None) -> RequestMiddleware:
    """The whole service as one ASGI app: what a worker runs, and tests call without one.

    Parameters
    ----------
    holder : ModelHolder
        Where the model is.
    settings : Settings
        Limits, and whether there is a token: models are reloaded and updated only then.
    metrics : Metrics, optional
        Where things are counted; new ones if none are given.
    """
    metrics = metrics or Metrics()
    api = FastAPI(
        title="deql",
        version=deql.__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=openapi.operation_id,
    )
    openapi.complete(api, has_token=settings.token is not None)
    add_errors(api, holder)
    long_answers = LongAnswers()
    _add_questions(api, holder, settings, Batcher(metrics.batch), long_answers)
    _add_models(api, holder, settings, long_answers)
    if settings.token is not None:
        _add_admin(api, holder)
    else:
        _refuse_updates(api)
    _add_operations(api, holder, metrics)
    _add_page(api)
    return RequestMiddleware(api, settings, metrics)


def _add_questions(
    api: FastAPI, holder: ModelHolder, settings: Settings, batcher: Batcher, long_answers: LongAnswers
) -> None:
    limits = settings.limits

    @api.post(
        "/v1/recommend",
        tags=["recommend"],
        **_answers(answer_schemas.RecommendAnswer, 400, 404, 413, 415, 422),
    )
    async def recommend(request: Request, asked: schemas.RecommendRequest) -> Response:
        """The best items for each history. Nobody needs to have been in the training data."""
        await _no_query(request)
        serving = _asked_for(request, holder, asked.model)
        queries, *unknown = answers.queries_of(serving, asked, limits)
        lists = await batcher.rank(serving, queries)
        pieces = answers.recommendations(serving, asked, queries, lists, *unknown)
        # A long answer is not made on the event loop, where everybody would wait for it.
        is_short = asked.explain is None and asked.k * len(queries) <= _SHORT
        return _sent("".join(pieces if is_short else await long_answers.make(pieces)))

    @api.post(
        "/v1/explain",
        tags=["recommend"],
        **_answers(answer_schemas.ExplainAnswer, 400, 404, 413, 415, 422),
    )
    async def explain(request: Request, asked: schemas.ExplainRequest) -> Response:
        """What each item of a history adds to the score of another: parts that add up exactly."""
        await _no_query(request)
        serving = _asked_for(request, holder, asked.model)
        return _json(await long_answers.call(answers.explanation, serving, asked, limits))

    @api.get("/v1/items", tags=["items"], **_answers(answer_schemas.ItemsAnswer, 404, 422))
    async def find_items(request: Request, asked: Annotated[schemas.ItemsQuery, InQuery()]) -> Response:
        """Items by name: those called so, then those whose names begin so, then others that have it anywhere."""
        serving = _asked_for(request, holder, asked.model)
        return _json(await long_answers.call(answers.items, serving, asked.q, asked.limit))

    @api.get("/v1/items/{item:any}/similar", tags=["items"], **_answers(answer_schemas.SimilarAnswer, 404, 422))
    async def similar_items(
        request: Request, item: ItemInPath, asked: Annotated[schemas.SimilarQuery, InQuery()]
    ) -> Response:
        """The items that having this one speaks for most."""
        serving = _asked_for(request, holder, asked.model)
        column = _column(serving, item)
        answers.check_number("k", asked.k, limits.k)
        serving.ruled(asked.rule)
        [ranked] = await batcher.rank(serving, [Query([column], [1.0], asked.k, rule=asked.rule)])
        return _json(answers.similar(serving, column, ranked))

    @api.get("/v1/items/{item:any}/neighbours", tags=["items"], **_answers(answer_schemas.NeighboursAnswer, 404, 422))
    async def neighbours(
        request: Request, item: ItemInPath, asked: Annotated[schemas.NeighboursQuery, InQuery()]
    ) -> Response:
        """The neighbourhood of an item: a directed graph of signed weights."""
        serving = _asked_for(request, holder, asked.model)
        column = _column(serving, item)
        return _json(await long_answers.call(answers.neighbours, serving, column, asked.k, asked.rule))


def _add_models(api: FastAPI, holder: ModelHolder, settings: Settings, long_answers: LongAnswers) -> None:
    @api.get("/v1/models", tags=["model"], dependencies=_NO_QUERY, **_answers(answer_schemas.ModelsAnswer, 422))
    async def list_models() -> Response:
        """The models, by name; the first is that of requests that name none."""
        holder.get()  # there is one
        return _json({"models": [as_json(serving.short_summary()) for serving in holder.models]})

    @api.get("/v1/model", tags=["model"], **_answers(answer_schemas.ModelAnswer, 404, 422))
    async def get_model(request: Request, asked: ModelInQuery) -> Response:
        """The model: parameters, what it learned from, its checksum, and this server's limits."""
        serving = _asked_for(request, holder, asked.model)
        return _json(as_json(serving.summary() | {"version": deql.__version__, "limits": vars(settings.limits)}))

    @api.get("/v1/model/diagonal", tags=["model"], **_answers(answer_schemas.DiagonalAnswer, 404, 422))
    async def model_diagonal(request: Request, asked: RuleInQuery) -> Response:
        """How much items speak for themselves: a histogram of the diagonal of W."""
        serving = _asked_for(request, holder, asked.model)
        return _json(await long_answers.call(answers.diagonal, serving, asked.rule))

    @api.get("/v1/model/curve", tags=["model"], **_answers(answer_schemas.CurveAnswer, 404, 422))
    async def model_curve(request: Request, asked: ModelInQuery) -> Response:
        """Metrics over b, if the server was started with a tuning journal."""
        found = _asked_for(request, holder, asked.model).curve
        if found is None:
            raise ApiError(404, "no_curve", "no tuning journal of this model was given to the server: see --journal")
        return _json(as_json(found))


def _add_admin(api: FastAPI, holder: ModelHolder) -> None:
    @api.post(
        "/v1/admin/reload",
        tags=["operations"],
        dependencies=_NO_QUERY,
        **_answers(answer_schemas.ReloadAnswer, 409, 422),
    )
    async def reload_models() -> Response:
        """Read the model files again.

        Requests are answered meanwhile. A file that is no model leaves its model as it is, and the others are read:
        an error names those that were replaced.
        """
        try:
            return _json(await holder.reload())
        except ReloadError as error:
            raise ApiError(409, "model_rejected", str(error)) from None

    @api.post(
        UPDATE,
        tags=["operations"],
        **_answers(answer_schemas.UpdateAnswer, 400, 404, 409, 413, 415, 422, 500),
    )
    async def update_model(request: Request, asked: schemas.UpdateRequest) -> Response:
        """Have a model follow changes of its data: it becomes what a fit on the changed data gives.

        The model's file is written anew, whole or not at all, and taken up by all workers; requests are answered
        meanwhile, from the model as it was. Whoever asks may leave: the update goes on.
        """
        await _no_query(request)
        serving = _asked_for(request, holder, asked.model)
        if not isinstance(serving.model, LinearAutoencoder):
            kind = type(serving.model).__name__
            raise ApiError(422, "not_updatable", f"a {kind} cannot be updated: fit it again and reload it")
        return _json(await holder.update(serving.served_as, asked.batch))


def _refuse_updates(api: FastAPI) -> None:
    @api.post(UPDATE, include_in_schema=False)
    async def update_model() -> Response:
        raise ApiError(
            403, "token_required", "models are updated only where there is a token: start the server with --token"
        )


def _add_operations(api: FastAPI, holder: ModelHolder, metrics: Metrics) -> None:
    @api.get("/health", tags=["operations"], dependencies=_NO_QUERY, **_answers(answer_schemas.StatusAnswer, 422))
    async def health() -> Response:
        """That the process answers; needs no token."""
        return _json({"status": "ok"})

    @api.get("/ready", tags=["operations"], dependencies=_NO_QUERY, **_answers(answer_schemas.StatusAnswer, 422))
    async def ready() -> Response:
        """That a model is loaded."""
        return _json({"status": "ready", "checksum": holder.get().checksum})

    text: dict[int | str, dict[str, Any]] = {
        200: {"content": {"text/plain": {}}},
        422: {"model": answer_schemas.ErrorAnswer},
    }

    @api.get("/metrics", tags=["operations"], dependencies=_NO_QUERY, response_model=None, responses=text)
    def read_metrics() -> Response:
        """What Prometheus reads."""
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)


def _add_page(api: FastAPI) -> None:
    @api.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(PAGE / "index.html")

    @api.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return FileResponse(PAGE / "docs.html")

    api.mount("/page", StaticFiles(directory=PAGE))


def _asked_for(request: Request, holder: ModelHolder, name: str | None) -> ServingModel:
    """The model that a request, which is parsed by now, is about; its answer will have the model's checksum."""
    request.scope["state"].pop(PARSED, lambda: None)()
    serving = holder.get(name)
    request.scope["state"][CHECKSUM] = serving.checksum
    return serving


def _column(serving: ServingModel, item: str) -> int:
    column = serving.column_called(item)
    if column is None:
        raise ApiError(404, "unknown_item", f"the model does not know the item {name_some([item])}")
    return column


def _json(value: dict[str, Any]) -> Response:
    return _sent(answers.as_text(value))


def _sent(text: str) -> Response:
    return Response(text, media_type="application/json")


def _answers(model: Any, *errors: int) -> dict[str, Any]:
    """The documented answers of an operation."""
    return {
        "response_model": None,
        "responses": {200: {"model": model}} | {status: {"model": answer_schemas.ErrorAnswer} for status in errors},
    }
