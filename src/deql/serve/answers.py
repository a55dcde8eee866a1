"""From a request to what is answered: plain values for JSON, one function for each question."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from deql.errors import name_some
from deql.ranking.item_lookup import wrong_kind
from deql.serve.schemas import ApiError, ExplainRequest, RecommendRequest, RuleOverrides
from deql.serve.serving_model import Query, RankedColumns, ServingModel
from deql.serve.settings import Limits

__all__ = [
    "as_text",
    "check_number",
    "diagonal",
    "explanation",
    "items",
    "neighbours",
    "queries_of",
    "recommendations",
    "similar",
]

_BINS = 40


def queries_of(
    serving: ServingModel, asked: RecommendRequest, limits: Limits
) -> tuple[list[Query], list[list[Any]], list[Any]]:
    """What to rank, the unknown items of each history, and the unknown candidates."""
    check_number("histories", len(asked.histories), limits.histories)
    check_number("k", asked.k, limits.k)
    for name, given in (("a history", max(asked.histories, key=len, default=[])), ("exclude", asked.exclude or []),
                        ("candidates", asked.candidates or [])):  # fmt: skip
        check_number(f"{name}: items", len(given), limits.history)
    if asked.explain is not None:
        reasons = sum(min(asked.explain, len(history)) for history in asked.histories)
        check_number("explain: reasons in all lists", min(asked.k, len(serving.items)) * reasons, limits.reasons)
    allowed, unknown_candidates = serving.allowed(asked.exclude, asked.candidates, asked.strict)
    serving.ruled(asked.rule)  # says what is wrong with it, before others wait for the same batch
    queries, unknown = [], []
    for history in asked.histories:
        columns, weights, missing = _known(serving, history, asked.strict)
        queries.append(Query(columns, weights, asked.k, asked.exclude_seen, allowed, asked.rule))
        unknown.append(missing)
    return queries, unknown, unknown_candidates


def recommendations(
    serving: ServingModel,
    asked: RecommendRequest,
    queries: Sequence[Query],
    lists: Sequence[RankedColumns],
    unknown: list[list[Any]],
    unknown_candidates: list[Any],
) -> Iterator[str]:
    """What /recommend answers, in pieces of JSON, none of which takes long to make."""
    model = serving.ruled(asked.rule)
    yield f'{{"checksum": {as_text(serving.checksum)}, "results": ['
    for number, (query, ranked, missing) in enumerate(zip(queries, lists, unknown, strict=True)):
        best = [
            serving.name(column) | {"score": score} for column, score in zip(ranked.columns, ranked.scores, strict=True)
        ]
        yield ', {"recommendations": [' if number else '{"recommendations": ['
        if asked.explain is None:
            yield as_text(best)[1:-1]
        else:
            history, weights = np.array(query.columns, np.int32), np.array(query.weights)
            for place, (one, column) in enumerate(zip(best, ranked.columns, strict=True)):
                why = model._explained(history, weights, column, asked.explain)
                yield ", " * (place > 0) + as_text(one | {"because": _parts(serving, why), "rest": why.rest})
        yield "], " + as_text({"from_popularity": ranked.from_popularity, "unknown": missing})[1:]
    yield "], " + as_text({"unknown_candidates": unknown_candidates})[1:]


def explanation(serving: ServingModel, asked: ExplainRequest, limits: Limits) -> dict[str, Any]:
    """What /explain answers."""
    check_number("history: items", len(asked.history), limits.history)
    target = serving.index.get(asked.item)
    if target is None:
        hint = _hint(serving, [asked.item])
        raise ApiError(422, "unknown_item", f"the model does not know the item {name_some([asked.item])}{hint}")
    columns, weights, missing = _known(serving, asked.history, asked.strict)
    model = serving.ruled(asked.rule)
    why = model._explained(np.array(columns, np.int32), np.array(weights), target, asked.k)
    return {
        "checksum": serving.checksum, **serving.name(target), "score": why.score, "parts": _parts(serving, why),
        "rest": why.rest, "from_popularity": why.from_popularity, "unknown": missing,
    }  # fmt: skip


def similar(serving: ServingModel, column: int, ranked: RankedColumns) -> dict[str, Any]:
    """What /items/{id}/similar answers."""
    # Of a fallback they are shares of users, and no entries of W.
    scores = [0.0] * len(ranked.columns) if ranked.from_popularity else ranked.scores
    found = [serving.name(c) | {"score": score} for c, score in zip(ranked.columns, scores, strict=True)]
    return {"checksum": serving.checksum, **serving.name(column), "similar": found}


def neighbours(serving: ServingModel, column: int, k: int, rule: RuleOverrides) -> dict[str, Any]:
    """What /items/{id}/neighbours answers: all edges of the item, and as many again between its neighbours."""
    near = serving.ruled(rule).neighbours(serving.items[column], k)
    nodes = [
        _counted(serving, serving.index[item]) | {"self": float(near.weights[place, place])}
        for place, item in enumerate(near.items)
    ]
    edges = [
        {"from": edge.source, "to": edge.target, "weight": edge.weight} for edge in near.edges(2 * (len(nodes) - 1))
    ]
    return {"checksum": serving.checksum, **serving.name(column), "nodes": nodes, "edges": edges}


def items(serving: ServingModel, query: str, limit: int) -> dict[str, Any]:
    """What /items answers: an item whose id was typed comes first, whatever it is called."""
    columns, more = serving.catalogue.find(query, limit)
    typed = serving.column_called(query.strip()) if serving.titles is not None else None
    if typed is not None:
        columns = [typed, *(column for column in columns if column != typed)]
        more = more or len(columns) > limit
    return {"items": [_counted(serving, column) for column in columns[:limit]], "more": more}


def diagonal(serving: ServingModel, rule: RuleOverrides) -> dict[str, Any]:
    """What /model/diagonal answers."""
    model = serving.ruled(rule)
    if not hasattr(model, "diagonal"):
        raise ApiError(422, "rule_fixed", f"a {type(model).__name__} has no weights, so there is no diagonal")
    values = model.diagonal()
    low, high = float(values.min()), float(values.max())
    # Values that are one but for rounding belong into one bin, not into forty.
    if not high - low > 1e-9 * max(abs(low), abs(high)):
        low, high = low - 0.5, high + 0.5
    counts, edges = np.histogram(values, _BINS, (low, high))
    return {
        "edges": edges.tolist(), "counts": counts.tolist(),
        "least": float(values.min()), "mean": math.fsum(values) / len(values), "largest": float(values.max()),
    }  # fmt: skip


def _known(serving: ServingModel, history: Sequence[Any], strict: bool) -> tuple[list[int], list[float], list[Any]]:
    columns, weights, missing = serving.known(history)
    if missing and strict:
        named = name_some(list(dict.fromkeys(missing))) + _hint(serving, missing)
        raise ApiError(422, "unknown_item", f"the history names items that the model does not know: {named}")
    return columns, weights, missing


def _hint(serving: ServingModel, unknown: Sequence[Any]) -> str:
    kind = wrong_kind(unknown, serving.index)
    return f"; {kind}" if kind else ""


def _parts(serving: ServingModel, why: Any) -> list[dict[str, Any]]:
    return [
        serving.name(serving.index[part.item])
        | {"value": part.value}
        | ({"shared": list(shared)} if (shared := getattr(part, "shared", ())) else {})
        for part in why
    ]


def _counted(serving: ServingModel, column: int) -> dict[str, Any]:
    return serving.name(column) | {"count": int(serving.model.item_counts_[column])}


def check_number(what: str, number: int, most: int) -> None:
    """Raise ApiError for more than this server allows."""
    if number > most:
        asked = f"{number:,}" if number < 10**15 else "so many"  # a number may have thousands of digits
        raise ApiError(422, "limit_exceeded", f"{what}: {asked} are more than the {most:,} this server allows")


def as_text(value: Any) -> str:
    """JSON; ValueError for numbers that it has no words for.

    Examples
    --------
    >>> as_text({"title": "crème"})
    '{"title": "cr\\\\u00e8me"}'
    """
    # Escaped to ASCII: a title may hold half a surrogate pair, which UTF-8 has no bytes for.
    return json.dumps(value, allow_nan=False)
