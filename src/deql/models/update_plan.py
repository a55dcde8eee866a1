"""Which way an update takes: few columns of P, or P anew, whichever takes less time and fits."""

from __future__ import annotations

from typing import Any

from deql.data.changes import DataChange
from deql.errors import ParameterError
from deql.linalg.gram_change import GramChange
from deql.models.updatable import Updatable, describe_updatable
from deql.models.update_report import Changes, UpdatePlan

__all__ = ["choose_method"]


def choose_method(
    model: Updatable, change: DataChange, gram: GramChange, changes: Changes, method: str, prior: Any
) -> UpdatePlan:
    """The way an update takes.

    Parameters
    ----------
    model : fitted model
    change : DataChange
    gram : GramChange
    changes : Changes
    method : {"auto", "low rank", "refit"}
    prior : Prior or None
        Given once more.
    """
    n, rank = len(change.items), gram.rank + len(change.retired)
    refits = change.final is not None and model._can_refit(prior)
    if method == "refit" and not refits:
        raise ParameterError(f"a refit needs the data: {describe_updatable(model)}", parameter="method")
    taken, reason = "low rank", f"P changes by {rank:,} of {n:,} columns."
    if method == "refit" or (method == "auto" and refits and rank > n // 3):
        taken, reason = "refit", f"P is computed anew: {rank:,} of {n:,} columns would change."
    if not rank and not change.n_new_items and method != "refit":
        taken, reason = "none", "Nothing that the model learned from changes."
    return UpdatePlan(taken, reason, changes, rank, len(gram.columns), n, {}, {})
