"""Plots as SVG fragments for a page: no file, no script, and colours that follow the page's.

Figures are drawn in stand-in colours, which then become CSS variables of the page (``--ink``, ``--grid``,
``--c0`` …), so that one drawing is right on light and on dark paper. They are narrow, because text in an
SVG shrinks with it and must be read on a phone.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deql.errors import DeqlError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "COLOURS", "MARKERS", "Interval", "agreement", "differences", "interaction", "intervals", "lines",
    "need_matplotlib", "optimum", "scatter", "shares", "splits",
]  # fmt: skip

COLOURS = 8
MARKERS = "osD^vPX*"
_INK, _GRID = "#0a0b0c", "#0a0b0d"
_COLOUR = [f"#0a0c0{place}" for place in range(COLOURS)]
_VARIABLES = {_INK: "ink", _GRID: "grid"} | {colour: f"c{place}" for place, colour in enumerate(_COLOUR)}
_WIDTH = 4.0
_MOST_TICKS = 8

Interval = tuple[float, float, float]


def need_matplotlib() -> None:
    """Say what to install, before the long work begins."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise DeqlError('reports need matplotlib: pip install "deql[report]"') from None


def intervals(name: str, title: str, values: Mapping[str, Interval], xlabel: str) -> str:
    """One dot for each model, with its interval: value, low, high."""

    def draw(axes: Axes) -> None:
        _rows(axes, list(values))
        for row, (value, low, high) in enumerate(values.values()):
            colour = _COLOUR[row % COLOURS]
            axes.plot([low, high], [row, row], color=colour, linewidth=2, solid_capstyle="butt")
            axes.plot([value], [row], MARKERS[row % COLOURS], color=colour, markersize=6)
        axes.set_xlabel(xlabel)

    return _figure(name, title, draw, _height(len(values)))


def shares(name: str, title: str, values: Mapping[str, NDArray[np.float64]], xlabel: str) -> str:
    """Share of users with at least this value, a curve for each model."""

    def draw(axes: Axes) -> None:
        for row, sample in enumerate(values.values()):
            levels, counts = np.unique(np.round(sample, 4), return_counts=True)
            at_least = np.cumsum(counts[::-1])[::-1] / len(sample)
            # Many users, many levels: a few hundred points draw the same curve.
            kept = np.unique(np.linspace(0, len(levels) - 1, 300).astype(int))
            _curve(axes, row, levels[kept], at_least[kept], marker=False, drawstyle="steps-pre")
        axes.set_xlabel(xlabel)
        axes.set_ylabel("share of users")
        axes.set_ylim(0, 1.02)

    return _figure(name, title, draw)


def lines(
    name: str,
    title: str,
    x: Sequence[float] | Sequence[str],
    values: Mapping[str, Sequence[float]],
    xlabel: str,
    ylabel: str,
    errors: Mapping[str, Sequence[float]] | None = None,
) -> str:
    """A curve for each model over numbers, or over groups that are named."""
    named = isinstance(x[0], str)
    places = np.arange(len(x), dtype=float) if named else np.asarray(x, np.float64)

    def draw(axes: Axes) -> None:
        for row, (model, y) in enumerate(values.items()):
            beside = (row - (len(values) - 1) / 2) * 0.06 if named else 0.0
            _curve(axes, row, places + beside, np.asarray(y), marker=len(x) <= 12)
            if errors is not None:
                axes.errorbar(places + beside, y, errors[model], color=_COLOUR[row % COLOURS], fmt="none", linewidth=1)
        if named:
            axes.set_xticks(places, [str(label) for label in x])
        else:
            axes.locator_params(axis="x", integer=True)
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)

    return _figure(name, title, draw)


def splits(name: str, title: str, values: Mapping[str, NDArray[np.float64]], xlabel: str) -> str:
    """A row for each model: a small dot for each split, a stroke at the mean."""

    def draw(axes: Axes) -> None:
        _rows(axes, list(values))
        for row, sample in enumerate(values.values()):
            colour = _COLOUR[row % COLOURS]
            axes.plot(sample, np.full(len(sample), row), MARKERS[row % COLOURS], color=colour, markersize=5, alpha=0.6)
            axes.plot([sample.mean()] * 2, [row - 0.13, row + 0.13], color=colour, linewidth=2.5)
        axes.set_xlabel(xlabel)

    return _figure(name, title, draw, _height(len(values)))


