"""What a split is made of, whichever protocol made it, and the file that keeps it bit for bit."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import csr_array

from deql._system.formatting import parse_json
from deql.data import Interactions, Step
from deql.data.interactions import InteractionsLike
from deql.data.matrices import check_compressed
from deql.errors import ParameterError, SplitFileError
from deql.io import container
from deql.io.container import Arrays, FileKind, pack_text, unpack_text
from deql.split.given_parts import HeldOutLike, PartLike, align_parts
from deql.split.held_out import HeldOut
from deql.split.notebook import split_html

__all__ = ["HeldOut", "Split", "SplitOrInteractions", "load_split_file"]

_KIND = FileKind("deql-split", 1, SplitFileError, "make the split again")


@dataclass(frozen=True, eq=False, init=False)
class Split:
    """Training interactions and two sets of users to evaluate on.

    A split of one's own is made of its parts: ``deql.Split(train, validation, test)``. Each is Interactions, a file,
    a frame, or a users × items matrix. Of users that train has, validation and test are what is to be found, and
    train is what is seen of them; for other users they are a pair, ``(seen, held_out)``. Items are brought to those
    of train by their ids.

    Attributes
    ----------
    train : Interactions
    validation : HeldOut or None
        None where a protocol has no such part, as in most published splits.
    test : HeldOut
    dropped : dict
        What is left out: ``items`` that train does not have, ``interactions`` with them, and ``users`` who are not
        evaluated in the test because too little is left of them. In a split of one's own ``interactions`` are also
        those to be found although they are seen, and both parts are counted.
    protocol : str
        ``"strong"``, ``"weak"``, ``"leave-last"``, ``"time"``, ``"k-fold"``, ``"published"`` for files that come
        split, or ``"given"`` for parts of one's own.
    seed : int or None
        None where nothing is random.
    parameters : dict
        What was asked of the protocol: shares and counts by name.

    Examples
    --------
    >>> import deql
    >>> print(deql.split_strong(deql.datasets.debian(), seed=1).describe())
    strong split, test_users=0.1, validation_users=0.1, held_out=0.2, seed 1: 13,946 users × 5,833 items to train on, \
1,743 users to validate and 1,743 to test on; dropped: 1 item, 5 interactions, 0 users
    >>> import polars as pl
    >>> before = pl.DataFrame({"user": ["ann", "ann", "bob"], "item": ["jam", "tea", "tea"]})
    >>> after = pl.DataFrame({"user": ["bob", "bob"], "item": ["jam", "oat"]})
    >>> print(deql.Split(train=before, test=after).describe())
    given split: 2 users × 2 items to train on, 1 user to test on; dropped: 1 item, 1 interaction, 0 users
    """

    train: Interactions
    validation: HeldOut | None
    test: HeldOut
    dropped: dict[str, int]
    protocol: str
    seed: int | None
    parameters: dict[str, float]

    def __init__(
        self,
        train: PartLike,
        validation: HeldOutLike | None = None,
        test: HeldOutLike | None = None,
        dropped: dict[str, int] | None = None,
        protocol: str = "given",
        seed: int | None = None,
        parameters: dict[str, float] | None = None,
    ) -> None:
        if test is None:
            raise ParameterError("a split needs something to test on: give test as a table or a pair", parameter="test")
        made = isinstance(train, Interactions) and isinstance(validation, HeldOut | None) and isinstance(test, HeldOut)
        if dropped is None or not made:  # else a protocol made the parts, or they were a split before
            train, validation, test, dropped = align_parts(train, validation, test)
        facts = (train, validation, test, dropped, protocol, seed, {} if parameters is None else parameters)
        for one, value in zip(fields(self), facts, strict=True):
            object.__setattr__(self, one.name, value)

    def describe(self) -> str:
        """The split in one sentence."""
        asked = [f"{self.protocol} split", *(f"{name}={_shown(value)}" for name, value in self.parameters.items())]
        if self.seed is not None:
            asked.append(f"seed {self.seed}")
        validated = "" if self.validation is None else f"{self.validation.seen.n_users:,} users to validate and "
        users = "" if validated else " user" if self.test.seen.n_users == 1 else " users"
        tested = f"{validated}{self.test.seen.n_users:,}{users} to test on"
        dropped = ", ".join(
            f"{count:,} {what.removesuffix('s') if count == 1 else what}" for what, count in self.dropped.items()
        )
        return (
            f"{', '.join(asked)}: {self.train.n_users:,} users × {self.train.n_items:,} items to train on, {tested}; "
            f"dropped: {dropped or 'nothing'}"
        )

    def sizes(self) -> list[dict[str, Any]]:
        """A row for each part: its users, what a model sees of them, and what it is to find (None in train)."""
        rows = [_row("train", self.train, None)]
        for name, part in (("validation", self.validation), ("test", self.test)):
            if part is not None:
                rows.append(_row(name, part.seen, part.held_out))
        return rows

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the split to one file, which :func:`deql.load_split` reads back bit for bit."""
        _write(Path(path), self)

    def __repr__(self) -> str:
        parts = [f"{row['part']} {row['users']:,} users" for row in self.sizes()]
        return f"Split({self.protocol}: {', '.join(parts)}; {self.train.n_items:,} items)"

    def _repr_html_(self) -> str:
        return split_html(self)


