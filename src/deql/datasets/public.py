"""The paper's data sets: how each is prepared from its public files, and the paper's own counts to compare with."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scipy.sparse import csr_array

from deql._system.lazy import lazy_module
from deql.data.clean import clean
from deql.data.interactions import Interactions
from deql.data.readers.blocks import COMPRESSED
from deql.errors import DataError, ParameterError
from deql.split import Split, read_lightgcn_split, split_strong

if TYPE_CHECKING:
    from deql.data import read
else:  # the kernels that read tables are of no use to who takes the bundled data
    read = lazy_module("deql.data.read")

__all__ = ["PRESETS", "Preset", "Shape", "compare_with_paper", "files_read", "locate", "prepare"]


@dataclass(frozen=True)
class Shape:
    """Size of a data set, as the paper's table of data sets gives it."""

    items: int
    users: int
    interactions: int

    @property
    def density(self) -> float:
        """Interactions ÷ (users × items)."""
        return self.interactions / (self.users * self.items)

    @property
    def item_user_ratio(self) -> float:
        """Items ÷ users."""
        return self.items / self.users


@dataclass(frozen=True)
class Preset:
    """One data set of the paper.

    Attributes
    ----------
    paper : Shape
        What the paper counts.
    published : str
        Who publishes the files, in words.
    files : dict
        Reading options by the name of a file that the folder may have, plain or packed; the first found is read. With
        a * the name stands for the parts of one table. Without any, the folder is LightGCN's train.txt and test.txt.
    cleaning : dict
        Options of :func:`deql.clean`.
    evaluated_users : int or None
        How many users are for the test, and as many for validation; a tenth each if None.
    certain : bool
        Whether the source of the paper's numbers says how the data was prepared, or this is the likeliest reading.
    """

    paper: Shape
    published: str
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    cleaning: dict[str, Any] = field(default_factory=dict)
    evaluated_users: int | None = None
    certain: bool = True


_RATED = {"user": "userId", "item": "movieId", "weight": "rating", "min_weight": 4, "format": "csv"}
_FILMS = {"user": "user", "item": "movie", "weight": "rating", "min_weight": 4, "format": "netflix"}
_LISTENED = {"user": 1, "item": 2, "format": "csv", "header": False}
_VISITED = {"user": 1, "item": 5, "format": "csv", "header": False}
_JOINED: dict[str, Any] = {}  # LightGCN's two files as one table
_HALVES = ("train.txt", "test.txt")
_LIGHTGCN = "the authors of LightGCN, with their code"


def _amazon(category: str) -> dict[str, dict[str, Any]]:
    """Reviews as Amazon's two releases have them: JSON lines, or ratings only."""
    reviews = {"user": "reviewerID", "item": "asin", "weight": "overall", "min_weight": 4, "format": "ndjson"}
    rows = {"weight": 3, "min_weight": 4, "format": "csv", "header": False}
    stems = (f"{category}_5", f"reviews_{category}_5", category, f"reviews_{category}")
    return {f"{stem}.json": reviews for stem in stems} | {
        f"ratings_{category}.csv": rows | {"user": 1, "item": 2},
        f"{category}.csv": rows | {"user": 2, "item": 1},  # the release of 2018 has them the other way round
    }


PRESETS: dict[str, Preset] = {
    "ml20m": Preset(
        Shape(20_108, 136_677, 9_990_682), "GroupLens, MovieLens 20M",
        {"ratings.csv": _RATED}, {"binary": True, "min_items_per_user": 5}, 10_000,
    ),
    "netflix": Preset(
        Shape(17_769, 463_435, 56_880_037), "Netflix Prize data, as on Kaggle",
        {"combined_data_*.txt": _FILMS}, {"binary": True, "min_items_per_user": 5}, 40_000,
    ),
    "msd": Preset(
        Shape(41_140, 571_353, 33_633_450), "the Echo Nest Taste Profile, Million Song Dataset",
        {"train_triplets.txt": _LISTENED},
        {"binary": True, "min_users_per_item": 200, "min_items_per_user": 20}, 50_000,
    ),
    "gowalla-1": Preset(
        Shape(13_681, 29_243, 677_956), "SNAP, Gowalla check-ins",
        {"loc-gowalla_totalCheckins.txt": _VISITED, "train.txt": _JOINED},
        {"binary": True, "min_users_per_item": 20, "min_items_per_user": 5}, certain=False,
    ),
    "games": Preset(
        Shape(896, 1_006, 15_276), "Amazon review data, Video Games",
        _amazon("Video_Games"), {"binary": True, "k_core": 10}, certain=False,
    ),
    "beauty": Preset(
        Shape(4_394, 17_971, 75_472), "Amazon review data, Beauty",
        _amazon("Beauty"), {"binary": True, "min_users_per_item": 5, "min_items_per_user": 3}, certain=False,
    ),
    "gowalla": Preset(Shape(40_981, 29_858, 1_027_370), _LIGHTGCN),
    "yelp2018": Preset(Shape(38_048, 31_668, 1_561_406), _LIGHTGCN),
    "amazon-book": Preset(Shape(91_599, 52_643, 2_984_108), _LIGHTGCN),
}  # fmt: skip


