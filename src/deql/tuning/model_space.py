"""What is searched of a model that has no P to share, and from which values: each setting of it is a fit of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from deql._system.checks import chosen_rank
from deql._system.specs import written
from deql.data import Interactions
from deql.errors import ParameterError, did_you_mean
from deql.evaluation.model_groups import spec_fields
from deql.linalg.gram import user_weights, weighted_diagonal
from deql.models import Recommender
from deql.models.linear import LinearAutoencoder
from deql.tuning.space import ridges_around
from deql.tuning.walk import beside

__all__ = ["ModelSpace", "Setting", "model_space", "setting_words"]

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

_WIDE, _THIRDS, _TENTHS, _HALVES = (0.1, 0.3, 1.0, 3.0, 10.0), (1 / 3, 1.0, 3.0), (0.1, 1.0, 10.0), (0.5, 1.0, 2.0)

_TIMES: dict[str, tuple[float, ...]] = {
    "l1": _WIDE, "l2": _WIDE, "learning_rate": _THIRDS, "contrast_weight": _THIRDS, "weight_decay": _TENTHS,
    "temperature": (0.75, 1.0, 4 / 3), "epochs": _HALVES, "rank": _HALVES,
}  # fmt: skip
"""Of such a parameter the values are the model's own one, times these."""

_FIXED = {"dropout": (0.0, 0.3, 0.5, 0.7)}
"""Values of what has the same range for every model, beside the model's own."""


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
        """The setting nearest to the model's own, by ratio."""
        params = self.model.get_params()
        return tuple(_nearest(values, params[name]) for name, values in self.axes.items())

    def neighbours(self, setting: Setting) -> Iterator[Setting]:
        """The next settings along each axis, larger values first."""
        for place, values in enumerate(self.axes.values()):
            for value in beside(values, setting[place]):
                yield (*setting[:place], value, *setting[place + 1 :])

    def named(self, setting: Setting) -> dict[str, Any]:
        """The values by parameter."""
        return dict(zip(self.axes, setting, strict=True))

    def configured(self, setting: Setting, **execution: Any) -> Recommender:
        """The model with these values, not fitted."""
        return _changed(self.model, self.named(setting) | execution)


def model_space(model: Recommender, data: Interactions, given: Mapping[str, Any] | str) -> ModelSpace:
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
    asked = {}
    for axis, values in {} if isinstance(given, str) else given.items():
        if axis not in known:
            raise ParameterError(
                f"{name} has no parameter {axis!r}{did_you_mean(str(axis), known)}; it has {', '.join(known)}",
                parameter="space",
            )
        asked[axis] = _checked(model, axis, values)
    held = _changed(model, {axis: values[0] for axis, values in asked.items() if len(values) == 1})
    own = {axis: _own_values(held, axis, data) for axis in _SEARCHED.get(name, ()) if axis not in asked}
    axes = {axis: asked.get(axis) or own[axis] for axis in _SEARCHED.get(name, ()) if asked.get(axis) or own.get(axis)}
    axes |= {axis: values for axis, values in asked.items() if axis not in axes}
    if not axes:
        how = ": give values of its parameters" if known else ""
        raise ParameterError(f"{name} has nothing to search{how}", parameter="space")
    return ModelSpace(held, axes)


def setting_words(named: Mapping[str, Any]) -> str:
    """Values by parameter as they are typed, to the last digit.

    Examples
    --------
    >>> setting_words({"learning_rate": 0.01, "backbone": "mf", "epochs": 1234567})
    'learning_rate=0.01 backbone=mf epochs=1234567'
    """
    return " ".join(f"{name}={written(value)}" for name, value in named.items())


def _own_values(model: Recommender, axis: str, data: Interactions) -> tuple[Any, ...]:
    """The values of an axis of the model's own space, around what the model has; nothing where it has no such axis."""
    params = model.get_params()
    own = _plain(params[axis])
    typed = own != next(field.default for field in spec_fields(model) if field.name == axis)
    if axis == "l2" and not typed:
        mean = weighted_diagonal(data.matrix, user_weights(data.matrix, params.get("user_power", 0.0))).mean()
        return ridges_around(float(mean))
    if axis == "layers":
        values = set() if params.get("backbone") == "mf" else {own - 1, own, own + 1}
    elif axis in _FIXED:
        values = {*_FIXED[axis], own}
    else:
        own = chosen_rank(None if own is None else min(own, data.n_items), data.n_items) if axis == "rank" else own
        most = data.n_items if axis == "rank" else math.inf
        others = [times for times in _TIMES[axis] if times != 1.0 and own != 0]  # 0 turns a parameter off
        values = {own, *(min(_rounded(own * times, own), most) for times in others)}
    good = tuple(sorted(value for value in values if _is_taken(model, axis, value)))
    return good if len(good) > 1 else ()


def _rounded(value: Any, own: Any) -> Any:
    """A value as one would type it: two digits, and whole where the model's own is."""
    return max(1, round(value)) if isinstance(own, int) else float(f"{value:.2g}")


def _is_taken(model: Recommender, axis: str, value: Any) -> bool:
    """Whether the model takes a value of a parameter."""
    try:
        _changed(model, {axis: value})._check_parameters()
    except ParameterError:
        return False
    return True


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic | np.ndarray) else value


def _checked(model: Recommender, axis: str, values: Any) -> tuple[Any, ...]:
    """Values that were asked for, each of which the model takes."""
    single = isinstance(values, str) or not isinstance(values, Iterable)
    single = single or (isinstance(values, np.ndarray) and values.ndim == 0)
    several = [values] if single else list(values)
    several = [_plain(value) for value in several]
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
    """The value nearest to the model's own, by ratio where there is one; the middle one where that is no number."""
    own = _plain(own)
    if own in values:
        return own
    if not _is_number(own) or not all(map(_is_number, values)):
        return values[len(values) // 2]
    if own > 0 and values[0] > 0:
        return min(values, key=lambda value: abs(math.log(value / own)))
    return min(values, key=lambda value: abs(value - own))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
