"""What a search learns from and validates on; never the test part."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql.data import Interactions, as_interactions
from deql.data.interactions import InteractionsLike
from deql.data.join import join
from deql.errors import DataError, ParameterError, Setting
from deql.io.container import digest
from deql.split import HeldOut, Split, hold_out_users, split_weak
from deql.split.last import chronology, hold_out_last, last_held_out
from deql.split.parts import SplitOrInteractions

__all__ = [
    "VALIDATIONS", "TuningData", "all_interactions", "hold_out_validation", "matrix_arrays", "refit_data",
    "sample_items",
]  # fmt: skip

_HELD_OUT_SHARE = 0.1

VALIDATIONS = ("auto", "last", "random")
"""How validation data may be held out."""

_AT_THE_END, _OF_ONE_TABLE = ("leave-last", "time"), ("strong", "k-fold")
"""Protocols that hold out what came last, and those that take new users from one table."""


@dataclass(frozen=True, eq=False)
class TuningData:
    """Training and validation data of a search.

    Attributes
    ----------
    train : Interactions
    validation : HeldOut
    final : Interactions
        What the winner is fitted on in the end: all that may be learned from.
    how : str
        Where validation came from, in words.
    """

    train: Interactions
    validation: HeldOut
    final: Interactions
    how: str

    def fingerprint(self) -> str:
        """A checksum of all that the search reads."""
        arrays = matrix_arrays(train=self.train, seen=self.validation.seen, held_out=self.validation.held_out)
        for name, items in (("train", self.train.items), ("validation", self.validation.seen.items)):
            arrays[f"{name}_items"] = np.frombuffer("\n".join(map(str, items.tolist())).encode(), np.uint8)
        return digest({}, arrays)


def matrix_arrays(**parts: Interactions) -> dict[str, NDArray[Any]]:
    """The arrays of the parts' matrices by name, for a checksum of what they hold."""
    return {
        f"{name}_{field}": np.ascontiguousarray(getattr(part.matrix, field))
        for name, part in parts.items()
        for field in ("indptr", "indices", "data")
    }


def hold_out_validation(
    data: SplitOrInteractions, seed: int, validation: str = "auto", time: bool = False
) -> TuningData:
    """Decide what a search learns from and what it validates on.

    Parameters
    ----------
    data : Split, Interactions or sparse matrix
        A split is taken as it is; one without a validation part gives a tenth of every user's training
        interactions instead. Of a table without a split, a tenth of the users validate.
    seed : int
        For what is held out here.
    validation : {"auto", "last", "random"}, default "auto"
        Which items are held out, as :func:`deql.tune` takes it.
    time : bool, default False
        Find a frame's column of times, too.

    Examples
    --------
    >>> import deql
    >>> data = hold_out_validation(deql.datasets.debian(), seed=0)
    >>> data.how, data.train.n_users < data.final.n_users
    ('1,743 users were held out to choose on', True)
    """
    if validation not in VALIDATIONS:
        raise ParameterError(
            f"validation must be one of {', '.join(VALIDATIONS)}, got {validation!r}", parameter="validation"
        )
    if validation == "last":
        return _hold_out_last(data)
    if not isinstance(data, Split):
        table = as_interactions(data, time=time)
        train, held = hold_out_users(table, seed)
        return TuningData(train, held, table, f"{held.seen.n_users:,} users were held out to choose on")
    if data.validation is None:
        if validation == "auto" and data.protocol in _AT_THE_END:
            return _hold_out_last(data)
        inner = split_weak(data.train, _HELD_OUT_SHARE, validation=0, seed=seed)
        how = (
            f"the split has no validation part, so {_HELD_OUT_SHARE:.0%} of each user's training items were held out "
            "at random"
        )
        return TuningData(inner.train, inner.test, data.train, how)
    if not data.validation.held_out.n_interactions:
        raise DataError("no validation user has anything held out, so there is nothing to choose on")
    users = data.validation.seen.n_users
    return TuningData(data.train, data.validation, data.train, f"the split has {users:,} validation users")