SplitOrInteractions: TypeAlias = Split | InteractionsLike
"""A split, or data that are still to be split."""


def _shown(value: float) -> str:
    """A share in few digits, a moment or a count in all of them."""
    return f"{value:.15g}" if float(value).is_integer() else f"{value:g}"


def _row(part: str, seen: Interactions, held_out: Interactions | None) -> dict[str, Any]:
    return {
        "part": part,
        "users": seen.n_users,
        "items": seen.n_items,
        "seen": seen.n_interactions,
        "held_out": None if held_out is None else held_out.n_interactions,
    }


def _write(path: Path, split: Split) -> None:
    """Write a split to one file, whole or not at all."""
    train = split.train
    arrays = _pack_part("train", train) | _pack("train_users", train.users) | _pack("items", train.items)
    if train.titles is not None:
        arrays |= _pack("titles", train.titles)
    repeats = []
    for name, held in (("validation", split.validation), ("test", split.test)):
        if held is None:
            continue
        arrays |= _pack_part(f"{name}_held_out", held.held_out)
        for part in (held.seen, held.held_out):
            if part.items is not train.items and part.items.tolist() != train.items.tolist():
                raise SplitFileError(f"a split can be saved only if {name} has the items of train in the same order")
        # Published splits show all of train again; it is stored once.
        if held.seen is train:
            repeats.append(name)
        else:
            arrays |= _pack(f"{name}_users", held.seen.users) | _pack_part(f"{name}_seen", held.seen)
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


def load_split_file(path: str | os.PathLike[str]) -> Split:
    """Read a split file, as ``split.save`` wrote it.

    Parameters
    ----------
    path : path

    Returns
    -------
    Split
        The very same: matrices, ids, times, order, titles, steps, and what was asked and dropped.

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
    ...     load_split_file(os.path.join(folder, "debian.split")).describe() == split.describe()
    True
    """
    path = Path(path)
    metadata, arrays = container.read(_KIND, path)
    try:
        facts = parse_json(metadata["split"])
        common = {
            "items": unpack_text("items", arrays),
            "titles": unpack_text("titles", arrays) if facts["titles"] else None,
            "steps": tuple(Step(**step) for step in facts["steps"]),
        }
        _check_facts(facts)
        _check_unique("items", common["items"])
        train = _unpack_part("train", arrays, unpack_text("train_users", arrays), common)

        def part(name: str) -> HeldOut:
            seen = train
            if name not in facts["repeats"]:
                seen = _unpack_part(f"{name}_seen", arrays, unpack_text(f"{name}_users", arrays), common)
            return HeldOut(seen, _unpack_part(f"{name}_held_out", arrays, seen.users, common))

        validation = part("validation") if "validation_held_out_indptr" in arrays else None
        return Split(
            train, validation, part("test"), facts["dropped"], facts["protocol"], facts["seed"], facts["parameters"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise SplitFileError(f"{path} is damaged: {error}") from None


def _check_facts(facts: dict[str, Any]) -> None:
    """Raise ValueError or KeyError unless these are facts about a split."""
    counts = isinstance(facts["dropped"], dict) and all(type(one) is int for one in facts["dropped"].values())
    shares = isinstance(facts["parameters"], dict) and all(
        type(one) in (int, float) and np.isfinite(one) for one in facts["parameters"].values()
    )
    if not counts or not shares or type(facts["protocol"]) is not str or type(facts["seed"]) not in (int, type(None)):
        raise ValueError("what it says of the protocol makes no sense")


def _check_unique(what: str, ids: Any) -> None:
    if len(set(ids.tolist())) != len(ids):
        raise ValueError(f"its {what} are not unique")


def _pack(name: str, values: Any) -> Arrays:
    try:
        return pack_text(name, values)
    except TypeError:
        what = name.rpartition("_")[2]
        raise SplitFileError(f"a split can be saved only if its {what} are integers or text") from None


def _pack_part(name: str, part: Interactions) -> Arrays:
    matrix = part.matrix
    arrays = {f"{name}_data": matrix.data, f"{name}_indices": matrix.indices, f"{name}_indptr": matrix.indptr}
    for field in ("times", "order"):
        if (values := getattr(part, field)) is not None:
            arrays[f"{name}_{field}"] = values
    return arrays


def _unpack_part(name: str, arrays: Arrays, users: Any, common: dict[str, Any]) -> Interactions:
    """A part in memory of its own: the file may be replaced, and kernels want ordinary arrays."""
    _check_unique("users", users)
    data, indices, indptr = (np.array(arrays[f"{name}_{field}"]) for field in ("data", "indices", "indptr"))
    matrix = csr_array((data, indices, indptr), shape=(len(users), len(common["items"])))
    check_compressed(matrix)
    times = np.array(arrays[f"{name}_times"]) if f"{name}_times" in arrays else None
    if times is not None and (times.dtype != np.float64 or times.ndim != 1 or not np.isfinite(times).all()):
        raise ValueError("its times are not all finite numbers")
    order = np.array(arrays[f"{name}_order"]) if f"{name}_order" in arrays else None
    if order is not None and (order.dtype != np.int64 or order.ndim != 1):
        raise ValueError("the order of its interactions is not one of whole numbers")
    return Interactions(matrix, users, times=times, order=order, **common)
