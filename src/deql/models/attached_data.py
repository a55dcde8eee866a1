"""Data given to a model that was fitted on them and did not keep them: put in its order, and checked."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from deql._system.tables import counted
from deql.data import Interactions, as_interactions
from deql.data.interactions import InteractionsLike
from deql.data.matrices import rearranged
from deql.errors import DataError, name_some
from deql.linalg.low_rank import residual_of
from deql.models.updatable import Updatable
from deql.ranking.histories import ids_of_kind

__all__ = ["attach_data", "check_sums", "in_order_of"]

_EQUAL = 1e-9
"""Sums of the same numbers in another order differ by less, relatively."""

_LEAST_LIMIT = {"float32": 1e-5, "float64": 1e-10}
"""Residuals below these are rounding, whatever the fit's own was."""


def attach_data(model: Updatable, data: InteractionsLike, hash_users: bool) -> None:
    """What :meth:`deql.DEQL.attach_data` does; the model is as it was if the data are not its own."""
    model._check_fitted()
    own = in_order_of(model, as_interactions(data, time=model.until_ is not None))
    _check_own(model, own)
    model._keep_data(own, "hashed" if hash_users or model.user_salt_ is not None else True)


def in_order_of(model: Updatable, data: Interactions) -> Interactions:
    """The interactions with the model's items as columns, in its order."""
    columns = np.array([model._item_index.get(item, -1) for item in ids_of_kind(data.items, model.items_)], np.int64)
    unknown = np.flatnonzero(columns[data.matrix.indices] < 0)
    if len(unknown):
        item = data.matrix.indices[unknown[0]]
        users = int((data.matrix.indices == item).sum())
        _refuse(
            f"item {name_some(data.items[[item]])} has {counted(users, 'user', 'users')} here and is not in the model"
        )
    shape = data.n_users, len(model.items_)
    matrix, times = rearranged(data.matrix, np.arange(data.n_users), columns, shape, data.times)
    return Interactions(matrix, data.users, model.items_, times, model.titles_, data.steps)


def check_sums(model: Updatable, data: Interactions) -> None:
    """Raise DataError unless counts and D, which follow from the data alone, are of these data."""
    counts, known = np.bincount(data.matrix.indices, minlength=data.n_items), model.item_counts_
    if len(other := np.flatnonzero(counts != known)):
        item = name_some(data.items[other[:1]])
        _refuse(f"item {item} has {counted(int(counts[other[0]]), 'user', 'users')} here and "
                f"{int(known[other[0]]):,} in the model")  # fmt: skip
    if data.n_users != model.n_users_:
        _refuse(f"there are {counted(data.n_users, 'user', 'users')} here and {model.n_users_:,} in the model")
    sums, learned = model._diagonal_of(data), model.gram_diagonal_
    if len(other := np.flatnonzero(~np.isclose(sums, learned, _EQUAL, _EQUAL * learned.max()))):
        _refuse(
            f"the squared weights of item {name_some(data.items[other[:1]])} sum to {sums[other[0]]:.6g} here and to "
            f"{learned[other[0]]:.6g} in the model"
        )


def _check_own(model: Updatable, data: Interactions) -> None:
    """Raise DataError unless counts, D and P are of these data."""
    check_sums(model, data)
    # Items may have as many users as in the model and others.
    limit = max(_LEAST_LIMIT[model.fitted_params_["dtype"]], 10 * model.residual_)
    if not residual_of(model.precision_, model._gram_product(data)) <= limit:
        _refuse("items have as many users here as in the model, but not the same ones together")


def _refuse(difference: str) -> NoReturn:
    raise DataError(f"{difference}: give the table that it was fitted on, cleaned the same way")