def _hold_out_last(data: SplitOrInteractions) -> TuningData:
    """What came last of each user is held out; of new users' histories, or of those that are learned from."""
    if not isinstance(data, Split):
        table = as_interactions(data, time=True)
        return _last_tenth(table, "")
    if data.validation is None:
        why = "the split has no validation part"
        if data.protocol in _AT_THE_END:
            why += f" and its test is what came last ({data.protocol})"
        return _last_tenth(data.train, why + ", so ")
    users = f"{data.validation.seen.n_users:,} validation users"
    if data.protocol in _AT_THE_END:
        how = f"the split has {users}, of whom it held out what came last ({data.protocol})"
        return TuningData(data.train, data.validation, data.train, how)
    if data.protocol not in _OF_ONE_TABLE:
        raise ParameterError(
            f"this {data.protocol} split has a validation part, which decides: leave out ",
            Setting("validation", "last"),
            ", or give the split without that part",
            parameter="validation",
        )
    held = last_held_out(data.validation)
    how = f"the split has {users}, of whom what came last was held out, by {chronology(held.seen).by}"
    return TuningData(data.train, held, data.train, how)


def _last_tenth(table: Interactions, why: str) -> TuningData:
    inner = hold_out_last(table, _HELD_OUT_SHARE)
    how = f"{why}the last {_HELD_OUT_SHARE:.0%} of each user's items were held out, by {chronology(table).by}"
    return TuningData(inner.train, inner.test, table, how)


def refit_data(data: SplitOrInteractions, refit: str | InteractionsLike, time: bool = False) -> Interactions | None:
    """What the winner is to be fitted on in the end; None for what the search may learn from."""
    if isinstance(refit, str):
        if refit not in ("train", "all"):
            raise ParameterError(f"refit must be 'train', 'all' or interactions, got {refit!r}", parameter="refit")
        return all_interactions(data) if refit == "all" and isinstance(data, Split) else None
    return as_interactions(refit, time=time)


def all_interactions(split: Split) -> Interactions:
    """Everything that a split has, each interaction once: what a model that is to be deployed learns from.

    Examples
    --------
    >>> import deql
    >>> data = deql.datasets.debian()
    >>> all_interactions(deql.split_strong(data)).n_interactions == data.n_interactions
    True
    """
    held = [part for part in (split.validation, split.test) if part is not None]
    parts = [split.train, *(one for part in held for one in (part.seen, part.held_out))]
    timed = all(part.times is not None for part in parts)
    # Published splits show in a part what is in another, which counts once.
    return join(
        *(replace(part, times=part.times if timed else None, order=None) for part in parts), weights="max"
    )  # fmt: skip


def sample_items(data: TuningData, share: float, users: int, seed: int) -> TuningData:
    """A share of the items, drawn by their popularity, and at most so many validation users, to screen points on.

    Popular items are where most of what is held out lies: drawn evenly, a sample would leave too little to find.

    Raises
    ------
    DataError
        If nobody is left who has something to see and something to find.
    """
    counts = np.bincount(data.train.matrix.indices, minlength=data.train.n_items)
    bits = np.random.PCG64(seed)
    # The smallest of −log(u)/count are a draw without replacement in proportion to the counts (Efraimidis, Spirakis).
    uniform = (bits.random_raw(len(counts)).astype(np.float64) + 1) * 2.0**-64
    order = np.argsort(-np.log(uniform) / np.maximum(counts, 1), kind="stable")
    items = np.sort(order[: max(1, round(share * len(counts)))])
    seen, held_out = (part.take_items(items) for part in (data.validation.seen, data.validation.held_out))
    usable = np.flatnonzero((np.diff(seen.matrix.indptr) > 0) & (np.diff(held_out.matrix.indptr) > 0))
    if not usable.size:
        raise DataError("too few items are left to evaluate on")
    few = np.sort(usable[np.argsort(bits.random_raw(len(usable)), kind="stable")[:users]])
    train = data.train.take_items(items)
    return TuningData(train, HeldOut(seen.take_users(few), held_out.take_users(few)), train, data.how)
