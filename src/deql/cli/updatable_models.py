"""Model files that can be updated, and the prior of one from its table of features once more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deql.errors import ParameterError
from deql.models import load
from deql.models.updatable import Updatable
from deql.priors.matrix import as_prior
from deql.priors.specs import features_of

__all__ = ["features_again", "load_updatable"]


def load_updatable(path: Path) -> Any:
    """The model of a file; ParameterError if it is none that can be updated."""
    model = load(path)
    if not isinstance(model, Updatable):
        raise ParameterError(f"{path} is a {type(model).__name__}, which has no inverse to update: fit it again")
    return model


def features_again(model: Any, path: Path) -> Any:
    """The prior that a table makes once more, with what the model file kept of its parameters."""
    known = as_prior(model.fitted_params_["prior"])
    chosen = {} if known is None or known.config.get("prior") != "features" else {"l2": known.config["l2"]}
    return features_of(str(path), **chosen)
