"""The search space: values that need an inverse each, and values that every inverse gives for nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from deql._system.describe import short_repr
from deql.data.recency import parse_half_life, written_half_life
from deql.errors import ParameterError
from deql.models import DEQL, RDLAE
from deql.priors.prior import Prior
from deql.tuning.prior_space import (
    PRIOR_PARAMETERS,
    PriorLike,
    VariantGrid,
    as_prior_axis,
    check_prior_axis,
    ranks_around,
)

__all__ = [
    "NAMED", "PARAMETERS", "PLAIN", "WITHOUT_PRIOR", "Point", "RuleParameters", "Space", "SpaceLike", "as_space",
    "format_parameters", "ridges_around", "show_value", "with_axes",
]  # fmt: skip

RuleParameters = dict[str, float]
"""Parameters for ``with_rule``: b or xi, popularity_power, and with a prior prior_weight; beside them
prior_power_out, which costs no more once the prior's factors are there."""

PLAIN: RuleParameters = {"b": 0.0, "popularity_power": 0.0}
"""The rule of EDLAE, and of EASE where nothing is dropped."""

_BELOW, _ABOVE = 2, 3


class Point(NamedTuple):
    """A point of the search space: what P depends on."""

    l2: float
    dropout: float
    user_power: float
    half_life: float = math.inf
    """In the unit of the times; infinite where nothing fades."""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Point:
        """The point of a row of the leaderboard, or of a line of the journal, which have no half-life if it is none."""
        half_life = row.get("half_life")
        l2, dropout, user_power = (float(row[name]) for name in cls._fields[:-1])
        return cls(l2, dropout, user_power, math.inf if half_life is None else float(half_life))

    @property
    def fades(self) -> bool:
        """Whether there is a half-life."""
        return self.half_life < math.inf

    def row(self) -> dict[str, Any]:
        """What a row of the leaderboard says of it."""
        return self._asdict() | ({} if self.fades else {"half_life": None})

    def named(self) -> dict[str, float]:
        """Its parameters by name, with a half-life only if it has one."""
        return {name: value for name, value in self._asdict().items() if name != "half_life" or self.fades}


PARAMETERS = (*Point._fields, "b", "xi", "popularity_power", *PRIOR_PARAMETERS)
"""All that a search chooses."""

WITHOUT_PRIOR: dict[str, Any] = dict.fromkeys(PRIOR_PARAMETERS)
"""What a row of the leaderboard says of a prior where there is none."""


def format_parameters(values: Mapping[str, float]) -> str:
    """Parameters as people type them.

    Examples
    --------
    >>> format_parameters(Point(10.0, 0.5, 0.0).named())
    'l2=10 dropout=0.5 user_power=0'
    """
    return " ".join(f"{name}={show_value(name, value)}" for name, value in values.items())


def show_value(name: str, value: float | None) -> str:
    """The value of a parameter as people read it.

    Examples
    --------
    >>> show_value("l2", 30.0), show_value("half_life", 86400.0), show_value("b", None)
    ('30', '1d', '–')
    """
    if value is None:
        return "–"
    shown = written_half_life(value) if name == "half_life" else value
    return shown if isinstance(shown, str) else f"{shown:g}"


