"""The walk on a grid: from a point to a better neighbour, until no neighbour is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from deql.tuning.space import Point

__all__ = ["PointGrid", "beside", "walk"]

_START_DROPOUT, _START_USER_POWER = 0.5, 0.4
"""Where a walk begins when nothing is known: in the middle of what won elsewhere; l2 there is the mean diagonal."""


Place = TypeVar("Place", bound=Hashable)
Value = TypeVar("Value")


def walk(
    start: Place,
    neighbours: Callable[[Place], Sequence[Place]],
    measure: Callable[[Place, Place], float | None],
    least_gain: Callable[[Place], float] = lambda _: 0.0,
) -> Place:
    """Step to a better neighbour until there is none; each point is measured at most once.

    Parameters
    ----------
    start
        A point, or anything that has neighbours.
    neighbours : callable
        Of a point, in the order in which they are tried.
    measure : callable
        What a point is worth, larger is better, asked for with the point at which the walk stands; None ends the
        walk, such as where a budget is spent.
    least_gain : callable
        A neighbour must be better than the point by more than this to be stepped to: a smaller gain is a tie, and
        going after ties is how a walk becomes long without getting anywhere.

    Returns
    -------
        Where it ended. A tie that was not stepped to may be worth a little more.

    Examples
    --------
    >>> line = [Point(float(l2), 0.0, 0.0) for l2 in range(10)]
    >>> asked = []
    >>> def measure(point, here):
    ...     asked.append(int(point.l2))
    ...     return -abs(point.l2 - 4.2)
    >>> def beside(point):
    ...     return [line[place] for place in (int(point.l2) - 1, int(point.l2) + 1) if 0 <= place < 10]
    >>> int(walk(line[2], beside, measure).l2), asked
    (4, [2, 1, 3, 4, 5])
    """
    value = measure(start, start)
    here, known = start, {start: -math.inf if value is None else value}
    while value is not None:
        step = next((one for one in neighbours(here) if one not in known), None)
        if step is None:
            break
        value = measure(step, here)
        if value is not None:
            known[step] = value
            if value > known[here] + least_gain(here):
                here = step
    return here


@dataclass(frozen=True)
class PointGrid:
    """The points of a space as a grid, with neighbours along its axes.

    Parameters
    ----------
    points : sequence of Point
        All combinations, with values of l2 for each user_power and half-life.
    mean_diagonal : callable
        Mean diagonal of the Gram matrix for a user_power and a half-life: what l2 is measured against, so that a step
        to others keeps the ratio of the two as well as the values of l2 allow.

    Examples
    --------
    >>> points = [Point(l2, p, 0.0) for l2 in (1.0, 10.0, 100.0) for p in (0.2, 0.5, 0.8)]
    >>> grid = PointGrid(points, lambda user_power, half_life: 12.0)
    >>> grid.start()
    Point(l2=10.0, dropout=0.5, user_power=0.0, half_life=inf)
    >>> [tuple(point)[:2] for point in grid.neighbours(Point(1.0, 0.5, 0.0))]
    [(10.0, 0.5), (1.0, 0.8), (1.0, 0.2)]
    """

    points: Sequence[Point]
    mean_diagonal: Callable[[float, float], float]

    def start(self) -> Point:
        """The point nearest to where walks on other data ended, with the longest half-life."""
        powers = sorted({point.user_power for point in self.points})
        power = min(powers, key=lambda one: abs(one - _START_USER_POWER))
        dropouts = sorted({point.dropout for point in self.points})
        dropout = min(dropouts, key=lambda one: abs(one - _START_DROPOUT))
        half_life = max(point.half_life for point in self.points)
        aim = self.mean_diagonal(power, half_life)
        return Point(self.nearest_ridge(power, aim, half_life), dropout, power, half_life)

    def neighbours(self, point: Point) -> list[Point]:
        """The next points along each axis, larger values first."""
        found = [point._replace(l2=l2) for l2 in beside(self._ridges(*point[2:]), point.l2)]
        dropouts = sorted({one.dropout for one in self.points})
        found += [point._replace(dropout=dropout) for dropout in beside(dropouts, point.dropout)]
        here = self.mean_diagonal(point.user_power, point.half_life)
        for axis in ("user_power", "half_life"):
            values = sorted({getattr(one, axis) for one in self.points})
            for value in beside(values, getattr(point, axis)):
                other = point._replace(**{axis: value})
                mean = self.mean_diagonal(other.user_power, other.half_life)
                aim = point.l2 * (mean / here if here > 0 else 1.0)
                found.append(other._replace(l2=self.nearest_ridge(other.user_power, aim, other.half_life)))
        return found

    def _ridges(self, user_power: float, half_life: float) -> list[float]:
        return sorted({point.l2 for point in self.points if point[2:] == (user_power, half_life)})

    def nearest_ridge(self, user_power: float, aim: float, half_life: float = math.inf) -> float:
        """The l2 whose ratio to ``aim`` is nearest to 1; where there is none to compare with, the smallest."""
        ridges = self._ridges(user_power, half_life)
        positive = [l2 for l2 in ridges if l2 > 0]
        if not 0 < aim < math.inf or not positive:
            return ridges[0]
        return min(positive, key=lambda l2: abs(math.log(l2) - math.log(aim)))


def beside(values: Sequence[Value], value: Value) -> Iterator[Value]:
    """The next larger and the next smaller of sorted values."""
    place = values.index(value)
    yield from values[place + 1 : place + 2]
    if place:
        yield values[place - 1]
