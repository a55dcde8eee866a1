"""Parts of LightGCN's files to choose on and to be judged on; NumPy alone, as a device's machine may have no more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["HOLD_OUTS", "Histories", "Parts", "line_ends", "random_tenth", "read_lines", "read_test"]

TENTH, SEED = 10, 0

Ints = NDArray[np.int64]


class Histories(NamedTuple):
    """Items of each user: those of user u are ``items[starts[u] : starts[u + 1]]``; all are below ``n``."""

    starts: Ints
    items: Ints
    n: int

    @property
    def sizes(self) -> Ints:
        return np.diff(self.starts)

    @property
    def users(self) -> Ints:
        """The user of each item."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def keep(self, mask: NDArray[np.bool_]) -> Histories:
        """The marked interactions, of the same users."""
        kept = np.bincount(self.users[mask], minlength=len(self.sizes))
        return Histories(np.concatenate([[0], np.cumsum(kept)]), self.items[mask], self.n)


class Parts(NamedTuple):
    """What is learned from and seen, and what is to be found, of the same users."""

    train: Histories
    held_out: Histories


def read_lines(path: Path) -> Histories:
    """``train.txt`` or ``test.txt``: a user and then its items on each line, in the order of the file."""
    lines = [np.array(line.split(), np.int64) for line in path.read_text().splitlines()]
    users = np.array([line[0] for line in lines if len(line)])
    if not np.array_equal(users, np.arange(len(users))):
        raise ValueError(f"{path} must have the users 0, 1, 2, … in this order")
    items = np.concatenate([line[1:] for line in lines])
    starts = np.concatenate([[0], np.cumsum([len(line) - 1 for line in lines])])
    return Histories(starts, items, int(items.max()) + 1)


def read_test(folder: Path) -> Parts:
    """The published split: train, and the test part as what is to be found."""
    train, test = read_lines(folder / "train.txt"), read_lines(folder / "test.txt")
    without = len(train.sizes) - len(test.sizes)
    if without < 0:
        raise ValueError(f"{folder} has {-without:,} users in its test part whom train does not have")
    n, starts = max(train.n, test.n), np.concatenate([test.starts, np.full(without, test.starts[-1])])
    return Parts(train._replace(n=n), test._replace(starts=starts, n=n))


def line_ends(lines: Histories) -> Parts:
    """The last tenth of each line is to be found, rounded up."""
    place = np.arange(len(lines.items)) - np.repeat(lines.starts[:-1], lines.sizes)
    return _without(lines, np.repeat(lines.sizes, lines.sizes) - 1 - place, -(-lines.sizes // TENTH))


def random_tenth(lines: Histories) -> Parts:
    """A tenth of each user's items, drawn as ``deql.split_weak(train, 0.1, validation=0, seed=0)`` draws it."""
    ascending = lines._replace(items=lines.items[np.lexsort((lines.items, lines.users))])
    keys = np.random.PCG64(SEED).random_raw(len(ascending.items))
    order = np.lexsort((keys, ascending.users))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order)) - np.repeat(ascending.starts[:-1], ascending.sizes)
    return _without(ascending, place, np.round(ascending.sizes / TENTH).astype(np.int64))


HOLD_OUTS: dict[str, Callable[[Histories], Parts]] = {"line-ends": line_ends, "random": random_tenth}


def _without(lines: Histories, place: Ints, counts: Ints) -> Parts:
    """Held out are the first of each user by ``place``: so many, at least one and not all."""
    counts = np.clip(counts, 1, np.maximum(lines.sizes - 1, 1))
    counts[lines.sizes < 2] = 0
    hidden = place < np.repeat(counts, lines.sizes)
    return _findable(lines.keep(~hidden), lines.keep(hidden))


def _findable(train: Histories, held_out: Histories) -> Parts:
    """Without the items that nobody has in train: they cannot be found."""
    known = np.bincount(train.items, minlength=train.n) > 0
    return Parts(train, held_out.keep(known[held_out.items]))
