"""The end of each user's history, by time or by the order of the file."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deql.data import Interactions
from deql.data.moments import check_times
from deql.errors import DataError, Setting
from deql.split.held_out import HeldOut
from deql.split.parts import Split
from deql.split.protocols import hide, places_from_end, within_users

__all__ = ["Chronology", "chronology", "hold_out_last", "last_held_out"]


class Chronology(NamedTuple):
    """What is known of when things happened.

    Attributes
    ----------
    when : ndarray
        Later is larger, within each user; in the order of ``matrix.data``.
    by : str
        In words: "time", or "the order of the file".
    """

    when: NDArray[Any]
    by: str


def chronology(data: Interactions) -> Chronology:
    """When things happened: the times, or without them the order in which the file had them.

    Raises
    ------
    DataError
        If neither is known.

    Examples
    --------
    >>> from dataclasses import replace
    >>> data = Interactions.from_pairs(["ann", "ann"], ["jam", "tea"])
    >>> chronology(replace(data, order=np.array([1, 0]))).by
    'the order of the file'
    """
    if data.times is not None:
        return Chronology(check_times(data, "the end of a history"), "time")
    if data.order is None:
        raise DataError(
            "what came last is not known, as the data have no times and no order (lines sorted by item have none): "
            "say ", Setting("time"), " with that column when reading, or hold out at random with ",
            Setting("validation", "random"),
        )  # fmt: skip
    return Chronology(data.order, "the order of the file")


def hold_out_last(data: Interactions, share: float) -> Split:
    """A split whose test is the last share of each user's interactions, at least one and not all.

    Users with fewer than two interactions stay in train.

    Examples
    --------
    >>> from dataclasses import replace
    >>> data = Interactions.from_pairs(list("aaabb"), ["egg", "jam", "tea", "jam", "tea"])
    >>> hold_out_last(replace(data, times=np.array([2.0, 1.0, 3.0, 2.0, 1.0])), 0.1).test.held_out.history("b")
    ['jam']
    """
    hidden = hide(data.matrix, share, places_from_end(data.matrix, chronology(data).when))
    return within_users(data, hidden, None, "last", None, {"held_out": share})


def last_held_out(part: HeldOut) -> HeldOut:
    """The same users with as much held out of each as before, but what came last."""
    whole = part.whole()
    share = np.diff(part.held_out.matrix.indptr) / np.maximum(np.diff(whole.matrix.indptr), 1)
    hidden = hide(whole.matrix, share, places_from_end(whole.matrix, chronology(whole).when))
    return HeldOut(whole.keep(~hidden), whole.keep(hidden))
