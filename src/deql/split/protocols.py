"""The protocols by the names that people type, and several splits of one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any

from deql.data import Interactions
from deql.errors import ParameterError
from deql.split.parts import Split
from deql.split.strong import split_strong
from deql.split.within import split_leave_last, split_weak

__all__ = ["PROTOCOLS", "make_splits"]

PROTOCOLS: dict[str, Callable[..., Split]] = {
    "strong": split_strong,
    "weak": split_weak,
    "leave-last": split_leave_last,
}


def make_splits(data: Interactions, splits: int, protocol: str, seed: int, options: dict[str, Any]) -> Iterator[Split]:
    """Splits with seeds from ``seed`` on, one after the other: only one is in memory at a time."""
    make = PROTOCOLS.get(protocol)
    if make is None:
        raise ParameterError(f"protocol must be one of {', '.join(PROTOCOLS)}, got {protocol!r}", parameter="protocol")
    known = set(signature(make).parameters) - {"data", "seed"}
    for name in options:
        if name not in known:
            raise ParameterError(f"a {protocol} split takes {', '.join(sorted(known))}, not {name}", parameter=name)
    if protocol == "leave-last":
        yield make(data, **options)
    else:
        for number in range(splits):
            yield make(data, seed=seed + number, **options)
