"""Before a model is served it answers a few questions, and the answers are compared with exact scores.

A file may have the right checksum and still hold a model that answers nonsense: numbers that are none, or quantised
rows of another P. Then the model that is served now should stay. Besides, whoever asks first need not wait for kernels
to be compiled, and pages to be read.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql.errors import ModelFileError, name_some
from deql.serve.serving_model import Query, RankedColumns, ServingModel

__all__ = ["rehearse"]

_K = 10
_SIZES = (1, 3, 10)
"""Items of the histories that are asked about; and one without any."""

_MOST_COLUMNS = 2**17
"""Items whose exact scores the list of a history of one item is compared with; of larger models some of them."""

_SOME_COLUMNS = 2**12
"""The same for longer histories: each score reads other pages of P, while requests are answered from the old one."""

_TOLERANCE = 1e-5
"""How far, by the largest score, an item may be above the last of a list: float32 draws up some models' shortlists."""

_EXACT = 1e-9


def rehearse(serving: ServingModel) -> None:
    """Ask a model a few questions.

    Raises
    ------
    ModelFileError
        If an answer is not what the model's own exact scores say.

    Examples
    --------
    >>> import deql
    >>> model = deql.EASE(l2=1.0).fit(deql.Interactions.from_pairs(list("aab"), list("xyx")))
    >>> rehearse(ServingModel(model))
    >>> model.gain_[1] = float("nan")
    >>> rehearse(ServingModel(model))
    Traceback (most recent call last):
    deql.errors.ModelFileError: asked before it is served, the model gives 'y' a score of nan: fit it again
    """
    histories = _histories(serving)
    for history, ranked in zip(
        histories, serving.rank([Query(one, [1.0] * len(one), _K) for one in histories]), strict=True
    ):
        if ranked.from_popularity:
            _check_finite(serving, np.array(ranked.columns, np.int64), np.array(ranked.scores))
        else:
            _compare(serving, history, ranked)
        if history:
            _compare_reasons(serving, history, ranked)
    serving.model.neighbours(serving.items[serving.example[0]])


def _histories(serving: ServingModel) -> list[list[int]]:
    """None, the example, and some items from all over the catalogue; the same each time for the same model."""
    n = len(serving.items)
    drawn = np.random.default_rng(n).permutation(n)
    return [[], serving.example, *(sorted(drawn[:size].tolist()) for size in _SIZES if size < n)]


def _compare(serving: ServingModel, history: list[int], ranked: RankedColumns) -> None:
    """Every listed score is the exact one, and no item that is not listed has a higher one."""
    columns, listed = np.array(ranked.columns, np.int64), np.array(ranked.scores)
    _check_finite(serving, columns, listed)
    n, most = len(serving.items), _MOST_COLUMNS if len(history) == 1 else _SOME_COLUMNS
    looked_at = np.arange(n) if n <= most else np.random.default_rng(n).permutation(n)[:most]
    looked_at = np.union1d(looked_at, columns)
    exact = _exact_scores(serving, history, looked_at)
    _check_finite(serving, looked_at, exact)
    largest = float(np.max(np.abs(exact), initial=0.0))
    theirs = exact[np.searchsorted(looked_at, columns)]
    wrong = np.flatnonzero(np.abs(theirs - listed) > _EXACT * largest)
    if len(wrong):
        column = columns[wrong[0]]
        _refuse(serving, column, f"a score of {listed[wrong[0]]:g} that should be {theirs[wrong[0]]:g}")
    others = ~np.isin(looked_at, [*ranked.columns, *history])
    lowest = listed[-1] if len(listed) else -np.inf
    missing = np.flatnonzero(others & (exact > lowest + _TOLERANCE * largest))
    if len(missing):
        _refuse(serving, looked_at[missing[0]], "no place in a list where it belongs")


def _compare_reasons(serving: ServingModel, history: list[int], ranked: RankedColumns) -> None:
    for column, score in zip(ranked.columns[:1], ranked.scores, strict=False):
        why = serving.model._explained(np.array(history, np.int32), np.ones(len(history)), column, None)
        if not why.score == sum(part.value for part in why) + why.rest == score:
            _refuse(serving, column, "reasons that do not add up to its score")


def _exact_scores(serving: ServingModel, history: list[int], columns: NDArray[np.int64]) -> NDArray[np.float64]:
    n = len(serving.items)
    rows = [
        csr_array((np.ones(len(one), np.float32), np.array(one, np.int32), np.array([0, len(one)], np.int32)), (1, n))
        for one in (history, columns)
    ]
    return serving.model._pair_scores(*rows)


def _check_finite(serving: ServingModel, columns: NDArray[np.int64], scores: NDArray[np.float64]) -> None:
    wrong = np.flatnonzero(~np.isfinite(scores))
    if len(wrong):
        _refuse(serving, columns[wrong[0]], f"a score of {scores[wrong[0]]:g}")


def _refuse(serving: ServingModel, column: int | np.int64, what: str) -> None:
    item = name_some([serving.items[column]])
    raise ModelFileError(f"asked before it is served, the model gives {item} {what}: fit it again")
