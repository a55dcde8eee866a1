"""Values as JSON can hold them."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["as_json"]


def as_json(value: Any) -> Any:
    """Arrays and tuples as lists, keys as text; NaN becomes None and infinity text, which JSON has no numbers for.

    Examples
    --------
    >>> as_json({"scores": (1.5, float("nan"), float("inf"))})
    {'scores': [1.5, None, 'inf']}
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): as_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value
