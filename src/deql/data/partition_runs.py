"""Rows on disk in the order of a hash of their user, from which those of any hashes are read in few pieces.

They are written in sorted runs, as an external sort writes them, and merged as in a log-structured merge tree: so many
runs become one, and so many of these one again. Of how many files rows of a few hashes are read then grows with the
logarithm of the number of rows, and not with that number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deql._system.lazy import pl
from deql.data.readers.ids import are_whole_numbers

__all__ = ["MOST_PARTITIONS", "SortedRuns", "hash_bounds"]

MOST_PARTITIONS = 2**14
"""How many hashes of users are told apart: parts are made of ranges of them."""

_BATCH = 2**16
"""Rows of a file that are read at once."""

_FAN = 64
"""So many runs become one: more are more files to open for each part, fewer more often written again."""


@dataclass(frozen=True, eq=False)
class _Run:
    """Rows sorted by their hash, in one file, or in several that follow each other."""

    starts: NDArray[np.int64]
    """Where the rows of each hash begin, and where the last ends."""
    files: list[Path]
    begins: NDArray[np.int64]
    """Where the rows of each file begin."""

    def read(self, first: int, last: int) -> Iterator[pl.DataFrame]:
        """The rows of the hashes from ``first`` up to ``last``, without that."""
        begin, end = int(self.starts[first]), int(self.starts[last])
        if begin == end:
            return
        for place in range(np.searchsorted(self.begins, begin, "right") - 1, np.searchsorted(self.begins, end)):
            at = int(self.begins[place])
            rows = pl.scan_ipc(self.files[place])  # up to where this or what is asked for ends
            yield rows.slice(max(begin - at, 0), end - max(begin, at)).collect()


class SortedRuns:
    """Takes rows, some millions at a time, and gives them back by hashes of their users.

    Memory holds as many rows as were given at a time, twice. Rows of one user stay in the order in which they came.

    Parameters
    ----------
    folder : Path
        Where to write.

    Examples
    --------
    >>> import polars as pl, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     runs = SortedRuns(Path(folder))
    ...     for item in range(3):
    ...         runs.add(pl.DataFrame({"user": ["ann", "bob"], "item": [item, item]}))
    ...     rows = pl.concat(runs.read(0, MOST_PARTITIONS))
    ...     runs.remove()
    >>> rows.filter(user="bob")["item"].to_list(), int(runs.counts.sum())
    ([0, 1, 2], 6)
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._levels: list[list[_Run]] = [[]]
        self._n_files = 0
        self.counts = np.zeros(MOST_PARTITIONS, np.int64)
        """How many rows each hash has."""

    def add(self, rows: pl.DataFrame) -> None:
        """Take rows with a column ``user``; all have the same columns, whose ids may be numbers here and text there."""
        hashes = _hashes(rows["user"])
        counts = np.bincount(hashes, minlength=MOST_PARTITIONS)
        self.counts += counts
        self._levels[0].append(_Run(_starts(counts), [self._write(rows, hashes)], np.zeros(1, np.int64)))
        for level, runs in enumerate(self._levels):
            if len(runs) < _FAN:
                break
            if level + 1 == len(self._levels):
                self._levels.append([])
            self._levels[level + 1].append(self._merge(runs))
            runs.clear()

    def read(self, first: int, last: int) -> Iterator[pl.DataFrame]:
        """The rows of the hashes from ``first`` up to ``last``, without that; a user's in the order they came."""
        for runs in reversed(self._levels):
            for run in runs:
                yield from run.read(first, last)

    def remove(self) -> None:
        """Remove all files."""
        for runs in self._levels:
            _remove(runs)
        self._levels = [[]]

    def _merge(self, runs: Sequence[_Run]) -> _Run:
        """One run of several, in as many files, so that none is larger than before, nor what is in memory."""
        counts = np.sum([np.diff(run.starts) for run in runs], axis=0)
        starts = _starts(counts)
        files: list[Path] = []
        begins: list[int] = []
        for first, last in pairwise(hash_bounds(counts, sum(len(run.files) for run in runs)).tolist()):
            if starts[first] < starts[last]:
                parts = [part for run in runs for part in run.read(first, last)]
                rows = pl.concat(parts, how="vertical_relaxed", rechunk=True)
                files.append(self._write(rows, _hashes(rows["user"])))
                begins.append(int(starts[first]))
        _remove(runs)
        return _Run(starts, files, np.array(begins, np.int64))

    def _write(self, rows: pl.DataFrame, hashes: NDArray[np.uint16]) -> Path:
        """A new file of rows, sorted by their hash; those of one hash stay in their order."""
        path = self._folder / f"run-{self._n_files:05d}.arrow"
        self._n_files += 1
        order = np.argsort(hashes, kind="stable")
        pl.DataFrame([column.gather(order) for column in rows]).write_ipc(path, record_batch_size=_BATCH)
        return path


def hash_bounds(counts: NDArray[np.int64], ranges: int) -> NDArray[np.int64]:
    """Bounds of ranges of hashes that have about equally many rows.

    Examples
    --------
    >>> hash_bounds(np.array([3, 1, 0, 2, 2]), 2).tolist()
    [0, 2, 5]
    """
    ends = np.concatenate([[0], np.cumsum(counts)])
    wanted = np.searchsorted(ends, np.linspace(0, ends[-1], ranges + 1))
    return np.unique([0, *wanted[1:-1], len(counts)])


def _hashes(users: pl.Series) -> NDArray[np.uint16]:
    """A number below ``MOST_PARTITIONS`` for each user, the same for 7 and for "7"."""
    hashed = users.hash(0)
    if users.dtype == pl.String:  # in another run all ids may have been whole numbers
        whole = are_whole_numbers(users)
        if whole.any():
            hashed = users.cast(pl.Int64, strict=False).hash(0).zip_with(whole, hashed)
    return (hashed.to_numpy() % np.uint64(MOST_PARTITIONS)).astype(np.uint16)


def _starts(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(counts)])


def _remove(runs: Sequence[_Run]) -> None:
    for run in runs:
        for file in run.files:
            file.unlink()
