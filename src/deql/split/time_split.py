"""A split at one moment for all: what came before is learned from, what came after is to be found."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime

import numpy as np
from numpy.typing import NDArray

from deql.data import as_interactions
from deql.data.interactions import InteractionsLike
from deql.data.moments import check_times, moment
from deql.errors import DataError, ParameterError
from deql.split.parts import Split
from deql.split.protocols import check_share, within_users

__all__ = ["split_time"]

_TEST_SHARE = 0.2


def split_time(
    data: InteractionsLike,
    test: float | None = None,
    validation: float = 0.1,
    after: float | str | datetime | date | None = None,
) -> Split:
    """Global time split: train is what happened before a moment, the test what happened from it on.

    A model that is trained today is asked for tomorrow's items: so nothing that is learned from happened after
    anything that is to be found. Validation is what happened just before the test. Users are evaluated who have
    interactions on both sides, with everything before the moment in sight.

    Parameters
    ----------
    data : Interactions or frame
        With times; of a frame the column is found by common names.
    test : float, optional
        Share of all interactions that are the test, the latest; 0.2 if ``after`` is not given either. Interactions of
        the same time stay together, so that the test may be a little larger.
    validation : float, default 0.1
        Share of what then remains, the latest of it, to be found in validation. With 0 there is no validation part.
    after : float, str or datetime, optional
        The moment instead: a time as the data have it, or a date such as ``"2015-03-04"`` or
        ``"2015-03-04 17:30"``, in UTC, where these are seconds since 1970.

    Returns
    -------
    Split
        ``dropped`` counts the items that train does not have, the interactions with them, and the users of the test
        who have nothing to be seen before it, or nothing to be found.

    Examples
    --------
    >>> import numpy as np, deql
    >>> from dataclasses import replace
    >>> data = deql.Interactions.from_pairs(list("aaabbb"), ["egg", "jam", "tea", "egg", "jam", "tea"])
    >>> data = replace(data, times=np.array([1.0, 5.0, 2.0, 2.0, 1.0, 6.0]))
    >>> split = split_time(data, after=5, validation=0)
    >>> split.test.seen.history("b"), split.test.held_out.history("b")
    (['egg', 'jam'], ['tea'])
    """
    data = as_interactions(data, time=True)
    if test is not None and after is not None:
        raise ParameterError("test and after both say where the test begins: give one of them", parameter="after")
    if isinstance(validation, bool) or validation != 0:
        check_share("validation", validation)
    times = check_times(data, "a time split")
    if after is None:
        test = _TEST_SHARE if test is None else test
        check_share("test", test)
        asked, begin = {"test": test}, _begin_of_last(times, test)
    else:
        begin = moment(after, "after")
        asked = {"after": begin}
    in_test = times >= begin
    if in_test.all() or not in_test.any():
        side = "before" if in_test.all() else "from"
        raise DataError(
            f"nothing happened {side} the moment {begin:.15g}, where the test begins: the times of the data are "
            f"{times.min():.15g} to {times.max():.15g}"
            if len(times)
            else "there are no interactions to split"
        )
    in_validation = None
    if validation:
        in_validation = ~in_test & (times >= _begin_of_last(times[~in_test], validation))
        if (in_test | in_validation).all():
            raise DataError(
                "nothing is left to train on, as all before the test happened at one time: say validation=0"
            )
    split = within_users(data, in_test, in_validation, "time", None, asked | {"validation": validation})
    tested = int(np.count_nonzero(np.diff(data.keep(in_test).matrix.indptr)))
    known = np.diff(split.train.matrix.indptr) > 0  # who came later is not to be counted among those learned from
    return replace(
        split,
        train=split.train.take_users(known),
        dropped=split.dropped | {"users": tested - split.test.seen.n_users},
    )


def _begin_of_last(times: NDArray[np.float64], share: float) -> float:
    """From when on a share of the times is, at least one of them."""
    count = max(1, round(share * len(times)))
    return float(np.partition(times, len(times) - count)[len(times) - count]) if len(times) else 0.0
