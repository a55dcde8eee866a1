"""One self-contained HTML page: no script, nothing fetched, light or dark as the reader has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import deql
from deql.report.plots import COLOURS
from deql.report.tables import Cell, Grid

__all__ = [
    "anchor", "facts", "figures", "grid_table", "heading", "key", "lead", "model_table", "page", "paragraph",
    "plain_table", "signed", "standalone",
]  # fmt: skip

_SIGNS = "●■◆▲▼✚✖★"

_PALETTE = """
:root { color-scheme: light dark; --paper: #fff; --card: #f6f7f9; --ink: #1c2128; --soft: #57606a; --grid: #ccd2da;
  --mark: #fff3c4; --c0: #1f6fc9; --c1: #c4500c; --c2: #2b8a3e; --c3: #a02bb0; --c4: #c92a5b; --c5: #0c8599;
  --c6: #846a00; --c7: #5c5f66; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171c; --card: #1d2229; --ink: #e6e9ee; --soft: #a5afbb;
  --grid: #424a55; --mark: #4a3f10; --c0: #6cb2ff; --c1: #ff9d5c; --c2: #69db7c; --c3: #e599f7; --c4: #ff8fab;
  --c5: #66d9e8; --c6: #ffe066; --c7: #ced4da; } }
"""

_STYLE = (
    f"{_PALETTE}"
    """* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 72rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0 1rem; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; }
p, figcaption, footer { color: var(--soft); max-width: 46rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: 0; }
dt { color: var(--soft); } dd { margin: 0; min-width: 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { padding: .35rem .8rem .35rem 0; text-align: right; border-bottom: 1px solid var(--grid); }
th:first-child, .name { text-align: left; font-weight: 400; } thead th { color: var(--soft); font-weight: 600; }
td strong { background: var(--mark); padding: 0 .25em; border-radius: .2em; }
tbody th, .name { white-space: normal; min-width: 8rem; overflow-wrap: normal; }
.ranked tbody th, .ranked .name { min-width: 0; white-space: nowrap; }
.lead { color: var(--ink); font-size: 1.15rem; padding-left: .9rem; border-left: .25rem solid var(--c0); }
.spread { color: var(--soft); font-size: .875em; }
.figures { margin-top: 1rem; display: grid;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1rem; }
figure { margin: 0; padding: .8rem; background: var(--card); border-radius: .5rem; min-width: 0; max-width: 40rem; }
figcaption { font-size: .875rem; margin-top: .4rem; }
svg { display: block; width: 100%; height: auto; stroke-linejoin: round; }
.key { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin: .8rem 0; padding: 0; }
footer { margin-top: 3rem; font-size: .875rem; }
"""
)


def page(title: str, *parts: str) -> str:
    """A whole page from parts that are HTML already; ``title`` is text."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{escape(title)}</h1>\n"
        + "\n".join(part for part in parts if part)
        + f"\n</main>\n<footer>Made by deql {escape(deql.__version__)}.</footer>\n</body>\n</html>\n"
    )


def heading(text: str) -> str:
    """A section begins."""
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str) -> str:
    """Text, escaped.

    Examples
    --------
    >>> paragraph("a < b")
    '<p>a &lt; b</p>'
    """
    return f"<p>{escape(text)}</p>"


def facts(pairs: Mapping[str, str]) -> str:
    """What is what, one line each."""
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in pairs.items()) + "</dl>"


def lead(text: str) -> str:
    """What the page says in short, escaped."""
    return f'<p class="lead">{escape(text)}</p>'


def key(names: Iterable[str], label: str = "Models") -> str:
    """The colour and the sign of each model, or whatever the label says, for all figures that follow."""
    entries = "".join(f"<li>{_sign(place)} {escape(name)}</li>" for place, name in enumerate(names))
    return f'<ul class="key" aria-label="{escape(label, quote=True)}">{entries}</ul>'


def grid_table(grid: Grid, ranked: bool = False) -> str:
    """A table of results: best values highlighted, marked ones starred; ``ranked`` has places instead of names."""
    rows = [
        [escape(name) for name in names] + [_value(cell) for cell in cells]
        for names, cells in grid.rows
    ]  # fmt: skip
    return _table(grid.header, rows, len(grid.rows[0][0]), grid.title, " ranked" * ranked)


def plain_table(header: Sequence[str], rows: Iterable[Sequence[str]], caption: str, named: int = 1) -> str:
    """A table of text; the first ``named`` columns stand to the left."""
    return _table(header, [[escape(cell) for cell in row] for row in rows], named, caption)


def model_table(models: Mapping[str, Mapping[str, Any]]) -> str:
    """Hyper-parameters of each model, a column for each name."""
    columns = list(dict.fromkeys(name for parameters in models.values() for name in parameters))
    rows = [[name, *(_parameter(parameters.get(column)) for column in columns)] for name, parameters in models.items()]
    return plain_table(["model", *columns], rows, "Models and their parameters")


def anchor(text: str) -> str:
    """A metric's name as the id of an element.

    Examples
    --------
    >>> anchor("ndcg@20")
    'ndcg-20'
    """
    return text.replace("@", "-")


def figures(drawn: Sequence[tuple[str, str]]) -> str:
    """Plots (SVG) beside or below each other, each with a caption (text)."""
    inner = "\n".join(f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>" for svg, caption in drawn)
    return f'<div class="figures">\n{inner}\n</div>' if drawn else ""


def signed(names: Iterable[str]) -> list[str]:
    """Names, each after the sign that figures draw it with.

    Examples
    --------
    >>> signed(["EASE", "DLAE"])
    ['● EASE', '■ DLAE']
    """
    return [f"{_SIGNS[place % COLOURS]} {name}" for place, name in enumerate(names)]


def standalone(svg: str) -> str:
    """A plot of a page as a file of its own, with the page's colours and fonts, light or dark as the reader has it."""
    head = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="480" '
    style = f"<style>{_PALETTE}svg {{ background: var(--card); font-family: system-ui, sans-serif; }}</style>"
    inner = svg.removeprefix("<svg ")
    end = inner.index(">") + 1
    return head + inner[:end] + style + inner[end:] + "\n"


def _sign(place: int) -> str:
    return f'<span aria-hidden="true" style="color:var(--c{place % COLOURS})">{_SIGNS[place % COLOURS]}</span>'


def _value(cell: Cell) -> str:
    mean = f"<strong>{escape(cell.text)}</strong>" if cell.best else escape(cell.text)
    spread = f' <span class="spread">± {escape(cell.spread)}</span>' if cell.spread else ""
    return mean + spread + (" *" if cell.marked else "")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], named: int, caption: str, more: str = "") -> str:
    """Cells are HTML already. The box takes the keyboard, so that it can be scrolled without a mouse."""
    label = escape(caption, quote=True)

    def kind(place: int) -> str:
        return ' class="name"' if place < named else ""

    head = "".join(f'<th scope="col"{kind(place)}>{escape(name)}</th>' for place, name in enumerate(header))
    lines = "\n".join(
        '<tr><th scope="row">' + row[0] + "</th>"
        + "".join(f"<td{kind(place)}>{cell}</td>" for place, cell in enumerate(row[1:], start=1)) + "</tr>"
        for row in rows
    )  # fmt: skip
    return (
        f'<div class="scroll{more}" role="region" aria-label="{label}" tabindex="0"><table>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{lines}\n</tbody></table></div>"
    )


def _parameter(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else {True: "yes", False: "no"}.get(value, str(value))
