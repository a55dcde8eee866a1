"""What every plot stands on: a panel that becomes an SVG fragment or axes, its colours, and what axes have in common.

For pages panels are drawn in stand-in colours, which then become CSS variables of the page (``--ink``, ``--grid``,
``--c0`` …), so that one drawing is right on light and on dark paper. They are narrow, because text in an
SVG shrinks with it and must be read on a phone.
"""

from __future__ import annotations

import functools
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, cast

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS", "DARK", "HEIGHT", "LIGHT", "MARKERS", "WIDTH", "Labels", "Palette", "Panel", "Plot", "colour_of",
    "curve", "drawn_in", "ink", "log_axis", "log_range", "mark", "marker_of", "name_rows", "on_paper", "round_ticks",
]  # fmt: skip


@dataclass(frozen=True)
class Palette:
    """Colours of text and lines, of what they stand on, of the grid, and of things that are told apart."""

    ink: str
    paper: str
    grid: str
    colours: tuple[str, ...]


COLOURS = 8
MARKERS = "osD^vPX*"
LIGHT = Palette(
    "#1c2128", "#ffffff", "#ccd2da",
    ("#1f6fc9", "#c4500c", "#2b8a3e", "#a02bb0", "#c92a5b", "#0c8599", "#846a00", "#5c5f66"),
)  # fmt: skip
DARK = Palette(
    "#e6e9ee", "#14171c", "#424a55",
    ("#6cb2ff", "#ff9d5c", "#69db7c", "#e599f7", "#ff8fab", "#66d9e8", "#ffe066", "#ced4da"),
)  # fmt: skip
_STAND_INS = Palette("#0a0b0c", "#0a0b0e", "#0a0b0d", tuple(f"#0a0c0{place}" for place in range(COLOURS)))
_VARIABLES = {_STAND_INS.ink: "ink", _STAND_INS.paper: "card", _STAND_INS.grid: "grid"}
_VARIABLES |= {colour: f"c{place}" for place, colour in enumerate(_STAND_INS.colours)}
_palette: ContextVar[Palette] = ContextVar("palette", default=_STAND_INS)
WIDTH, HEIGHT = 4.0, 3.0
_MOST_TICKS = 8

P = ParamSpec("P")


@dataclass(frozen=True)
class Labels:
    """How a figure is labelled.

    Attributes
    ----------
    name : str
        Its id, which no other figure of the page has.
    title : str
        What is read aloud in its place.
    x, y : str
        The names of the axes.
    """

    name: str
    title: str
    x: str
    y: str = ""


@contextmanager
def drawn_in(palette: Palette) -> Iterator[None]:
    """What is drawn meanwhile has these colours, and the look that all plots share."""
    import matplotlib

    ink, grid = palette.ink, palette.grid
    look: dict[Any, Any] = {
        "svg.fonttype": "none", "font.size": 10, "axes.spines.top": False,
        "axes.spines.right": False, "axes.edgecolor": grid, "axes.labelcolor": ink, "text.color": ink,
        "axes.titlecolor": ink, "xtick.color": ink, "ytick.color": ink, "xtick.labelsize": 9, "ytick.labelsize": 9,
        "grid.color": grid, "axes.grid": True, "axes.axisbelow": True, "grid.linewidth": 0.6, "axes.xmargin": 0.02,
        "xtick.major.size": 0, "ytick.major.size": 0, "text.parse_math": False, "axes.formatter.useoffset": False,
    }  # fmt: skip
    before = _palette.set(palette)
    try:
        with matplotlib.rc_context(look):
            yield
    finally:
        _palette.reset(before)


def ink() -> str:
    """The colour of text and thin lines."""
    return _palette.get().ink


def on_paper(pad: float = 1.0) -> dict[str, Any]:
    """The box of a label that grid lines do not run through."""
    return {"facecolor": _palette.get().paper, "edgecolor": "none", "pad": pad, "alpha": 0.85}


def colour_of(row: int) -> str:
    """A row's colour; after the last it begins anew."""
    return _palette.get().colours[row % COLOURS]


def marker_of(row: int) -> str:
    """The marker that goes with that colour."""
    return MARKERS[row % COLOURS]


def name_rows(axes: Axes, labels: Sequence[str], height: float = 0.52) -> None:
    """Rows from top to bottom, each with its name above: beside it there is no room on a phone."""
    cast("Figure", axes.figure).set_figheight(0.75 + height * len(labels))
    axes.set_ylim(len(labels) - 0.6, -0.65)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    for row, label in enumerate(labels):
        short = label if len(label) <= 44 else label[:43] + "…"
        axes.text(0, row - 0.19, short, transform=axes.get_yaxis_transform(), va="bottom", bbox=on_paper())
    axes.margins(x=0.08)
    axes.locator_params(axis="x", nbins=5)


