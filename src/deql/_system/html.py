"""Pieces of HTML for notebooks and pages: tables, bars, facts; whatever stands in them is text.

In a notebook :func:`block` puts them together. It takes the text's colour and font from what is around it and draws all
else in shades that are seen on light and on dark paper, because a notebook does not say which one it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from deql._system.tables import Cell, Grid, one_line

__all__ = ["bars", "block", "facts", "folded", "heading", "paragraph", "shorten", "side_by_side", "table"]

_LONGEST = 160
"""Hyper-parameters of a network fit."""
_LEFT = ' class="name"'
_STYLE = """
.deql.deql{font-size:13px;line-height:1.45;max-width:62rem;overflow-wrap:anywhere}
.deql.deql p{margin:.35em 0}.deql.deql .said{opacity:.75}
.deql.deql .scroll{overflow-x:auto}
.deql.deql table{border-collapse:collapse;margin:.35em 0;font-size:13px;font-variant-numeric:tabular-nums;border:0}
.deql.deql tr{background:none}.deql.deql tbody tr:hover{background:rgba(128,128,128,.12)}
.deql.deql th,.deql.deql td{padding:.15em .9em .15em 0;text-align:right;white-space:nowrap;vertical-align:baseline;
border:0;border-bottom:1px solid rgba(128,128,128,.3);font-weight:400;max-width:none}
.deql.deql thead th{opacity:.75;font-weight:600;white-space:normal;overflow-wrap:normal;vertical-align:bottom}
.deql.deql tbody th,.deql.deql .name{text-align:left;white-space:normal}
.deql.deql td strong{background:rgba(240,180,40,.28);padding:0 .25em;border-radius:.2em}
.deql.deql .spread{opacity:.7;font-size:.9em}
.deql.deql dl{display:grid;grid-template-columns:max-content 1fr;gap:.1em 1em;margin:.35em 0}
.deql.deql dt,.deql.deql dd{display:block;float:none;width:auto;margin:0;padding:0;overflow-wrap:normal}
.deql.deql dt{opacity:.75;font-weight:400}.deql.deql dd{min-width:0}
.deql.deql .beside{display:flex;flex-wrap:wrap;gap:.2em 2.5em;align-items:flex-start}
.deql.deql .bar{width:14rem;min-width:6rem;padding-right:0}
.deql.deql .bar i{display:block;height:.8em;background:#3d85d6;border-radius:1px}
.deql.deql .bar i.less{background:#dd6b2f}
.deql.deql summary{cursor:pointer;opacity:.75}
"""


def block(*parts: str) -> str:
    """What a cell of a notebook shows: the pieces one below the other.

    Examples
    --------
    >>> block(heading("EASE")).partition("</style>")[2]
    '<p><b>EASE</b></p></div>'
    """
    return f'<div class="deql"><style>{_STYLE}</style>{"".join(parts)}</div>'


def heading(name: str, said: str = "") -> str:
    """What the thing is, and a few words about it.

    Examples
    --------
    >>> heading("Split", "3 users & 2 items")
    '<p><b>Split</b> <span class="said">3 users &amp; 2 items</span></p>'
    """
    words = f' <span class="said">{escape(one_line(said))}</span>' if said else ""
    return f"<p><b>{escape(one_line(name))}</b>{words}</p>"


def paragraph(text: str, quiet: bool = False) -> str:
    """A sentence or several; quiet ones are read second.

    Examples
    --------
    >>> paragraph("a < b", quiet=True)
    '<p class="said">a &lt; b</p>'
    """
    kind = ' class="said"' if quiet else ""
    return f"<p{kind}>{escape(one_line(text))}</p>"


def facts(pairs: Mapping[str, str]) -> str:
    """What is what, a line for each.

    Examples
    --------
    >>> facts({"engine": "memory"})
    '<dl><dt>engine</dt><dd>memory</dd></dl>'
    """
    lines = (f"<dt>{escape(name)}</dt><dd>{escape(one_line(text))}</dd>" for name, text in pairs.items())
    return f"<dl>{''.join(lines)}</dl>"


def folded(summary: str, *parts: str) -> str:
    """What is shown only when it is asked for.

    Examples
    --------
    >>> folded("tests", paragraph("p = 0.01"))
    '<details><summary>tests</summary><p>p = 0.01</p></details>'
    """
    return f"<details><summary>{escape(summary)}</summary>{''.join(parts)}</details>"


def side_by_side(*parts: str) -> str:
    """Pieces beside each other, where there is room."""
    return f'<div class="beside">{"".join(f"<div>{part}</div>" for part in parts)}</div>'


def table(grid: Grid, most: int | None = None, below: Mapping[int, str] | None = None, ranked: bool = False) -> str:
    """A table. Its box takes the keyboard, so that it can be scrolled without a mouse.

    Parameters
    ----------
    grid : Grid
    most : int, optional
        Show only so many rows, and how many more there are.
    below : dict of int to str, optional
        HTML that goes below some rows, over all their columns.
    ranked : bool, default False
        Whether names are numbers, which need no room to wrap.

    Examples
    --------
    >>> table(Grid("", ["model", "ndcg@20"], [(["<EASE>"], [Cell("0.25", best=True)])])).partition("<tbody>")[2]
    '<tr><th scope="row">&lt;EASE&gt;</th><td><strong>0.25</strong></td></tr></tbody></table></div>'
    """
    rows = grid.rows if most is None or len(grid.rows) <= most + 1 else grid.rows[:most]
    sides = grid.alignment if rows else ["left"] * len(grid.header)
    head = "".join(
        f'<th scope="col"{_LEFT if side == "left" else ""}>{_breakable(name)}</th>'
        for name, side in zip(grid.header, sides, strict=True)
    )
    body = ""
    for place, (names, cells) in enumerate(rows):
        first, *others = [escape(shorten(name)) for name in names]
        texts = [f'<td class="name">{name}</td>' for name in others] + [f"<td>{_value(cell)}</td>" for cell in cells]
        body += f'<tr><th scope="row">{first}</th>{"".join(texts)}</tr>'
        if below and place in below:
            body += f'<tr class="below"><td class="name" colspan="{len(grid.header)}">{below[place]}</td></tr>'
    left = len(grid.rows) - len(rows)
    more = f'<p class="said">… and {left:,} more</p>' if left else ""
    label = f' aria-label="{escape(grid.title)}"' if grid.title else ""
    return (
        f'<div class="scroll{" ranked" if ranked else ""}" role="region"{label} tabindex="0"><table><thead><tr>{head}'
        f"</tr></thead><tbody>{body}</tbody></table></div>{more}"
    )


def bars(header: Sequence[str], rows: Sequence[tuple[str, float]]) -> str:
    """Signed numbers with a bar each, from a common zero.

    Examples
    --------
    >>> drawn = bars(["item", "adds"], [("tea", 0.75), ("jam", -0.25)])
    >>> drawn.count('style="margin-left:25.0%;width:75.0%"'), drawn.count('class="less"')
    (1, 1)
    """
    low = min(0.0, *(value for _, value in rows), 0.0)
    high = max(0.0, *(value for _, value in rows), 0.0)
    whole = (high - low) or 1.0
    body = ""
    for name, value in rows:
        start, length = 100 * (min(value, 0.0) - low) / whole, 100 * abs(value) / whole
        less = ' class="less"' if value < 0 else ""
        bar = f'<i{less} style="margin-left:{start:.1f}%;width:{length:.1f}%"></i>'
        body += f'<tr><th scope="row">{escape(shorten(name))}</th><td>{value:+.4f}</td><td class="bar">{bar}</td></tr>'
    names = f'<th scope="col" class="name">{escape(header[0])}</th><th scope="col">{escape(header[1])}</th><th></th>'
    return f'<div class="scroll"><table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table></div>'


def shorten(text: str, longest: int = _LONGEST) -> str:
    """Text on one line, with an ellipsis where it is cut.

    Examples
    --------
    >>> shorten("a\\nlong title", 8)
    'a long …'
    """
    line = one_line(text)
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _breakable(name: str) -> str:
    """A column's name that may go over several lines: columns of numbers are narrower than popularity_power."""
    return escape(name).replace("_", "_<wbr>")


def _value(cell: Cell) -> str:
    text = f"<strong>{escape(cell.text)}</strong>" if cell.best else escape(cell.text)
    spread = f' <span class="spread">± {escape(cell.spread)}</span>' if cell.spread else ""
    return text + spread + (" *" if cell.marked else "")
