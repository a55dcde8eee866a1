"""What trained models have in common: early stopping, validation on the device, rows of a sparse matrix there."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Epoch"]


class Epoch(NamedTuple):
    """Mean loss of an epoch, NDCG@20 of the validation users if they were asked, and seconds of the training."""

    loss: float
    ndcg: float | None
    seconds: float
