"""Model files: what ``model.save`` writes and :func:`deql.load` reads, knowing nothing of models but their names."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from deql._system.formatting import parse_bytes, parse_json
from deql.errors import ModelFileError
from deql.io import container, folder
from deql.io.atomic import try_lock
from deql.io.container import Arrays, FileKind, digest, pack_text, unpack_text

__all__ = [
    "FORMAT_VERSION",
    "QUANTISED",
    "SHARD_BYTES",
    "WITH_HALF_LIFE",
    "WITH_PRIOR",
    "WITH_SPARSE_P",
    "ModelRecord",
    "checksum",
    "damage_reported",
    "fact",
    "is_model_folder",
    "model_bytes",
    "model_checksum",
    "read",
    "record_checksum",
    "refuse_infinite",
    "replacing",
    "time_fact",
    "vector",
    "write",
    "write_as_file",
]

Number = TypeVar("Number", int, float)

WITH_PRIOR = " with a prior"
"""Follows a model's name in a file where there is one: versions that know no priors say so, and to update deql."""

WITH_HALF_LIFE = " with a half-life"
"""The same where interactions fade; it stands before that of a prior."""

WITH_SPARSE_P = " with a sparse P"
"""The same where there are some entries of P alone; it stands before both."""

FORMAT_VERSION = 1
QUANTISED = ("row_codes", "row_steps", "right_codes", "right_steps", "right_reaches")
"""Arrays that hold once more, for speed, what the others say."""

SHARD_BYTES = 2**30
"""About what one of a model's shards takes, if nothing else is asked for."""

_KIND = FileKind("deql-model", FORMAT_VERSION, ModelFileError, "fit the model again")


@dataclass(frozen=True)
class ModelRecord:
    """A fitted model as a file keeps it.

    Attributes
    ----------
    name : str
        Of the model's class.
    parameters : dict
        Its hyper-parameters, as JSON can hold them.
    items : ndarray
        Ids in the order of columns.
    titles : ndarray or None
        What people call them.
    arrays : dict of ndarray
        What was learned.
    facts : dict
        What else is to be known, as JSON can hold it.
    """

    name: str
    parameters: dict[str, Any]
    items: NDArray[Any]
    titles: NDArray[Any] | None
    arrays: Arrays
    facts: dict[str, Any]


def write(path: Path, record: ModelRecord, shards: bool | int | str = False) -> None:
    """Write a model to one file, or to a folder of shards, whole or not at all.

    Parameters
    ----------
    path : Path
        A folder that holds a model in shards is replaced by another.
    record : ModelRecord
    shards : bool, int or str, default False
        A folder, if true or the bytes of a shard, such as "256MiB".
    """
    if shards is False and not is_model_folder(path):
        container.write(_KIND, path, *_contents(record))
    else:
        most = SHARD_BYTES if isinstance(shards, bool) else parse_bytes(shards, "shards")
        folder.write(_KIND, path, *_contents(record), most)


def is_model_folder(path: Path) -> bool:
    """Whether a path is that of a model in shards."""
    return folder.is_folder(path)


def model_bytes(path: Path) -> int:
    """What a model takes on disk, in one file or in a folder."""
    return folder.size(path) if is_model_folder(path) else path.stat().st_size


def write_as_file(path: Path, place: Path) -> None:
    """Write what a folder of shards holds as the one file, with the same checksum, that it could have been saved as."""
    metadata, arrays = folder.read(_KIND, path)
    signed = metadata | {"checksum": folder.checksum(_KIND, path)}
    container.write_arrays(place, {_KIND.key: json.dumps(signed, sort_keys=True)}, arrays)


def _contents(record: ModelRecord) -> tuple[dict[str, str], Arrays]:
    """Metadata and arrays of a file."""
    try:
        items = pack_text("items", record.items)
    except TypeError:
        raise ModelFileError("a model can be saved only if its item ids are integers or text") from None
    metadata = {
        "model": record.name,
        "parameters": json.dumps(record.parameters, sort_keys=True, default=np.generic.item),
        "facts": json.dumps(record.facts, sort_keys=True),
        "vocabulary_checksum": digest({}, items),
    }
    titles = {} if record.titles is None else pack_text("titles", record.titles)
    return metadata, record.arrays | items | titles


def read(path: Path, *, verify: bool = True) -> ModelRecord:
    """What a model file holds, its arrays mapped into memory as they are used; ModelFileError if it is no such file."""
    metadata, arrays = (folder if path.is_dir() else container).read(_KIND, path, verify=verify)
    with damage_reported(path):
        return ModelRecord(
            metadata["model"],
            _object(metadata, "parameters"),
            _items(metadata, arrays),
            unpack_text("titles", arrays) if "titles_ends" in arrays else None,
            arrays,
            _object(metadata, "facts"),
        )


