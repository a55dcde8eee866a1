"""Pages from the templates beside this file: self-contained, without script, light or dark as the reader has it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from deql._system import html
from deql._system.tables import Cell, Grid
from deql._version import __version__
from deql.errors import DeqlError
from deql.plotting.drawing import Panel

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

__all__ = [
    "Figure", "anchor", "need_report_extra", "parameter_grid", "plain_grid", "render", "short_names", "standalone",
    "with_symbols", "without_equal",
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


def without_equal(grid: Grid) -> tuple[Grid, str]:
    """A table without the columns that say the same in all rows that say something, and a sentence with these.

    Examples
    --------
    >>> rows = [["EASE", "10", "–", "float32"], ["DLAE", "20", "0.5", "float32"]]
    >>> varying, told = without_equal(plain_grid("Models", ["model", "l2", "dropout", "dtype"], rows))
    >>> varying.header, told
    (['model', 'l2'], 'The same for all that have it: dropout 0.5, dtype float32.')
    """
    if len(grid.rows) == 1:
        return grid, ""
    names = len(grid.header) - len(grid.rows[0][1])
    columns = zip(*(cells for _, cells in grid.rows), strict=True)
    said = [{cell for cell in column if cell.text not in ("", "–")} for column in columns]
    kept = [place for place, values in enumerate(said) if len(values) > 1]
    header = [*grid.header[:names], *(grid.header[names + place] for place in kept)]
    rows = [(row, [cells[place] for place in kept]) for row, cells in grid.rows]
    equal = [f"{name} {one}" for name, values in zip(grid.header[names:], said, strict=True) if len(values) == 1
             for one in values]  # fmt: skip
    return Grid(grid.title, header, rows), f"The same for all that have it: {', '.join(equal)}." if equal else ""


def short_names(models: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Each name as a page shows it: of those made of a model's parameters only what tells them apart.

    Examples
    --------
    >>> one, two = {"l2": 10.0, "b": 0.0}, {"l2": 10.0, "b": 2.0}
    >>> list(short_names({"DEQL l2=10": one, "DEQL l2=10 b=2": two, "EASE l2=9": {"l2": 9.0}, "my shop": one}).values())
    ['DEQL', 'DEQL b=2', 'EASE', 'my shop']
    """
    parts = {name: _name_parts(name, parameters) for name, parameters in models.items()}
    short = {}
    for name, (kind, words) in parts.items():
        beside = [set(other) for same, other in parts.values() if same == kind]
        short[name] = " ".join([kind, *(word for word in words if not all(word in other for other in beside))])
    return short if len(set(short.values())) == len(short) else {name: name for name in models}


def _name_parts(name: str, parameters: Mapping[str, Any]) -> tuple[str, list[str]]:
    """A model's kind and the words after it if these are its parameters, else the whole name."""
    kind, *words = name.split(" ")
    made = all(word.partition("=")[0] in parameters or re.fullmatch(r"\(\d+\)", word) for word in words)
    return (kind, words) if made else (name, [])


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


def _table(grid: Grid, below: Mapping[int, str] | None = None, ranked: bool = False) -> Markup:
    from markupsafe import Markup

    return Markup(html.table(grid, below=below, ranked=ranked))


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("deql.report"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.globals |= {"symbols": _SYMBOLS, "table": _table, "without_equal": without_equal}
    return environment


def _parameter(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
