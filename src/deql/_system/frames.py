"""Results as frames, of whichever library the reader has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

import numpy as np

from deql._system.lazy import nw
from deql.errors import DataError, ParameterError

__all__ = ["DEFAULT_KIND", "frame_kind", "make_frame"]

DEFAULT_KIND = "polars"
_KINDS = ("polars", "pandas", "pyarrow")
_Backend = Literal["polars", "pandas", "pyarrow", "modin", "cudf"]


def frame_kind(table: Any) -> str | None:
    """Which library a frame is of, as :func:`make_frame` takes it; None for what is no frame.

    A library that cannot be built from columns, such as one of lazy or distributed frames, counts as polars.

    Examples
    --------
    >>> import polars as pl
    >>> frame_kind(pl.DataFrame({"user": [1]})), frame_kind([1, 2])
    ('polars', None)
    """
    native = nw.from_native(table, pass_through=True)
    if not isinstance(native, nw.DataFrame | nw.LazyFrame):
        return None
    name = native.implementation.value
    return name if name in (*_KINDS, "modin", "cudf") else DEFAULT_KIND


def make_frame(columns: Mapping[str, Any], kind: str | None = None) -> Any:
    """A frame of the columns: of polars, pandas or pyarrow.

    A column has one type: what is of several, such as the ids 7 and "ann", is text.

    Examples
    --------
    >>> make_frame({"item": ["tea", "jam"], "score": [0.5, 0.25]}).shape
    (2, 2)
    >>> type(make_frame({"item": ["tea"]}, "pyarrow")).__name__
    'Table'
    >>> make_frame({"user": np.array([7, "ann"], object)})["user"].to_list()
    ['7', 'ann']
    """
    kind = kind or DEFAULT_KIND
    if kind not in (*_KINDS, "modin", "cudf"):
        raise ParameterError(f"a frame is one of {', '.join(_KINDS)}, got {kind!r}", parameter="kind")
    backend = cast(_Backend, kind)
    try:
        made = {name: _column(name, values, backend) for name, values in columns.items()}
        return nw.from_dict(made, backend=backend).to_native()
    except ModuleNotFoundError:
        raise ParameterError(
            f"{kind} is not installed: pip install {kind}, or ask for another", parameter="kind"
        ) from None
    except (TypeError, ValueError, OverflowError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(
            f"these values cannot be in a {kind} frame ({reason}): ids must be all whole numbers or all text"
        ) from None


def _column(name: str, values: Any, backend: _Backend) -> Any:
    """Numbers as they are; objects so that they have one type: text where there is none or there are several."""
    if not isinstance(values, np.ndarray) or values.dtype != object:
        return values
    given = values.tolist()
    kinds = set(map(type, given)) - {type(None)}
    if not kinds:
        return nw.new_series(name, given, nw.String, backend=backend)
    if len(kinds) > 1:
        given = [None if value is None else str(value) for value in given]
    # A list, as polars may leave an array of objects one of objects.
    return nw.new_series(name, given, backend=backend) if backend == "polars" else given
