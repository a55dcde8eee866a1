"""Objects as they could be typed."""

from __future__ import annotations

import dataclasses
from typing import Any

__all__ = ["short_repr"]


def short_repr(thing: Any) -> str:
    """A dataclass by what differs from its defaults, as scikit-learn shows estimators.

    Examples
    --------
    >>> @dataclasses.dataclass(repr=False)
    ... class Model:
    ...     l2: float = 60.0
    ...     b: float = 0.5
    ...     __repr__ = short_repr
    >>> Model(), Model(b=2.0)
    (Model(), Model(b=2.0))
    """
    if not dataclasses.is_dataclass(thing):
        return f"{type(thing).__name__}()"
    shown = sorted((field for field in dataclasses.fields(thing) if field.repr), key=lambda field: bool(field.kw_only))
    values = [(field, getattr(thing, field.name)) for field in shown]
    changed = [f"{field.name}={value!r}" for field, value in values if value != field.default]
    return f"{type(thing).__name__}({', '.join(changed)})"
