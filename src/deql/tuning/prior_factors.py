"""The factors of priors beside the inverses of a search: eigenvectors once, one product for each power and inverse."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql.data import Interactions
from deql.models import DEQL
from deql.models.fitted_prior import FittedPrior
from deql.priors.low_pass import LowPassBasis
from deql.priors.prior import Prior, PriorWeights
from deql.ranking.prior_term import prior_diagonal
from deql.tuning.prior_space import PriorLike, Variant
from deql.tuning.space import RuleParameters

__all__ = ["PriorFactors"]


class PriorFactors:
    """Models with a prior on a P that is there.

    Models of one variant on one P share their factors, whatever their rule, so that they are ranked in one pass.

    Parameters
    ----------
    prior : {"lowpass"} or Prior
        The weights of one of one's own are made at once: what is wrong with it is told before any work.
    data : Interactions
        What models learn from.
    rank : int or None
        The largest of a low pass that will be asked for.
    """

    def __init__(self, prior: PriorLike, data: Interactions, rank: int | None) -> None:
        self._prior = prior
        self._data = self._learned = data
        self._rank = rank
        self._basis: LowPassBasis | None = None
        self._half_life: float | None = None
        self._given = prior.weights(data) if isinstance(prior, Prior) else None
        self._fitted: FittedPrior | None = None
        self._precision: Any = None
        self._products: dict[float | None, NDArray[np.float32]] = {}
        self._lefts: dict[Variant, NDArray[np.float32]] = {}
        self._rights: dict[int | None, NDArray[np.float32]] = {}

    def model(self, fitted: DEQL, variant: Variant, rule: RuleParameters) -> Any:
        """The model with this variant of the prior and this rule, on the P of a fitted one."""
        power_out, free = _parted(rule)
        prior = variant.prior(self._prior, power_out)
        return fitted._with_prior(prior, self._fitted_prior(fitted, variant, power_out), **free)

    def unfitted(self, model: DEQL, variant: Variant, rule: RuleParameters) -> Any:
        """The model with this variant of the prior and this rule, to be fitted elsewhere."""
        power_out, free = _parted(rule)
        own = {name: value for name, value in free.items() if name in model.get_params()}
        return model.set_params(prior=variant.prior(self._prior, power_out), **own)

    def release(self) -> None:
        """Let the products with P go."""
        self._precision = self._fitted = None
        self._products.clear()
        self._lefts.clear()

    def _fitted_prior(self, fitted: DEQL, variant: Variant, power_out: float | None) -> FittedPrior:
        if self._precision is not fitted.precision_:
            self.release()
            self._precision = fitted.precision_
            self._fade(fitted)
        if self._given is not None:
            self._fitted = self._fitted or FittedPrior.of(self._given, fitted.precision_, fitted.on_device_)
            return self._fitted
        weights = self._low_pass(variant, power_out)
        if variant not in self._lefts:
            if variant.power_in not in self._products:
                whole = self._low_pass(variant._replace(rank=None), power_out)
                made = FittedPrior.of(whole, fitted.precision_, fitted.on_device_)
                self._products[variant.power_in] = made.left
            self._lefts[variant] = np.ascontiguousarray(self._products[variant.power_in][:, : weights.left.shape[1]])
        left = self._lefts[variant]
        assert weights.right is not None
        right = self._rights.setdefault(variant.rank, np.ascontiguousarray(weights.right, np.float32))
        own = weights.scale * prior_diagonal(weights.left, right) + weights.diagonal
        image = weights.scale * prior_diagonal(left, right) + weights.diagonal * fitted.precision_.diagonal()
        return FittedPrior(left, right, weights.scale, weights.diagonal, own, image)

    def _fade(self, fitted: DEQL) -> None:
        """Go on with the interactions as they count with the half-life of a model."""
        if self._half_life == fitted._half_life:
            return
        self._half_life, self._basis = fitted._half_life, None
        self._learned = fitted._as_learned(self._data)
        self._rights.clear()
        if isinstance(self._prior, Prior):
            self._given = self._prior.weights(self._learned)

    def _low_pass(self, variant: Variant, power_out: float | None) -> PriorWeights:
        if self._basis is None:
            self._basis = LowPassBasis.of(self._learned, self._rank)
        assert variant.power_in is not None
        assert power_out is not None
        return self._basis.weights(variant.rank, variant.power_in, power_out)


def _parted(rule: RuleParameters) -> tuple[float | None, RuleParameters]:
    """The power that belongs to the prior, and what a rule takes."""
    return rule.get("prior_power_out"), {name: value for name, value in rule.items() if name != "prior_power_out"}
