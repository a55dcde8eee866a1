"""Honest splits: what a model is evaluated on it has not seen."""

from deql.split.parts import HeldOut, Split, load_split
from deql.split.protocols import PROTOCOLS, hold_out_users, make_splits, split_leave_last, split_strong, split_weak

__all__ = [
    "PROTOCOLS",
    "HeldOut",
    "Split",
    "hold_out_users",
    "load_split",
    "make_splits",
    "split_leave_last",
    "split_strong",
    "split_weak",
]
