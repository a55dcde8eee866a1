"""Users to evaluate on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deql.data import Interactions
from deql.errors import DataError

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
