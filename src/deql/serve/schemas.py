"""What requests and errors look like: checked on the way in, told in /openapi.json."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable
from typing import Annotated, Any, NamedTuple, NotRequired

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    JsonValue,
    StrictInt,
    StrictStr,
    Tag,
    model_validator,
)
from pydantic_core import PydanticCustomError
from starlette.responses import Response
from typing_extensions import TypeAliasType, TypedDict  # pydantic's own; Python has it from 3.12 on

from deql.errors import name_some

__all__ = [
    "OWN_RULE",
    "WEIGHTED",
    "ApiError",
    "ExplainRequest",
    "ItemsQuery",
    "ModelQuery",
    "NeighboursQuery",
    "RecommendRequest",
    "RuleOverrides",
    "RuleQuery",
    "SimilarQuery",
    "UpdateRequest",
    "error_response",
]

Item = StrictInt | StrictStr
"""A model's item ids are integers or text; true is not 1 here, and 1.0 neither."""

User = StrictInt | StrictStr
"""Ids of users, likewise."""

Items = TypeAliasType("Items", Annotated[list[Item], FailFast()])
"""Looked at up to the first that is wrong: of half a million errors one would be told."""


def _refuse_unknown(given: Iterable[str], known: Container[str]) -> None:
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        raise PydanticCustomError("unknown_parameter", "there is no parameter {name}", {"name": name_some([unknown])})


class WeightedItem(TypedDict):
    """An item of a history, and how much it weighs there: an item without a weight weighs 1."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc]

    item: Item
    weight: Annotated[
        float,
        Field(ge=-1e9, le=1e9, allow_inf_nan=False, description="What weighs 0 is not in the history."),
    ]


class UserItem(TypedDict):
    """An interaction by who it is of and with what."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc]

    user: User
    item: Item


class NewInteraction(UserItem):
    """An interaction that comes."""

    weight: NotRequired[
        Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False, description="1 if it is not given.")]
    ]
    time: NotRequired[
        Annotated[
            float,
            Field(
                ge=-1e15, le=1e15, allow_inf_nan=False, description="As the data have it: of files seconds since 1970."
            ),
        ]
    ]


def _only_names_of(kind: Any) -> BeforeValidator:
    """Stop at the first name that is not known, however many there are."""

    def check(given: Any) -> Any:
        if isinstance(given, dict):
            _refuse_unknown(given, kind.__annotations__)
        return given

    return BeforeValidator(check)


WEIGHTED = "weighted"
"""What an error's place calls an item with a weight."""

History = TypeAliasType(
    "History",
    Annotated[
        list[Item | Annotated[WeightedItem, _only_names_of(WeightedItem), Tag(WEIGHTED)]],
        FailFast(),
    ],
)
"""Ids, any of which may come with a weight; those of one item add up."""

_TEXTS = frozenset({"model", "q"})
"""The parameters in an address that are text."""

_JSON_VALUE = re.compile(r"true|false|-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")

_HISTORY: list[JsonValue] = ["libgtk-3-0", "libglib2.0-0", "python3"]
_WEIGHTED: list[JsonValue] = [{"item": "libgtk-3-0", "weight": 2.5}, "libglib2.0-0", {"item": "python3", "weight": -1}]


class RuleOverrides(NamedTuple):
    """What a request changes about the rule; None stays as the model has it."""

    b: float | None = None
    zero_diagonal: bool | None = None
    popularity_power: float | None = None
    prior_weight: float | None = None


OWN_RULE = RuleOverrides()


class ModelChoice(BaseModel):
    """Which model is asked; what all questions have in common.

    Values are of their type already: no text for a number, no 1 for true. Names that are not known are an error.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    model: Annotated[str | None, Field(description="The name of a model, where there are several; else the first.")] = (
        None
    )

    @model_validator(mode="before")
    @classmethod
    def _only_known(cls, given: Any) -> Any:
        """Stop at the first name that is not known, however many there are."""
        if isinstance(given, dict):
            _refuse_unknown(given, cls.model_fields)
        return given


class RuleChange(ModelChoice):
    """Another rule on the same P, for this request only. What is left out stays as the model has it."""

    b: Annotated[
        float | None, Field(ge=0, le=1e6, allow_inf_nan=False, description="b/a: how much kept entries count.")
    ] = None
    zero_diagonal: Annotated[bool | None, Field(description="Whether an item may not speak for itself.")] = None
    popularity_power: Annotated[
        float | None, Field(ge=-10, le=10, allow_inf_nan=False, description="α: above 0 holds popular items back.")
    ] = None
    prior_weight: Annotated[
        float | None,
        Field(ge=0, le=1e6, allow_inf_nan=False, description="The share of l2 that pulls towards the prior."),
    ] = None

    @property
    def rule(self) -> RuleOverrides:
        """What is changed."""
        return RuleOverrides(self.b, self.zero_diagonal, self.popularity_power, self.prior_weight)


class RecommendRequest(RuleChange):
    """Histories to recommend for."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"histories": [_HISTORY], "k": 5}, {"histories": [_WEIGHTED], "k": 5}]}
    )

    histories: Annotated[
        list[History], FailFast(), Field(description="One list of item ids for each user, or of ids and weights.")
    ]
    k: Annotated[int, Field(ge=1, description="How many items; at most as many as there are come.")] = 20
    exclude_seen: Annotated[bool, Field(description="Leave out the items of the history.")] = True
    exclude: Annotated[Items | None, Field(description="Never recommend these.")] = None
    candidates: Annotated[Items | None, Field(description="Recommend only among these.")] = None
    strict: Annotated[bool, Field(description="Refuse unknown items, instead of leaving them out and naming them.")] = (
        False
    )
    explain: Annotated[
        int | None, Field(ge=1, description="Give so many reasons with each item, the largest first.")
    ] = None


