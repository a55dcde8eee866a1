"""What is searched of a model that has no P to share, and from which values: each setting of it is a fit of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from deql._system.checks import chosen_rank
from deql.data import Interactions
from deql.errors import ParameterError, did_you_mean
from deql.evaluation.model_groups import spec_fields
from deql.models import Recommender
from deql.models.linear import LinearAutoencoder
from deql.tuning.space import ridges_around

__all__ = ["ModelSpace", "Setting", "model_space"]

Setting = tuple[Any, ...]
"""A value for each axis, in the order of the axes."""

_SEARCHED = {
    "SLIM": ("l2", "l1"),
    "LowRankDEQL": ("l2", "dropout", "rank"),
    "ELSA": ("learning_rate", "epochs", "rank"),
    "LightGCN": ("learning_rate", "weight_decay", "epochs", "layers"),
    "SSM": ("temperature", "learning_rate", "epochs", "weight_decay", "layers"),
    "SGL": ("contrast_weight", "temperature", "learning_rate", "epochs"),
}
"""Of each model what is searched unless something else is asked for, in the order in which steps are tried."""

_THIRDS, _TENTHS, _HALVES = (1 / 3, 1.0, 3.0), (0.1, 1.0, 10.0), (0.5, 1.0, 2.0)

_TIMES: dict[str, tuple[float, ...]] = {
    "l1": (0.1, 0.3, 1.0, 3.0, 10.0), "learning_rate": _THIRDS, "contrast_weight": _THIRDS, "weight_decay": _TENTHS,
    "temperature": (0.75, 1.0, 4 / 3), "epochs": _HALVES, "rank": _HALVES,
}  # fmt: skip
"""Of such a parameter the values are the model's own one, times these."""

_DROPOUTS = (0.0, 0.3, 0.5, 0.7)


@dataclass(frozen=True, eq=False)
class ModelSpace:
    """The settings of a model as a grid, with neighbours along its axes.

    Attributes
    ----------
    model : Recommender
        Not fitted; what no axis changes is as it has it.
    axes : dict of str to tuple
        Values of the parameters that are searched, numbers in ascending order.

    Examples
    --------
    >>> import deql
    >>> space = ModelSpace(deql.SLIM(l1=1.0), {"l1": (0.5, 1.0, 2.0), "l2": (10.0, 30.0)})
    >>> len(space.settings()), space.start()
    (6, (1.0, 10.0))
    >>> list(space.neighbours((1.0, 10.0)))
    [(2.0, 10.0), (0.5, 10.0), (1.0, 30.0)]
    """

    model: Recommender
    axes: dict[str, tuple[Any, ...]]

    def settings(self) -> list[Setting]:
        """All of them."""
        return list(product(*self.axes.values()))

    def start(self) -> Setting:
        """The setting nearest to the model's own."""
        params = self.model.get_params()
        return tuple(_nearest(values, params[name]) for name, values in self.axes.items())

    def neighbours(self, setting: Setting) -> Iterator[Setting]:
        """The next settings along each axis, larger values first."""
        for place, values in enumerate(self.axes.values()):
            at = values.index(setting[place])
            for value in (*values[at + 1 : at + 2], *values[max(0, at - 1) : at]):
                yield (*setting[:place], value, *setting[place + 1 :])

    def named(self, setting: Setting) -> dict[str, Any]:
        """The values by parameter."""
        return dict(zip(self.axes, setting, strict=True))

    def configured(self, setting: Setting, **execution: Any) -> Recommender:
        """The model with these values, not fitted."""
        return _changed(self.model, self.named(setting) | execution)


