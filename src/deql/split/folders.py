"""Splits that come as folders of tables, those that LightGCN's authors published among them; and split files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.lazy import lazy_module
from deql.data.interactions import Interactions, Step
from deql.data.readers.blocks import COMPRESSED
from deql.data.readers.encoding import UTF8, check_encoding
from deql.data.readers.split_folder import is_published_split, split_files
from deql.errors import DataError, ParameterError, SplitFileError
from deql.split.parts import HeldOut, Split, load_split_file

if TYPE_CHECKING:
    from deql.data import read
    from deql.data.readers import sniff
else:  # the kernels that read tables are of no use to who loads a split file
    read, sniff = lazy_module("deql.data.read"), lazy_module("deql.data.readers.sniff")

__all__ = ["load_split", "read_lightgcn_split"]

_FOR_PUBLISHED = ("ids", "on_missing", "max_unpacked", "encoding", "progress")
"""Options of reading that lists of items have a use for."""


def load_split(path: str | os.PathLike[str], **reading: Any) -> Split:
    """Read a split: a file as ``split.save`` wrote it, or a folder with tables to train, validate and test on.

    Parameters
    ----------
    path : path
        A split file; or a folder with ``train`` and ``test``, and perhaps ``validation`` (``valid``, ``val``), each a
        table in any format that :func:`deql.read_interactions` reads (``train.csv``, ``test.parquet``, …). For users
        that train does not have there are two tables, ``test_seen`` and ``test_held_out`` (or ``test_tr`` and
        ``test_te``). ``train.txt`` and ``test.txt`` in LightGCN's format are taken as they were published.
    **reading
        Options of :func:`deql.read_interactions`, for the tables of a folder.

    Returns
    -------
    Split
        Of a file the very same: matrices, ids, times, titles, steps, and what was asked and dropped. Of a folder as
        :class:`deql.Split` makes it of its parts.

    Raises
    ------
    SplitFileError
        If the file is missing, truncated, altered, not a split file, or of a newer format, or the folder holds none.
    DataError
        If the tables of a folder cannot be read, or are not parts of one split.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name, text in (("train.csv", "user,item\\n1,2\\n1,3\\n2,2\\n"), ("test.csv", "user,item\\n2,3\\n")):
    ...         _ = (pathlib.Path(folder) / name).write_text(text)
    ...     split = load_split(folder, user="user", item="item")
    >>> split.test.seen.history(2), split.test.held_out.history(2)
    ([2], [3])
    """
    path = Path(path)
    if not path.is_dir():
        if reading and path.exists():
            raise ParameterError(f"a split file is read as it is: leave out {', '.join(reading)}")
        return load_split_file(path)
    files = split_files(path)
    if not files:
        raise SplitFileError(
            f"there is no split file {path}, and no folder with tables train and test, such as train.csv and test.csv"
        )
    if is_published_split(path) and _is_lightgcn(files["train"], reading):
        return read_lightgcn_split(path, **reading)
    titles = reading.pop("items", None)
    tables = {
        part: read.read_interactions(file, **reading, **({"items": titles} if part == "train" else {}))
        for part, file in files.items()
    }

    def part(name: str) -> Interactions | tuple[Interactions, Interactions] | None:
        halves = [half for half in (f"{name}_seen", f"{name}_held_out") if half in tables]
        if not halves:
            return tables.get(name)
        if name in tables:
            raise DataError(f"{path} holds {files[name].name} and {files[halves[0]].name}: remove one of them")
        if len(halves) == 1:
            raise DataError(f"{path} holds {files[halves[0]].name} alone: {name}_seen and {name}_held_out go together")
        return tables[halves[0]], tables[halves[1]]

    return Split(tables["train"], part("validation"), part("test"))


def _is_lightgcn(train: Path, reading: dict[str, Any]) -> bool:
    """Whether a train.txt is lists of items, as it mostly is, rather than a table with a header, tabs or commas."""
    layout = sniff.layout_of(
        train, format=reading.get("format"), encoding=check_encoding(reading.get("encoding", UTF8))
    )
    table = layout.header or (layout.delimiter != " " and len(layout.names) > 1)
    return layout.format == "lightgcn" or (layout.format == "csv" and not table)


def read_lightgcn_split(folder: str | os.PathLike[str], **reading: Any) -> Split:
    """Read a split published as LightGCN's files, ``train.txt`` and ``test.txt``, plain or packed.

    Each line is a user and the user's items. Users and items of any file are in train; an item that only the
    test has is a column without interactions, so that counts agree with the published ones. The test shows
    all of train, and so does ``valid.txt`` (``validation.txt``, ``val.txt``), where there is one. The order of the
    items on a line is kept (``split.train.order``), unless all lines are sorted by item.

    Parameters
    ----------
    folder : path
    **reading
        Options of :func:`deql.read_interactions`.

    Returns
    -------
    Split
        With ``protocol="published"``.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name, text in (("train.txt", "0 1 2\\n1 2\\n"), ("test.txt", "0 3\\n1\\n")):
    ...         _ = (pathlib.Path(folder) / name).write_text(text)
    ...     split = read_lightgcn_split(folder)
    >>> split.train.n_users, split.train.n_items, split.test.held_out.history(0)
    (2, 3, [3])
    """
    for name in reading:
        if name not in _FOR_PUBLISHED:
            raise ParameterError(
                f"a published split is read with {', '.join(_FOR_PUBLISHED)}, not with {name}", parameter=name
            )
    folder = Path(folder)
    files = split_files(folder)
    for name in ("train", "test"):
        if not any((folder / f"{name}.txt{packing}").is_file() for packing in ("", *COMPRESSED)):
            raise DataError(
                f"{folder} has no file {name}.txt: a published split is a folder with train.txt and test.txt"
            )
    names = [name for name in ("train", "validation", "test") if name in files]
    tables = [read.read_interactions(files[name], "user", "item", format="lightgcn", **reading) for name in names]
    listed = [files[name].name for name in names]
    for what in ("users", "items"):
        if len({getattr(one, what).dtype for one in tables}) > 1:
            raise DataError(
                f"{folder}: ids are whole numbers in one of {', '.join(listed[:-1])} and {listed[-1]} and text in the "
                "other"
            )
    users, items = (np.unique(np.concatenate([getattr(one, what) for one in tables])) for what in ("users", "items"))
    total = sum(one.n_interactions for one in tables)
    rows = sum(one.steps[0].interactions for one in tables)
    steps = [Step(f"read from {folder.name}: {', '.join(listed)}", len(users), len(items), rows)]
    if total < rows:
        steps.append(Step("repeated pairs merged", len(users), len(items), total))
    train, *others = (
        Interactions(_spread(one, users, items), users, items, steps=tuple(steps), order=one.order) for one in tables
    )
    parts = {name: HeldOut(train, held_out) for name, held_out in zip(names[1:], others, strict=True)}
    return Split(train, parts.get("validation"), parts["test"], {}, "published")


def _spread(table: Interactions, users: NDArray[Any], items: NDArray[Any]) -> csr_array:
    """The same interactions among all users and items; ids are sorted on both sides, so the order stays."""
    indptr = np.zeros(len(users) + 1, np.int64)
    indptr[1 + np.searchsorted(users, table.users)] = np.diff(table.matrix.indptr)
    columns = np.searchsorted(items, table.items)[table.matrix.indices]
    return csr_array((table.matrix.data, columns, np.cumsum(indptr)), shape=(len(users), len(items)))
