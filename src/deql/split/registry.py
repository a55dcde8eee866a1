"""The protocols by name, and the splits that a comparison makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any

from deql.data import Interactions
from deql.errors import ParameterError
from deql.split.folds import k_fold
from deql.split.parts import Split
from deql.split.protocols import split_leave_last, split_strong, split_weak
from deql.split.time_split import split_time

__all__ = ["PROTOCOLS", "TIMED", "make_splits"]

PROTOCOLS: dict[str, Callable[..., Split]] = {
    "strong": split_strong,
    "weak": split_weak,
    "leave-last": split_leave_last,
    "time": split_time,
}
"""Those that make one split."""

TIMED = ("leave-last", "time")
"""Those that need times, and draw nothing: there is one such split."""


def make_splits(data: Interactions, splits: int, protocol: str, seed: int, options: dict[str, Any]) -> Iterator[Split]:
    """Splits, one after the other: only one is in memory at a time.

    Their seeds go from ``seed`` on; those of k-fold share one, and are as many folds.
    """
    make = k_fold if protocol == "k-fold" else PROTOCOLS.get(protocol)
    if make is None:
        raise ParameterError(
            f"protocol must be one of {', '.join([*PROTOCOLS, 'k-fold'])}, got {protocol!r}", parameter="protocol"
        )
    known = set(signature(make).parameters) - {"data", "seed", "folds"}
    for name in options:
        if name not in known:
            raise ParameterError(f"a {protocol} split takes {', '.join(sorted(known))}, not {name}", parameter=name)
    if protocol == "k-fold":
        yield from k_fold(data, splits, seed=seed, **options)
    elif protocol in TIMED:
        yield PROTOCOLS[protocol](data, **options)
    else:
        for number in range(splits):
            yield PROTOCOLS[protocol](data, seed=seed + number, **options)
