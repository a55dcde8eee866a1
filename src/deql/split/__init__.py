"""Honest splits: what a model is evaluated on it has not seen."""

from deql.split.folders import load_split, read_lightgcn_split
from deql.split.folds import k_fold
from deql.split.parts import HeldOut, Split
from deql.split.protocols import hold_out_users, split_leave_last, split_strong, split_weak
from deql.split.registry import PROTOCOLS, TIMED, make_splits
from deql.split.time_split import split_time

__all__ = [
    "PROTOCOLS",
    "TIMED",
    "HeldOut",
    "Split",
    "hold_out_users",
    "k_fold",
    "load_split",
    "make_splits",
    "read_lightgcn_split",
    "split_leave_last",
    "split_strong",
    "split_time",
    "split_weak",
]
