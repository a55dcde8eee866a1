"""Plots of items and their weights: what adds up to a score, and what an item has to do with its neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from deql._system.html import shorten
from deql.plotting.drawing import Plot, colour_of, ink, on_paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["contributions", "neighbourhood"]

_WIDEST = 5.0


@Plot
def contributions(axes: Axes, values: Sequence[tuple[str, float]]) -> None:
    """A bar for each name, to the right of zero or to the left, the first one on top."""
    names, numbers = zip(*values, strict=True)
    cast("Figure", axes.figure).set_figheight(1.0 + 0.27 * len(values))
    places = np.arange(len(values))
    axes.barh(places, numbers, height=0.7, color=[colour_of(0 if number >= 0 else 1) for number in numbers])
    axes.axvline(0, color=ink(), linewidth=0.8)
    axes.set_yticks(places, [shorten(name, 32) for name in names])
    axes.set_ylim(len(values) - 0.4, -0.6)
    axes.grid(False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.margins(x=0.16)
    for place, number in enumerate(numbers):
        side = "left" if number >= 0 else "right"
        offset = (3 if number >= 0 else -3, 0)
        axes.annotate(f"{number:+.3f}", (number, place), offset, textcoords="offset points", ha=side, va="center",
                      fontsize=8, bbox=on_paper(0.5))  # fmt: skip


@Plot
def neighbourhood(axes: Axes, names: Sequence[str], weights: NDArray[np.float64]) -> None:
    """The first name in the middle of the others; the wider an arrow, the larger its weight."""
    from matplotlib.patches import FancyArrowPatch

    axes.set_axis_off()
    axes.set(xlim=(-1.75, 1.75), ylim=(-1.25, 1.25), aspect="equal")
    around = len(names) - 1
    angles = [math.pi / 2 - 2 * math.pi * place / max(around, 1) for place in range(around)]
    places = [(0.0, 0.0), *((math.cos(angle), math.sin(angle)) for angle in angles)]
    largest = np.abs(weights - np.diag(np.diag(weights))).max() or 1.0
    edges = sorted(zip(*np.nonzero(weights), strict=True), key=lambda edge: -abs(weights[edge]))
    middle = [edge for edge in edges if edge[0] != edge[1] and 0 in edge]
    # Of the weights between neighbours only the strongest: all of them would hide the others.
    beside = [edge for edge in edges if edge[0] != edge[1] and 0 not in edge][:around]
    for source, target in middle + beside:
        weight, faint = weights[source, target], 0 not in (source, target)
        arrow = FancyArrowPatch(
            places[source], places[target], connectionstyle="arc3,rad=0.12", arrowstyle="-|>", mutation_scale=9,
            shrinkA=7, shrinkB=7, linewidth=0.4 + _WIDEST * abs(weight) / largest,
            color=colour_of(0 if weight > 0 else 1), alpha=0.25 if faint else 0.7, zorder=1 if faint else 2,
        )  # fmt: skip
        axes.add_patch(arrow)
    for place, (name, (x, y)) in enumerate(zip(names, places, strict=True)):
        axes.plot([x], [y], "o", color=ink(), markersize=9 if place == 0 else 6, zorder=3)
        side = "center" if abs(x) < 0.3 else "left" if x > 0 else "right"
        style: dict[str, Any] = {"fontweight": "bold"} if place == 0 else {}
        axes.annotate(
            shorten(name, 24), (x, y), (0 if side == "center" else math.copysign(8, x), 8 if y >= 0 else -8),
            textcoords="offset points", ha=side, va="bottom" if y >= 0 else "top", fontsize=9, zorder=4,
            bbox=on_paper(0.8), annotation_clip=False, **style,
        )  # fmt: skip
