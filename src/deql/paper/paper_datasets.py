"""The data sets of the tables: which are there, how each is read, and where the files of the others go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from deql import datasets
from deql.datasets.public import PRESETS, compare_with_paper, locate, prepare
from deql.errors import DataError, ParameterError
from deql.io.container import digest
from deql.split import Split, split_strong, split_weak
from deql.tuning.tuning_data import matrix_arrays

__all__ = ["PROTOCOLS", "FoundDatasets", "MissingDataset", "PaperDataset", "find_datasets", "fingerprint"]

Protocol = Literal["strong", "weak"]
PROTOCOLS: tuple[Protocol, ...] = ("strong", "weak")

_BUNDLED = "debian"
_ELSEWHERE = {"gowalla-1": "gowalla"}
"""Where else a data set's files may be."""

_LABELS = {
    "games": "Games", "beauty": "Beauty", "gowalla-1": "Gowalla-1", "ml20m": "ML-20M", "netflix": "Netflix",
    "msd": "MSD", "amazon-book": "Amazon-Book", "yelp2018": "Yelp2018", "gowalla": "Gowalla",
    _BUNDLED: "Debian (bundled)",
}  # fmt: skip
"""Names as the paper writes them, in its order."""


@dataclass(frozen=True)
class MissingDataset:
    """A data set that is not there; ``where`` says what is missing, and where its files go."""

    name: str
    label: str
    protocol: Protocol
    where: str


@dataclass(frozen=True, eq=False)
class PaperDataset:
    """A data set that is there, with the protocol it is evaluated by.

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
        """Name of the choices for it: the bundled data are evaluated both ways."""
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
        if self.folder is not None:
            return prepare(self.name, self.folder, seed)
        return (split_strong if self.protocol == "strong" else split_weak)(datasets.debian(), seed=seed)

    @cached_property
    def first(self) -> Split:
        """The split that the tables are about."""
        return self.split()

    @cached_property
    def fingerprint(self) -> str:
        """A checksum of that split."""
        return fingerprint(self.first)


def fingerprint(split: Split) -> str:
    """A checksum of what is learned from and what is evaluated on in the end."""
    return digest({}, matrix_arrays(train=split.train, seen=split.test.seen, held_out=split.test.held_out))


class FoundDatasets(NamedTuple):
    """Data sets that are there, in the paper's order, the bundled one last; and those that are not."""

    present: list[PaperDataset]
    missing: list[MissingDataset]

    def of(self, protocols: Sequence[Protocol]) -> FoundDatasets:
        """Those that are evaluated by one of some protocols."""
        return FoundDatasets([one for one in self.present if one.protocol in protocols],
                             [one for one in self.missing if one.protocol in protocols])  # fmt: skip

    def read(self) -> FoundDatasets:
        """The same with those missing that cannot be read, too; an error if none is left.

        Reading comes before any long work, so that one damaged file does not end what others have begun.
        """
        found, reasons = FoundDatasets([], list(self.missing)), []
        for one in self.present:
            try:
                one.first  # noqa: B018  read and kept
                found.present.append(one)
            except DataError as error:
                reasons.append(error)
                text = str(error) if one.folder is None else str(error).replace(str(one.folder.parent), "DIR")
                where = f"{one.name} cannot be used: {text}"
                found.missing.append(MissingDataset(one.name, one.label, one.protocol, where))
        if reasons and not found.present:
            raise reasons[0]
        return found


def find_datasets(folder: Path | None, protocols: Sequence[Protocol], only: Sequence[str] = ()) -> FoundDatasets:
    """Which data sets are there. There may be none.

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
    >>> found = find_datasets(None, ["weak"])
    >>> [dataset.label for dataset in found.present], [one.name for one in found.missing]
    (['Debian (bundled)'], ['amazon-book', 'yelp2018', 'gowalla'])
    """
    if folder is not None and not folder.is_dir():
        raise ParameterError(
            f"there is no folder {folder} (--data or $DEQL_DATA): name the one that has a folder for each data set",
            parameter="data",
        )
    known = [*PRESETS, _BUNDLED, *(f"{_BUNDLED}-{protocol}" for protocol in PROTOCOLS)]
    for name in only:
        if name not in known:
            raise ParameterError(f"unknown data set {name!r}: say one of {', '.join(known)}", parameter="only")
    found = FoundDatasets([], [])
    for name, label in _LABELS.items():
        if name == _BUNDLED:
            continue
        protocol: Protocol = "strong" if PRESETS[name].files else "weak"
        if protocol not in protocols or (only and name not in only):
            continue
        place = _folder_of(name, folder)
        if isinstance(place, Path):
            found.present.append(PaperDataset(name, protocol, place))
        else:
            found.missing.append(MissingDataset(name, label, protocol, place))
    bundled = [PaperDataset(_BUNDLED, protocol, None) for protocol in protocols]
    found.present.extend(one for one in bundled if not only or one.name in only or one.key in only)
    return found


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
