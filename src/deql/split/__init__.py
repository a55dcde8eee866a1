"""Honest splits: what a model is judged on it has not seen."""

from deql.split.file import load_split
from deql.split.parts import HeldOut, Split
from deql.split.strong import split_strong
from deql.split.within import split_leave_last, split_weak

__all__ = ["HeldOut", "Split", "load_split", "split_leave_last", "split_strong", "split_weak"]
