"""The data sets of the tables: which are there, how each is read, and where the files of the others go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from deql.datasets.public import PRESETS, compare_with_paper, locate, prepare
from deql.errors import DataError, ParameterError

if TYPE_CHECKING:
    from deql.split import Split

__all__ = ["BUNDLED", "Absent", "Bench", "find_benches", "fingerprint", "readable"]

BUNDLED = "debian"
Protocol = Literal["strong", "weak"]

_ELSEWHERE = {"gowalla-1": "gowalla"}
"""Where else a data set's files may be."""

_LABELS = {
    "games": "Games", "beauty": "Beauty", "gowalla-1": "Gowalla-1", "ml20m": "ML-20M", "netflix": "Netflix",
    "msd": "MSD", "amazon-book": "Amazon-Book", "yelp2018": "Yelp2018", "gowalla": "Gowalla",
    BUNDLED: "Debian (bundled)",
}  # fmt: skip


@dataclass(frozen=True)
class Absent:
    """A data set that is not there.

    Attributes
    ----------
    name, label : str
    protocol : {"strong", "weak"}
    where : str
        What is missing, and where its files go, in words.
    """

    name: str
    label: str
    protocol: Protocol
    where: str


@dataclass(frozen=True, eq=False)
class Bench:
    """A data set that is there, with the protocol it is judged by.

    Attributes
    ----------
    name : str
        As in :data:`deql.datasets.public.PRESETS`, or ``"debian"``.
    protocol : {"strong", "weak"}
    folder : Path or None
        Where its files are; None for the bundled one.
    """

    name: str
    protocol: Protocol
    folder: Path | None

    @property
    def label(self) -> str:
        """The name as the paper writes it."""
        return _LABELS[self.name]

    @property
    def key(self) -> str:
        """Name of the choices for it: the bundled data are judged both ways."""
        return f"{self.name}-{self.protocol}" if self.folder is None else self.name

    @cached_property
    def caveat(self) -> list[str]:
        """Why values cannot be compared with the paper's, if so; nothing where the data are the paper's."""
        if self.name not in PRESETS:
            return []
        rows = {row["quantity"]: row for row in compare_with_paper(self.name, self.first)}
        if rows["users"]["same"] and rows["interactions"]["same"]:
            return []
        here, there = (f"{rows['users'][side]:,} users with {rows['interactions'][side]:,} interactions"
                       for side in ("found", "paper"))  # fmt: skip
        why = (
            "These are not the data that the paper has"
            if PRESETS[self.name].certain
            else "The paper does not say how it filtered and split this data set"
        )
        return [
            f"{why}: it has {there}, here are {here}. So values cannot be compared with the paper's, only differences "
            "between rows."
        ]

    def split(self, seed: int = 0) -> Split:
        """The published split, or a seeded one."""
        from deql.datasets import debian
        from deql.split import split_strong, split_weak

        if self.folder is not None:
            return prepare(self.name, self.folder, seed)
        return split_strong(debian(), seed=seed) if self.protocol == "strong" else split_weak(debian(), seed=seed)

    @cached_property
    def first(self) -> Split:
        """The split that the tables are about."""
        return self.split()

    @cached_property
    def fingerprint(self) -> str:
        """A checksum of that split: of what is learned from and what is judged on."""
        return fingerprint(self.first)


def fingerprint(split: Split) -> str:
    """A checksum of what is learned from and what is judged on in the end."""
    from deql.io.container import digest
    from deql.tuning.tuning_data import matrix_arrays

    return digest({}, matrix_arrays(train=split.train, seen=split.test.seen, held_out=split.test.held_out))


def find_benches(
    folder: Path | None, protocols: Sequence[Protocol], only: Sequence[str] = ()
) -> tuple[list[Bench], list[Absent]]:
    """Data sets that are there, in the paper's order, the bundled one last; and those that are not. Both may be empty.

    Parameters
    ----------
    folder : Path or None
        Has a folder for each data set, with its public files.
    protocols : sequence of {"strong", "weak"}
        The groups of data sets that are of interest.
    only : sequence of str
        Names, or keys of the bundled data such as ``"debian-weak"``; all if there are none.

    Examples
    --------
    >>> benches, absent = find_benches(None, ["weak"])
    >>> [bench.label for bench in benches], [one.name for one in absent]
    (['Debian (bundled)'], ['amazon-book', 'yelp2018', 'gowalla'])
    """
    if folder is not None and not folder.is_dir():
        raise ParameterError(
            f"there is no folder {folder} (--data or $DEQL_DATA): name the one that has a folder for each data set"
        )
    known = [*PRESETS, BUNDLED, *(f"{BUNDLED}-{protocol}" for protocol in ("strong", "weak"))]
    for name in only:
        if name not in known:
            raise ParameterError(f"unknown data set {name!r}: say one of {', '.join(known)}")
    benches: list[Bench] = []
    absent: list[Absent] = []
    for name in (name for name in _LABELS if name != BUNDLED):
        protocol: Protocol = "strong" if PRESETS[name].files else "weak"
        if protocol not in protocols or (only and name not in only):
            continue
        found = _folder_of(name, folder)
        if isinstance(found, Path):
            benches.append(Bench(name, protocol, found))
        else:
            absent.append(Absent(name, _LABELS[name], protocol, found))
    bundled = [Bench(BUNDLED, protocol, None) for protocol in protocols]
    benches += [one for one in bundled if not only or one.name in only or one.key in only]
    return benches, absent


def _folder_of(name: str, folder: Path | None) -> Path | str:
    """The folder with a data set's files; or, in words, what is missing and where it goes, with DIR for ``folder``."""
    published = PRESETS[name].published
    if folder is None:
        return f"{name} ({published}) needs --data DIR, with its files in DIR/{name}"
    reasons = []
    for place in (name, _ELSEWHERE.get(name)):
        if place is not None and (folder / place).is_dir():
            try:
                locate(name, folder / place)
                return folder / place
            except DataError as error:
                reasons.append(str(error).replace(str(folder), "DIR"))
    return reasons[0] if reasons else f"the files of {name} ({published}) go into DIR/{name}, where DIR is --data"


def readable(benches: Sequence[Bench], absent: Sequence[Absent]) -> tuple[list[Bench], list[Absent]]:
    """Data sets that can be read, and those that are not there or cannot; an error if none is left.

    Reading comes before any long work, so that one damaged file does not end a run that others have begun.
    """
    fine, gone, reasons = [], list(absent), []
    for bench in benches:
        try:
            bench.first  # noqa: B018  read and kept
            fine.append(bench)
        except DataError as error:
            reasons.append(error)
            text = str(error) if bench.folder is None else str(error).replace(str(bench.folder.parent), "DIR")
            gone.append(Absent(bench.name, bench.label, bench.protocol, f"{bench.name} cannot be used: {text}"))
    if not fine and reasons:
        raise reasons[0]
    return fine, gone
