"""Models as scikit-learn's estimators: hyper-parameters by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from deql.errors import ParameterError

__all__ = ["EXECUTION_PARAMETERS", "NOT_SERIALISED", "Estimator"]

EXECUTION_PARAMETERS = frozenset({"progress", "device", "checkpoint"})
"""Parameters that say how a model is computed here, and nothing of the model."""

NOT_SERIALISED = EXECUTION_PARAMETERS | {"W"}
"""Those, and what only Python can hand over: neither is part of a model's description."""


class Estimator:
    """What scikit-learn asks of an estimator, without importing it: ``clone``, pipelines and searches work.

    A subclass is a dataclass whose fields are its hyper-parameters.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Hyper-parameters by name, as scikit-learn expects."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Change hyper-parameters; takes effect at the next ``fit``."""
        for name, value in params.items():
            if name not in self.get_params():
                raise ParameterError(f"{type(self).__name__} has no parameter {name!r}", parameter=name)
            setattr(self, name, value)
        return self

    def _to_config(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Serialise the hyper-parameters that describe the model, as plain values; None stands for a default."""
        return {name: value for name, value in params.items() if name not in NOT_SERIALISED and value is not None}

    @classmethod
    def _from_config(cls, config: dict[str, Any]) -> dict[str, Any]:
        """Hyper-parameters from what :meth:`_to_config` serialised, in this version or an earlier one."""
        return config

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn, from 1.6 on, wants to know before it uses an estimator: rows are users, sparse."""
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(None, TargetTags(required=False), input_tags=InputTags(sparse=True))
