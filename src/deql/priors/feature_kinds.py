"""What a column of features holds: numbers, categories, tags, embeddings, text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from deql._system.lazy import pl
from deql.errors import DataError, ParameterError, did_you_mean, name_some

__all__ = ["KINDS", "choose_kinds", "separator_of"]

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
        chosen[name] = said.get(name) or ("ignore" if name == titles else _guess(name, series))
    return chosen


def separator_of(series: pl.Series) -> str:
    """What stands between the tags of a text: the first of ``|``, ``;`` and ``,`` that occurs, else ``|``.

    Examples
    --------
    >>> separator_of(pl.Series(["a; b", "c"]))
    ';'
    """
    present = (mark for mark in _SEPARATORS if series.str.contains(mark, literal=True).any())
    return next(present, _SEPARATORS[0])


def _guess(name: str, series: pl.Series) -> str:
    kind = series.dtype
    if kind == pl.Boolean:
        return "category"
    if kind.is_numeric() or kind.is_temporal():
        return "number"
    if isinstance(kind, pl.List | pl.Array):
        inner = kind.inner
        if (isinstance(inner, pl.DataType) and inner.is_float()) or isinstance(kind, pl.Array):
            return "embedding"
        return "tags"
    if kind in (pl.Categorical, pl.Enum):
        return "category"
    if kind == pl.Null:
        return "category"
    if kind != pl.String:
        raise DataError(f"the features' column {name!r} holds {kind} values: leave it out, or say kinds with 'ignore'")
    return _guess_text(series)


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