def curve(axes: Axes, row: int, x: Any, y: Any, marker: bool, **style: Any) -> None:
    """A line in the colour, the dashes and the marker of its row."""
    # Dashes tell curves apart where they lie on each other or colours cannot be seen.
    dashes = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
    axes.plot(
        x, y, color=colour_of(row), linewidth=1.8, linestyle=dashes[row % len(dashes)],
        marker=marker_of(row) if marker else None, markersize=4.5, **style,
    )  # fmt: skip


def mark(axes: Axes, x: float, y: float, label: str, below: bool = False) -> None:
    """A star in ink, labelled above or below, on the side where there is room."""
    axes.plot([x], [y], "*", color=ink(), markersize=10, zorder=5)
    axes.get_xlim()  # brings the limits up to date, which the transforms take as they are
    across = axes.transAxes.inverted().transform(axes.transData.transform((x, y)))[0]
    offset, side = (6, "left") if across <= 0.5 else (-6, "right")
    axes.annotate(
        label, (x, y), (offset, -15 if below else 6), textcoords="offset points", fontweight="bold", ha=side, zorder=5,
        bbox=on_paper(),
    )  # fmt: skip


def log_axis(axes: Axes, values: Sequence[float]) -> dict[float, float]:
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
    round_ones = round_ticks(low, high, (1, 3))
    return round_ones if len(round_ones) > 1 else [low, high]


def round_ticks(low: float, high: float, digits: Sequence[int]) -> list[float]:
    """Powers of ten within limits, times each of some digits where the limits are within a factor of 1,000.

    Examples
    --------
    >>> round_ticks(0.9, 11.0, (1, 2, 5)), round_ticks(0.5, 2000.0, (1, 2, 5))
    ([1.0, 2.0, 5.0, 10.0], [1.0, 10.0, 100.0, 1000.0])
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    shown = digits if high / low < 1000 else (1,)
    return [tick for step in decades for digit in shown if low <= (tick := float(f"{digit}e{step}")) <= high]


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


class Plot(Generic[P]):
    """A function that draws on axes, called with labels in their place: what it then draws is an SVG element.

    The element belongs to its page: same fonts and colours, ids of its own, a title for readers.
    """

    def __init__(self, draw: Callable[Concatenate[Axes, P], None]) -> None:
        self._draw = draw
        functools.update_wrapper(self, draw)

    def __call__(self, labels: Labels, /, *values: P.args, **options: P.kwargs) -> str:
        return self.panel(labels, *values, **options).svg()

    def panel(self, labels: Labels, /, *values: P.args, **options: P.kwargs) -> Panel:
        """The same before it is drawn."""
        return Panel(labels, lambda axes: self._draw(axes, *values, **options))


@dataclass(frozen=True)
class Panel:
    """A plot with its labels and values, to be drawn on a page or on axes.

    Attributes
    ----------
    labels : Labels
    draw : callable
        Draws on axes.
    """

    labels: Labels
    draw: Callable[[Axes], None]

    def svg(self) -> str:
        """As an SVG element for a page."""
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        out = StringIO()
        # Names may hold signs that the font used for measuring lacks; the reader's browser has its own fonts.
        with drawn_in(_STAND_INS), rc_context({"svg.hashsalt": self.labels.name}), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            whole = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
            self.draw(whole.add_subplot(xlabel=self.labels.x, ylabel=self.labels.y))
            nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
            whole.savefig(out, format="svg", transparent=True, metadata=nothing)
        return _inline(out.getvalue(), self.labels)


def _inline(svg: str, labels: Labels) -> str:
    view = re.search(r'viewBox="([^"]*)"', svg)
    assert view is not None
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    body = body[body.index(">", body.index("<svg")) + 1 :]
    # Only what stands in tags is changed: a model may be named anything.
    body = re.sub(r"<[^>]*>", lambda tag: _adapt_tag(tag[0], labels.name), body)
    name = f"{labels.name}-title"
    head = f'<svg role="img" aria-labelledby="{name}" viewBox="{view[1]}">'
    return head + f'<title id="{name}">{escape(labels.title)}</title>' + re.sub(r"\s*\n\s*", "\n", body).strip()


def _adapt_tag(tag: str, name: str) -> str:
    """A tag with ids that no other figure has, and with the fonts and colours of the page."""
    tag = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", tag)
    tag = re.sub(r"font-family: [^;\"]*", "font-family: inherit", tag)
    tag = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", tag)
    for colour, variable in _VARIABLES.items():
        tag = tag.replace(colour, f"var(--{variable})")
    return tag
