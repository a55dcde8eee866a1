"""One evaluator for whatever makes scores: all evaluated users, a dense slice at a time, on a device.

NumPy and torch alone, as a device's machine may have no more.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from _hold_outs import Histories, Parts

__all__ = ["Laboratory", "Scores", "Worth", "dense", "slices", "sparse"]

Vector = NDArray[np.float64]
Scores = Callable[[slice], Tensor]
"""Scores of a slice of the evaluated users, users × items, in a tensor that may be written to."""

K = 20
SLICE = 2_048
"""Users whose scores are looked at together."""


class Worth(NamedTuple):
    """Means over the evaluated users of Recall@20 and NDCG@20, and their standard errors."""

    recall: float
    ndcg: float
    recall_error: float
    ndcg_error: float


class Laboratory:
    """What is learned from, who is evaluated, and by what.

    Parameters
    ----------
    parts : Parts
        Users with nothing held out are left out of the evaluation.
    device : torch.device

    Attributes
    ----------
    train : Histories
    seen : Histories
        Of the evaluated users.
    counts : ndarray
        How many training users have each item.
    popularity : ndarray
        The same, at least 1.
    """

    def __init__(self, parts: Parts, device: torch.device) -> None:
        self.train, self.device = parts.train, device
        self.n = parts.train.n
        evaluated = parts.held_out.sizes > 0
        self.seen, held_out = _of_users(parts.train, evaluated), _of_users(parts.held_out, evaluated)
        self.counts = np.bincount(parts.train.items, minlength=self.n)
        self.popularity = np.maximum(self.counts, 1).astype(np.float64)
        self._held_out = torch.from_numpy(np.sort(held_out.users * self.n + held_out.items)).to(device)
        self._sizes = torch.from_numpy(held_out.sizes).to(device)
        self._discounts = 1 / torch.log2(torch.arange(2, K + 2, dtype=torch.float64, device=device))
        self._ideal = self._discounts.cumsum(0)[self._sizes.clamp(max=K) - 1]

    def vector(self, values: Vector) -> Tensor:
        """Numbers of the items, for dense scores."""
        return torch.from_numpy(values).to(self.device).float()

    def history(self, rows: slice) -> Tensor:
        """What a slice of the evaluated users has seen, dense."""
        return dense(self.seen, rows, self.device)

    def evaluate(self, scores: Scores) -> Worth:
        """Recall@20 and NDCG@20 of the evaluated users, what they have seen left out."""
        hits = torch.cat([self._hits(scores(rows), rows) for rows in slices(len(self.seen.sizes))]).double()
        recall, ndcg = hits.sum(1) / self._sizes, hits @ self._discounts / self._ideal
        errors = (float(metric.std() / len(metric) ** 0.5) for metric in (recall, ndcg))
        return Worth(float(recall.mean()), float(ndcg.mean()), *errors)

    def _hits(self, found: Tensor, rows: slice) -> Tensor:
        """Which of the best items were held out, users × 20."""
        found.view(-1)[_places(self.seen, rows).to(self.device)] = -torch.inf
        asked = torch.arange(rows.start, rows.stop, device=self.device)[:, None] * self.n
        asked = asked + found.topk(K, dim=1).indices
        place = torch.searchsorted(self._held_out, asked).clamp_(max=len(self._held_out) - 1)
        return self._held_out[place] == asked


def _of_users(histories: Histories, wanted: NDArray[np.bool_]) -> Histories:
    sizes = histories.sizes[wanted]
    return Histories(np.concatenate([[0], np.cumsum(sizes)]), histories.items[wanted[histories.users]], histories.n)


def slices(users: int) -> Iterator[slice]:
    """So many users, some at a time."""
    return (slice(first, min(first + SLICE, users)) for first in range(0, users, SLICE))


def _places(histories: Histories, rows: slice) -> Tensor:
    """Where the items of some users are in a dense matrix of these users × items, row by row."""
    entries = slice(histories.starts[rows.start], histories.starts[rows.stop])
    users = np.repeat(np.arange(rows.stop - rows.start), histories.sizes[rows])
    return torch.from_numpy(users * histories.n + histories.items[entries])


def dense(histories: Histories, rows: slice, device: torch.device) -> Tensor:
    """Some users × items, ones and zeros."""
    matrix = torch.zeros(rows.stop - rows.start, histories.n, device=device)
    matrix.view(-1)[_places(histories, rows).to(device)] = 1.0
    return matrix


def sparse(histories: Histories, values: Vector, device: torch.device) -> Tensor:
    """A matrix users × items with these values at the interactions, in float64."""
    with warnings.catch_warnings():
        # Torch warns that it may change how these are made, and that it does not check them.
        warnings.filterwarnings("ignore", "Sparse", UserWarning)
        return torch.sparse_csr_tensor(
            torch.from_numpy(histories.starts), torch.from_numpy(histories.items), torch.from_numpy(values),
            (len(histories.sizes), histories.n), check_invariants=False,
        ).to(device)  # fmt: skip