def model_space(model: Any, data: Interactions, given: Mapping[str, Any] | str) -> ModelSpace:
    """The model's own space for these data, with the values that were asked for in place of its own.

    Parameters
    ----------
    model : Recommender
    data : Interactions
        What a search learns from: the values of l2 go by it.
    given : mapping of str to values, or "default"
        A single value takes a parameter out of the search.

    Examples
    --------
    >>> import deql
    >>> data = deql.datasets.debian().take_users(slice(0, 500)).without_empty()
    >>> model_space(deql.ELSA(rank=64, learning_rate=0.1), data, {"epochs": [5, 10]}).axes
    {'learning_rate': (0.033, 0.1, 0.3), 'epochs': (5, 10), 'rank': (32, 64, 128)}
    """
    if not isinstance(model, Recommender):
        raise ParameterError(f"model must be a model such as deql.SLIM(), got {model!r}", parameter="model")
    name = type(model).__name__
    if isinstance(model, LinearAutoencoder):
        raise ParameterError(
            f"{name} is of the family whose models share an inverse, which is searched as one: leave out model, and "
            "give values of its parameters as the space",
            parameter="model",
        )
    model._check_parameters()
    if not isinstance(given, Mapping) and given != "default":
        raise ParameterError(
            f"the space of {name} is 'default', or values by parameter such as {{'epochs': [10, 20]}}, got {given!r}",
            parameter="space",
        )
    known = [field.name for field in spec_fields(model)]
    axes = {axis: values for axis in _SEARCHED.get(name, ()) if (values := _own_values(model, axis, data))}
    for axis, values in {} if isinstance(given, str) else given.items():
        if axis not in known:
            raise ParameterError(
                f"{name} has no parameter {axis!r}{did_you_mean(str(axis), known)}; it has {', '.join(known)}",
                parameter="space",
            )
        axes[axis] = _checked(model, axis, values)
    if not axes:
        raise ParameterError(f"{name} has nothing to search: give values of its parameters", parameter="space")
    return ModelSpace(model, axes)


def _own_values(model: Recommender, axis: str, data: Interactions) -> tuple[Any, ...]:
    """The values of an axis of the model's own space, around what the model has; nothing where it has no such axis."""
    params = model.get_params()
    own = params[axis]
    if axis == "l2":
        diagonal = np.bincount(data.matrix.indices, weights=data.matrix.data.astype(float) ** 2, minlength=data.n_items)
        return ridges_around(float(diagonal.mean()))
    if axis == "dropout":
        return _DROPOUTS
    if axis == "layers":
        return () if params.get("backbone") == "mf" else tuple(sorted({max(1, own - 1), own, own + 1}))
    if axis == "rank":
        own = chosen_rank(own, data.n_items)
    if not own:  # a parameter that is turned off
        return ()
    whole = isinstance(own, int)
    values = {max(1, round(own * times)) if whole else float(f"{own * times:.2g}") for times in _TIMES[axis]} | {own}
    if axis == "rank":
        values = {min(value, data.n_items) for value in values}
    return tuple(sorted(values))


def _checked(model: Recommender, axis: str, values: Any) -> tuple[Any, ...]:
    """Values that were asked for, each of which the model takes."""
    several = [values] if isinstance(values, str) or not isinstance(values, Iterable) else list(values)
    several = [value.item() if isinstance(value, np.generic) else value for value in several]
    if not several:
        raise ParameterError(f"{axis} has no values: give at least one", parameter="space")
    for value in several:
        try:
            _changed(model, {axis: value})._check_parameters()
        except ParameterError as error:
            raise ParameterError(*error.args, parameter="space") from None
    kept = list(dict.fromkeys(several))
    return tuple(sorted(kept) if all(_is_number(value) for value in kept) else kept)


def _changed(model: Recommender, values: Mapping[str, Any]) -> Recommender:
    return type(model)(**model.get_params() | dict(values))


def _nearest(values: tuple[Any, ...], own: Any) -> Any:
    """The value nearest to the model's own; the first where that is no number."""
    if own in values or not _is_number(own) or not all(_is_number(value) for value in values):
        return own if own in values else values[len(values) // 2]
    return min(values, key=lambda value: abs(value - own))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
