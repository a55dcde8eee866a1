"""Honest splits: what a model is judged on it has not seen."""

from collections.abc import Callable

from deql.split.file import load_split
from deql.split.parts import HeldOut, Split
from deql.split.strong import split_strong
from deql.split.within import split_leave_last, split_weak

__all__ = ["PROTOCOLS", "HeldOut", "Split", "load_split", "split_leave_last", "split_strong", "split_weak"]

PROTOCOLS: dict[str, Callable[..., Split]] = {
    "strong": split_strong,
    "weak": split_weak,
    "leave-last": split_leave_last,
}
"""The protocols by the names that people type."""
