"""What a column of features holds: numbers, categories, tags, embeddings, text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from deql._system.lazy import pl
from deql.errors import DataError, ParameterError, did_you_mean, name_some

__all__ = ["KINDS", "check_kind", "choose_kinds", "separator_of"]

KINDS = ("number", "category", "tags", "embedding", "text", "ignore")
"""What people can say of a column."""

_SEPARATORS = ("|", ";", ",")
_FEW_WORDS = 4
"""Words up to which a value is a name rather than a text, on average."""


def choose_kinds(columns: Mapping[str, Any], titles: str | None, said: Mapping[str, str] | None) -> dict[str, str]:
    """The kind of each column: as said, else as its values look.

    Parameters
    ----------
    columns : mapping
        Polars' series by name.
    titles : str or None
        The column of titles, which is no feature unless it is said to be.
    said : mapping, optional
        Kinds by name.

    Examples
    --------
    >>> choose_kinds({"year": pl.Series([1995, 1972]), "genres": pl.Series(["Comedy|Drama", "Drama"])}, None, None)
    {'year': 'number', 'genres': 'tags'}
    """
    said = said or {}
    if not isinstance(said, Mapping):
        raise ParameterError(
            f"kinds must be a mapping from columns to kinds, such as {{'year': 'number'}}, got {type(said).__name__}",
            parameter="kinds",
        )
    for name, kind in said.items():
        if name not in columns:
            raise DataError(f"the features have no column {name!r} for kinds: they have {name_some([*columns], 12)}")
        if kind not in KINDS:
            raise ParameterError(
                f"kinds[{name!r}] must be one of {', '.join(KINDS)}, got {kind!r}{did_you_mean(str(kind), KINDS)}",
                parameter="kinds",
            )
    chosen = {}
    for name, series in columns.items():
        chosen[name] = said.get(name) or ("ignore" if name == titles else _guess(series))
        if chosen[name] != "ignore":
            check_kind(name, chosen[name], series)
    return chosen


def check_kind(name: str, kind: str, series: pl.Series) -> None:
    """DataError unless such values can be of this kind.

    Examples
    --------
    >>> check_kind("year", "number", pl.Series([[1995]]))
    Traceback (most recent call last):
    ...
    deql.errors.DataError: the features' column 'year' holds List(Int64) values, which are no number: leave it out...
    """
    dtype, inner = series.dtype, getattr(series.dtype, "inner", None)
    match kind:
        case "number":
            fits = dtype.is_numeric() or dtype.is_temporal() or dtype in (pl.String, pl.Boolean, pl.Null)
        case "embedding":
            fits = dtype == pl.Null or (inner is not None and (inner.is_numeric() or inner in (pl.Boolean, pl.Null)))
        case "text":
            fits = _plain(dtype)
        case _:
            fits = _plain(dtype if inner is None else inner)
    if not fits:
        raise DataError(
            f"the features' column {name!r} holds {dtype} values, which are no {kind}: leave it out, or say kinds with "
            "another, such as 'ignore'"
        )


def _plain(dtype: pl.DataType) -> bool:
    """Whether values can be written as text."""
    return not dtype.is_nested() and dtype not in (pl.Binary, pl.Object)


def separator_of(series: pl.Series) -> str:
    """What stands between the tags of a text: the first of ``|``, ``;`` and ``,`` that occurs; ``|`` if none does.

    Examples
    --------
    >>> separator_of(pl.Series(["a; b", "c"]))
    ';'
    """
    if series.dtype != pl.String:
        return _SEPARATORS[0]
    present = (mark for mark in _SEPARATORS if series.str.contains(mark, literal=True).any())
    return next(present, _SEPARATORS[0])


def _guess(series: pl.Series) -> str:
    kind = series.dtype
    if kind == pl.Boolean:
        return "category"
    if kind.is_numeric() or kind.is_temporal():
        return "number"
    if isinstance(kind, pl.List | pl.Array):
        inner: Any = kind.inner
        numbers = inner.is_float() or (isinstance(kind, pl.Array) and inner.is_numeric())
        return "embedding" if numbers else "tags"
    return _guess_text(series) if kind == pl.String else "category"


def _guess_text(series: pl.Series) -> str:
    filled = series.str.strip_chars()
    filled = filled.filter(filled.is_not_null() & (filled != ""))
    if not len(filled):
        return "category"
    if filled.cast(pl.Float64, strict=False).null_count() == 0:
        return "number"
    if _looks_like_tags(filled):
        return "tags"
    words = float(np.mean(filled.str.count_matches(r"\w+").to_numpy()))
    repeats = filled.n_unique() <= max(2, len(filled) // 2)
    return "category" if repeats and words <= _FEW_WORDS else "text"


def _looks_like_tags(filled: pl.Series) -> bool:
    """Whether a separator cuts the values into short pieces that come again."""
    mark = separator_of(filled)
    if not filled.str.contains(mark, literal=True).any():
        return False
    pieces = filled.str.split(mark).explode().str.strip_chars()
    short = float(np.mean(pieces.str.count_matches(r"\w+").to_numpy())) <= _FEW_WORDS
    return short and (mark == "|" or 2 * pieces.n_unique() <= len(pieces))
