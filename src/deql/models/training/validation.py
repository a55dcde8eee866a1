"""NDCG@20 on the device, by which training stops early, with NumPy and torch alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deql.metrics import ndcg
from deql.models.training.sparse_rows import SparseRows

__all__ = ["ValidationNDCG", "validation_bytes"]

_K = 20
_SCORES_AT_ONCE = 2**26
"""Scores that are held at once while users are validated on: 256 MiB."""


def validation_bytes(users: int, items: int) -> int:
    """Memory of a look, for scores and of each whether it was held out.

    Examples
    --------
    >>> validation_bytes(10, 30)
    1500
    """
    return 5 * min(users * items, max(_SCORES_AT_ONCE, items))


class ValidationNDCG:
    """NDCG@20 of users whose items are held out, as :func:`deql.evaluate` has it but for ties, which torch orders.

    Parameters
    ----------
    seen, held_out : SparseRows
        Same users in the same order.
    counts : ndarray
        How many items of each are held out, known to the model or not; above 0.
    scale : ndarray
        What each column of W is multiplied by.
    popularity : ndarray
        The score of each item for users of whom nothing is known.
    rows : ndarray of int64, optional
        Where each of them is among the users with a vector of their own; -1 for others.
    """

    def __init__(
        self,
        seen: SparseRows,
        held_out: SparseRows,
        counts: NDArray[Any],
        scale: NDArray[np.float64],
        popularity: NDArray[Any],
        rows: NDArray[np.int64] | None = None,
    ) -> None:
        device = seen.columns.device
        self._seen, self._held_out = seen, held_out
        self._scale = torch.from_numpy(scale.astype(np.float32)).to(device)[:, None]
        self._popularity = torch.from_numpy(popularity.astype(np.float32)).to(device)
        self._counts = counts.astype(np.int64)
        self._rows = torch.from_numpy(np.full(len(counts), -1) if rows is None else rows).to(device)

    def __call__(self, left: torch.Tensor, right: torch.Tensor, own: torch.Tensor | None = None) -> float:
        """NDCG@20 of the scores (x·left + o)·rightᵀ, with o the user's row of ``own``."""
        users, n = len(self._seen), len(right)
        targets = (right * self._scale).T
        step = max(1, _SCORES_AT_ONCE // n)
        total = 0.0
        for first in range(0, users, step):
            last = min(first + step, users)
            seen, held_out = self._seen.part(first, last), self._held_out.part(first, last)
            vectors, known = seen.times(left), self._rows[first:last] >= 0
            if own is not None:
                vectors[known] += own[self._rows[first:last][known]]
            scores = vectors @ targets
            scores[(seen.lengths == 0) & ~known] = self._popularity
            rows = seen.row_numbers()
            scores[rows, seen.columns] = -torch.inf
            best = scores.topk(min(_K, n), dim=1)
            truth = torch.zeros_like(scores, dtype=torch.bool)
            truth[held_out.row_numbers(), held_out.columns] = True
            hits = truth.gather(1, best.indices) & (best.values > -torch.inf)
            total += float(ndcg(hits.cpu().numpy(), self._counts[first:last], _K).sum())
        return total / users
