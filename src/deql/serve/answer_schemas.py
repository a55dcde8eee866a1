"""What answers look like, for /openapi.json: they are made as plain values, and tests hold them to this."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

__all__ = [
    "CurveAnswer",
    "DiagonalAnswer",
    "ErrorAnswer",
    "ExplainAnswer",
    "ItemsAnswer",
    "ModelAnswer",
    "ModelsAnswer",
    "NeighboursAnswer",
    "RecommendAnswer",
    "ReloadAnswer",
    "SimilarAnswer",
    "StatusAnswer",
    "UpdateAnswer",
]


class _Named(BaseModel):
    item: int | str
    title: str | None = None


class _Part(_Named):
    value: float
    shared: list[str] | None = Field(None, description="Features that it shares with the item, where those speak.")


class _Recommended(_Named):
    score: float
    because: list[_Part] | None = None
    rest: float | None = None


class _List(BaseModel):
    recommendations: list[_Recommended]
    from_popularity: bool = Field(description="The popularity order: nothing in the history speaks for another item.")
    unknown: list[int | str] = Field(description="Items of the history that the model does not know.")


class RecommendAnswer(BaseModel):
    """One list for each history, and the checksum of the model that made them."""

    checksum: str
    results: list[_List]
    unknown_candidates: list[int | str] = Field(description="Candidates that the model does not know.")


class ExplainAnswer(_Named):
    """Parts that add up, with the rest, to the score exactly."""

    checksum: str
    score: float
    parts: list[_Part]
    rest: float
    from_popularity: bool
    unknown: list[int | str]


class _Scored(_Named):
    score: float


class SimilarAnswer(_Named):
    """The items that having one speaks for most."""

    checksum: str
    similar: list[_Scored]


class _ItemCount(_Named):
    count: int = Field(description="Users who have it.")


class ItemsAnswer(BaseModel):
    """Items found by name."""

    items: list[_ItemCount]
    more: bool


class _Node(_ItemCount):
    self: float = Field(description="What it adds to its own score.")


class _Edge(BaseModel):
    source: int | str = Field(alias="from")
    target: int | str = Field(alias="to")
    weight: float


class NeighboursAnswer(_Named):
    """A directed graph: having ``from`` adds ``weight`` to the score of ``to``."""

    checksum: str
    nodes: list[_Node]
    edges: list[_Edge]


class _Data(BaseModel):
    users: int
    items: int
    interactions: int
    titles: bool
    ids: Literal["text", "integers"]


class ModelAnswer(BaseModel):
    """The model that is served."""

    name: str = Field(description="What requests call it.")
    model: str = Field(description="Its kind.")
    parameters: dict[str, Any]
    data: _Data
    checksum: str
    loaded: str
    updated: str | None = Field(description="When it was last updated since its fit; null if never.")
    version: str
    rule: dict[str, Any] | None
    prior: str | None = Field(description="The prior that it was fitted with.")
    limits: dict[str, int]
    example: list[_Named] = Field(description="A history to begin with.")
    note: str = Field(description="What there is to say about the data and the example; may be empty.")
    curve: bool


class _ShortModel(BaseModel):
    name: str = Field(description="What requests call it.")
    model: str = Field(description="Its kind.")
    checksum: str
    users: int
    items: int
    rule: dict[str, Any] | None
    curve: bool


class ModelsAnswer(BaseModel):
    """The models that are served; the first is that of requests that name none."""

    models: list[_ShortModel]


class DiagonalAnswer(BaseModel):
    """A histogram of the diagonal of W."""

    edges: list[float]
    counts: list[int]
    least: float
    mean: float
    largest: float


class CurveAnswer(BaseModel):
    """Metrics over b, as a search measured them on its validation users."""

    metric: str
    b: list[float | str | None]
    values: dict[str, list[float | None]]
    errors: dict[str, list[float | None]]
    best: dict[str, float | str | None]
    parameters: dict[str, Any]


class StatusAnswer(BaseModel):
    """That all is well."""

    status: str
    checksum: str | None = None


class _Reloaded(BaseModel):
    name: str
    checksum: str
    changed: bool


class ReloadAnswer(BaseModel):
    """The models that are served now; ``checksum`` is that of the first."""

    checksum: str
    changed: bool = Field(description="Whether any of them is another one.")
    workers: int
    seconds: float
    models: list[_Reloaded]


class _Changes(BaseModel):
    added: int = Field(description="Interactions.")
    removed: int
    new_users: int
    changed_users: int
    forgotten_users: int
    new_items: int
    retired_items: int


class _UpdatePlan(BaseModel):
    method: str
    reason: str = Field(description="Why that one, in a sentence.")
    changes: _Changes
    rank: int = Field(description="Columns by which P changes.")
    touched: int = Field(description="Items whose columns of the Gram matrix change.")
    n_items: int
    seconds: dict[str, float | str] = Field(description="Predicted, of each method.")
    memory: dict[str, int] = Field(description="Predicted bytes beside the model, of each method.")


class _UpdateState(BaseModel):
    count: int = Field(description="Updates by few columns since P was last computed from the data.")
    fit_residual: float | None = Field(description="The residual then.")
    time: float = Field(description="When this one was, in seconds since 1970.")


class _UpdateReport(BaseModel):
    plan: _UpdatePlan
    method: str = Field(description='"low rank", "refit", or "none" where P stays as it is.')
    seconds: float
    residual_before: float | None
    residual: float | None = Field(description="How far P·A is from the identity.")
    state: _UpdateState = Field(description="What the model keeps of its updates.")
    notes: list[str]


class UpdateAnswer(BaseModel):
    """What an update did; ``checksum`` is that of the model that is served, and in the file, from now on."""

    model: str = Field(description="The name of the model.")
    checksum: str
    workers: int
    seconds: float = Field(description="From the request to the swap.")
    report: _UpdateReport


class _Error(BaseModel):
    code: str = Field(description="Does not change between versions.")
    message: str


class ErrorAnswer(BaseModel):
    """Why a request was not answered as asked."""

    error: _Error
