"""How a notebook shows splits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deql._system import html
from deql._system.tables import Cell, Grid
from deql.data.notebook import spread

if TYPE_CHECKING:
    from deql.split.held_out import HeldOut
    from deql.split.parts import Split

__all__ = ["held_out_html", "split_html"]


def split_html(split: Split) -> str:
    """The split in a sentence, and the sizes of its parts."""
    sizes = split.sizes()
    rows = [
        ([row["part"]], [Cell("–" if row[name] is None else f"{row[name]:,}") for name in list(row)[1:]])
        for row in sizes
    ]
    header = [name.replace("_", " ") for name in sizes[0]]
    return html.block(
        html.heading("Split"), html.table(Grid("Parts", header, rows)), html.paragraph(split.describe(), quiet=True)
    )


def held_out_html(part: HeldOut) -> str:
    """How many users there are, and how much of each is seen and to be found."""
    told = {"users": f"{part.seen.n_users:,}", "items": f"{part.seen.n_items:,}"}
    for name, one in (("seen", part.seen), ("held out", part.held_out)):
        told[name] = f"{one.n_interactions:,}; {spread(np.diff(one.matrix.indptr))} of each user"
    return html.block(html.heading("HeldOut"), html.facts(told))
