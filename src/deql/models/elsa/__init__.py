"""ELSA: the estimator beside its training loop, which needs NumPy and torch alone."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Epoch"]


class Epoch(NamedTuple):
    """Mean loss of the users, NDCG@20 of the validation users if there are any, and seconds of the training."""

    loss: float
    ndcg: float | None
    seconds: float
