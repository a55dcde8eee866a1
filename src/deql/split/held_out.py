"""Users to evaluate on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

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

    def whole(self) -> Interactions:
        """What is seen and what is held out together, with their times and their order if both have them.

        Examples
        --------
        >>> seen, held_out = (Interactions.from_csr([one]) for one in ([1.0, 0.0, 0.0], [0.0, 0.0, 1.0]))
        >>> HeldOut(seen, held_out).whole().history(0)
        [0, 2]
        """
        both = (self.seen, self.held_out)
        rows = np.concatenate([np.repeat(np.arange(one.n_users), np.diff(one.matrix.indptr)) for one in both])
        columns = np.concatenate([one.matrix.indices for one in both])
        # A matrix of places sorts them, and says where what belongs to its entries stands.
        placed = csr_array((np.arange(len(rows)), (rows, columns)), shape=self.seen.shape)

        def values(parts: list[Any]) -> Any:
            return None if any(part is None for part in parts) else np.concatenate(parts)[placed.data]

        matrix = csr_array((values([one.matrix.data for one in both]), placed.indices, placed.indptr), self.seen.shape)
        return replace(
            self.seen, matrix=matrix, times=values([one.times for one in both]),
            order=values([one.order for one in both]),
        )  # fmt: skip

    def __repr__(self) -> str:
        sizes = f"{self.seen.n_users:,} users × {self.seen.n_items:,} items"
        return f"HeldOut({sizes}, {self.seen.n_interactions:,} seen, {self.held_out.n_interactions:,} held out)"

    def _repr_html_(self) -> str:
        return held_out_html(self)