class ExplainRequest(RuleChange):
    """A score to explain."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"history": _HISTORY, "item": "libcairo2", "k": 3},
                {"history": _WEIGHTED, "item": "libcairo2", "k": 3},
            ]
        }
    )

    history: Annotated[History, Field(description="One user's items, any of them with a weight.")]
    item: Annotated[Item, Field(description="What to explain.")]
    k: Annotated[int | None, Field(ge=1, description="Only so many parts, the largest; the others are the rest.")] = (
        None
    )
    strict: Annotated[bool, Field(description="Refuse unknown items, instead of leaving them out and naming them.")] = (
        False
    )


class UpdateRequest(ModelChoice):
    """Changes of the data that a model is to follow: all of them, or none."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"add": [{"user": "gimp", "item": "libheif1"}], "remove": [{"user": "gimp", "item": "libgtk2.0-0"}]},
                {"forget_users": ["gimp"], "retire_items": ["libgtk2.0-0"]},
            ]
        }
    )

    add: Annotated[
        list[Annotated[NewInteraction, _only_names_of(NewInteraction)]], FailFast(),
        Field(description="Interactions that come, of users and items known or new. One that is there adds up."),
    ] = []  # fmt: skip
    remove: Annotated[
        list[Annotated[UserItem, _only_names_of(UserItem)]], FailFast(),
        Field(description="Interactions that go, before others come: one in both is replaced."),
    ] = []  # fmt: skip
    forget_users: Annotated[list[User], FailFast(), Field(description="Users who go with everything.")] = []
    retire_items: Annotated[list[Item], FailFast(), Field(description="Items that go with everything.")] = []
    new_users: Annotated[
        bool,
        Field(description="That all users of add are new: needed where the model was saved without its data."),
    ] = False

    @property
    def batch(self) -> dict[str, Any]:
        """What is to change, as plain values; ApiError if that is nothing."""
        batch = self.model_dump(exclude={"model"})
        if not any(batch[name] for name in ("add", "remove", "forget_users", "retire_items")):
            raise ApiError(
                422, "invalid_request", "there is nothing to change: give add, remove, forget_users or retire_items"
            )
        return batch


class FromQuery(ModelChoice):
    """A question in an address, where everything is text: numbers, true and false are written as in JSON."""

    @model_validator(mode="before")
    @classmethod
    def _typed(cls, given: Any) -> Any:
        return {name: value if name in _TEXTS else _from_text(value) for name, value in given.items()}


def _from_text(text: Any) -> Any:
    """What a text means if it is a number, true or false; other texts stay what they are, and are found wrong later.

    Examples
    --------
    >>> [_from_text(text) for text in ("5", "-2.5e1", "true", "yes", "05", " 5", "NaN")]
    [5, -25.0, True, 'yes', '05', ' 5', 'NaN']
    """
    if not isinstance(text, str) or not _JSON_VALUE.fullmatch(text):
        return text
    try:
        return json.loads(text)
    except ValueError:  # thousands of digits
        return text


class ModelQuery(FromQuery):
    """Which model is asked."""


class RuleQuery(FromQuery, RuleChange):
    """Another rule."""


class ItemsQuery(FromQuery):
    """A search by name."""

    q: Annotated[str, Field(max_length=200, description="Part of a name.", examples=["gimp"])] = ""
    limit: Annotated[int, Field(ge=1, le=100, description="How many.")] = 20


class SimilarQuery(RuleQuery):
    """How many similar items."""

    k: Annotated[int, Field(ge=1, description="How many.")] = 10


class NeighboursQuery(RuleQuery):
    """How large a neighbourhood."""

    k: Annotated[int, Field(ge=1, le=100, description="How many neighbours.")] = 12


class ApiError(Exception):
    """A request that cannot be answered as asked: a status, a code that does not change, and one sentence.

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
