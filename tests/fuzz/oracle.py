"""What may come of damaged input: something that answers rightly, or one of our errors in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

import deql
from deql.data.write import write_table
from deql.errors import DeqlError
from deql.models.linear import LinearAutoencoder
from deql.ranking import NO_ITEM

LARGE = 1e15
"""Where weights are larger, sums of them are no longer compared."""


class WrongError(Exception):
    """Something was read, and is not what it should be."""


def check_error(error: DeqlError) -> None:
    """An error of ours is a sentence of one line."""
    said = str(error)
    if not said.strip() or "\n" in said or len(said) > 5_000 or type(error) is DeqlError:
        raise WrongError(f"unclear: {type(error).__name__}: {said[:300]!r}")


def check_model(model: Any, path: Path) -> None:
    """A model answers, and what it answers is what the numbers in its file say."""
    n = len(model.items_)
    if not n:
        raise WrongError("a model without items")
    histories = [model.items_[:1].tolist(), model.items_[[0, n - 1]].tolist() if n > 1 else [], []]
    found = model.recommend(histories, k=3)
    model.similar_items(model.items_[:1].tolist()[0], k=2)
    model.explain(histories[0], model.items_[-1:].tolist()[0])
    model.neighbours(model.items_[:1].tolist()[0], k=2)
    if isinstance(model, LinearAutoencoder):
        model.with_rule(b=2.0).recommend(histories[:1], k=1)
    if model.data_ is not None:
        check_interactions(model.data_, None)
        known = model.data_ if model.user_salt_ is not None else None  # whose ids are hashes, asked for as such
        model.recommend(known, users=model.data_.users[:2].tolist(), k=2)
    W = _weights(load_file(path), model, n)
    if W is None or not np.isfinite(W).all() or np.abs(W).max() > LARGE:
        return  # n² numbers, which loading does not look at: no crash is all that is promised
    _check_scores(found, W, histories, model)
    model.save(path.with_suffix(".again"))
    again = deql.load(path.with_suffix(".again")).recommend(histories, k=3)
    if again.ids.tolist() != found.ids.tolist() or again.scores.tobytes() != found.scores.tobytes():
        raise WrongError("saved and loaded again it answers otherwise")


def _check_scores(found: Any, W: NDArray[Any], histories: list[list[Any]], model: Any) -> None:
    index = {item: column for column, item in enumerate(model.items_.tolist())}
    for row, history in enumerate(histories):
        if not history:
            continue
        expected = W[[index[item] for item in dict.fromkeys(history)]].sum(axis=0)
        scale = 1e-4 * (1.0 + np.abs(W).max())
        for item, score in zip(found.ids[row].tolist(), found.scores[row].tolist(), strict=True):
            if item is None or (item == NO_ITEM and np.isnan(score)):
                continue
            if not np.isfinite(score) or abs(score - expected[index[item]]) > scale:
                raise WrongError(f"the score of {item!r} is {score}, not {expected[index[item]]}")


def _weights(arrays: dict[str, NDArray[Any]], model: Any, n: int) -> NDArray[Any] | None:
    """W by the formula, from the arrays as safetensors reads them; None for models that are not X·W here."""
    with np.errstate(all="ignore"):
        if isinstance(model, LinearAutoencoder):
            if "row_codes" in arrays or model.precision_.tile < n:
                return None
            W = arrays["precision"].astype(np.float64).reshape(n, n) * arrays["gain"].astype(np.float64)
            # One triangle counts, which one is the kernels' business: what is not symmetric is not compared.
            P = arrays["precision"].reshape(n, n)
            return W + np.diag(arrays["shift"].astype(np.float64)) if np.array_equal(P, P.T) else None
        if "weights" in arrays:
            return arrays["weights"].astype(np.float64)
        return np.asarray(model.weights(), np.float64) if hasattr(model, "weights") else None


def check_interactions(data: Any, path: Path | None) -> None:
    """What was read is a table of its own, and comes back when it is written."""
    matrix = data.matrix
    if matrix.shape != (data.n_users, data.n_items) or data.n_users != len(data.users):
        raise WrongError(f"{matrix.shape} for {len(data.users)} users and {len(data.items)} items")
    matrix.check_format(full_check=True)
    if not np.isfinite(matrix.data).all() or (data.times is not None and not np.isfinite(data.times).all()):
        raise WrongError("numbers that are not finite")
    for ids in (data.users, data.items):
        if len(set(ids.tolist())) != len(ids):
            raise WrongError("ids that are not unique")
    if path is None or not data.n_interactions or (matrix.data <= 0).any():
        return
    write_table(data, path)
    named = {"weight": "weight"} if (matrix.data != 1).any() else {}
    again = deql.read_interactions(path, "user", "item", ids="auto", **named)
    if again.matrix.shape != matrix.shape or again.matrix.nnz != matrix.nnz:
        raise WrongError(f"{matrix.shape} with {matrix.nnz} came back as {again.matrix.shape} with {again.matrix.nnz}")
