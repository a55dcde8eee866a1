"""Panels together as matplotlib's figure, for a notebook or a file."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

from deql.errors import DeqlError
from deql.plotting.drawing import DARK, HEIGHT, LIGHT, WIDTH, Palette, Panel, colour_of, drawn_in, marker_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["figure", "need_matplotlib"]

_COLUMNS = 2
_DOTS = 100
"""For each inch, as a notebook shows it; it is drawn twice as fine."""


def need_matplotlib() -> None:
    """Raise one sentence where there is no matplotlib."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise DeqlError('plots need matplotlib: pip install "deql[report]"') from None


def figure(panels: Sequence[Panel], names: Sequence[str] = (), width: float = WIDTH, height: float = HEIGHT) -> Figure:
    """Panels two in a row, in colours that go with the paper that matplotlib is set to.

    Parameters
    ----------
    panels : sequence of Panel
    names : sequence of str
        What the colours stand for, if that is to be said.
    width, height : float
        Inches of a panel; those with a row for each name take the height that they need.

    Returns
    -------
    matplotlib.figure.Figure
        Shown once where it is the last line of a notebook's cell; ``savefig`` writes it to a file. It is not
        pyplot's, so that nothing else shows or keeps it.

    Examples
    --------
    >>> from deql.plotting import plots
    >>> labels = plots.Labels("spread", "recall@20", "recall@20")
    >>> drawn = figure([plots.distribution.panel(labels, [0.0, 0.5, 1.0])])
    >>> [axes.get_title("left") for axes in drawn.axes]
    ['recall@20']
    """
    need_matplotlib()
    from matplotlib import rcParams
    from matplotlib.lines import Line2D

    paper = rcParams["figure.facecolor"]
    columns = min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    with drawn_in(_palette_on(paper)), warnings.catch_warnings():
        # Names may hold signs that matplotlib's font lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        whole = _shown_once()(figsize=(width * columns, height * rows), layout="constrained", facecolor=paper)
        grid = whole.add_gridspec(rows, columns)
        heights = [0.0] * rows
        for place, panel in enumerate(panels):
            axes = whole.add_subplot(grid[place], xlabel=panel.labels.x, ylabel=panel.labels.y, facecolor=paper)
            axes.set_title(panel.labels.title, fontsize=10, loc="left")
            whole.set_figheight(height)
            panel.draw(axes)  # which may ask for another height
            heights[place // columns] = max(heights[place // columns], whole.get_figheight())
        grid.set_height_ratios(heights)
        whole.set_figheight(sum(heights) + 0.3 * bool(names))
        if names:
            signs = [
                Line2D([], [], color=colour_of(row), marker=marker_of(row), linewidth=1.8) for row in range(len(names))
            ]
            whole.legend(signs, names, loc="outside lower center", ncols=min(3, len(names)), frameon=False, fontsize=9)
    return whole


def _palette_on(paper: Any) -> Palette:
    """Our colours for light or dark paper."""
    from matplotlib.colors import to_hex, to_rgb

    red, green, blue = to_rgb(paper)
    return replace(DARK if 0.3 * red + 0.6 * green + 0.1 * blue < 0.5 else LIGHT, paper=to_hex(paper))


@cache
def _shown_once() -> type[Figure]:
    """Figures that notebooks show without pyplot, which would show them again at the end of the cell."""
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        def _repr_png_(self) -> tuple[bytes, dict[str, float]]:
            out = BytesIO()
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
                self.savefig(out, format="png", dpi=2 * _DOTS)
            inches = self.get_size_inches()
            return out.getvalue(), {"width": round(inches[0] * _DOTS), "height": round(inches[1] * _DOTS)}

    return NotebookFigure
