"""Plots of plain values.

Each function is called with :class:`Labels` where it takes axes, and returns a fragment of SVG for a page: no file, no
script, and colours that follow the page's. Its ``panel`` is the same for :func:`deql.plotting.figures.figure`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deql.plotting.drawing import (
    COLOURS,
    Labels,
    Plot,
    colour_of,
    curve,
    ink,
    log_axis,
    log_range,
    mark,
    marker_of,
    name_rows,
    on_paper,
    round_ticks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "COLOURS", "Interval", "Labels", "agreement", "band", "costs", "differences", "distribution", "effect",
    "histogram", "interaction", "intervals", "learning", "lines", "optimum", "peaks", "reported_and_found", "scatter",
    "shares", "splits",
]  # fmt: skip

Interval = tuple[float, float, float]


def _dashed() -> dict[str, Any]:
    return {"color": ink(), "linewidth": 0.8, "linestyle": (0, (4, 3)), "alpha": 0.6}


@Plot
def intervals(axes: Axes, values: Mapping[str, Interval], colours: Sequence[int] | None = None) -> None:
    """One dot for each model, with its interval: value, low, high; each in its own colour, if none are given."""
    name_rows(axes, list(values))
    for row, (value, low, high) in enumerate(values.values()):
        place = row if colours is None else colours[row]
        axes.plot([low, high], [row, row], color=colour_of(place), linewidth=2, solid_capstyle="butt")
        axes.plot([value], [row], marker_of(place), color=colour_of(place), markersize=6)


@Plot
def shares(axes: Axes, values: Mapping[str, NDArray[np.float64]]) -> None:
    """Share of users with at least this value, a curve for each model."""
    for row, sample in enumerate(values.values()):
        levels, counts = np.unique(np.round(sample, 4), return_counts=True)
        at_least = np.cumsum(counts[::-1])[::-1] / len(sample)
        # Many users, many levels: a few hundred points draw the same curve.
        kept = np.unique(np.linspace(0, len(levels) - 1, 300).astype(int))
        curve(axes, row, levels[kept], at_least[kept], marker=False, drawstyle="steps-pre")
    axes.set_ylim(0, 1.02)


@Plot
def distribution(axes: Axes, values: Sequence[float]) -> None:
    """How many of some values, of which most are between 0 and 1, fall into each of twenty ranges; their mean."""
    sample = np.asarray(values, np.float64)
    ends = (min(0.0, float(sample.min())), max(1.0, float(sample.max())))
    counts, edges = np.histogram(sample, bins=20, range=ends)
    axes.stairs(counts / len(sample), edges, fill=True, color=colour_of(0))
    mean = float(sample.mean())
    axes.axvline(mean, color=ink(), linewidth=1.2)
    offset, side = (5, "left") if mean < sum(ends) / 2 else (-5, "right")
    axes.annotate(f"mean {mean:.4f}", (mean, 0.97), (offset, 0), xycoords=axes.get_xaxis_transform(),
                  textcoords="offset points", ha=side, va="top", bbox=on_paper())  # fmt: skip
    axes.margins(y=0.15)


@Plot
def lines(
    axes: Axes,
    x: Sequence[float] | Sequence[str],
    values: Mapping[str, Sequence[float]],
    errors: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """A curve for each model over numbers, or over groups that are named."""
    named = isinstance(x[0], str)
    places = np.arange(len(x), dtype=float) if named else np.asarray(x, np.float64)
    for row, (model, y) in enumerate(values.items()):
        beside = (row - (len(values) - 1) / 2) * 0.06 if named else 0.0
        curve(axes, row, places + beside, np.asarray(y), marker=len(x) <= 12)
        if errors is not None:
            axes.errorbar(places + beside, y, errors[model], color=colour_of(row), fmt="none", linewidth=1)
    if named:
        axes.set_xticks(places, [str(label) for label in x])
    else:
        axes.locator_params(axis="x", integer=True)


@Plot
def splits(axes: Axes, values: Mapping[str, NDArray[np.float64]]) -> None:
    """A row for each model: a small dot for each split, a stroke at the mean."""
    name_rows(axes, list(values))
    for row, sample in enumerate(values.values()):
        colour = colour_of(row)
        axes.plot(sample, np.full(len(sample), row), marker_of(row), color=colour, markersize=5, alpha=0.6)
        axes.plot([sample.mean()] * 2, [row - 0.13, row + 0.13], color=colour, linewidth=2.5)


@Plot
def differences(axes: Axes, values: Mapping[str, tuple[int, NDArray[np.float64], Interval]]) -> None:
    """A row for each pair of models: dots of the pairs, their mean and its interval, against zero.

    A row far beyond the others is written at the edge instead.
    ``values`` holds for each row the number of its colour, the dots (none for many) and the interval.
    """

    reach: list[float] = [max(np.abs([*sample, low, high])) for _, sample, (_, low, high) in values.values()]
    # One model far behind must not squeeze all others onto the zero line.
    limit = 1.1 * max((one for one in reach if one <= 8 * sorted(reach)[(len(reach) - 1) // 2]), default=0.0) or 1.0
    name_rows(axes, list(values))
    axes.axvline(0, color=ink(), linewidth=0.8)
    axes.set_xlim(-limit, limit)
    for row, (place, sample, (value, low, high)) in enumerate(values.values()):
        colour = colour_of(place)
        if reach[row] > limit:
            side = 1 if value > 0 else -1
            text = f"{value:+.4f} →" if side > 0 else f"← {value:+.4f}"
            axes.text(side * limit, row + 0.1, text, ha="right" if side > 0 else "left", va="center", color=colour,
                      bbox=on_paper())  # fmt: skip
            continue
        axes.plot(sample, np.full(len(sample), row), "o", color=colour, markersize=4, alpha=0.5)
        axes.plot([low, high], [row + 0.18, row + 0.18], color=colour, linewidth=2, solid_capstyle="butt")
        axes.plot([value], [row + 0.18], marker_of(place), color=colour, markersize=6)


@Plot
def optimum(
    axes: Axes, colour: int, x: Sequence[float], values: Sequence[float], errors: Sequence[float], best: int
) -> None:
    """One curve within its standard errors, its best place marked, and a thin line where x is 1."""
    y, spread = np.asarray(values), np.nan_to_num(errors)
    axes.margins(y=0.12)
    axes.fill_between(x, y - spread, y + spread, color=colour_of(colour), alpha=0.15, linewidth=0)
    _mark_equal(axes)
    axes.plot(x, y, color=colour_of(colour), linewidth=1.8)
    mark(axes, x[best], y[best], f"{axes.get_xlabel()} = {x[best]:g}")


@Plot
def peaks(axes: Axes, x: Sequence[float], values: Sequence[Sequence[float]], chosen: Sequence[float]) -> None:
    """Curves over one x, a star at the peak of each and a ring at the x chosen for it; a thin line where x is 1."""
    axes.margins(y=0.14)
    _mark_equal(axes)
    for row, (y, place) in enumerate(zip(values, chosen, strict=True)):
        curve(axes, row, x, y, marker=False)
        axes.plot([place], [y[x.index(place)]], "o", color=colour_of(row), markersize=9, fillstyle="none")
    tops = [max(y) for y in values]
    for y, top in zip(values, tops, strict=True):
        peak = x[y.index(top)]
        mark(axes, peak, top, f"{axes.get_xlabel()} = {peak:g}", below=top < max(tops))


@Plot
def histogram(axes: Axes, edges: Sequence[float], counts: Sequence[int], between: tuple[float, float]) -> None:
    """How many fall between neighbouring edges; a range of interest is shaded."""
    axes.axvspan(*between, color=ink(), alpha=0.12, linewidth=0)
    axes.stairs(counts, edges, fill=True, color=colour_of(0))
    axes.set_xlim(min(0.0, edges[0]), max(edges[-1], between[1]))


@Plot
def band(axes: Axes, x: Sequence[float], values: Sequence[float], low: Sequence[float], high: Sequence[float]) -> None:
    """One curve over a log axis, and the band that it lies in."""
    place = log_axis(axes, x)
    places = [place[value] for value in x]
    axes.fill_between(places, low, high, color=colour_of(0), alpha=0.15, linewidth=0)
    curve(axes, 0, places, values, marker=True)


@Plot
def interaction(
    axes: Axes,
    values: Mapping[int, Mapping[float, float]],
    best: tuple[float, float] | None,
    limits: tuple[float, float],
    log: bool,
) -> None:
    """A line for each number of a colour: y by x. The best of all is marked if it is among them.

    ``limits`` are the least and the greatest y, so that several figures have one scale.
    """
    xs = sorted({x for line in values.values() for x in line})
    place = log_axis(axes, xs) if log else dict(zip(xs, xs, strict=True))
    for colour, line in values.items():
        points = sorted(line.items())
        curve(axes, colour, [place[x] for x, _ in points], [y for _, y in points], marker=True)
    margin = 0.08 * (limits[1] - limits[0]) or 0.01
    axes.set_ylim(limits[0] - margin, limits[1] + 2 * margin)
    if best is not None:
        mark(axes, place[best[0]], best[1], f"{best[1]:.4f}")


@Plot
def effect(
    axes: Axes,
    values: Mapping[float, float],
    best: tuple[float, float] | None,
    limits: tuple[float, float],
    references: Mapping[str, float],
    log: bool,
    line: bool,
) -> None:
    """y by x, as a line or as dots; the best is marked, and thin lines stand for what is known already.

    ``limits`` are the least and the greatest y of several figures with one scale. A reference far from these is written
    at the edge instead.
    """
    xs = list(values)
    place = log_axis(axes, xs) if log else dict(zip(xs, xs, strict=True))
    room = (limits[1] - limits[0]) or abs(limits[1]) * 0.1 or 0.01
    near = {name: y for name, y in references.items() if limits[0] - room < y < limits[1] + room}
    low, high = min(limits[0], *near.values(), limits[1]), max(limits[1], *near.values(), limits[0])
    margin = 0.12 * ((high - low) or room)
    axes.set_ylim(low - (1.6 if len(near) < len(references) else 1) * margin, high + 1.6 * margin)
    if line:
        curve(axes, 0, [place[x] for x in xs], list(values.values()), marker=True)
    else:
        axes.plot([place[x] for x in xs], list(values.values()), "o", color=colour_of(0), markersize=5, alpha=0.6)
    if not log:
        axes.margins(x=0.06)
        if line:
            axes.set_xticks(_apart(xs), [f"{x:g}" for x in _apart(xs)])
    if best is not None:
        mark(axes, place[best[0]], best[1], f"{best[1]:.4f}")
    for name, y in references.items():
        below, colour = y < limits[0], colour_of(1 if name == "EASE" else 2)
        where, arrow = (axes.get_ylim()[0], " ↓") if below else (axes.get_ylim()[1], " ↑")
        side = "bottom" if below else "top"
        if name in near:
            where, arrow = y, ""
            axes.axhline(y, color=colour, linewidth=1.2, linestyle=(0, (5, 2)))
        # Above the grid, below the curve, at the end that the curve is farther from and on the side where it is not.
        first, last = (values[x] - where for x in (xs[0], xs[-1]))
        across, end, off = (0.99, "right", last) if abs(last) >= abs(first) else (0.01, "left", first)
        if name in near:
            side = "bottom" if off < 0 else "top"
        axes.annotate(f"{name} {y:.4f}{arrow}", (across, where), (0, 3 if side == "bottom" else -3),
                      xycoords=axes.get_yaxis_transform(), textcoords="offset points", ha=end, va=side, fontsize=9,
                      color=colour, bbox=on_paper(), zorder=1.6)  # fmt: skip


def _apart(xs: Sequence[float]) -> list[float]:
    """Values whose labels do not touch."""
    shown: list[float] = []
    for x in xs:
        if not shown or x - shown[-1] >= 0.07 * (xs[-1] - xs[0]):
            shown.append(x)
    return shown


@Plot
def scatter(axes: Axes, points: Sequence[tuple[float, float, float]], best: int) -> None:
    """Points x (on a log axis), y, and how strong each is, from 0 to 1; the best one is marked."""
    place = log_axis(axes, sorted({x for x, _, _ in points}))
    for x, y, strength in sorted(points, key=lambda point: point[2]):
        axes.plot([place[x]], [y], "o", color=colour_of(0), markersize=9, alpha=0.08 + 0.92 * strength)
        axes.plot([place[x]], [y], "o", color=colour_of(0), markersize=9, fillstyle="none", markeredgewidth=0.7)
    axes.margins(y=0.12)
    mark(axes, place[points[best][0]], points[best][1], "best")


@Plot
def agreement(axes: Axes, x: Sequence[float], y: Sequence[float], best: int) -> None:
    """Two measurements of the same things against each other; the best one is marked."""
    axes.margins(x=0.06, y=0.14)
    axes.plot(x, y, "o", color=colour_of(0), markersize=5, alpha=0.6)
    mark(axes, x[best], y[best], "best")
    axes.locator_params(axis="x", nbins=5)


@Plot
def reported_and_found(axes: Axes, values: Mapping[str, tuple[float | None, float | None]], border: float) -> None:
    """A row for each thing: a ring where it was reported, a dot where it was found; a thin line at the border."""
    name_rows(axes, list(values), height=0.38)
    axes.axvline(border, **_dashed())
    for row, (reported, found) in enumerate(values.values()):
        if found is not None:
            axes.plot([found], [row], "o", color=ink(), markersize=4.5)
        if reported is not None:
            axes.plot([reported], [row], "o", color=ink(), markersize=8, fillstyle="none")
    axes.set_xlim(left=0)


@Plot
def costs(axes: Axes, groups: Mapping[str, Sequence[tuple[float, float]]], floor: tuple[str, float]) -> None:
    """Points on log axes, a colour and a name for each group; ``floor`` names a thin line and says where it is."""
    xs = log_range([x for group in groups.values() for x, _ in group])
    ys = log_range([floor[1], *(y for group in groups.values() for _, y in group)])
    for axis, (low, high) in (("x", xs), ("y", ys)):
        ticks = round_ticks(low, high, (1, 2, 5))
        getattr(axes, f"set_{axis}scale")("log")
        getattr(axes, f"set_{axis}ticks")(ticks, [f"{tick:g}" for tick in ticks])
        getattr(axes, f"set_{axis}lim")(low, high)
    axes.minorticks_off()
    axes.axhline(floor[1], **_dashed())
    axes.text(0.99, floor[1], floor[0], transform=axes.get_yaxis_transform(), ha="right", va="top", fontsize=9,
              bbox=on_paper())  # fmt: skip
    for row, (group, points) in enumerate(groups.items()):
        colour = colour_of(row)
        axes.plot(*zip(*points, strict=True), marker_of(row), color=colour, markersize=6, alpha=0.7)
        middle = math.exp(sum(math.log(x) for x, _ in points) / len(points))
        across = math.log(middle / xs[0]) / math.log(xs[1] / xs[0])
        side = "left" if across < 0.3 else "right" if across > 0.7 else "center"
        axes.annotate(group, (middle, max(y for _, y in points)), (0, 6), textcoords="offset points", ha=side,
                      color=colour, bbox=on_paper())  # fmt: skip


@Plot
def learning(axes: Axes, curves: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """y over seconds on a log axis: a curve for each thing that was trained; one point is of a thing that was solved.

    A solved one's line goes on to the right: there is nothing to wait for.
    """
    low, high = log_range([x for points in curves.values() for x, _ in points])
    ticks = round_ticks(low, high, (1, 3))
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlim(low, high)
    for row, points in enumerate(curves.values()):
        if len(points) == 1:
            (x, y), colour = points[0], colour_of(row)
            axes.plot([x, high], [y, y], color=colour, linewidth=1.2, linestyle=(0, (1.5, 1.2)))
            axes.plot([x], [y], marker_of(row), color=colour, markersize=8)
        else:
            curve(axes, row, [x for x, _ in points], [y for _, y in points], marker=True)


def _mark_equal(axes: Axes) -> None:
    """A thin line where b is a."""
    axes.axvline(1, **_dashed())
    axes.text(1, 0.02, " b = a", transform=axes.get_xaxis_transform(), va="bottom", bbox=on_paper())
