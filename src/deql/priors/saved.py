"""Priors back from the configuration that a model file keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from deql.data import Interactions
from deql.errors import ParameterError
from deql.priors.prior import Prior

__all__ = ["SavedPrior", "prior_from_config"]

_REBUILT: dict[str, type[Prior]] = {}
"""Priors that their parameters alone make again."""


@dataclass(frozen=True, eq=False, repr=False)
class SavedPrior(Prior):
    """A prior of which a model file kept what it made, and not what it was made from: the model works as it is.

    Parameters
    ----------
    name : str
        What kind of prior it was.
    parameters : dict
        What was kept of it.
    """

    name: str
    parameters: dict[str, Any]

    def weights(self, data: Interactions) -> NoReturn:
        """Raise ParameterError: there is nothing to make weights from."""
        raise ParameterError(
            f"the model file kept what its prior made, not the prior ({self.name}): give prior=… again to fit anew",
            parameter="prior",
        )

    @property
    def config(self) -> dict[str, Any]:
        """As it was serialised."""
        return {"name": self.name} | self.parameters


def prior_from_config(config: dict[str, Any]) -> Prior:
    """What ``Prior.config`` serialised; ValueError, TypeError or KeyError if it is none.

    Examples
    --------
    >>> prior_from_config({"name": "Matrix"})
    SavedPrior(name='Matrix', parameters={})
    """
    if not isinstance(config, dict):
        raise TypeError("its prior is no JSON object")
    parameters = {**config}
    name = parameters.pop("name")
    if name in _REBUILT:
        return _REBUILT[name](**parameters)
    return SavedPrior(str(name), parameters)
