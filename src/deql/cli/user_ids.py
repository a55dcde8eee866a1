"""Ids of users, and of items, as people type them or have them in a file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import polars as pl
from numpy.typing import NDArray

from deql.data.hashed_users import id_text
from deql.data.readers.columns import find_known
from deql.data.readers.encoding import UTF8, check_encoding
from deql.data.readers.frames import unreadable
from deql.errors import DataError, Setting, name_some

__all__ = ["as_user_ids", "read_ids"]

What = Literal["user", "item"]

_DELIMITERS = {".csv": ",;\t", ".tsv": "\t"}


def as_user_ids(texts: Iterable[Any], known: NDArray[Any]) -> list[Any]:
    """Ids as the data have them: whole numbers where those are, text where not.

    Examples
    --------
    >>> import numpy as np
    >>> as_user_ids(["7", "ann"], np.array([7, 9])), as_user_ids(["7", 8], np.array(["7"], object))
    ([7, 'ann'], ['7', '8'])
    """
    if known.dtype == object:
        return [id_text(text) for text in texts]
    return [_number(text) for text in texts]


def read_ids(path: Path, known: NDArray[Any], encoding: str = UTF8, what: What = "user") -> list[Any]:
    """A file's ids: one on each line, or the column of users of a .csv, .tsv or .parquet table.

    A first line that is the name of such a column, and no user's, is not an id.

    Parameters
    ----------
    path : Path
    known : ndarray
        The users of the data, whose kind of ids is meant.
    encoding : str, default "utf-8"
        What a text file is written in.
    what : {"user", "item"}, default "user"
        Whose ids they are.
    """
    encoding = check_encoding(encoding)
    if not path.is_file():
        raise DataError(f"there is no file {path} with the ids of {what}s")
    if path.suffix == ".parquet":
        try:
            frame = pl.read_parquet(path)
        except unreadable() as error:
            raise DataError(f"{path} cannot be read as Parquet: {str(error).splitlines()[0]}") from None
        place = _id_column(path, frame.columns, what)
        return _some(path, what, as_user_ids(frame.to_series(place).drop_nulls().to_list(), known))
    try:
        text = path.read_text("utf-8-sig" if encoding == UTF8 else encoding)
    except UnicodeError:
        raise DataError(
            f"{path} is not text in {encoding.upper()}: name the encoding that the file was written in with ",
            Setting("encoding"),
            "; latin-1 takes every byte for a letter",
        ) from None
    if path.suffix in _DELIMITERS and text.strip():
        first = text.lstrip().partition("\n")[0]
        try:
            table = pl.read_csv(
                text.encode(), separator=max(_DELIMITERS[path.suffix], key=first.count), has_header=False,
                infer_schema=False,
            )  # fmt: skip
        except pl.exceptions.PolarsError as error:
            raise DataError(f"{path} cannot be read as a table: {str(error).splitlines()[0]}") from None
        place = _id_column(path, [cell or "" for cell in table.row(0)], what)
        lines = [cell or "" for cell in table.to_series(place).to_list()]
    else:
        lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line]
    if lines and find_known(lines[:1], what) is not None and lines[0] not in set(known.tolist()):
        del lines[0]
    return _some(path, what, as_user_ids(lines, known))


def _some(path: Path, what: What, ids: list[Any]) -> list[Any]:
    if not ids:
        raise DataError(f"{path} has no ids of {what}s")
    return ids


def _id_column(path: Path, names: list[str], what: What) -> int:
    found = 0 if len(names) == 1 else find_known(names, what)
    if found is None:
        raise DataError(
            f"{path} has no column that looks like the {what}s': leave one column of {name_some(names, 12)}"
        )
    return found


def _number(text: Any) -> Any:
    try:
        return int(text)
    except ValueError:
        return text