def differences(
    name: str, title: str, values: Mapping[str, tuple[int, NDArray[np.float64], Interval]], xlabel: str
) -> str:
    """A row for each pair of models: dots of the pairs, their mean and its interval, against zero.

    A row far beyond the others is written at the edge instead.
    ``values`` holds for each row the number of its colour, the dots (none for many) and the interval.
    """

    reach = [max(np.abs([*sample, low, high])) for _, sample, (_, low, high) in values.values()]
    # One model far behind must not squeeze all others onto the zero line.
    limit = 1.1 * max((one for one in reach if one <= 8 * np.median(reach)), default=0.0) or 1.0

    def draw(axes: Axes) -> None:
        _rows(axes, list(values))
        axes.axvline(0, color=_INK, linewidth=0.8)
        axes.set_xlim(-limit, limit)
        for row, (place, sample, (value, low, high)) in enumerate(values.values()):
            colour = _COLOUR[place % COLOURS]
            if reach[row] > limit:
                side = 1 if value > 0 else -1
                text = f"{value:+.4f} →" if side > 0 else f"← {value:+.4f}"
                axes.text(side * limit, row + 0.1, text, ha="right" if side > 0 else "left", va="center", color=colour)
                continue
            axes.plot(sample, np.full(len(sample), row), "o", color=colour, markersize=4, alpha=0.5)
            axes.plot([low, high], [row + 0.18, row + 0.18], color=colour, linewidth=2, solid_capstyle="butt")
            axes.plot([value], [row + 0.18], MARKERS[place % COLOURS], color=colour, markersize=6)
        axes.set_xlabel(xlabel)

    return _figure(name, title, draw, _height(len(values)))


def optimum(
    name: str,
    title: str,
    colour: int,
    x: Sequence[float],
    values: Sequence[float],
    errors: Sequence[float],
    best: int,
    xlabel: str,
    ylabel: str,
) -> str:
    """One curve within its standard errors, its best place marked, and a thin line where x is 1."""
    y, spread = np.asarray(values), np.nan_to_num(errors)

    def draw(axes: Axes) -> None:
        axes.margins(y=0.12)
        axes.fill_between(x, y - spread, y + spread, color=_COLOUR[colour], alpha=0.15, linewidth=0)
        axes.axvline(1, color=_INK, linewidth=0.8, linestyle=(0, (4, 3)), alpha=0.6)
        axes.text(1, 0.02, " b = a", transform=axes.get_xaxis_transform(), va="bottom")
        axes.plot(x, y, color=_COLOUR[colour], linewidth=1.8)
        _mark(axes, x[best], y[best], f"{xlabel} = {x[best]:g}")
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)

    return _figure(name, title, draw)


def interaction(
    name: str,
    title: str,
    values: Mapping[int, Mapping[float, float]],
    best: tuple[float, float] | None,
    limits: tuple[float, float],
    xlabel: str,
    ylabel: str,
    log: bool,
) -> str:
    """A line for each number of a colour: y by x. The best of all is marked if it is among them.

    ``limits`` are the least and the greatest y, so that several figures have one scale.
    """

    def draw(axes: Axes) -> None:
        xs = sorted({x for line in values.values() for x in line})
        place = _log_axis(axes, xs) if log else dict(zip(xs, xs, strict=True))
        for colour, line in values.items():
            points = sorted(line.items())
            _curve(axes, colour, [place[x] for x, _ in points], [y for _, y in points], marker=True)
        margin = 0.08 * (limits[1] - limits[0]) or 0.01
        axes.set_ylim(limits[0] - margin, limits[1] + 2 * margin)
        if best is not None:
            _mark(axes, place[best[0]], best[1], f"{best[1]:.4f}")
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)

    return _figure(name, title, draw)


def scatter(
    name: str, title: str, points: Sequence[tuple[float, float, float]], best: int, xlabel: str, ylabel: str
) -> str:
    """Points x (on a log axis), y, and how strong each is, from 0 to 1; the best one is marked."""

    def draw(axes: Axes) -> None:
        place = _log_axis(axes, sorted({x for x, _, _ in points}))
        for x, y, strength in sorted(points, key=lambda point: point[2]):
            axes.plot([place[x]], [y], "o", color=_COLOUR[0], markersize=9, alpha=0.08 + 0.92 * strength)
            axes.plot([place[x]], [y], "o", color=_COLOUR[0], markersize=9, fillstyle="none", markeredgewidth=0.7)
        axes.margins(y=0.12)
        _mark(axes, place[points[best][0]], points[best][1], "best")
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)

    return _figure(name, title, draw)


def agreement(
    name: str, title: str, x: Sequence[float], y: Sequence[float], best: int, xlabel: str, ylabel: str
) -> str:
    """Two measurements of the same things against each other; the best one is marked."""

    def draw(axes: Axes) -> None:
        axes.margins(x=0.06, y=0.14)
        axes.plot(x, y, "o", color=_COLOUR[0], markersize=5, alpha=0.6)
        _mark(axes, x[best], y[best], "best")
        axes.locator_params(axis="x", nbins=5)
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)

    return _figure(name, title, draw)


def _height(rows: int) -> float:
    return 0.75 + 0.52 * rows


def _rows(axes: Axes, labels: Sequence[str]) -> None:
    """Rows from top to bottom, each with its name above: beside it there is no room on a phone."""
    axes.set_ylim(len(labels) - 0.6, -0.65)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    for row, label in enumerate(labels):
        short = label if len(label) <= 44 else label[:43] + "…"
        axes.text(0, row - 0.17, short, transform=axes.get_yaxis_transform(), va="bottom")
    axes.margins(x=0.08)
    axes.locator_params(axis="x", nbins=5)


