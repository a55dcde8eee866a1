"""What a prior adds to the scores: X·left·rightᵀ·diag(scale)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from deql._system.threads import read_only
from deql.ranking.dot import dot

__all__ = ["PriorTerm", "prior_arrays", "prior_diagonal", "prior_entry"]


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


def prior_arrays(
    prior: PriorTerm | None,
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float64]]:
    """``left``, ``right`` and ``scale`` as kernels take them: without columns where there is no prior.

    ``right`` has no columns where it is the identity. Read-only, as those of a file are.

    Examples
    --------
    >>> [array.shape for array in prior_arrays(None)]
    [(0, 0), (0, 0), (0,)]
    """
    none = np.zeros((0, 0), np.float32)
    if prior is None:
        return read_only(none), read_only(none), read_only(np.zeros(0))
    left, right = (np.ascontiguousarray(none if given is None else given, np.float32) for given in prior[:2])
    return read_only(left), read_only(right), read_only(np.ascontiguousarray(prior.scale, np.float64))


@njit(cache=True, nogil=True)
def prior_entry(left, right, j, i):  # type: ignore[no-untyped-def]
    """Entry (j, i) of left·rightᵀ in float64, the same to the last bit in every kernel."""
    return np.float64(left[j, i]) if right.shape[1] == 0 else dot(left, j, right, i)


def prior_diagonal(left: NDArray[np.float32], right: NDArray[np.float32] | None) -> NDArray[np.float64]:
    """The diagonal of left·rightᵀ, to the last bit as it is in scores.

    Examples
    --------
    >>> prior_diagonal(np.float32([[1, 2], [3, 4]]), np.float32([[1, 1], [0, 2]]))
    array([3., 8.])
    """
    left, right, _ = prior_arrays(PriorTerm(left, right, np.zeros(0)))
    out = np.empty(len(left))
    _fill_diagonal(left, right, out)
    return out


@njit(cache=True, nogil=True)
def _fill_diagonal(left, right, out):  # type: ignore[no-untyped-def]
    for i in range(len(out)):
        out[i] = prior_entry(left, right, i, i)
