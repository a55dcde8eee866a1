"""Priors: weights W₀ that a model's ridge pulls towards instead of towards zero; see docs/priors.md."""

from deql.priors.item_features import ItemFeatures
from deql.priors.low_pass import LowPass
from deql.priors.matrix import Matrix
from deql.priors.of_model import Model
from deql.priors.prior import Prior, PriorWeights

__all__ = ["ItemFeatures", "LowPass", "Matrix", "Model", "Prior", "PriorWeights"]
