"""P in a model file: whole, or some of its entries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql.io.container import Arrays
from deql.io.model_file import fact, refuse_infinite
from deql.linalg.packed import PackedSymmetric
from deql.linalg.sparse_precision import SparsePrecision
from deql.linalg.tiling import STRIP

__all__ = ["precision_from_state", "precision_state"]


def precision_state(precision: PackedSymmetric | SparsePrecision) -> tuple[Arrays, dict[str, Any]]:
    """Arrays and plain facts that a model file keeps; those of a prior are none of them."""
    if isinstance(precision, PackedSymmetric):
        return {"precision": precision.data}, {"tile": precision.tile}
    places: Arrays = {"precision_starts": precision.indptr, "precision_columns": precision.columns}
    return places | {"precision_entries": precision.data}, {}


def precision_from_state(
    arrays: Arrays, facts: dict[str, Any], n: int, dtype: str
) -> PackedSymmetric | SparsePrecision:
    """What :func:`precision_state` gave, for n items; raises ValueError or KeyError if it does not fit.

    Examples
    --------
    >>> P = PackedSymmetric.from_dense(np.float32([[2, 1], [1, 2]]), tile=2)
    >>> precision_from_state(*precision_state(P), 2, "float32").diagonal()
    array([2., 2.])
    """
    found = _sparse(arrays, n) if "precision_starts" in arrays else _packed(arrays, facts, n)
    if found.dtype != dtype:
        raise ValueError(f"its P is of {found.dtype}, and its dtype {dtype}")
    diagonal = found.diagonal()
    if not (fine := np.isfinite(diagonal) & (diagonal > 0)).all():
        raise ValueError(f"the diagonal of its P is not positive at place {int(fine.argmin())}")
    return found


def _packed(arrays: Arrays, facts: dict[str, Any], n: int) -> PackedSymmetric:
    found = PackedSymmetric(n, fact(facts, "tile", int), arrays["precision"])
    if found.tile < n and found.tile % STRIP:
        raise ValueError(f"tiles of {found.tile}")
    return found


def _sparse(arrays: Arrays, n: int) -> SparsePrecision:
    starts, columns, entries = (arrays[f"precision_{name}"] for name in ("starts", "columns", "entries"))
    if starts.dtype != np.int64 or columns.dtype != np.int32:
        raise ValueError(f"the places of its P are of {starts.dtype} and {columns.dtype}")
    # The kernels trust these.
    _check_places(starts, columns, entries, n)
    images = arrays.get("prior_images")
    if images is not None and (images.shape, images.dtype) != (entries.shape, entries.dtype):
        raise ValueError("the entries of its prior are not where those of its P are")
    refuse_infinite("entries of P", entries, *([] if images is None else [images]))
    return SparsePrecision(starts, columns, entries, images)


def _check_places(starts: NDArray[np.int64], columns: NDArray[np.int32], entries: NDArray[Any], n: int) -> None:
    if starts.shape != (n + 1,) or columns.ndim != 1 or columns.shape != entries.shape:
        raise ValueError("its P and the ids of items differ in number")
    if starts[0] != 0 or starts[-1] != len(columns) or (starts[1:] < starts[:-1]).any():
        raise ValueError("the rows of its P contradict themselves")
    if len(columns) and not 0 <= int(columns.min()) <= int(columns.max()) < n:
        raise ValueError("its P has columns beyond the items")
    # Within a row every column is above the one before.
    rising = columns[1:] > columns[:-1]
    begins = starts[1:-1]
    rising[begins[(begins > 0) & (begins < len(columns))] - 1] = True
    if not rising.all():
        raise ValueError("the columns of a row of its P are not in order")
