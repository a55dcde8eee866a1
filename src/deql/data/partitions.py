"""Interactions larger than memory: a folder of Parquet files that each hold whole users, read one by one."""

from __future__ import annotations

import io
import os
import shutil
import weakref
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.formatting import show_bytes
from deql._system.lazy import pl
from deql._system.machine import free_memory
from deql.data.interactions import Interactions
from deql.data.matrices import widened
from deql.data.readers.frames import unreadable
from deql.data.readers.id_columns import series_ids
from deql.errors import DataError, TooLargeError, reason

__all__ = ["Data", "Partition", "PartitionedInteractions", "Scratch", "TrainingData", "read_checked"]


@dataclass(frozen=True)
class Partition:
    """Some users with all of their interactions, in a Parquet file; it can be pickled and sent to another process.

    The file has a row for each interaction, sorted by user, then by item: ``user``, the id; ``item``, the column's
    number; ``weight`` if interactions have other weights than 1.

    Attributes
    ----------
    path : Path
    n_users, n_interactions : int
    n_items : int
        How many columns there are, whether these users have them or not.
    checksum : int
        CRC-32 of the file.
    """

    path: Path
    n_users: int
    n_interactions: int
    n_items: int
    checksum: int

    def load(self) -> csr_array:
        """The users' rows, all items wide, columns sorted within each."""
        return self._read()[1]

    def load_with_users(self) -> tuple[NDArray[Any], csr_array]:
        """The ids of the users, sorted, and their rows."""
        runs, matrix = self._read()
        return series_ids(runs), matrix

    def _read(self) -> tuple[pl.Series, csr_array]:
        frame = read_checked(self.path, self.checksum)
        if not {"user", "item"} <= set(frame.columns) or len(frame) != self.n_interactions:
            raise self._another()
        runs = frame["user"].rle().struct.unnest()  # one for each user, as their rows stand together
        indptr = np.zeros(len(runs) + 1, np.int32 if len(frame) < 2**31 else np.int64)
        np.cumsum(runs["len"].to_numpy(), out=indptr[1:])
        if len(runs) != self.n_users:
            raise self._another()
        columns = frame["item"].to_numpy().astype(indptr.dtype, copy=False)
        values = frame["weight"].to_numpy() if "weight" in frame.columns else np.ones(len(frame), np.float32)
        matrix = csr_array((values, columns, indptr), shape=(len(runs), self.n_items))
        matrix.has_canonical_format = True
        return runs["value"], matrix

    def _another(self) -> DataError:
        return DataError(
            f"{self.path} is another part than its folder says: restore both, or partition the table again"
        )


