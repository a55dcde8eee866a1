"""What a split is made of, whichever protocol made it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from deql.data import Interactions
from deql.errors import DataError

__all__ = ["HeldOut", "Split"]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Users to be judged on: what the model may see of them and what it is to find.

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


@dataclass(frozen=True, eq=False)
class Split:
    """Training interactions and two sets of users to be judged on.

    Attributes
    ----------
    train : Interactions
    validation : HeldOut or None
        None where a protocol has no such part, as in published splits.
    test : HeldOut
    dropped : dict
        What the protocol leaves out: ``items`` that train does not have, ``interactions`` with them,
        and ``users`` who are not judged in the test because too little is left of them.
    protocol : str
        ``"strong"``, ``"weak"``, ``"leave-last"``, or ``"published"`` for files that come split.
    seed : int or None
        None where nothing is random.
    parameters : dict
        What was asked of the protocol: shares and counts by name.

    Examples
    --------
    >>> import deql
    >>> print(deql.split_strong(deql.datasets.debian(), seed=1).describe())
    strong split, test_users=0.1, validation_users=0.1, held_out=0.2, seed 1: 13,946 users × 5,833 items to train on, \
1,743 users to validate and 1,743 to test on; dropped: 1 item, 5 interactions, 0 users
    """

    train: Interactions
    validation: HeldOut | None
    test: HeldOut
    dropped: dict[str, int]
    protocol: str = "given"
    seed: int | None = None
    parameters: dict[str, float] = field(default_factory=dict)

    def describe(self) -> str:
        """The split in one sentence."""
        asked = [f"{self.protocol} split", *(f"{name}={value:g}" for name, value in self.parameters.items())]
        if self.seed is not None:
            asked.append(f"seed {self.seed}")
        validated = "" if self.validation is None else f"{self.validation.seen.n_users:,} users to validate and "
        judged = f"{validated}{self.test.seen.n_users:,}{'' if validated else ' users'} to test on"
        dropped = ", ".join(
            f"{count:,} {what.removesuffix('s') if count == 1 else what}" for what, count in self.dropped.items()
        )
        return (
            f"{', '.join(asked)}: {self.train.n_users:,} users × {self.train.n_items:,} items to train on, {judged}; "
            f"dropped: {dropped or 'nothing'}"
        )

    def sizes(self) -> list[dict[str, Any]]:
        """A row for each part: its users, what a model sees of them, and what it is to find (None in train)."""
        rows = [_row("train", self.train, None)]
        for name, part in (("validation", self.validation), ("test", self.test)):
            if part is not None:
                rows.append(_row(name, part.seen, part.held_out))
        return rows

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the split to one file, which :func:`deql.load_split` reads back bit for bit."""
        from deql.split.file import write

        write(Path(path), self)


def _row(part: str, seen: Interactions, held_out: Interactions | None) -> dict[str, Any]:
    return {
        "part": part,
        "users": seen.n_users,
        "items": seen.n_items,
        "seen": seen.n_interactions,
        "held_out": None if held_out is None else held_out.n_interactions,
    }
