"""A prior after an update: what of it follows P, what is made anew, and what cannot be known without what made it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.progress import Stage
from deql.data import Interactions
from deql.data.changes import DataChange
from deql.data.matrices import empty_rows, widened
from deql.errors import DataError, ParameterError, name_some
from deql.models.fitted_prior import FittedPrior
from deql.models.followed_prior import followed_prior, followed_product
from deql.models.updatable import Updatable, describe_updatable, learned_prior, prior_again
from deql.models.updated_precision import PrecisionStep
from deql.priors.item_features import ItemFeatures, fitted_weights
from deql.priors.matrix import as_prior
from deql.priors.of_model import Model
from deql.priors.prior import Prior, PriorWeights
from deql.priors.saved import SavedPrior
from deql.priors.specs import prior_kind

__all__ = ["prior_flops", "updated_prior", "weights_after", "with_prior_items"]

Way = Literal["follow", "strength", "anew"]
"""W₀ stays as it is; the features do, and only how strong they are is fitted again; W₀ is made again."""


def with_prior_items(model: Updatable, change: DataChange, given: Any = None) -> DataChange:
    """A change of data with the items that only a prior knows, where it is made again: as a fit would have them.

    Parameters
    ----------
    model : fitted model
    change : DataChange
    given : Prior or array, optional
        The prior once more.

    Raises
    ------
    DataError or ParameterError
        If the prior of afterwards cannot be known.
    """
    if model.prior_ is None:
        if given is not None:
            raise ParameterError("this model has no prior: fit it with one, or leave it out here", parameter="prior")
        return change
    if _way(model, change, given) != "anew":
        return change
    data = _catalogue(change)
    grown = _prior(model, given).with_items(data)
    retired = set(model.items_[change.retired].tolist())
    if back := [item for item in grown.items[data.n_items :].tolist() if item in retired]:
        raise DataError(
            f"the prior knows {_items(back)}, so that a fit would bring back what is retired: take it out of the table "
            "of features, and give that as ",
            prior_again(model),
        )
    if grown is data:
        return change
    before, after = (
        replace(one, matrix=widened(one.matrix, (one.n_users, grown.n_items)), items=grown.items, titles=grown.titles)
        for one in (change.before, change.after)
    )
    extra = grown.n_items - data.n_items
    return replace(
        change, before=before, after=after, final=grown, items=grown.items, titles=grown.titles,
        n_new_items=change.n_new_items + extra,
    )  # fmt: skip


def weights_after(model: Updatable, change: DataChange, given: Any, stage: Stage) -> PriorWeights | None:
    """W₀ of afterwards; None if there is no prior, or W₀ is as it was but for items that come and go.

    Parameters
    ----------
    model : fitted model
    change : DataChange
        With the prior's items.
    given : Prior, array or None
        The prior once more.
    stage : callable
        Opens a progress bar.
    """
    if model.prior_ is None:
        return None
    way = _way(model, change, given)
    if way == "follow":
        return None
    data = _catalogue(change) if change.final is None else model._as_learned(change.final)
    if way == "anew":
        device = None if model.on_device_ is None else str(model.on_device_.device)
        return _prior(model, given).weights(data, device=device, report=stage("Prior"))
    space = model.prior_.features
    assert space is not None
    if change.n_new_items:  # which no table has had, or they were there
        space = space.with_rows(csr_array(np.zeros((change.n_new_items, space.features.shape[1]), np.float32)))
    warm = _had(change)
    # The basis was learned from those that the table has; to others, without features, it is all one.
    return fitted_weights(space, data.blocks(), warm, ~warm)


def updated_prior(
    model: Updatable,
    updated: Updatable,
    change: DataChange,
    steps: Sequence[PrecisionStep],
    given: Any,
    weights: PriorWeights | None,
    stage: Stage,
) -> FittedPrior | None:
    """What a fit would leave of the prior after an update.

    Parameters
    ----------
    model, updated : models
        Before, and as far as it is done: with P of afterwards.
    change : DataChange
        With the prior's items.
    steps : sequence
        What became of P, in order.
    given : Prior, array or None
        The prior once more.
    weights : PriorWeights or None
        From :func:`weights_after`.
    stage : callable
        Opens a progress bar.
    """
    before = model.prior_
    if before is None:
        return None
    diagonal = updated.precision_.diagonal()
    if weights is None:
        return followed_prior(before, steps, diagonal, stage("P·prior"))
    if _way(model, change, given) == "anew":
        moved = None if updated.on_device_ is model.on_device_ else updated.on_device_
        return FittedPrior.of(weights, updated.precision_, moved, stage("P·prior"))
    columns = np.arange(weights.left.shape[1])  # beside P·U there is U, where there are cold items
    return FittedPrior.of_product(weights, followed_product(before.left, columns, steps, stage("P·prior")), diagonal)


def prior_flops(model: Updatable, change: DataChange, rank: int | None, given: Any = None) -> float:
    """Floating-point operations of P·U, beside those of P; what makes U is not counted, being the same both ways.

    Parameters
    ----------
    model : fitted model
    change : DataChange
        With the prior's items.
    rank : int or None
        Columns of the low-rank change, those of retired items included; None for a refit.
    given : Prior or array, optional
        The prior once more.
    """
    if model.prior_ is None:
        return 0.0
    n, space = len(change.items), model.prior_.features
    width = n if model.prior_.right is None else model.prior_.left.shape[1] if space is None else space.basis.shape[1]
    anew = rank is None or _way(model, change, given) == "anew"
    return 2.0 * n * n * width if anew else 2.0 * n * (rank or 0) * width


def _prior(model: Updatable, given: Any) -> Prior:
    prior = as_prior(model.fitted_params_["prior"] if given is None else given)
    assert prior is not None
    return prior


def _catalogue(change: DataChange) -> Interactions:
    """The data of afterwards; its items alone, if they are not known."""
    if change.final is not None:
        return change.final
    return Interactions(empty_rows(len(change.items)), change.after.users[:0], change.items, titles=change.titles)


def _had(change: DataChange) -> NDArray[np.bool_]:
    """Which items anybody has afterwards."""
    assert change.final is not None
    return np.bincount(change.final.matrix.indices, minlength=change.final.n_items) > 0


def _way(model: Updatable, change: DataChange, given: Any) -> Way:
    """How the prior of afterwards is come by; an error if it cannot be."""
    prior = _prior(model, given)
    kind, comes = prior_kind(prior), change.items[len(change.items) - change.n_new_items :]
    if change.final is None and (learned := learned_prior(model, given)) is not None:
        if given is not None:
            raise ParameterError(f"a prior ({learned}) that is learned from the data needs them", parameter="prior")
        if not change.after.n_users:
            return "follow"  # nothing changes at all
        raise ParameterError(f"this model cannot be updated: {describe_updatable(model)}")
    if given is not None:
        return "anew"
    by_row = kind == "matrix" or (isinstance(prior, ItemFeatures) and prior.opened.keys is None)
    if by_row and (len(comes) or len(change.retired)):
        what = "the prior" if kind == "matrix" else "the matrix of features that is the prior"
        raise ParameterError(
            f"{what} has a row for each item, and items come or go: give one for those of afterwards as ",
            prior_again(model),
            parameter="prior",
        )
    if kind == "matrix":
        return "follow"
    if kind == "model":
        return _way_of_model(prior, comes)
    if isinstance(prior, ItemFeatures) or (isinstance(prior, SavedPrior) and kind == "features"):
        return _way_of_features(model, change, prior)
    if isinstance(prior, SavedPrior):
        raise ParameterError(
            f"the model file kept what its prior ({kind}) made, not the prior: give it again as ", prior_again(model),
            parameter="prior",
        )  # fmt: skip
    return "anew"


def _way_of_model(prior: Prior, comes: NDArray[Any]) -> Way:
    """Another model's weights stay, unless it knows items that come."""
    if not len(comes):
        return "follow"
    if isinstance(prior, Model):
        return "anew" if set(prior.other.items_.tolist()) & set(comes.tolist()) else "follow"
    raise ParameterError(
        f"the model file did not keep the model that is its prior, which may know {_items(comes)}: give it again as ",
        "prior=deql.priors.Model(…)",
        parameter="prior",
    )