@dataclass(frozen=True)
class Space:
    """The values of each hyper-parameter.

    Every combination of l2, dropout, user_power and half_life is an inverse; every combination of the others is scored
    on each of them.

    Parameters
    ----------
    l2 : tuple of float or None
        None takes values around the mean diagonal of the Gram matrix (see :func:`ridges_around`), for each
        user_power and half_life its own, because weights of users and of interactions move what l2 is measured against.
    dropout, user_power : tuple of float
    half_life : tuple of float, str or None
        None stands for interactions that do not fade; others need times.
    b : tuple of float
        Ratios b/a. With 0 the zero diagonal is among them: at the same l2 both are EDLAE.
    xi : tuple of float
        Bounds of RDLAE's diagonal, scored beside the values of b.
    popularity_power : tuple of float
    prior : {"lowpass", "none"}, Prior or None
        What is tried around the best point without a prior; one of one's own has no axes but its weight.
    prior_rank : tuple of int or None
        Of the low pass; None takes two powers of 2 that go with the number of items (see
        :func:`~deql.tuning.prior_space.ranks_around`).
    prior_power_in, prior_power_out : tuple of float
        Of the low pass.
    prior_weight : tuple of float
        Shares of the ridge that pull towards the prior. None of them is always among what is tried.

    Examples
    --------
    >>> space = Space(l2=(10.0, 100.0), dropout=(0.3,), b=(0.0, 1.0), xi=(0.1,), popularity_power=(0.0, 0.2))
    >>> len(space.rules()), [point.l2 for point in space.points(lambda user_power, half_life: 1.0)]
    (6, [10.0, 100.0])
    """

    l2: tuple[float, ...] | None = None
    dropout: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9)
    user_power: tuple[float, ...] = (0.0,)
    b: tuple[float, ...] = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0)
    xi: tuple[float, ...] = ()
    popularity_power: tuple[float, ...] = (0.0,)
    prior: PriorLike = None
    prior_rank: tuple[int, ...] | None = None
    prior_power_in: tuple[float, ...] = (0.0, 0.2, 0.4)
    prior_power_out: tuple[float, ...] = (0.4, 0.6, 0.8)
    prior_weight: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)
    half_life: tuple[float | str | None, ...] = (None,)

    __repr__ = short_repr

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", as_prior_axis(self.prior))
        object.__setattr__(self, "half_life", _half_lives(self.half_life))
        axes = [field.name for field in fields(self) if field.name not in ("prior", "half_life")]
        for name in axes:
            object.__setattr__(self, name, _values(name, getattr(self, name)))
        if not self.b and not self.xi:
            raise ParameterError("the space needs at least one value of b or of xi", parameter="space")
        for name in axes:
            values = getattr(self, name)
            if not values and values is not None and name not in ("b", "xi"):
                raise ParameterError(f"the space needs at least one value of {name}", parameter=name)
            if name in PRIOR_PARAMETERS:
                check_prior_axis(name, values or ())
                continue
            kind = RDLAE if name == "xi" else DEQL
            for value in values or ():
                kind(**{name: value})._check_parameters()
        if self.prior_rank is not None:
            object.__setattr__(self, "prior_rank", tuple(sorted(map(int, self.prior_rank))))
        # What is held fixed at 0 is no prior at all.
        weights = tuple(weight for weight in self.prior_weight if weight > 0)
        object.__setattr__(self, "prior_weight", weights)
        if not weights:
            object.__setattr__(self, "prior", None)

    @property
    def lengths(self) -> tuple[float, ...]:
        """The half-lives in the unit of the times; infinite where nothing fades."""
        return tuple(math.inf if one is None else parse_half_life(one) for one in self.half_life)

    def points(self, mean_diagonal: Callable[[float, float], float]) -> list[Point]:
        """All combinations that need an inverse of their own, user_power by user_power.

        Parameters
        ----------
        mean_diagonal : callable
            Mean diagonal of the Gram matrix for a user_power and a half-life.
        """
        return [
            Point(l2, dropout, user_power, half_life)
            for half_life, user_power in product(self.lengths, self.user_power)
            for l2, dropout in product(self.ridges(mean_diagonal(user_power, half_life)), self.dropout)
        ]

    def rules(self) -> list[RuleParameters]:
        """All combinations that share an inverse."""
        main = [{"b": b} for b in self.b] + [{"xi": xi} for xi in self.xi]
        return [rule | {"popularity_power": power} for power in self.popularity_power for rule in main]

    def prior_rules(self, fixed: Mapping[str, float]) -> list[RuleParameters]:
        """The rules that share a prior's factors and have what is ``fixed``, such as b or prior_weight."""
        outs: Sequence[dict[str, float]] = [{}]
        if self.prior == "lowpass":
            outs = [{"prior_power_out": power} for power in self.prior_power_out]
        weights = [{"prior_weight": weight} for weight in self.prior_weight]
        every = [rule | out | weight for rule in self.rules() for out in outs for weight in weights]
        return [rule for rule in every if all(rule.get(name) == value for name, value in fixed.items())]

    def variants(self, n_items: int, most: int) -> VariantGrid:
        """What is tried of the prior where there are so many items, and ``most`` eigenvectors."""
        if isinstance(self.prior, Prior):
            return VariantGrid((None,), (None,))
        ranks = self.prior_rank or ranks_around(n_items, most)
        if ranks[-1] > most:
            raise ParameterError(
                f"a low pass of rank {ranks[-1]:,} needs as many eigenvectors, and the data that are learned from have "
                f"at most {most:,}: choose a lower prior_rank",
                parameter="prior_rank",
            )
        return VariantGrid(ranks, sorted(self.prior_power_in))

    def ridges(self, mean_diagonal: float) -> tuple[float, ...]:
        """The values of l2 where the Gram matrix has this mean diagonal."""
        return self.l2 or ridges_around(mean_diagonal)

    def to_dict(self) -> dict[str, Any]:
        """Plain values by name; nothing of a prior or of half-lives where there are none."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.half_life == (None,):
            del plain["half_life"]
        if isinstance(self.prior, Prior):
            return {name: value for name, value in plain.items() if name not in PRIOR_PARAMETERS[:-1]} | {
                "prior": self.prior.config
            }
        names = () if self.prior else ("prior", *PRIOR_PARAMETERS)
        return {name: value for name, value in plain.items() if name not in names}


def ridges_around(mean_diagonal: float) -> tuple[float, ...]:
    """Six values of the series …, 1, 3, 10, 30, … around the mean diagonal: from a tenth of it to thirty times as much.

    Examples
    --------
    >>> ridges_around(24.0)
    (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
    >>> ridges_around(0.1)
    (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
    """
    if not 0 < mean_diagonal < math.inf:
        raise ParameterError(
            f"l2 cannot go by the mean diagonal, which is {mean_diagonal:g}: give values of l2", parameter="l2"
        )
    middle = round(2 * math.log10(mean_diagonal))
    steps = range(middle - _BELOW, middle + _ABOVE + 1)
    return tuple(float(f"{(1, 3)[step % 2]}e{step // 2}") for step in steps)


Values: TypeAlias = float | str | Iterable[float | str | None] | None
"""Of one hyper-parameter: a single one, several, or None for those that go with the data; half-lives may be text."""

SpaceLike: TypeAlias = str | Space | Mapping[str, Values | PriorLike]
"""A space, its name, or values by hyper-parameter in place of those of the default space."""


def as_space(space: SpaceLike) -> Space:
    """A space from its name, or from values that take the place of those of the default space.

    Examples
    --------
    >>> as_space({"b": 1, "l2": [10, 20]}).b
    (1.0,)
    >>> as_space("paper").dropout
    (0.1, 0.2, 0.3, 0.4, 0.5, 0.8)
    """
    if isinstance(space, Space):
        return space
    if isinstance(space, str):
        if space not in NAMED:
            raise ParameterError(
                f"there is no space {space!r}: say {', '.join(NAMED)}, or give values", parameter="space"
            )
        return NAMED[space]
    if not isinstance(space, Mapping):
        raise ParameterError(f"a space is a name, a dict of values or a Space, got {space!r}", parameter="space")
    return with_axes(DEFAULT, space)


def with_axes(space: Space, axes: Mapping[str, Values | PriorLike]) -> Space:
    """The space with other values of some hyper-parameters; a single value holds one fixed."""
    names = [field.name for field in fields(Space)]
    for name in axes:
        if name == "zero_diagonal":
            raise ParameterError(
                "zero_diagonal is no axis of the space: at the same l2 it is b = 0, so add 0 to b",
                parameter="zero_diagonal",
            )
        if name not in names:
            raise ParameterError(f"a space has no {name!r}: it has {', '.join(names)}", parameter="space")
    given: dict[str, Any] = dict(axes)  # the space makes tuples of them
    return replace(space, **given)


def _values(name: str, values: Any) -> tuple[float, ...] | None:
    if name in ("l2", "prior_rank") and values is None:
        return None
    values = values.tolist() if hasattr(values, "tolist") else values
    several = values if isinstance(values, Iterable) and not isinstance(values, str | bytes) else [values]
    numbers = []
    for value in several:
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            raise ParameterError(f"{name} must be a number or a list of numbers, got {value!r}", parameter=name)
        try:
            numbers.append(float(value))
        except OverflowError:
            raise ParameterError(f"{name} has a number that is too large", parameter=name) from None
    return tuple(dict.fromkeys(numbers))


def _half_lives(values: Any) -> tuple[float | str | None, ...]:
    """Half-lives as they are typed, each once; None for none."""
    values = values.tolist() if hasattr(values, "tolist") else values
    several = values if isinstance(values, Iterable) and not isinstance(values, str | bytes) else [values]
    lengths = dict.fromkeys(None if value is None else parse_half_life(value) for value in several)
    if not lengths:
        raise ParameterError("the space needs at least one value of half_life", parameter="half_life")
    return tuple(None if length is None else written_half_life(length) for length in lengths)


DEFAULT = Space(user_power=(0.0, 0.4, 0.8), popularity_power=(0.0, 0.1, 0.2, 0.3), prior="lowpass")

NAMED = {
    "default": DEFAULT,
    # A few inverses: what a first model is worth waiting for.
    "quick": replace(
        DEFAULT,
        dropout=(0.0, 0.3, 0.6, 0.8),
        user_power=(0.0, 0.5),
        popularity_power=(0.0, 0.1, 0.2),
        prior_power_in=(0.2,),
        prior_weight=(0.5, 1.0, 2.0),
    ),
    # The paper's ranges of b, p and λ, with λ read as l2.
    "paper": Space(
        l2=(10.0, 20.0, 30.0, 40.0, 50.0, 100.0, 300.0, 500.0),
        dropout=(0.1, 0.2, 0.3, 0.4, 0.5, 0.8),
        b=(0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0),
    ),
}
"""Spaces by name."""
