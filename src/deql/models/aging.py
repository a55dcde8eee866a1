"""A model with a half-life at another moment: all interactions fade alike, so that A moves as a whole."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from deql._system.progress import Stage, stages
from deql.data.recency import parse_half_life
from deql.errors import ParameterError, Setting
from deql.linalg.engines.memory import invert_in_memory
from deql.linalg.packed import PackedSymmetric
from deql.linalg.thin_product import thin_product
from deql.models.fitted_prior import FittedPrior
from deql.models.updatable import Updatable
from deql.models.update_report import Changes, UpdatePlan, UpdateReport, UpdateState
from deql.ranking.prior_term import prior_diagonal

__all__ = ["age_model", "check_fading"]

_REASONS = {
    "none": "Interactions count in full at that moment already.",
    "data": "Every interaction fades, so P is computed anew from the data.",
    "itself": "Every interaction fades, so P is computed anew, from P itself.",
}


def age_model(model: Updatable, until: float, now: float | None = None) -> UpdateReport:
    """Move on the moment at which an interaction counts in full; the model stays as it was where anything is wrong.

    Parameters
    ----------
    model : fitted model
    until : float
        The moment, as the times of the data are.
    now : float, optional
        When this is done, in seconds since 1970, which the model keeps; the clock's time if not given.
    """
    begin, before = time.perf_counter(), model.residual_
    check_fading(model)
    half_life = model.fitted_params_["half_life"]
    assert model.until_ is not None
    if until == model.until_:
        how, aged = "none", model._copy_fitted()
    elif model._can_refit(None) and (data := model.data_) is not None:
        how, aged = "data", model._fitted_beside(data, until)
    else:
        how, aged = "itself", model._copy_fitted()
        aged.until_ = until
        _fade_precision(aged, _factor(half_life, model.until_, until))
        aged._move_copies(model)
    moment = time.time() if now is None else now
    kept = model.updated_
    state = UpdateState(0, aged.residual_, moment)
    if how == "none" and kept is not None:
        state = replace(kept, time=moment)
    aged.updated_ = state
    model._become(aged)
    method = "none" if how == "none" else "refit"
    plan = UpdatePlan(method, _REASONS[how], Changes(0, 0, 0, 0, 0, 0, 0), 0, 0, len(model.items_), {}, {})
    note = f"Interactions count in full at {until:.15g}."
    return UpdateReport(plan, method, time.perf_counter() - begin, before, model.residual_, state, (note,))


def check_fading(model: Updatable) -> None:
    """Refuse models without a half-life, in which nothing grows older."""
    if model.fitted_params_["half_life"] is None or model.until_ is None:
        raise ParameterError("interactions do not fade in this model: fit it with ", Setting("half_life", "30d"))


def _factor(half_life: float | str, before: float, until: float) -> float:
    """f², what RᵀΛR is multiplied by where R fades by f = 2^(−(until − before)/half_life)."""
    with np.errstate(over="ignore"):
        factor = float(np.exp2(-2.0 * (until - before) / parse_half_life(half_life)))
    if not np.isfinite(factor):
        raise ParameterError(
            f"until={until:.15g} is too long before {before:.15g}, when interactions count in full now, for "
            f"half_life={half_life}",
            parameter="until",
        )
    return factor


def _fade_precision(model: Updatable, factor: float) -> None:
    """P of A' = f²·(A − l2·I) + l2·I from P of A, and D' = f²·D."""
    with stages(model.progress) as stage:
        ridge, n = model._fitted_ridge, model.precision_.n
        matrix = model.precision_.room(n, model.precision_.tile, model._store)
        np.copyto(matrix.data, model.precision_.data)
        residual = model.residual_ + invert_in_memory(matrix, stage("From P to A"))
        thin = None if model.prior_ is None else _without_precision(model, matrix, stage)
        scaled = np.full(n, np.sqrt(factor), matrix.dtype)
        matrix.scale(scaled)
        matrix.add_to_diagonal(np.full(n, ridge * (1.0 - factor)))
        model.residual_ = residual + invert_in_memory(matrix, stage("Inverse"))
        model.precision_ = matrix
        if model.engine_ != "disk":  # whose P lies in a file again
            model.engine_ = "memory"
        model.gram_diagonal_ = factor * model.gram_diagonal_
        if model.prior_ is not None and thin is not None:
            model.prior_ = _with_precision(model.prior_, thin, matrix, stage)
    model._apply_rule()


def _without_precision(model: Updatable, matrix: PackedSymmetric, stage: Stage) -> np.ndarray:
    """U = A·(P·U) of a prior, which does not fade: what is as a whole less does not change it."""
    assert model.prior_ is not None
    left, features = model.prior_.left, model.prior_.features
    # With items that nobody has, U itself follows P·U.
    rank = left.shape[1] if features is None else features.weights(model.item_counts_ > 0).left.shape[1]
    return thin_product(matrix, left[:, :rank], stage("Prior"))


def _with_precision(prior: FittedPrior, thin: np.ndarray, matrix: PackedSymmetric, stage: Stage) -> FittedPrior:
    left = np.hstack([thin_product(matrix, thin, stage("P·prior")), prior.left[:, thin.shape[1] :]])
    image = prior.scale * prior_diagonal(left, prior.right) + prior.diagonal * matrix.diagonal()
    return replace(prior, left=left, image=image)