def _way_of_features(model: Updatable, change: DataChange, prior: Prior) -> Way:
    """What features say is learned from the items that anybody has: anew, unless they are the same.

    Items that come have no features: a fit makes columns of all items of its table.
    """
    assert model.prior_ is not None
    assert model.prior_.features is not None
    had, have = model.item_counts_ > 0, np.delete(np.arange(len(model.items_)), change.retired)
    now = _had(change)[: len(have)]
    changed = have[had[have] != now]
    if not len(change.retired) and not len(changed):
        return "strength"
    if isinstance(prior, ItemFeatures):
        if (lacking := prior.lacks(model.items_, model.prior_.features)[have]).any():
            raise ParameterError(
                f"{_items(model.items_[have][lacking])} came by add_items and the table of features is without: give "
                "one with all items as ",
                prior_again(model),
                parameter="prior",
            )
        return "anew"
    if len(change.retired):
        what = f"{_items(model.items_[change.retired])} would be gone"
    else:
        what = f"{_items(model.items_[changed[:1]])} {'loses its last' if had[changed[0]] else 'gets its first'} user"
    raise ParameterError(
        f"what features say is learned from the items that anybody has, and {what}: give their table again as ",
        prior_again(model),
        parameter="prior",
    )


def _items(items: Any) -> str:
    return f"{'item' if len(items) == 1 else 'items'} {name_some(items)}"
