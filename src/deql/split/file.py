"""Split files: a split in one file that reloads bit for bit."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from deql.data import Interactions, Step
from deql.errors import SplitFileError
from deql.io import container
from deql.io.container import Arrays, FileKind, pack_text, unpack_text
from deql.split.parts import HeldOut, Split

__all__ = ["load_split", "write"]

_KIND = FileKind("deql-split", 1, SplitFileError, "make the split again")


def write(path: Path, split: Split) -> None:
    """Write a split to one file, whole or not at all."""
    train = split.train
    arrays = _pack_part("train", train) | _pack("train_users", train.users) | _pack("items", train.items)
    if train.titles is not None:
        arrays |= _pack("titles", train.titles)
    repeats = []
    for name, judged in (("validation", split.validation), ("test", split.test)):
        if judged is None:
            continue
        arrays |= _pack_part(f"{name}_held_out", judged.held_out)
        for part in (judged.seen, judged.held_out):
            if part.items is not train.items and part.items.tolist() != train.items.tolist():
                raise SplitFileError(f"a split can be saved only if {name} has the items of train in the same order")
        # Published splits show all of train again; it is stored once.
        if judged.seen is train:
            repeats.append(name)
        else:
            arrays |= _pack(f"{name}_users", judged.seen.users) | _pack_part(f"{name}_seen", judged.seen)
    facts = {
        "protocol": split.protocol,
        "seed": split.seed,
        "parameters": split.parameters,
        "dropped": split.dropped,
        "steps": [asdict(step) for step in train.steps],
        "titles": train.titles is not None,
        "repeats": repeats,
    }
    text = json.dumps(facts, default=np.generic.item, ensure_ascii=False)
    container.write(_KIND, path, {"split": text}, arrays)


def load_split(path: str | os.PathLike[str]) -> Split:
    """Read a split file, as ``split.save`` wrote it.

    Parameters
    ----------
    path : path

    Returns
    -------
    Split
        The very same: matrices, ids, times, titles, steps, and what was asked and dropped.

    Raises
    ------
    SplitFileError
        If the file is missing, truncated, altered, not a split file, or of a newer format.

    Examples
    --------
    >>> import tempfile, os, deql
    >>> split = deql.split_strong(deql.datasets.debian())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     split.save(os.path.join(folder, "debian.split"))
    ...     load_split(os.path.join(folder, "debian.split")).describe() == split.describe()
    True
    """
    path = Path(path)
    metadata, arrays = container.read(_KIND, path)
    try:
        facts = json.loads(metadata["split"])
        common = {
            "items": unpack_text("items", arrays),
            "titles": unpack_text("titles", arrays) if facts["titles"] else None,
            "steps": tuple(Step(**step) for step in facts["steps"]),
        }
        train = _unpack_part("train", arrays, unpack_text("train_users", arrays), common)

        def judged(name: str) -> HeldOut:
            seen = train
            if name not in facts["repeats"]:
                seen = _unpack_part(f"{name}_seen", arrays, unpack_text(f"{name}_users", arrays), common)
            return HeldOut(seen, _unpack_part(f"{name}_held_out", arrays, seen.users, common))

        validation = judged("validation") if "validation_held_out_indptr" in arrays else None
        return Split(
            train, validation, judged("test"), facts["dropped"], facts["protocol"], facts["seed"], facts["parameters"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise SplitFileError(f"{path} is damaged: {error}") from None


def _pack(name: str, values: Any) -> Arrays:
    try:
        return pack_text(name, values)
    except TypeError:
        what = name.rpartition("_")[2]
        raise SplitFileError(f"a split can be saved only if its {what} are integers or text") from None


def _pack_part(name: str, part: Interactions) -> Arrays:
    matrix = part.matrix
    arrays = {f"{name}_data": matrix.data, f"{name}_indices": matrix.indices, f"{name}_indptr": matrix.indptr}
    return arrays if part.times is None else arrays | {f"{name}_times": part.times}


def _unpack_part(name: str, arrays: Arrays, users: Any, common: dict[str, Any]) -> Interactions:
    """A part in memory of its own: the file may be replaced, and kernels want ordinary arrays."""
    data, indices, indptr = (np.array(arrays[f"{name}_{field}"]) for field in ("data", "indices", "indptr"))
    matrix = csr_array((data, indices, indptr), shape=(len(users), len(common["items"])))
    matrix.check_format(full_check=True)
    times = np.array(arrays[f"{name}_times"]) if f"{name}_times" in arrays else None
    return Interactions(matrix, users, times=times, **common)
