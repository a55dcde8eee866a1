"""Priors: weights W₀ that a model's ridge pulls towards instead of towards zero; see docs/priors.md."""

from deql.priors.low_pass import LowPass
from deql.priors.prior import Prior, PriorWeights

__all__ = ["LowPass", "Prior", "PriorWeights"]
