"""A table as it is given, read as floats with NaN for what is missing, or refused in one sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils.validation import validate_data

from deql.errors import DataError, name_some

__all__ = ["check_none_empty", "floats"]


class _KindError(DataError, TypeError):
    """Entries of a kind that is no number: a TypeError for scikit-learn, a DataError for everyone else."""


def floats(estimator: Any, X: Any, *, reset: bool, missing_values: float) -> NDArray[Any]:
    """X as float64, or float32 if it is, with NaN for what is missing.

    Parameters
    ----------
    estimator : BaseEstimator
        Whose number and names of columns are set, or compared.
    X : array-like or frame
        Rows × columns.
    reset : bool
        Set them rather than compare.
    missing_values : float
        What stands for a missing entry.
    """
    if issparse(X):
        raise DataError("a sparse matrix says nothing of what is missing: give a dense array with NaN there")
    if np.ma.isMaskedArray(X):
        raise DataError("X is a masked array, and its mask would be lost: give X.astype(float).filled(np.nan)")
    X = _array(X) if isinstance(X, list | tuple) else X
    _check_no_dates(X)
    try:
        values: NDArray[Any] = validate_data(
            estimator, X, reset=reset, dtype=[np.float64, np.float32], ensure_all_finite=False
        )
    except (TypeError, ValueError) as error:
        kind = _KindError if isinstance(error, TypeError) else DataError
        raise kind(_place(X) + _one_line(str(error))) from None
    names = _names(X, values.shape[1])
    # Differences of two entries must not overflow either.
    _check_none(np.abs(values) > np.finfo(values.dtype).max / 4, names, "infinity or a number nearly as large")
    if np.isnan(missing_values):
        return values
    _check_none(np.isnan(values), names, f"NaN, but missing_values is {missing_values:g}")
    return np.where(values == missing_values, np.array(np.nan, values.dtype), values)


def check_none_empty(observed: NDArray[np.bool_], names: Any) -> None:
    """Raise DataError if there are columns without any observed entry."""
    empty = np.flatnonzero(~observed.any(axis=0))
    if len(empty):
        columns, them = ("columns", "them") if len(empty) > 1 else ("column", "it")
        raise DataError(
            f"no entry is observed in {columns} {name_some(np.asarray(names)[empty])}: "
            f"leave {them} out, or fill {them} with 0 by keep_empty_features=True"
        )


def _array(rows: Any) -> NDArray[Any]:
    try:
        return np.asarray(rows)
    except ValueError:
        raise DataError("the rows of X are not all of one length") from None


def _check_none(bad: NDArray[np.bool_], names: Any, what: str) -> None:
    found = np.flatnonzero(bad.any(axis=0))
    if len(found):
        raise DataError(f"column {name_some(names[found])} of X has {what}")


def _check_no_dates(X: Any) -> None:
    """NumPy would take them as numbers of whatever their unit is."""
    # Names of kinds in NumPy, pandas, Arrow and polars.
    kinds = [str(kind).lower() for kind in getattr(X, "dtypes", [getattr(X, "dtype", "")])]
    dates = [place for place, kind in enumerate(kinds) if kind.startswith(("date", "time", "duration", "period"))]
    if dates:
        where = f"column {name_some(_names(X, len(kinds))[dates])} of X" if hasattr(X, "dtypes") else "X"
        raise _KindError(f"{where} has dates or times: turn them into numbers, or leave them out")


def _names(X: Any, count: int) -> NDArray[Any]:
    return np.asarray(getattr(X, "columns", range(count)), dtype=object)


def _place(X: Any) -> str:
    """The first column of X with an entry that is no number, as the beginning of a sentence."""
    entries = np.asarray(X)
    if entries.ndim == 2 and entries.dtype.kind not in "biufc":
        for name, column in zip(_names(X, entries.shape[1]), entries.T, strict=True):
            try:
                column.astype(np.float64)
            except (TypeError, ValueError):
                return f"column {name_some([name])} of X: "
    return ""


def _one_line(message: str) -> str:
    # scikit-learn puts a whole array of complex numbers below its first line.
    lines = message.splitlines()[:1] if message.startswith("Complex") else message.split()
    return " ".join(lines)
