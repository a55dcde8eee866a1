"""From P to a model: the rule, and other rules on the same P."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deql.errors import ParameterError, Setting
from deql.linalg.engines.stores import new_store
from deql.models.fitted_prior import FittedPrior
from deql.models.precision_model import PrecisionModel
from deql.models.prune_report import Pruned
from deql.rules import PriorDiagonals, popularity_scale, scale_columns

__all__ = ["RuleModel"]

_FROM_FIT = (
    "precision_",
    "gram_diagonal_",
    "residual_",
    "engine_",
    "on_device_",
    "quantized_rows_",
    "items_",
    "titles_",
    "item_counts_",
    "n_users_",
    "weighted_",
    "until_",
    "user_salt_",
    "_kept",
)


class RuleModel(PrecisionModel):
    """Base of the models whose gain and shift follow from diag(P), D and hyper-parameters.

    Attributes
    ----------
    pruned_ : Pruned or None
        Of a model that was made by pruning: how much of the larger one is left, and what that cost.
    """

    pruned_: Pruned | None = None
    _rule_kinds: ClassVar[tuple[type[RuleModel], ...]] = ()
    """What :meth:`with_rule` can make of any model: DEQL, then RDLAE, as the family says, which is built on this."""

    popularity_power: float
    prior_weight: float
    engine: Any

    @abstractmethod
    def _rule(self, precision_diagonal: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Gain and shift before the popularity power: with :meth:`_prior_diagonals`, if there is a prior."""

    @property
    def _ridge(self) -> float:
        """What is added to the Gram matrix's diagonal: l2."""
        return float(getattr(self, "l2", 0.0))

    @property
    def _dropped(self) -> float:
        """The share of entries dropped; 0 for models without dropout."""
        return float(getattr(self, "dropout", 0.0))

    @property
    def _kept_weight(self) -> float:
        """The ratio b/a of the model's loss."""
        return 1.0

    @property
    def _zero_diagonal(self) -> bool:
        """Whether the diagonal of W is constrained to zero."""
        return False

    @property
    def _pull(self) -> float:
        """How much of the ridge pulls towards the prior: m."""
        return self.prior_weight * self._ridge

    def _prior_diagonals(self) -> PriorDiagonals | None:
        return None if self.prior_ is None else self.prior_.diagonals(self._pull)

    def _apply_rule(self) -> None:
        diagonal, scale, added = self.precision_.diagonal(), None, 0.0
        gain, shift = self._rule(diagonal)
        with np.errstate(over="ignore", invalid="ignore"):
            if self.prior_ is None:
                gain, shift = scale_columns(gain, shift, diagonal, self.item_counts_, self.popularity_power)
            else:
                of_columns = popularity_scale(self.item_counts_, self.popularity_power)
                gain, shift, scale = self.prior_.weights(gain, shift, self._pull, diagonal, of_columns)
                added = (np.abs(scale) * self.prior_.largest).max()
            # This bounds every weight, and gain itself, which is cast to the type of P.
            largest = np.abs(gain).max() * max(self.precision_.largest, 1.0) + np.abs(shift).max() + added
        if not largest < np.finfo(self.dtype).max:
            culprit = "popularity_power" if self.popularity_power else "l2" if self.prior_ is None else "prior_weight"
            raise ParameterError(
                f"{culprit}={getattr(self, culprit, 0.0):g} makes weights too large for {self.dtype}: "
                f"take one nearer {'to what the data have' if culprit == 'l2' else 0}",
                parameter=culprit,
            )
        self.gain_, self.shift_, self.prior_scale_ = gain, shift, scale

    def _store(self, n: int, tile: int) -> NDArray[Any]:
        """Room for another P, in memory or in a file as this one is."""
        folder = getattr(self.engine, "folder", None)
        return new_store(n, tile, self.precision_.dtype, engine=self.engine_, folder=folder)

    def _grow(self, extra: int) -> None:
        """Add items that nobody has: their column of A is l2 on the diagonal and nothing else, so that of P is 1/l2."""
        self.precision_ = self.precision_.grown(extra, 1.0 / self._ridge, self._store)
        self.gram_diagonal_ = np.concatenate([self.gram_diagonal_, np.zeros(extra)])
        if self.on_device_ is not None:
            device = str(self.on_device_.device)
            self.on_device_ = None
            self.to(device)

    def with_rule(self, **changes: Any) -> RuleModel:
        """Another model on the same P, with other values of what the rule alone uses: O(n).

        Parameters
        ----------
        **changes
            ``b`` and ``zero_diagonal`` give a :class:`~deql.DEQL`, ``xi`` an :class:`~deql.RDLAE`,
            unless the model itself has that parameter; ``popularity_power`` goes with either, and
            ``prior_weight`` where there is a prior. What is not named stays as it is, and so does
            all that P depends on, and the prior.

        Returns
        -------
        A fitted model.

        Examples
        --------
        >>> import deql
        >>> eaten = ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"]
        >>> data = deql.Interactions.from_pairs(list("aabbcccd"), eaten)
        >>> model = deql.EDLAE(l2=1.0, dropout=0.3).fit(data)
        >>> other = model.with_rule(b=2.0)
        >>> type(other).__name__, other.precision_ is model.precision_
        ('DEQL', True)
        """
        self._check_fitted()
        if "prior_weight" in changes and self.prior_ is None:
            raise ParameterError(
                "this model has no prior whose weight could be changed: fit it with ", Setting("prior"),
                parameter="prior_weight",
            )  # fmt: skip
        if "prior" in changes:
            raise ParameterError("with_rule keeps the prior: another one needs another fit", parameter="prior")
        return self._with_prior(self.fitted_params_["prior"], self.prior_, **changes)

    def _with_prior(self, prior: Any, fitted_prior: FittedPrior | None, **changes: Any) -> RuleModel:
        """As :meth:`with_rule`, with another prior too, whose product with this P is there already, or with none."""
        self._check_fitted()
        kinds = (type(self), *self._rule_kinds)
        kind = next((kind for kind in kinds if set(changes) <= _rule_parameters(kind)), None)
        if kind is None:
            free = sorted({name for kind in kinds[:2] for name in _rule_parameters(kind)})
            raise ParameterError(
                f"with_rule cannot change {', '.join(sorted(changes))} at once: it takes {', '.join(free)}, or xi with "
                "popularity_power and prior_weight; l2, dropout, user_power and half_life need another fit"
            )
        fitted = type(self)(**self.fitted_params_)  # P belongs to these, whatever was set since
        params: dict[str, Any] = {
            "dropout": fitted._dropped,
            "b": fitted._kept_weight,
            "zero_diagonal": fitted._zero_diagonal,
        }
        params |= self.fitted_params_ | {"prior": prior} | changes
        other = kind(**{field.name: params[field.name] for field in dataclasses.fields(kind)})
        other._check_parameters()
        other.share_fit(self, fitted_prior)
        return other

    def share_fit(self, fitted: RuleModel, prior: FittedPrior | None) -> None:
        """Become fitted with the P of a model that agrees in all that P depends on, and this prior: O(n)."""
        self.__dict__.update({name: getattr(fitted, name) for name in _FROM_FIT})
        self.prior_ = prior
        if prior is not fitted.prior_:
            self.quantized_rows_ = None  # which hold the other's factor
        self._apply_rule()
        self.fitted_params_ = self.get_params()


def _rule_parameters(kind: type[RuleModel]) -> set[str]:
    """Hyper-parameters that P does not depend on."""
    own = {field.name for field in dataclasses.fields(kind) if not field.kw_only}
    return own - {"l2", "dropout"} | {"popularity_power", "prior_weight"}
