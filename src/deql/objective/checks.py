"""What is asked of moments before anything is computed with them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql.errors import DataError, ParameterError, name_some

__all__ = ["as_real", "check_items", "check_ridge", "check_symmetric", "item_name"]

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
        raise ParameterError(f"{n:,} items need {n:,} ids, got {len(items):,}")


def check_ridge(lam: Any) -> None:
    """Raise ParameterError unless lam is a number that may be added to a diagonal."""
    from deql.models.checks import check_range

    check_range("lam", lam, 0.0, np.inf)


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


def check_symmetric(H: NDArray[np.float64], what: str) -> None:
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
        raise DataError(f"{what} is not symmetric: it must be E[XᵀX]")
