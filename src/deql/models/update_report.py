"""What an update would do and what it did: the way taken, why, what changed, how exact P still is."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from deql._system.formatting import show_seconds
from deql._system.tables import counted
from deql.data.changes import DataChange
from deql.io.model_file import fact

__all__ = ["Changes", "UpdatePlan", "UpdateReport", "UpdateState"]


@dataclass(frozen=True)
class Changes:
    """What an update changes of the data, in numbers.

    Attributes
    ----------
    added, removed : int
        Interactions; among those removed are all of forgotten users and of retired items.
    new_users, changed_users, forgotten_users : int
    new_items, retired_items : int
    """

    added: int
    removed: int
    new_users: int
    changed_users: int
    forgotten_users: int
    new_items: int
    retired_items: int

    @classmethod
    def of(cls, change: DataChange) -> Changes:
        """Those of a change of data."""
        return cls(
            change.n_added, change.n_removed, change.n_new_users, change.n_changed_users, change.n_forgotten_users,
            change.n_new_items, len(change.retired),
        )  # fmt: skip

    def __str__(self) -> str:
        once = ("", "") if self.added else ("interaction ", "interactions ")  # named once is enough
        said = [
            counted(number, one, several)
            for number, one, several in (
                (self.added, "interaction added", "interactions added"),
                (self.removed, f"{once[0]}removed", f"{once[1]}removed"),
                (self.new_users, "new user", "new users"),
                (self.changed_users, "user changed", "users changed"),
                (self.forgotten_users, "user gone", "users gone"),
                (self.new_items, "new item", "new items"),
                (self.retired_items, "item retired", "items retired"),
            )
            if number
        ]
        return ", ".join(said) or "nothing changed"


@dataclass(frozen=True)
class UpdatePlan:
    """Which way an update takes, and why.

    Attributes
    ----------
    method : {"low rank", "refit", "none"}
        P changed by few columns, or computed anew; "none" where nothing that P depends on changes.
    reason : str
        Why, in a sentence.
    changes : Changes
    rank : int
        Columns of the low-rank change, those of retired items included.
    touched : int
        |T|: items whose columns of A change.
    n_items : int
        Afterwards.
    seconds : dict
        Predicted seconds of each way that can be taken.
    memory : dict
        Predicted bytes beside the model, likewise.
    """

    method: str
    reason: str
    changes: Changes
    rank: int
    touched: int
    n_items: int
    seconds: dict[str, float]
    memory: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        changes = str(self.changes)
        return f"{changes[0].upper()}{changes[1:]}. {self.reason}" if any(vars(self.changes).values()) else self.reason


@dataclass(frozen=True)
class UpdateReport:
    """What an update did.

    Attributes
    ----------
    plan : UpdatePlan
        What was decided before; ``method`` may say "refit" here and not there, where rounding had added up.
    method : {"low rank", "refit", "none"}
        The way taken in the end.
    seconds : float
        What it took.
    residual_before, residual : float
        How far P·A was from the identity on random vectors, and is.
    state : UpdateState
        What the model keeps of its updates.
    notes : tuple of str
        What else people should know, a sentence each.
    """

    plan: UpdatePlan
    method: str
    seconds: float
    residual_before: float
    residual: float
    state: UpdateState
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        said = f"{self.plan.changes}: {self.method}, {show_seconds(self.seconds)}, residual {self.residual:.0e}"
        return " ".join([f"{said}.", *self.notes])


@dataclass(frozen=True)
class UpdateState:
    """What a model keeps of its updates.

    Attributes
    ----------
    count : int
        Low-rank updates since P was last computed from the data.
    fit_residual : float
        The residual then.
    time : float
        When the last one was, in seconds since 1970.
    """

    count: int
    fit_residual: float
    time: float

    def to_facts(self) -> dict[str, Any]:
        """As a model file keeps it."""
        return {"updates": dataclasses.asdict(self)}

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> UpdateState | None:
        """What :meth:`to_facts` gave; None if there is none, ValueError if it is damaged.

        Examples
        --------
        >>> UpdateState.from_facts(UpdateState(3, 1e-6, 0.0).to_facts()).count
        3
        """
        if "updates" not in facts:
            return None
        told = facts["updates"]
        if not isinstance(told, dict):
            raise ValueError("its updates are no JSON object")
        return cls(fact(told, "count", int), fact(told, "fit_residual", float), fact(told, "time", float))
