"""The part of a search space that is about a prior: which ones, and in what order they are tried."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from deql._system.checks import check_range, check_whole
from deql.errors import ParameterError
from deql.priors import LowPass
from deql.priors.prior import Prior

__all__ = [
    "PRIOR_PARAMETERS", "PriorLike", "Variant", "VariantGrid", "as_prior_axis", "check_prior_axis", "ranks_around",
]  # fmt: skip

PRIOR_PARAMETERS = ("prior_rank", "prior_power_in", "prior_power_out", "prior_weight")
"""What a search chooses of a prior, by the names it has beside a model's parameters."""

PriorLike: TypeAlias = str | Prior | None
"""Which prior a space has: "lowpass", "none" or None, or one of one's own."""

_START_POWER = 0.2
_ITEMS_A_RANK = 80
"""Items for each eigenvector, about what low passes that helped had: 512 for 40,000 items."""

_LEAST_RANK = 8
_MOST_SHARE = 0.5
"""Of the eigenvectors that data have."""


class Variant(NamedTuple):
    """A prior up to what costs nothing: its factors. Each needs a product with P and a pass over the users."""

    rank: int | None
    power_in: float | None

    def prior(self, given: PriorLike, power_out: float | None) -> Prior:
        """The prior itself; ``given`` if that is one."""
        if isinstance(given, Prior):
            return given
        assert self.power_in is not None
        assert power_out is not None
        return LowPass(self.rank, self.power_in, power_out)


def as_prior_axis(prior: Any) -> PriorLike:
    """Which prior a space has: None for none.

    Examples
    --------
    >>> as_prior_axis("none") is None, as_prior_axis("lowpass")
    (True, 'lowpass')
    """
    if prior is None or isinstance(prior, Prior) or prior == "lowpass":
        return prior  # type: ignore[no-any-return]
    if prior == "none":
        return None
    raise ParameterError(
        f"the prior of a space is 'lowpass', 'none' or a prior such as deql.priors.ItemFeatures(table), got {prior!r}",
        parameter="prior",
    )


def check_prior_axis(name: str, values: Iterable[float]) -> None:
    """Refuse values that no prior can have."""
    for value in values:
        if name == "prior_rank":
            check_whole(name, int(value) if float(value).is_integer() else value)
        elif name == "prior_weight":
            check_range(name, value, 0.0, math.inf)
        else:
            check_range(name, value, -math.inf, math.inf)


def ranks_around(n_items: int, most: int) -> tuple[int, ...]:
    """Two powers of 2 for so many items, of at most half of the ``most`` eigenvectors that the data have.

    Examples
    --------
    >>> ranks_around(40_981, 29_858), ranks_around(3_570, 5_654), ranks_around(24, 24)
    ((256, 512), (16, 32), (4, 8))
    """
    largest = 2 ** round(math.log2(max(n_items / _ITEMS_A_RANK, _LEAST_RANK)))
    ranks = {max(1, min(rank, int(most * _MOST_SHARE))) for rank in (largest // 2, largest)}
    return tuple(sorted(ranks))


@dataclass(frozen=True)
class VariantGrid:
    """The variants of a prior as a grid, with neighbours along both axes.

    Examples
    --------
    >>> grid = VariantGrid((256, 512), (0.0, 0.2, 0.4))
    >>> grid.start()
    Variant(rank=512, power_in=0.2)
    >>> [tuple(one) for one in grid.neighbours(grid.start())]
    [(256, 0.2), (512, 0.4), (512, 0.0)]
    """

    ranks: Sequence[int | None]
    powers_in: Sequence[float | None]

    def start(self) -> Variant:
        """The largest rank, with a power in the middle of what won elsewhere."""
        power = min(self.powers_in, key=lambda one: abs((one or 0.0) - _START_POWER))
        return Variant(self.ranks[-1], power)

    def neighbours(self, variant: Variant) -> list[Variant]:
        """The next variants along each axis, larger values first."""
        found = [variant._replace(rank=rank) for rank in _beside(self.ranks, variant.rank)]
        return found + [variant._replace(power_in=power) for power in _beside(self.powers_in, variant.power_in)]


def _beside(values: Sequence[Any], value: Any) -> list[Any]:
    place = values.index(value)
    return [*values[place + 1 : place + 2], *values[max(0, place - 1) : place]]
