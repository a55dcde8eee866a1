"""What is asked of moments before anything is computed with them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from deql._system.checks import check_range
from deql.errors import DataError, ParameterError, name_some

__all__ = [
    "as_real",
    "as_square",
    "check_callable",
    "check_item",
    "check_items",
    "check_ridge",
    "check_symmetric",
    "item_name",
    "shape_of",
]

_ASYMMETRY = 1e-6
"""Accepted difference of H·x and Hᵀ·x: what single precision leaves, and no more."""


def item_name(i: int, items: Any = None) -> str:
    """Item i as it is called in a message: by its id, or by its number.

    Examples
    --------
    >>> item_name(1), item_name(1, ["tea", "jam"])
    ('1', "'jam'")
    """
    return str(i) if items is None else name_some([items[i]])


def check_items(items: Any, n: int) -> None:
    """Raise ParameterError unless there is an id for each of n items, or none at all."""
    if items is not None and len(items) != n:
        raise ParameterError(f"{n:,} items need {n:,} ids, got {len(items):,}", parameter="items")


def check_ridge(lam: Any) -> None:
    """Raise ParameterError unless lam is a number that may be added to a diagonal."""
    check_range("lam", lam, 0.0, np.inf)


def check_callable(name: str, value: Any, gives: str) -> None:
    """Raise ParameterError unless ``value`` can be called."""
    if not callable(value):
        raise ParameterError(
            f"{name} must be a function that gives {gives}, got {type(value).__name__}", parameter=name
        )


def check_item(i: Any, n: int) -> None:
    """Raise ParameterError unless i is the number of one of n items."""
    if isinstance(i, bool) or not isinstance(i, int | np.integer) or not 0 <= i < n:
        raise ParameterError(f"i must be the number of an item, from 0 to {n - 1:,}, got {i!r}", parameter="i")


def as_real(value: Any, what: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Real numbers of the given shape, as float64; else a DataError that says what was to be there.

    Examples
    --------
    >>> as_real([1, 2], "v of item 0", (2,))
    array([1., 2.])
    """
    wanted = " × ".join(f"{length:,}" for length in shape) + (" numbers" if len(shape) == 1 else "")
    try:
        array = np.asarray(value)
    except ValueError:  # lists of unequal lengths
        array = np.empty((), object)
    if array.dtype.kind not in "biuf":
        kind = type(value).__name__ if array.dtype == object else str(array.dtype)
        raise DataError(f"{what} must be a real array of {wanted}, got {kind}")
    if array.shape != shape:
        raise DataError(f"{what} must be {wanted}, got the shape {array.shape}")
    return array.astype(np.float64, copy=False)


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape that a value has as an array; that of a number if its parts are of unequal lengths.

    Examples
    --------
    >>> shape_of([[1, 2], [3, 4]]), shape_of([[1], [2, 3]])
    ((2, 2), ())
    """
    try:
        return np.shape(value)
    except ValueError:
        return ()


def as_square(value: Any, what: str) -> NDArray[np.float64]:
    """A square array of real numbers, as float64; else a DataError.

    Examples
    --------
    >>> as_square([[1, 2], [2, 1]], "S").shape
    (2, 2)
    """
    if issparse(value):
        raise DataError(f"{what} must be a dense array, got {type(value).__name__}: use its toarray()")
    shape = shape_of(value)
    if len(shape) != 2 or shape[0] != shape[1] or not shape[0]:
        raise DataError(f"{what} must be a square array, got the shape {shape}")
    return as_real(value, what, shape)


def check_symmetric(H: NDArray[np.float64], what: str, formula: str = "E[XᵀX]") -> None:
    """Raise DataError if H has NaN or infinite entries or is not symmetric.

    Seen in H·x and Hᵀ·x for a random vector x: two passes over H, where H − Hᵀ would take several.

    Examples
    --------
    >>> check_symmetric(np.eye(2), "H of item 0")
    """
    x = np.random.default_rng(0).standard_normal(len(H))
    with np.errstate(invalid="ignore", over="ignore"):
        image, other = H @ x, H.T @ x
    if not np.isfinite(image).all():
        raise DataError(f"{what} has entries that are NaN or infinite")
    if np.abs(image - other).max(initial=0.0) > _ASYMMETRY * np.abs(image).max(initial=0.0):
        raise DataError(f"{what} is not symmetric: it must be {formula}")
