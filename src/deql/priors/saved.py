"""Priors back from the configuration that a model file keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from deql._system.progress import ProgressCallback
from deql.data.partitions import TrainingData
from deql.errors import ParameterError
from deql.priors.low_pass import LowPass
from deql.priors.prior import Prior

__all__ = ["SavedPrior", "prior_from_config"]

_REBUILT: dict[str, type[Prior]] = {"lowpass": LowPass}
"""Priors that their parameters alone make again."""


@dataclass(frozen=True, repr=False)
class SavedPrior(Prior):
    """A prior of which a model file kept what it made, and not what it was made from: the model works as it is.

    Parameters
    ----------
    name : str
        What kind of prior it was: ``"matrix"``.
    parameters : dict
        What was kept of it.
    """

    name: str
    parameters: dict[str, Any]

    def __hash__(self) -> int:
        return hash(self.name)

    def with_items(self, data: TrainingData) -> NoReturn:
        """Raise ParameterError: there is nothing to make weights from. (This is asked before an earlier fit goes.)"""
        raise ParameterError(
            f"the model file kept what its prior made, not the prior ({self.name}): give prior=… again to fit anew",
            parameter="prior",
        )

    def weights(
        self, data: TrainingData, *, device: str | None = None, report: ProgressCallback | None = None
    ) -> NoReturn:
        """Raise ParameterError, likewise."""
        self.with_items(data)

    @property
    def config(self) -> dict[str, Any]:
        """As it was serialised."""
        return {"prior": self.name} | self.parameters


def prior_from_config(config: dict[str, Any]) -> Prior:
    """What ``Prior.config`` serialised; ValueError, TypeError or KeyError if it is none.

    Examples
    --------
    >>> prior_from_config({"prior": "lowpass", "rank": 64})
    LowPass(rank=64, power_in=0.0, power_out=0.6)
    >>> prior_from_config({"prior": "matrix"})
    SavedPrior(name='matrix', parameters={})
    """
    if not isinstance(config, dict):
        raise TypeError("its prior is no JSON object")
    parameters = {**config}
    name = str(parameters.pop("prior"))
    return _REBUILT[name](**parameters) if name in _REBUILT else SavedPrior(name, parameters)
