"""Pages from the templates beside this file: self-contained, without script, light or dark as the reader has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from deql._system.tables import Cell, Grid
from deql._version import __version__
from deql.errors import DeqlError
from deql.plotting.drawing import Panel

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = [
    "Figure", "anchor", "need_report_extra", "parameter_grid", "plain_grid", "render", "standalone", "with_symbols",
]  # fmt: skip

_SYMBOLS = "●■◆▲▼✚✖★"
"""As text, the markers that figures draw in each of their colours."""


@dataclass(frozen=True)
class Figure:
    """A plot, as :mod:`deql.plotting.plots` draws them, and what it shows in words."""

    svg: str
    caption: str

    @classmethod
    def of(cls, panel: Panel, caption: str) -> Figure:
        """A panel drawn for the page."""
        return cls(panel.svg(), caption)


def need_report_extra() -> None:
    """Say what to install, before the long work begins."""
    try:
        import jinja2  # noqa: F401
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise DeqlError('reports need matplotlib and Jinja2: pip install "deql[report]"') from None


def render(template: str, title: str, **content: Any) -> str:
    """A whole page from the template of this name; text in its content is escaped."""
    return _templates().get_template(f"{template}.html.j2").render(content, title=title, version=__version__)


def plain_grid(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> Grid:
    """A table of text: the first column names the row."""
    return Grid(title, list(header), [([name], [Cell(text) for text in texts]) for name, *texts in rows])


def parameter_grid(models: Mapping[str, Mapping[str, Any]]) -> Grid:
    """Hyper-parameters of each model, a column for each name."""
    columns = list(dict.fromkeys(name for parameters in models.values() for name in parameters))
    rows = [[name, *(_parameter(parameters.get(column)) for column in columns)] for name, parameters in models.items()]
    return plain_grid("Models and their parameters", ["model", *columns], rows)


def anchor(text: str) -> str:
    """A metric's name as the id of an element.

    Examples
    --------
    >>> anchor("ndcg@20")
    'ndcg-20'
    """
    return text.replace("@", "-")


def with_symbols(names: Iterable[str]) -> list[str]:
    """Names, each after the symbol that figures draw it with.

    Examples
    --------
    >>> with_symbols(["EASE", "DLAE"])
    ['● EASE', '■ DLAE']
    """
    return [f"{_SYMBOLS[place % len(_SYMBOLS)]} {name}" for place, name in enumerate(names)]


def standalone(svg: str) -> str:
    """A plot of a page as a file of its own, with the page's colours and fonts, light or dark as the reader has it."""
    attributes, content = svg.removeprefix("<svg ").split(">", 1)
    return _templates().get_template("figure.svg.j2").render(attributes=attributes, content=content)


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("deql.report"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.globals["symbols"] = _SYMBOLS
    return environment


def _parameter(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
