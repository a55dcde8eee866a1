"""Folders that hold a split: a table to train on and tables of what is to be found."""

from __future__ import annotations

from pathlib import Path

from deql.data.readers.blocks import COMPRESSED, uncompressed_suffix
from deql.errors import DataError

__all__ = ["PARTS", "is_published_split", "split_files", "split_part"]

PARTS = {
    "train": "train",
    "test": "test", "test_seen": "test_seen", "test_held_out": "test_held_out",
    "validation": "validation", "valid": "validation", "val": "validation",
    "validation_seen": "validation_seen", "validation_held_out": "validation_held_out",
    # As the code of Liang et al. (2018) writes them, and others since: what is seen, and what is to be found.
    "test_tr": "test_seen", "test_te": "test_held_out",
    "validation_tr": "validation_seen", "validation_te": "validation_held_out",
}  # fmt: skip
"""Parts of a split by the names of their files, without an ending."""

_ENDINGS = (
    ".csv", ".tsv", ".txt", ".dat", ".inter", ".parquet", ".pq", ".npz", ".ndjson", ".jsonl", ".json",
)  # fmt: skip


def split_part(name: str) -> str | None:
    """Which part of a split a file holds, by its name.

    Examples
    --------
    >>> split_part("valid.csv.gz"), split_part("test_tr.csv"), split_part("ratings.csv")
    ('validation', 'test_seen', None)
    """
    path = Path(name)
    plain = Path(path.stem) if path.suffix.lower() in COMPRESSED else path
    return PARTS.get(plain.stem.lower()) if plain.suffix.lower() in _ENDINGS else None


def split_files(folder: Path) -> dict[str, Path]:
    """The files of the split that a folder holds, by part; none if it holds no split.

    Raises
    ------
    DataError
        If there are several files for one part, or the folder may not be read.
    """
    if not folder.is_dir():
        return {}
    try:
        paths = sorted(folder.iterdir())
    except PermissionError:
        raise DataError(f"{folder} may not be read: ask for the permission to read it") from None
    found: dict[str, list[Path]] = {}
    for path in paths:
        part = split_part(path.name)
        if part is not None and path.is_file():
            found.setdefault(part, []).append(path)
    if "train" not in found or not ("test" in found or {"test_seen", "test_held_out"} <= found.keys()):
        return {}
    published = {part: [path for path in some if uncompressed_suffix(path) == ".txt"] for part, some in found.items()}
    if published["train"] and published.get("test"):  # then whatever else lies beside them is no part of the split
        found = {part: some for part, some in published.items() if some}
    for part, several in found.items():
        if len(several) > 1:
            raise DataError(f"{folder} holds {several[0].name} and {several[1].name}, both of them {part}: remove one")
    return {part: one for part, [one] in found.items()}


def is_published_split(folder: Path) -> bool:
    """Whether this is a folder with LightGCN's two files, by their names."""
    files = split_files(folder)
    return all(part in files and uncompressed_suffix(files[part]) == ".txt" for part in ("train", "test"))
