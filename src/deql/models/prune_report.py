"""What pruning left of a model, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass

from deql._system.formatting import show_bytes
from deql._system.tables import counted

__all__ = ["Pruned"]


@dataclass(frozen=True)
class Pruned:
    """What pruning left of a model, and what it cost.

    Attributes
    ----------
    per_item : int
        Weights kept of each column, beside the diagonal.
    weights, weights_before : int
        Numbers of W.
    bytes, bytes_before : int
        What P takes, with its product with a prior.
    share : float
        Σ W² over what is kept ÷ Σ W² over everything, both off the diagonal.
    users : int
        How many users it was measured on; 0 if it was not.
    own_data : bool
        Whether these are users whom the model was fitted on.
    before, after : dict of float, or None
        Mean NDCG@20 and Recall@20, as :func:`deql.evaluate` calls them, of both models on the same users.

    Examples
    --------
    >>> print(Pruned(2, 30, 100, 400, 500, 0.9, 7, False, {"ndcg@20": 0.51}, {"ndcg@20": 0.5}))
    ... # doctest: +NORMALIZE_WHITESPACE
    pruned to 2 weights an item: 30 of 100 weights are left, in 0 KiB instead of 0 KiB, with 90.0% of the squares off
    the diagonal; NDCG@20 0.5100 → 0.5000 on 7 users
    """

    per_item: int
    weights: int
    weights_before: int
    bytes: int
    bytes_before: int
    share: float
    users: int = 0
    own_data: bool = False
    before: dict[str, float] | None = None
    after: dict[str, float] | None = None

    def __str__(self) -> str:
        size, before = show_bytes(self.bytes), show_bytes(self.bytes_before)
        # An entry takes its place beside its value, and both halves of a symmetric P are entries.
        more = ", which is more than before: ask for fewer weights" * (self.bytes > self.bytes_before)
        left = (
            f"pruned to {counted(self.per_item, 'weight', 'weights')} an item: {self.weights:,} of "
            f"{self.weights_before:,} weights are left, in {size} instead of {before}{more}, with {self.share:.1%} of "
            "the squares off the diagonal"
        )
        if self.before is None or self.after is None:
            return f"{left}; give a target (split.test, --data FILE) to see what that costs in accuracy"
        cost = ", ".join(
            f"{name.upper() if name.startswith('ndcg') else name.capitalize()} {value:.4f} → {self.after[name]:.4f}"
            for name, value in self.before.items()
        )
        users = counted(self.users, "user", "users")
        if not self.own_data:
            return f"{left}; {cost} on {users}"
        return (
            f"{left}; {cost} on {users} of the model's own data, on which it does too well: give a target (split.test, "
            "--data FILE) to see it on others"
        )
