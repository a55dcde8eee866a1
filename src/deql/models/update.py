"""A fitted model after a batch of changes, equal to one that is fitted on the changed data: by few columns, or anew."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql._system.progress import stages
from deql.data import Interactions
from deql.data.changes import Batch, DataChange, add_users, change_data
from deql.data.matrices import empty_rows
from deql.errors import DataError, InaccurateInverseError, NotPositiveDefiniteError, ParameterError, Setting, name_some
from deql.linalg.gram import check_solvable_without_ridge, size_weights
from deql.linalg.gram_change import RowsChange, gram_change
from deql.linalg.invert import LARGEST_RESIDUAL
from deql.linalg.low_rank import residual_of, step_residual
from deql.linalg.packed import PackedSymmetric
from deql.models.updatable import Updatable, describe_updatable
from deql.models.update_plan import choose_method
from deql.models.update_report import Changes, UpdatePlan, UpdateReport, UpdateState
from deql.models.updated_precision import updated_precision
from deql.models.updated_prior import updated_prior, weights_after, with_prior_items

__all__ = ["DRIFT", "METHODS", "Prepared", "plan_update", "prepare", "update_model"]

METHODS = ("auto", "low rank", "refit")

DRIFT = 1e-3
"""The residual above which rounding has added up: P is then computed anew, or that is advised.

