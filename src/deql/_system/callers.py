"""Where a warning belongs: the line of the user's own code that led to it."""

from __future__ import annotations

import sys

__all__ = ["levels_to_the_caller"]


def levels_to_the_caller() -> int:
    """How far up the stack, seen from who asks, the code outside this package is."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("deql."):
        level, frame = level + 1, frame.f_back
    return level