def _curve(axes: Axes, row: int, x: Any, y: Any, marker: bool, **style: Any) -> None:
    # Dashes tell curves apart where they lie on each other or colours cannot be seen.
    dashes = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
    axes.plot(
        x, y, color=_COLOUR[row % COLOURS], linewidth=1.8, linestyle=dashes[row % len(dashes)],
        marker=MARKERS[row % COLOURS] if marker else None, markersize=4.5, **style,
    )  # fmt: skip


def _mark(axes: Axes, x: float, y: float, label: str) -> None:
    """A star in ink, labelled on the side where there is room."""
    axes.plot([x], [y], "*", color=_INK, markersize=10, zorder=5)
    axes.get_xlim()  # brings the limits up to date, which the transforms take as they are
    across = axes.transAxes.inverted().transform(axes.transData.transform((x, y)))[0]
    offset, side = (6, "left") if across <= 0.5 else (-6, "right")
    axes.annotate(label, (x, y), (offset, 6), textcoords="offset points", fontweight="bold", ha=side, zorder=5)


def _log_axis(axes: Axes, values: Sequence[float]) -> dict[float, float]:
    """The place of each of some ascending values on a log axis; 0, which has none, stands below the others."""
    positive = [value for value in values if value > 0]
    zero = positive[0] / 3 if positive else 1.0
    place = {value: value or zero for value in values}
    low, high = min(place.values()) / 1.3, max(place.values()) * 1.3
    labels = {zero: "0"} if 0 in values else {}
    labels |= {tick: f"{tick:g}" for tick in _log_ticks(positive, math.log(high / low))}
    axes.set_xscale("log")
    axes.set_xticks(list(labels), list(labels.values()))
    axes.minorticks_off()
    axes.set_xlim(low, high)
    return place


def _log_ticks(values: Sequence[float], span: float) -> list[float]:
    """The values themselves if they are few, without those whose labels would touch; else 1, 3, 10, 30, …"""
    if len(values) <= _MOST_TICKS:
        ticks: list[float] = []
        for value in values:
            if not ticks or math.log(value / ticks[-1]) >= 0.08 * span:
                ticks.append(value)
        return ticks
    low, high = values[0], values[-1]
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    digits = (1, 3) if len(decades) <= 5 else (1,)
    round_ones = [tick for step in decades for digit in digits if low <= (tick := float(f"{digit}e{step}")) <= high]
    return round_ones if len(round_ones) > 1 else [low, high]


def _figure(name: str, title: str, draw: Callable[[Axes], None], height: float = 3.0) -> str:
    """An SVG element that belongs to its page: same fonts and colours, ids of its own, a title for readers."""
    from io import StringIO

    import matplotlib
    from matplotlib.figure import Figure

    look: dict[Any, Any] = {
        "svg.fonttype": "none", "svg.hashsalt": name, "font.size": 10, "axes.spines.top": False,
        "axes.spines.right": False, "axes.edgecolor": _GRID, "axes.labelcolor": _INK, "text.color": _INK,
        "xtick.color": _INK, "ytick.color": _INK, "xtick.labelsize": 9, "ytick.labelsize": 9, "grid.color": _GRID,
        "axes.grid": True, "axes.axisbelow": True, "grid.linewidth": 0.6, "axes.xmargin": 0.02,
        "xtick.major.size": 0, "ytick.major.size": 0, "text.parse_math": False, "axes.formatter.useoffset": False,
    }  # fmt: skip
    out = StringIO()
    # Names may hold signs that the font used for measuring lacks; the reader's browser has its own fonts.
    with matplotlib.rc_context(look), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        axes = figure.add_subplot()
        draw(axes)
        figure.savefig(
            out, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
    return _inline(out.getvalue(), name, title)


def _inline(svg: str, name: str, title: str) -> str:
    view = re.search(r'viewBox="([^"]*)"', svg)
    assert view is not None
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    body = body[body.index(">", body.index("<svg")) + 1 :]
    # Only what stands in tags is changed: a model may be named anything.
    body = re.sub(r"<[^>]*>", lambda tag: _at_home(tag[0], name), body)
    label = f'<title id="{name}-title">{escape(title)}</title>'
    head = f'<svg role="img" aria-labelledby="{name}-title" viewBox="{view[1]}">{label}'
    return head + re.sub(r"\s*\n\s*", "\n", body).strip()


def _at_home(tag: str, name: str) -> str:
    """A tag with ids that no other figure has, and with the fonts and colours of the page."""
    tag = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", tag)
    tag = re.sub(r"font-family: [^;\"]*", "font-family: inherit", tag)
    tag = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", tag)
    for colour, variable in _VARIABLES.items():
        tag = tag.replace(colour, f"var(--{variable})")
    return tag