A step of Newton and Schulz, P·(2I − A·P), would take A·P beside a product of n³ flops, as many as the sweep of a fit,
and the data as well; in float32 it rounds no less.
"""


class _DriftedError(Exception):
    """P would not be exact enough, and a fit can do better; says why."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A batch, seen with a model's eyes.

    Attributes
    ----------
    change : DataChange
    gram : RowsChange
        What it does to A, in the columns of afterwards.
    diagonal : ndarray of float64
        D afterwards.
    """

    change: DataChange
    gram: RowsChange
    diagonal: NDArray[np.float64]


def prepare(model: Updatable, batch: Batch, *, new_users: bool = False, prior: Any = None) -> Prepared:
    """What a batch does to the data of a model and to A; errors are raised before anything is changed.

    Parameters
    ----------
    model : fitted model
    batch : Batch
        With users under the ids that ``data_`` has.
    new_users : bool, default False
        That all users of what is added are new, where the model cannot tell.
    prior : Prior or array, optional
        The prior once more.
    """
    data = model.data_
    change = _without_data(model, batch, new_users) if data is None else change_data(data, batch)
    if new_users and data is not None and batch.added is not None:
        _refuse_known(data, batch, batch.added.without_empty())
    if change.final is not None and not change.final.n_interactions:
        raise DataError("nothing would be left to learn from: nothing was changed")
    if not len(change.items):
        raise DataError("no item would be left: nothing was changed")
    change = with_prior_items(model, change, prior)
    fitted = type(model)(**model.fitted_params_)  # P belongs to these, whatever was set since
    before, after = model._as_learned(change.before), model._as_learned(change.after)
    power, ratio = fitted.user_power, fitted._dropped / (1.0 - fitted._dropped)
    weights = [size_weights(sizes, power) for sizes in (change.sizes_before, change.sizes_after)]
    n = len(change.items)
    fresh = np.zeros(n)
    if change.n_new_items:  # begun with _begin_with(...) on the diagonal, which is l2 unless that is 0
        fresh[n - change.n_new_items :] = fitted._ridge - _begin_with(fitted._ridge)
    gram = gram_change(before.matrix, after.matrix, weights[0], weights[1], ratio, fresh)
    if change.final is None:
        diagonal = np.concatenate([model.gram_diagonal_, np.zeros(change.n_new_items)]) + gram.diagonal_change
    else:
        diagonal = model._diagonal_of(change.final)
        if fitted._ridge == 0:
            check_solvable_without_ridge(change.final, diagonal, fitted._dropped)
    return Prepared(change, gram, diagonal)


def _begin_with(ridge: float) -> float:
    """What a new item has on the diagonal of A before its users come: l2, or 1 where that is 0, taken off later."""
    return ridge if ridge > 0 else 1.0


def _without_data(model: Updatable, batch: Batch, new_users: bool) -> DataChange:
    if not batch:
        return add_users(model.items_, model.titles_, model.n_users_, _nothing(model))
    if batch.removed is not None or batch.forget_users or batch.retire_items:
        what = "forget users" if batch.forget_users else "retire items" if batch.retire_items else "remove interactions"
        raise ParameterError(f"this model cannot {what}: {describe_updatable(model)}")
    assert batch.added is not None
    if not new_users:
        raise ParameterError(
            f"this model cannot tell whether the users of what is added are new: {describe_updatable(model)}",
            parameter="new_users",
        )
    return add_users(model.items_, model.titles_, model.n_users_, batch.added)


def _refuse_known(data: Interactions, batch: Batch, added: Interactions) -> None:
    known = [batch.names.get(user, user) for user in added.users.tolist() if user in data.user_index]
    if known:
        what = "is not new" if len(known) == 1 else "are not new"
        raise DataError(
            f"{name_some(known)} {what}, and all users of what is added were said to be: nothing was changed"
        )


def _nothing(model: Updatable) -> Interactions:
    return Interactions(empty_rows(len(model.items_)), np.zeros(0, np.int64), model.items_)


def plan_update(
    model: Updatable,
    batch: Batch,
    *,
    new_users: bool = False,
    method: str = "auto",
    prior: Any = None,
    measured: bool = True,
) -> tuple[Prepared, UpdatePlan]:
    """What a batch does, and the way that would be taken; ``measured``: see :func:`choose_method`."""
    model._check_fitted()
    if method not in METHODS:
        raise ParameterError(f"method must be {', '.join(map(repr, METHODS))}, got {method!r}", parameter="method")
    prepared = prepare(model, batch, new_users=new_users, prior=prior)
    changes = Changes.of(prepared.change)
    return prepared, choose_method(model, prepared.change, prepared.gram, changes, method, prior, measured)


def update_model(
    model: Updatable,
    batch: Batch,
    *,
    new_users: bool = False,
    method: str = "auto",
    prior: Any = None,
    now: float | None = None,
) -> UpdateReport:
    """Change a fitted model by a batch: all of it, or, where anything is wrong, nothing.

    Parameters
    ----------
    model : fitted model
    batch : Batch
        With users under the ids that ``data_`` has.
    new_users, method, prior
        As in :meth:`deql.DEQL.update`.
    now : float, optional
        When it is done, in seconds since 1970, which the model keeps; the clock's time if not given.
    """
    begin = time.perf_counter()
    prepared, plan = plan_update(model, batch, new_users=new_users, method=method, prior=prior, measured=False)
    moment = time.time() if now is None else now
    before, notes = model.residual_, []
    taken = plan.method
    if taken == "refit":
        updated = _refitted(model, prepared.change.final, prior)
    elif taken == "none":
        updated = model._copy_fitted()
        _take_data(updated, model, prepared)
        updated._apply_rule()
    else:
        may_refit = method == "auto" and prepared.change.final is not None and model._can_refit(prior)
        try:
            updated, note = _by_low_rank(model, prepared, prior, may_refit)
        except _DriftedError as drift:
            taken, note = "refit", f"{drift}, so P was computed anew."
            updated = _refitted(model, prepared.change.final, prior)
        notes += [note] if note else []
    old = model.updated_
    if taken == "refit":
        state = UpdateState(0, updated.residual_, moment)
    else:
        count = 0 if old is None else old.count
        state = UpdateState(count + (taken == "low rank"), model.residual_ if old is None else old.fit_residual, moment)
    updated.updated_ = state
    model._become(updated, prior)
    return UpdateReport(plan, taken, time.perf_counter() - begin, before, model.residual_, state, tuple(notes))


def _by_low_rank(model: Updatable, prepared: Prepared, prior: Any, may_refit: bool) -> tuple[Updatable, str | None]:
    """The model with P changed by Woodbury's identity (THEORY: P' = P − P_T·M·(I + P_TT·M)⁻¹·P_Tᵀ), and a note on it.

    _DriftedError is raised where P would not be exact enough and a fit can do better.
    """
    change = prepared.change
    updated = model._copy_fitted()
    value = 1.0 / _begin_with(model._fitted_ridge)
    with stages(model.progress) as stage:
        towards = weights_after(model, change, prior, stage)  # what is wrong with it is told before the long work
        try:
            made = updated_precision(model, change.retired, change.n_new_items, value, prepared.gram.change, stage)
        except (InaccurateInverseError, NotPositiveDefiniteError) as error:
            if may_refit:
                raise _DriftedError("Rounding had added up to more than P can be changed with") from error
            raise
        updated.precision_, updated.on_device_ = made.precision, made.on_device
        _take_data(updated, model, prepared)
        updated.residual_ = _residual(updated, model, prepared, made.unchanged)
        note = _checked(updated.residual_, model, may_refit)
        updated.prior_ = updated_prior(model, updated, change, made.steps, prior, towards, stage)
    updated._apply_rule()
    updated._move_copies(model)
    return updated, note


def _take_data(updated: Updatable, model: Updatable, prepared: Prepared) -> None:
    """Items, counts, D and data of afterwards."""
    change = prepared.change
    updated.items_, updated.titles_, updated.n_users_ = change.items, change.titles, change.n_users
    updated.gram_diagonal_ = prepared.diagonal
    n = len(change.items)
    if change.final is None:
        counts = np.concatenate([model.item_counts_, np.zeros(change.n_new_items, np.int64)])
        updated.item_counts_ = counts + np.bincount(change.after.matrix.indices, minlength=n)
        updated._kept = None
        if model.weighted_ is not None:
            updated.weighted_ = bool(model.weighted_ or (change.after.matrix.data != 1).any())
    else:
        updated.item_counts_ = np.bincount(change.final.matrix.indices, minlength=n)
        updated._kept = change.final
        updated.weighted_ = bool((change.final.matrix.data != 1).any())


def _residual(updated: Updatable, model: Updatable, prepared: Prepared, unchanged: PackedSymmetric) -> float:
    """How far P·A is from the identity: measured where the data are known, else added up over the updates."""
    if prepared.change.final is None:
        return model.residual_ + step_residual(unchanged, updated.precision_, prepared.gram.change)
    return residual_of(updated.precision_, updated._gram_product(prepared.change.final))


def _checked(residual: float, model: Updatable, may_refit: bool) -> str | None:
    """What is advised where P is no longer as exact as it should be."""
    fit_residual = model.residual_ if model.updated_ is None else model.updated_.fit_residual
    if residual <= max(DRIFT, 4 * fit_residual):
        return None
    said = f"Rounding had added up to a residual of {residual:.0e}"
    if may_refit:
        raise _DriftedError(said)
    if not residual <= LARGEST_RESIDUAL:
        better = (", or use ", Setting("dtype", "float64")) if model.dtype == "float32" else ()
        raise InaccurateInverseError(
            f"{said[0].lower()}{said[1:]}, more than the {LARGEST_RESIDUAL} that is accepted, so nothing was changed: "
            "fit the model again", *better,
        )  # fmt: skip
    return f"{said}: fit the model again soon."


def _refitted(model: Updatable, data: Interactions | None, prior: Any) -> Updatable:
    """The model fitted on the data of afterwards, beside the one that is there."""
    assert data is not None  # else the plan was another
    return model._fitted_beside(data, model.until_, prior)
