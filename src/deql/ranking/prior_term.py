"""What a prior adds to the scores: X·left·rightᵀ·diag(scale)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["PriorTerm"]


class PriorTerm(NamedTuple):
    """The last term of W = P·diag(gain) + diag(shift) + left·rightᵀ·diag(scale).

    Attributes
    ----------
    left : ndarray of float32, n × rank
        P·U, where U·Vᵀ is the prior.
    right : ndarray of float32, n × rank, or None
        V; None for the identity, where ``left`` is n × n.
    scale : ndarray of float64
        n numbers, or models × n for several models that share P, ``left`` and ``right``.
    """

    left: NDArray[np.float32]
    right: NDArray[np.float32] | None
    scale: NDArray[np.float64]
