"""Chance, as all splits use it: only the raw bits of the generator, which NumPy promises to keep."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql.errors import ParameterError

__all__ = ["check_share", "hide"]

_AT_A_TIME = 2**20


def check_share(name: str, share: Any) -> None:
    """Refuse what is not strictly between 0 and 1."""
    if isinstance(share, bool) or not isinstance(share, int | float | np.number) or not 0 < share < 1:
        raise ParameterError(f"{name} must be a share between 0 and 1, got {share!r}", parameter=name)


def hide(matrix: csr_array, share: float, keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Mark a share of each row's entries, at least one and not all: those with the smallest keys.

    Rows with fewer than two entries keep what they have.
    """
    indptr, sizes = matrix.indptr, np.diff(matrix.indptr)
    counts = np.clip(np.round(share * sizes).astype(np.int64), 1, sizes - 1)
    hidden = np.zeros(matrix.nnz, bool)
    # Some rows at a time: sorting what fits into the cache is several times faster.
    bounds = np.unique([*np.searchsorted(indptr, np.arange(0, matrix.nnz, _AT_A_TIME)), len(sizes)])
    for first, last in pairwise([0, *bounds[bounds > 0].tolist()]):
        start, stop, lengths = indptr[first], indptr[last], sizes[first:last]
        rows = np.repeat(np.arange(last - first, dtype=np.min_scalar_type(last - first)), lengths)
        order = np.argsort(keys[start:stop], kind="stable")
        order = order[np.argsort(rows[order], kind="stable")]
        # Sorted by row and key, those of a row begin where the row does.
        end = np.repeat(indptr[first:last] - start + counts[first:last], lengths)
        hidden[start + order] = np.arange(stop - start) < end
    return hidden
