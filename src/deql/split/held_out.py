"""Users to evaluate on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deql.data import Interactions
from deql.errors import DataError
from deql.split.notebook import held_out_html

__all__ = ["HeldOut"]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Users to evaluate on: what the model may see of them and what it is to find.

    Attributes
    ----------
    seen, held_out : Interactions
        Same users in the same order, same items.
    """

    seen: Interactions
    held_out: Interactions

    def __post_init__(self) -> None:
        for what in ("users", "items"):
            one, other = getattr(self.seen, what), getattr(self.held_out, what)
            if one is not other and not np.array_equal(one, other):
                raise DataError(f"what is seen and what is held out must have the same {what} in the same order")

    def __repr__(self) -> str:
        sizes = f"{self.seen.n_users:,} users × {self.seen.n_items:,} items"
        return f"HeldOut({sizes}, {self.seen.n_interactions:,} seen, {self.held_out.n_interactions:,} held out)"

    def _repr_html_(self) -> str:
        return held_out_html(self)
