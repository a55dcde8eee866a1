"""One model's metrics, added up as slices of users are ranked, wherever that was done."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from deql.errors import DataError
from deql.metrics import LIST_METRICS, coverage, gini, novelty
from deql.ranking.rank import NO_ITEM

__all__ = ["Tally"]

_OF_ALL = {"coverage": coverage, "gini": gini}


class Tally:
    """What is known so far.

    Parameters
    ----------
    wanted : dict of str to (str, int)
        The metrics, as :func:`~deql.metrics.parse_metrics` gives them.
    held_out : ndarray of int64
        How many items of each user are held out.
    item_counts : ndarray of int64
        How many training users have each item.
    n_users : int
        How many training users there are.

    Examples
    --------
    >>> tally = Tally({"recall@2": ("recall", 2)}, np.array([2, 1]), np.array([3, 1, 1]), 3)
    >>> tally.add(slice(0, 1), np.array([[2, 0]]), np.array([[True, False]]))
    >>> tally.add(slice(1, 2), np.array([[1, 2]]), np.array([[True, False]]))
    >>> tally.finish(seen=4)
    ({'recall@2': 0.75}, {'recall@2': array([0.5, 1. ])})
    """

    def __init__(
        self,
        wanted: Mapping[str, tuple[str, int]],
        held_out: NDArray[np.int64],
        item_counts: NDArray[np.int64],
        n_users: int,
    ) -> None:
        self.wanted = wanted
        self.held_out = held_out
        self.item_counts = item_counts
        self.n_users = n_users
        self.per_user = {
            text: np.empty(len(held_out)) for text, (name, _) in wanted.items() if name not in _OF_ALL
        }  # fmt: skip
        self.times = {
            text: np.zeros(len(item_counts), np.int64) for text, (name, _) in wanted.items() if name in _OF_ALL
        }

    def add(self, rows: slice, columns: NDArray[np.int32], hits: NDArray[np.bool_]) -> None:
        """Judge the lists of the users in ``rows``: users × k columns, and which of them were held out."""
        for text, (name, k) in self.wanted.items():
            if name in LIST_METRICS:
                self.per_user[text][rows] = LIST_METRICS[name](hits, self.held_out[rows], k)
            elif name == "novelty":
                self.per_user[text][rows] = novelty(columns, self.item_counts, self.n_users, k)
            elif name in _OF_ALL:
                near = columns[:, :k]
                self.times[text] += np.bincount(near[near != NO_ITEM], minlength=len(self.item_counts))

    def add_errors(self, rows: slice, errors: NDArray[np.float64]) -> None:
        """The squared errors of the users in ``rows``, for mse."""
        self.per_user["mse"][rows] = errors

    def finish(self, seen: int) -> tuple[dict[str, float], dict[str, NDArray[np.float64]]]:
        """Means and users' values; ``seen`` is the number of seen interactions."""
        means = {
            text: _OF_ALL[name](self.times[text]) if name in _OF_ALL else float(self.per_user[text].mean())
            for text, (name, _) in self.wanted.items()
        }
        if "mse" in self.wanted:
            # Σ errors / ‖Δ‖²; users' values are scaled so that they have this mean.
            if not seen:
                raise DataError("mse divides by the number of seen interactions, and nobody has any")
            means["mse"] = float(self.per_user["mse"].sum() / seen)
            self.per_user["mse"] *= len(self.held_out) / seen
        return means, self.per_user