def prepare(name: str, folder: str | os.PathLike[str], seed: int = 0) -> Split:
    """Prepare one of the paper's data sets from its public files.

    The files are not downloaded: each data set has terms of its own.

    Parameters
    ----------
    name : str
        ml20m, netflix, msd, gowalla-1, games or beauty (strong generalisation), or gowalla, yelp2018 or
        amazon-book (the published weak splits).
    folder : path
        Where the public files are.
    seed : int, default 0
        Of the strong split.

    Returns
    -------
    Split

    Examples
    --------
    >>> from deql.datasets.public import prepare
    >>> prepare("ml20m", "no-such-folder")
    Traceback (most recent call last):
    ...
    deql.errors.DataError: there is no folder no-such-folder with the files of ml20m (GroupLens, MovieLens 20M)
    """
    if name not in PRESETS:
        raise _unknown(name)
    preset, folder = PRESETS[name], Path(folder)
    wanted, found = locate(name, folder)
    if not preset.files:
        return read_lightgcn_split(folder)
    if preset.files[wanted] is _JOINED:
        table = _join(read_lightgcn_split(folder))
    else:
        source = folder if "*" in wanted else found  # the parts of a table are read by their folder
        table = read.read_interactions(source, **preset.files[wanted])
    data = clean(table, **preset.cleaning)
    share = 0.1
    if preset.evaluated_users is not None:
        share = preset.evaluated_users / data.n_users
        if 2 * preset.evaluated_users >= data.n_users:
            raise DataError(
                f"{folder} has {data.n_users:,} users after cleaning, but {name} needs {preset.evaluated_users:,} for "
                f"the test, as many for validation and others to train on: is it all of {preset.published}?"
            )
    return split_strong(data, test_users=share, validation_users=share, held_out=0.2, seed=seed)


def locate(name: str, folder: Path) -> tuple[str, Path]:
    """The file of a data set that a folder has: its name as :data:`PRESETS` has it, and its path.

    Raises
    ------
    DataError
        If it has none; says which files it might be, and who publishes them.
    """
    preset = PRESETS[name]
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder} with the files of {name} ({preset.published})")
    found = _require(name, folder, list(preset.files) or ["train.txt"])
    if found[0] == "train.txt":
        _require(name, folder, ["test.txt"])
    return found


def files_read(name: str, folder: Path) -> list[Path]:
    """The files that :func:`prepare` would read.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for file in ("train.txt", "test.txt", "README.md"):
    ...         Path(folder, file).touch()
    ...     [path.name for path in files_read("gowalla", Path(folder))]
    ['train.txt', 'test.txt']
    """
    if name not in PRESETS:
        raise _unknown(name)
    wanted, found = locate(name, folder)
    if wanted == "train.txt":
        return [_half(folder, half) for half in _HALVES]
    if "*" not in wanted:
        return [found]
    from deql.data.readers.files import find_files

    return find_files(folder)


def _unknown(name: str) -> ParameterError:
    return ParameterError(f"unknown data set {name!r}: say one of {', '.join(PRESETS)}", parameter="name")


def _half(folder: Path, name: str) -> Path:
    """One of the two files of a published split, plain or packed."""
    for compression in ("", *COMPRESSED):
        if (file := folder / (name + compression)).is_file():
            return file
    raise DataError(f"{folder} has no file {name}: a published split is a folder with train.txt and test.txt")


def _join(split: Split) -> Interactions:
    """The table that a published split was made of."""
    train, held_out = split.train, split.test.held_out
    return Interactions(csr_array(train.matrix + held_out.matrix), train.users, train.items, steps=train.steps)


def _require(name: str, folder: Path, names: Sequence[str]) -> tuple[str, Path]:
    """The first of the names that the folder has a file for, and that file."""
    for wanted in names:
        for compression in ("", *COMPRESSED):
            found = sorted(folder.glob(wanted + compression))
            if found:
                return wanted, found[0]
    either = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
    raise DataError(f"{folder} has no file {either}: get the data set {name} from {PRESETS[name].published}")


def compare_with_paper(name: str, split: Split) -> list[dict[str, Any]]:
    """The paper's row of a data set beside what was found: quantity, paper, found, and whether they are the same.

    Users and interactions are those after cleaning, items those that train has.
    """
    paper, found = PRESETS[name].paper, _shape(split)
    rows = []
    for quantity in ("items", "users", "interactions"):
        one, other = getattr(paper, quantity), getattr(found, quantity)
        rows.append({"quantity": quantity, "paper": one, "found": other, "same": one == other})
    for quantity, digits in (("density", 4), ("item_user_ratio", 2)):
        one, other = (round(getattr(shape, quantity), digits) for shape in (paper, found))
        rows.append({"quantity": quantity, "paper": one, "found": other, "same": one == other})
    return rows


def _shape(split: Split) -> Shape:
    cleaned = split.train.steps[-1]
    return Shape(split.train.n_items, cleaned.users, cleaned.interactions)