def _object(metadata: dict[str, str], name: str) -> dict[str, Any]:
    found = parse_json(metadata[name])
    if not isinstance(found, dict):
        raise ValueError(f"its {name} are no JSON object")
    return found


def _items(metadata: dict[str, str], arrays: Arrays) -> NDArray[Any]:
    """The ids, checked by themselves: who does not verify the file still gets the right names."""
    packed: Arrays = {name: arrays[name] for name in ("items", "items_text", "items_ends") if name in arrays}
    if metadata["vocabulary_checksum"] != digest({}, packed):
        raise ValueError("the checksum of its item ids does not match")
    items = unpack_text("items", arrays)
    if not len(items) or len(set(items.tolist())) < len(items):
        raise ValueError("its item ids are not all different" if len(items) else "it has no items")
    return items


def vector(arrays: Arrays, name: str, size: int, dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """A copy of a model file's vector with a number for each item; ValueError unless all of them are finite.

    Examples
    --------
    >>> vector({"gain": np.array([1.0, np.nan])}, "gain", 2)
    Traceback (most recent call last):
    ...
    ValueError: its gain is not finite at place 1
    """
    if name not in arrays:
        raise ValueError(f"it has no {name}")
    found = np.array(arrays[name])
    if found.shape != (size,) or found.dtype != dtype:
        raise ValueError(
            f"its {name} is {' × '.join(map(str, found.shape))} {found.dtype}, and should be {size} {np.dtype(dtype)}"
        )
    if not (finite := np.isfinite(found)).all():
        raise ValueError(f"its {name} is not finite at place {int(finite.argmin())}")
    return found


def refuse_infinite(what: str, *arrays: NDArray[np.floating]) -> None:
    """Raise ValueError unless all numbers are finite; their extremes say so without an array of answers.

    Examples
    --------
    >>> refuse_infinite("factors", np.array([1.0, np.inf]))
    Traceback (most recent call last):
    ...
    ValueError: its factors are not all finite
    """
    for array in arrays:
        if array.size and not np.isfinite([array.min(), array.max()]).all():
            raise ValueError(f"its {what} are not all finite")


def fact(facts: dict[str, Any], name: str, kind: type[Number]) -> Number:
    """A number among a model file's facts; ValueError unless it is one, finite and not negative.

    Examples
    --------
    >>> fact({"n_users": 3}, "n_users", int), fact({"residual": 0}, "residual", float)
    (3, 0.0)
    """
    value = facts.get(name)
    kinds = int if kind is int else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 <= value < 2**63:
        raise ValueError(f"its {name} is {str(value)[:40]!r}")
    return kind(value)


def time_fact(facts: dict[str, Any], name: str) -> float:
    """A time among a model file's facts; ValueError unless it is a finite number.

    Examples
    --------
    >>> time_fact({"until": -3}, "until")
    -3.0
    """
    value = facts.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**1023:
        raise ValueError(f"its {name} is {str(value)[:40]!r}")
    return float(value)


@contextmanager
def damage_reported(path: Path) -> Iterator[None]:
    """What goes wrong with the contents of a file is said to be its damage."""
    try:
        yield
    except ModelFileError:
        raise
    except KeyError as error:
        raise ModelFileError(f"{path} is damaged: it has no {error.args[0]}") from None
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ModelFileError(f"{path} is damaged: {error}") from None


def checksum(path: str | os.PathLike[str]) -> str:
    """The checksum that a model file carries: the same for the same model, whatever the file is called."""
    return _checksum(Path(path))


def model_checksum(path: str | os.PathLike[str]) -> str:
    """The checksum of a file's model: that of the file, or, where it has quantised rows, of the same one without."""
    return _checksum(Path(path), without=QUANTISED)


def _checksum(path: Path, without: Sequence[str] = ()) -> str:
    checksum: str = (folder if path.is_dir() else container).checksum(_KIND, path, without)
    return checksum


@contextmanager
def replacing(path: Path, known: str) -> Iterator[None]:
    """While a model is made of another and put in place of its file: one process at a time, and of that file.

    Parameters
    ----------
    path : Path
    known : str
        What :func:`checksum` said before the model was read; ModelFileError if the file is another by now.
    """
    with open(path / folder.INDEX if path.is_dir() else path, "rb") as file:
        with suppress(OSError):  # a file system without locks
            if not try_lock(file.fileno()):
                raise ModelFileError(f"another process is updating {path}: try again when it is done")
        if checksum(path) != known:
            raise ModelFileError(f"{path} was replaced while it was read: nothing was changed, try again")
        yield


def record_checksum(record: ModelRecord) -> str:
    """The checksum that a file of this model carries when it is written."""
    return container.signed(_KIND, *_contents(record))["checksum"]
