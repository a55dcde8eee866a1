"""Smaller models from exact ones: the largest weights of each item, and what leaving out the others costs."""

from __future__ import annotations

import sys
from typing import Any, TypeVar

import numpy as np

from deql._system.checks import check_whole
from deql._system.progress import stages
from deql.data import Interactions
from deql.data.interactions import InteractionsLike
from deql.errors import DataError, ParameterError
from deql.linalg.packed import PackedSymmetric
from deql.metrics import ndcg, recall
from deql.models.fitted_prior import FittedPrior
from deql.models.largest_weights import largest_weights
from deql.models.prune_report import Pruned
from deql.models.rule_model import RuleModel
from deql.models.sparse_prior import SparsePrior
from deql.split import HeldOut, Split
from deql.split.new_users import hold_out_items

__all__ = ["prune_model"]

Model = TypeVar("Model", bound=RuleModel)

_OWN_USERS = 2000
"""Users of a model's own data that it is measured on."""

_K = 20


def prune_model(model: Model, per_item: int, target: HeldOut | InteractionsLike | None) -> Model:
    """What :meth:`deql.DEQL.prune` does."""
    model._check_fitted()
    per_item = check_whole("per_item", per_item)
    precision = model._whole("be pruned")
    held_out = _held_out(model, target)
    with stages(model.progress) as stage:
        found = largest_weights(
            precision, model.gain_, model.prior_, model.prior_scale_, per_item, stage("Largest weights")
        )
    small = type(model)(**model.fitted_params_)  # P belongs to these, whatever was set since
    small.share_fit(model, model.prior_)
    small.precision_, small.on_device_, small.quantized_rows_ = found.precision, None, None
    if model.prior_ is not None:
        small.prior_ = SparsePrior(found.precision, model.prior_.own, model.prior_.features)
    small._apply_rule()
    n, kept = precision.n, found.precision
    facts: dict[str, Any] = {}
    if held_out is not None:
        small.progress = model.progress
        facts = {
            "users": held_out.seen.n_users, "own_data": target is None,
            "before": _measured(model, held_out), "after": _measured(small, held_out),
        }  # fmt: skip
    stored = (kept.indptr, kept.columns, kept.data, *(() if kept.images is None else (kept.images,)))
    taken = sum(array.nbytes for array in stored)
    small.pruned_ = Pruned(
        min(per_item, n - 1), len(kept.columns), n * n, taken, _bytes(precision, model.prior_), found.share, **facts
    )
    print(f"deql: {small.pruned_}", file=sys.stderr)
    return small


def _held_out(model: RuleModel, target: HeldOut | InteractionsLike | None) -> HeldOut | None:
    """Users with something held out: those that are given, or a seeded sample of the model's own; None without any."""
    if target is None:
        data = model.data_
        return None if data is None else _own_users(data)
    if isinstance(target, Split):
        raise ParameterError("give a part of the split, such as split.test, and not all of it", parameter="target")
    part = target if isinstance(target, HeldOut) else hold_out_items(model._with_ids(target))
    some = np.diff(part.held_out.matrix.indptr) > 0
    if not some.any():
        raise DataError("no user has anything held out, so there is nothing to measure the models on")
    if not any(item in model._item_index for item in part.seen.items.tolist()):
        raise DataError("the model knows none of the items of these users: it was fitted on other data")
    return part if some.all() else HeldOut(part.seen.take_users(some), part.held_out.take_users(some))


def _own_users(data: Interactions) -> HeldOut | None:
    enough = np.flatnonzero(np.diff(data.matrix.indptr) >= 2)
    # The generator's raw bits are the same with every version of NumPy.
    drawn = np.argsort(np.random.PCG64(0).random_raw(len(enough)), kind="stable")[:_OWN_USERS]
    return hold_out_items(data.take_users(np.sort(enough[drawn]))) if len(enough) else None


def _measured(model: RuleModel, part: HeldOut) -> dict[str, float]:
    hits, held_out = model._find_held_out(part, _K)
    return {f"{name}@{_K}": float(metric(hits, held_out, _K).mean()) for name, metric in _METRICS.items()}


_METRICS = {"ndcg": ndcg, "recall": recall}


def _bytes(precision: PackedSymmetric, prior: FittedPrior | None) -> int:
    factors = () if prior is None else [factor for factor in prior.factors if factor is not None]
    return int(precision.data.nbytes) + sum(factor.nbytes for factor in factors)
