"""What an update must know of a model: how it learned, whether it can learn anew, and how it takes over the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from deql._system.tables import counted
from deql.data import Interactions
from deql.data.recency import faded
from deql.errors import Setting
from deql.linalg.gram import user_weights, weighted_diagonal
from deql.linalg.planner.choose import engine_here
from deql.models.fitted import OF_ITEMS
from deql.models.fitted_prior import FittedPrior
from deql.models.rule_model import RuleModel
from deql.models.update_report import UpdateState
from deql.priors.item_features import ItemFeatures
from deql.priors.matrix import as_prior
from deql.priors.saved import SavedPrior
from deql.priors.specs import prior_kind

__all__ = ["Updatable", "describe_updatable", "learned_prior", "prior_again"]


class Updatable(RuleModel):
    """Base of the models that can be updated.

    Attributes
    ----------
    updated_ : UpdateState or None
        How often the model was updated since its fit, and when last; None if never.
    """

    updated_: UpdateState | None = None
    user_power: float

    def _as_learned(self, data: Interactions) -> Interactions:
        """Rows as the Gram matrix sums them up."""
        half_life = self.fitted_params_["half_life"]
        if half_life is None or self.until_ is None or not data.n_interactions:
            return data
        return faded(data, half_life, self.until_)

    def _diagonal_of(self, data: Interactions) -> NDArray[np.float64]:
        """D of all data."""
        rows = self._as_learned(data).matrix
        return weighted_diagonal(rows, user_weights(rows, self.fitted_params_["user_power"]))

    def _gram_product(self, data: Interactions) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
        """A·x from the data."""
        rows = self._as_learned(data).matrix.astype(np.float64)
        weights = user_weights(rows, self.fitted_params_["user_power"])
        fitted = type(self)(**self.fitted_params_)
        added = fitted._dropped / (1.0 - fitted._dropped) * self.gram_diagonal_ + fitted._ridge

        def product(x: NDArray[np.float64]) -> NDArray[np.float64]:
            image = rows.T @ (weights[:, None] * (rows @ x))
            return np.asarray(image + added[:, None] * x)

        return product

    @property
    def _fitted_ridge(self) -> float:
        return type(self)(**self.fitted_params_)._ridge

    def _can_refit(self, prior: Any) -> bool:
        """Whether there is all that a fit needs but the data: the prior, not only what it made, with all items."""
        known = as_prior(self.fitted_params_["prior"] if prior is None else prior)
        if isinstance(known, SavedPrior):
            return False
        space = None if self.prior_ is None else self.prior_.features
        if prior is not None or space is None or not isinstance(known, ItemFeatures):
            return True
        return not known.lacks(self.items_, space).any()

    @property
    def _engine_beside(self) -> Any:
        """The engine for a P beside the one that is there, whose tiles a folder with a name may hold.

        Where that was fitted on a device, and here is none, whichever fits.
        """
        engine: Any = engine_here(self.fitted_params_["engine"])
        return replace(engine, folder=None) if getattr(engine, "folder", None) is not None else engine

    def _unfitted(self, prior: Any = None) -> Self:
        """A model of the same hyper-parameters, to be fitted beside this one."""
        params = self.fitted_params_ | {"engine": self._engine_beside} | ({} if prior is None else {"prior": prior})
        fresh = type(self)(**params)
        fresh.progress = self.progress
        return fresh

    def _fit_on(self, data: Interactions, until: float | None) -> None:
        """Fit on these data, whose columns are all items; an interaction of this moment counts in full."""
        learn: Any = self._learn
        self._fit(data, partial(learn, until=until))

    def _fitted_beside(self, data: Interactions, until: float | None, prior: Any = None) -> Self:
        """What a fit on these data gives, with all that this model keeps beside it."""
        fresh = self._unfitted(prior)
        fresh._fit_on(data, until)
        fresh._kept, fresh.user_salt_ = data, self.user_salt_
        fresh._move_copies(self)
        return fresh

    def share_fit(self, fitted: RuleModel, prior: FittedPrior | None) -> None:
        """As of any model on P, with what is known of its updates."""
        super().share_fit(fitted, prior)
        self.updated_ = fitted.updated_ if isinstance(fitted, Updatable) else None

    def _copy_fitted(self) -> Self:
        """Another model on the same P."""
        other = type(self)(**self.fitted_params_)
        other.share_fit(self, self.prior_)
        return other

    def _move_copies(self, before: Updatable) -> None:
        """Copies of P on a device and by rows, where the model had them; those of another P are none of this one."""
        if self.on_device_ is before.on_device_:
            self.on_device_ = None
        if before.on_device_ is not None and self.on_device_ is None:
            self.to(str(before.on_device_.device))
        self.quantized_rows_ = None
        if before.quantized_rows_ is not None:
            self.quantize_rows()

    def _become(self, other: Updatable, prior: Any = None) -> None:
        """Take over all that a fit left of another model of this kind, and the prior, if it was given once more."""
        taken = {
            name: value
            for name, value in other.__dict__.items()
            if name == "_kept" or (name.endswith("_") and name != "fitted_params_")
        }
        if prior is not None:
            taken["fitted_params_"] = self.fitted_params_ | {"prior": prior}
            if self.prior is self.fitted_params_["prior"]:
                taken["prior"] = prior
        for cached in OF_ITEMS:
            self.__dict__.pop(cached, None)
        self.__dict__.update(taken)  # at once, so that an interruption finds one model or the other

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays, facts = super()._state()
        return arrays, facts | ({} if self.updated_ is None else self.updated_.to_facts())

    def _restore(self, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        super()._restore(arrays, facts)
        self.updated_ = UpdateState.from_facts(facts)


def describe_updatable(model: Updatable) -> str:
    """What updates a model can take, and how it could take more, as one may say of it.

    Examples
    --------
    >>> import deql
    >>> data = deql.Interactions.from_pairs(list("aab"), list("xyx"))
    >>> describe_updatable(deql.EASE(l2=1.0).fit(data, keep_data="hashed"))  # doctest: +NORMALIZE_WHITESPACE
    'it has its data, on 2 users under salted hashes of their ids: interactions can be added and removed, users
    forgotten, items retired'
    """
    if not model.precision_.whole:
        return "it holds some entries of P alone: it cannot be updated, but fitted anew"
    if model._kept is None:
        can = "it can add whole new users (new_users=True, --new-users), and nothing that changes users it knows"
        if (kind := learned_prior(model)) is not None:
            can = f"its prior ({kind}) is learned from them, so that it can take no update"
        return (
            f"it does not have its data: {can}; to make it updatable fit it with keep_data=True (deql fit --keep-data),"
            " or give it the data once (attach_data, deql update --data FILE)"
        )
    hashed = " under salted hashes of their ids" if model.user_salt_ is not None else ""
    return (
        f"it has its data, on {counted(model.n_users_, 'user', 'users')}{hashed}: interactions can be added and "
        "removed, users forgotten, items retired"
    )


def learned_prior(model: Updatable, given: Any = None) -> str | None:
    """The kind of a model's prior, or of one given in its place, if that is made of the interactions.

    Examples
    --------
    >>> import deql
    >>> data = deql.Interactions.from_pairs(list("aab"), list("xyx"))
    >>> learned_prior(deql.EASE(l2=1.0, prior=deql.priors.LowPass(1)).fit(data))
    'lowpass'
    """
    prior = as_prior(model.fitted_params_["prior"] if given is None else given)
    kind = None if prior is None else prior_kind(prior)
    return None if kind in ("matrix", "model") else kind


def prior_again(model: Updatable) -> Setting | str:
    """How errors call the prior that an update is to be given once more; of a command only features can be asked."""
    if model.prior_ is not None and model.prior_.features is not None:
        return Setting("item_features", noun="prior=deql.priors.ItemFeatures(…)")
    return "prior=…"
