"""Plots of things that lie apart: what was reported beside what was found, and costs over orders of magnitude."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deql.report.drawing import INK, colour_of, figure, marker_of, name_rows, round_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["beside", "costs"]

_DASHED: dict[str, Any] = {"color": INK, "linewidth": 0.8, "linestyle": (0, (4, 3)), "alpha": 0.6}


def beside(
    name: str, title: str, values: Mapping[str, tuple[float | None, float | None]], xlabel: str, border: float
) -> str:
    """A row for each thing: a ring where it was reported, a dot where it was found; a thin line at the border."""

    def draw(axes: Axes) -> None:
        name_rows(axes, list(values))
        axes.axvline(border, **_DASHED)
        for row, (reported, found) in enumerate(values.values()):
            if found is not None:
                axes.plot([found], [row], "o", color=INK, markersize=4.5)
            if reported is not None:
                axes.plot([reported], [row], "o", color=INK, markersize=8, fillstyle="none")
        axes.set_xlim(left=0)
        axes.set_xlabel(xlabel)

    return figure(name, title, draw, 0.75 + 0.38 * len(values))


def costs(
    name: str,
    title: str,
    groups: Mapping[str, Sequence[tuple[float, float]]],
    xlabel: str,
    ylabel: str,
    floor: tuple[str, float],
) -> str:
    """Points on log axes, a colour and a name for each group; ``floor`` names a thin line and says where it is."""
    xs = log_range([x for group in groups.values() for x, _ in group])
    ys = log_range([floor[1], *(y for group in groups.values() for _, y in group)])

    def draw(axes: Axes) -> None:
        for axis, (low, high) in (("x", xs), ("y", ys)):
            ticks = round_ticks(low, high, (1, 2, 5))
            getattr(axes, f"set_{axis}scale")("log")
            getattr(axes, f"set_{axis}ticks")(ticks, [f"{tick:g}" for tick in ticks])
            getattr(axes, f"set_{axis}lim")(low, high)
        axes.minorticks_off()
        axes.axhline(floor[1], **_DASHED)
        axes.text(0.99, floor[1], floor[0], transform=axes.get_yaxis_transform(), ha="right", va="top", fontsize=9)
        for row, (group, points) in enumerate(groups.items()):
            colour = colour_of(row)
            axes.plot(*zip(*points, strict=True), marker_of(row), color=colour, markersize=6, alpha=0.7)
            middle = math.exp(sum(math.log(x) for x, _ in points) / len(points))
            across = math.log(middle / xs[0]) / math.log(xs[1] / xs[0])
            side = "left" if across < 0.3 else "right" if across > 0.7 else "center"
            axes.annotate(group, (middle, max(y for _, y in points)), (0, 6), textcoords="offset points", ha=side,
                          color=colour)  # fmt: skip
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)

    return figure(name, title, draw)


def log_range(values: Sequence[float]) -> tuple[float, float]:
    """Limits of a log axis: some room around the values, and no less than a factor of ten.

    Examples
    --------
    >>> log_range([1.0, 100.0])
    (0.5, 200.0)
    >>> low, high = log_range([1.0])
    >>> round(high / low, 6)
    10.0
    """
    low, high = min(values) / 2, max(values) * 2
    missing = max(1.0, math.sqrt(10 * low / high))
    return low / missing, high * missing