class Scratch:
    """A folder that is removed with the last object that has it; copies in other processes do not own it."""

    def __init__(self, folder: Path) -> None:
        self._finalizer = weakref.finalize(self, _remove, folder, os.getpid())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:  # not in a fork
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, eq=False, repr=False)
class PartitionedInteractions:
    """Users × items, with ids, in parts that are read when they are needed.

    Made by :func:`deql.read_partitions`. Models of the closed-form family are fitted on it part by part by the engines
    that can, and as on :class:`Interactions` by all others and by all other models, which join the parts first.

    Attributes
    ----------
    folder : Path
    items : ndarray
        Item ids in the order of columns.
    item_counts : ndarray of int64
        How many users have each item.
    n_users, n_interactions : int
    pairs : int
        Σ_u |u|²: how often two items have a user in common.
    weighted : bool
        Whether interactions have other weights than 1.
    parts : tuple of Partition
    steps : tuple of (str, int)
        What was done, and how many rows were there after it.
    titles : ndarray of str or None
        What people call the items, where a prior says so.

    Examples
    --------
    >>> import tempfile, polars as pl, deql
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pl.DataFrame({"user": [1, 1, 2], "item": ["tea", "jam", "tea"]}).write_parquet(f"{folder}/eaten.parquet")
    ...     data = deql.read_partitions(f"{folder}/eaten.parquet", "user", "item", partitions=2)
    >>> data
    PartitionedInteractions(2 users × 2 items, 3 interactions in 2 parts)
    >>> deql.EASE(l2=1.0).fit(data).similar_items("jam", k=1).ids.tolist()
    ['tea']
    """

    folder: Path
    items: NDArray[Any]
    item_counts: NDArray[np.int64]
    n_users: int
    n_interactions: int
    pairs: int
    weighted: bool
    parts: tuple[Partition, ...]
    steps: tuple[tuple[str, int], ...] = ()
    titles: NDArray[Any] | None = None
    scratch: Scratch | None = None

    @property
    def n_items(self) -> int:
        """Number of columns."""
        return len(self.items)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of users and of items."""
        return self.n_users, self.n_items

    @property
    def stored(self) -> int:
        """Bytes that all interactions would take in memory."""
        return 8 * self.n_interactions + 4 * (self.n_users + 1)

    @cached_property
    def item_index(self) -> dict[Any, int]:
        """Column of each item id."""
        return {item: column for column, item in enumerate(self.items.tolist())}

    @property
    def matrix(self) -> NoReturn:
        """There is none: only :meth:`to_interactions` makes one."""
        raise DataError(
            f"this needs all {self.n_interactions:,} interactions in memory at once: give it data.to_interactions()"
        )

    def blocks(self) -> Iterator[csr_array]:
        """The rows part by part, all items wide."""
        for part in self.parts:
            matrix = part.load()
            yield matrix if part.n_items == self.n_items else widened(matrix, (part.n_users, self.n_items))

    def to_interactions(self) -> Interactions:
        """All parts joined, as :func:`deql.read_interactions` reads the same table: users sorted.

        Raises
        ------
        TooLargeError
            If there is too little memory.
        """
        # Ids and rows in the order of the parts, and once more in that of the users.
        users, matrix = self._joined(copies=2)
        column = pl.Series(users if users.dtype != object else users.tolist())
        order = column.arg_sort().to_numpy()
        matrix = widened(matrix, self.shape)
        return Interactions(matrix[order], users[order], self.items, titles=self.titles)

    def joined_matrix(self) -> csr_array:
        """All rows in the order of the parts, of the items that somebody has."""
        return self._joined(copies=1)[1]

    def _joined(self, copies: int) -> tuple[NDArray[Any], csr_array]:
        needed, free = copies * self.stored, free_memory()
        if needed > free:
            raise TooLargeError(
                f"{self.n_interactions:,} interactions take {show_bytes(needed)} in memory at once, and "
                f"{show_bytes(free)} are free: fit with an engine that reads the {len(self.parts):,} parts one by one"
            )
        kind: type[np.signedinteger[Any]] = np.int32 if self.n_interactions < 2**31 - 1 else np.int64
        indices, indptr = np.empty(self.n_interactions, kind), np.zeros(self.n_users + 1, kind)
        values, users = np.ones(self.n_interactions, np.float32), []
        rows = entries = 0
        for part in self.parts:
            ids, matrix = part.load_with_users()
            users.append(ids)
            last, end = rows + matrix.shape[0], entries + matrix.nnz
            indices[entries:end] = matrix.indices
            indptr[rows + 1 : last + 1] = matrix.indptr[1:] + kind(entries)
            if self.weighted:
                values = values.astype(np.result_type(values, matrix.data), copy=False)
                values[entries:end] = matrix.data
            rows, entries = last, end
        whole = csr_array((values, indices, indptr), shape=(self.n_users, self.parts[0].n_items))
        whole.has_canonical_format = True
        return np.concatenate(users), whole

    def __repr__(self) -> str:
        parts = f"{len(self.parts):,} part{'' if len(self.parts) == 1 else 's'}"
        return (
            f"PartitionedInteractions({self.n_users:,} users × {self.n_items:,} items, "
            f"{self.n_interactions:,} interactions in {parts})"
        )


TrainingData: TypeAlias = Interactions | PartitionedInteractions
"""What the closed-form family is fitted on: interactions in memory, or part by part."""

Data = TypeVar("Data", bound=TrainingData)
"""One of them, and the same again."""


def read_checked(path: Path, checksum: int) -> pl.DataFrame:
    """A Parquet file of a folder of partitions, if it is as it was written."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path} is missing: restore it, or partition the table again") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {reason(error)}") from None
    if zlib.crc32(content) != checksum:
        raise DataError(f"{path} is damaged: its checksum does not match; restore it, or partition the table again")
    try:
        return pl.read_parquet(io.BytesIO(content))
    except unreadable() as error:
        said = str(error).strip().splitlines()[0]
        raise DataError(f"{path} cannot be read as Parquet ({said}): partition the table again") from None
