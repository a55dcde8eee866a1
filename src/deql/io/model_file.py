"""Model files: what ``model.save`` writes and :func:`deql.load` reads, knowing nothing of models but their names."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql.errors import ModelFileError
from deql.io import container
from deql.io.container import Arrays, FileKind, digest, pack_text, unpack_text

__all__ = ["FORMAT_VERSION", "ModelRecord", "checksum", "damage_reported", "read", "write"]

FORMAT_VERSION = 1
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


def write(path: Path, record: ModelRecord) -> None:
    """Write a model to one file, whole or not at all."""
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
    container.write(_KIND, path, metadata, record.arrays | items | titles)


def read(path: Path, *, verify: bool = True) -> ModelRecord:
    """What a model file holds, its arrays mapped into memory as they are used; ModelFileError if it is no such file."""
    metadata, arrays = container.read(_KIND, path, verify=verify)
    with damage_reported(path):
        return ModelRecord(
            metadata["model"],
            json.loads(metadata["parameters"]),
            unpack_text("items", arrays),
            unpack_text("titles", arrays) if "titles_ends" in arrays else None,
            arrays,
            json.loads(metadata["facts"]),
        )


@contextmanager
def damage_reported(path: Path) -> Iterator[None]:
    """What goes wrong with the contents of a file is said to be its damage."""
    try:
        yield
    except ModelFileError:
        raise
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise ModelFileError(f"{path} is damaged: {error}") from None


def checksum(path: str | os.PathLike[str]) -> str:
    """The checksum that a model file carries: the same for the same model, whatever the file is called."""
    return container.checksum(_KIND, Path(path))
