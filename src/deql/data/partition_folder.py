"""A folder of partitions: its manifest, opening it, and making it whole or not at all."""

from __future__ import annotations

import io
import json
import os
import secrets
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from glob import has_magic
from pathlib import Path
from typing import Any

from deql._system.formatting import parse_json
from deql._system.lazy import pl
from deql.data.partitions import Partition, PartitionedInteractions, Scratch, read_checked
from deql.data.readers.id_columns import series_ids
from deql.errors import DataError, reason
from deql.io.atomic import sync
from deql.io.locks import lock_file

__all__ = [
    "ITEMS", "MANIFEST", "check_manifest", "is_partition_folder", "new_folder", "open_folder", "scratch_name",
    "write_frame", "write_manifest",
]  # fmt: skip

MANIFEST, ITEMS = "partitions.json", "items.parquet"
_FORMAT, _VERSION, _LOCK = "deql-partitions", 1, "lock"


def is_partition_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a folder has the manifest of partitions.

    Examples
    --------
    >>> is_partition_folder(".")
    False
    """
    return os.path.isfile(Path(path, MANIFEST))  # not pathlib's, which raises where nobody may look


def check_manifest(path: str | os.PathLike[str]) -> None:
    """Refuse a folder of partitions and its files as a table: their items are numbers of columns, and no ids."""
    folder = Path(path)
    above = folder if os.path.isdir(folder) else folder.parent  # also of a pattern
    is_part = above == folder or folder.match("part-*.parquet") or folder.name == ITEMS or has_magic(folder.name)
    if is_part and is_partition_folder(above):
        raise DataError(f"{above} is a folder of partitions: name a table here, or open it with deql.read_partitions")
    if os.path.isfile(folder / ITEMS) and any(folder.glob("part-*.parquet")):
        raise DataError(
            f"{folder} has partitions, but not their manifest, {MANIFEST}: restore it, or partition the table again"
        )


def open_folder(folder: Path, scratch: Scratch | None = None) -> PartitionedInteractions:
    """The interactions of a folder, by its manifest: none of the parts is read."""
    try:
        said = parse_json((folder / MANIFEST).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{folder / MANIFEST} cannot be read: {reason(error)}") from None
    except ValueError:
        raise _damaged(folder) from None
    if not isinstance(said, dict) or said.get("format") != _FORMAT:
        raise DataError(f"{folder / MANIFEST} is no manifest of partitions: name a folder of deql.read_partitions")
    version = said.get("version")
    if not isinstance(version, int) or version > _VERSION:
        raise DataError(f"{folder} has version {version!r}, and this deql reads up to {_VERSION}: update deql")
    checksum = said.pop("checksum", None)
    if checksum != _checksum(said):
        raise _damaged(folder)
    try:
        return _opened(folder, said, scratch)
    except DataError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, pl.exceptions.PolarsError):
        raise _damaged(folder) from None


def _opened(folder: Path, said: Mapping[str, Any], scratch: Scratch | None) -> PartitionedInteractions:
    """What a manifest says, as far as that can be; ValueError where it contradicts itself."""
    numbers = [said["users"], said["interactions"], said["pairs"], said["items"]["checksum"]]
    numbers += [one[name] for one in said["parts"] for name in ("users", "interactions", "checksum")]
    if not said["parts"] or not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError
    if any(said[what] != sum(one[what] for one in said["parts"]) for what in ("users", "interactions")):
        raise ValueError
    table = read_checked(folder / ITEMS, said["items"]["checksum"])
    ids, counts = table["item"], table["users"].to_numpy()
    items = series_ids(ids)
    parts = tuple(
        Partition(folder / Path(one["file"]).name, one["users"], one["interactions"], len(items), one["checksum"])
        for one in said["parts"]
    )
    for part in parts:
        if not part.path.is_file():
            raise DataError(f"{part.path} is missing: restore it, or partition the table again")
    steps = tuple((str(what), int(rows)) for what, rows in said["steps"])
    counted = (said["users"], said["interactions"], said["pairs"])
    return PartitionedInteractions(
        folder, items, counts, *counted, bool(said["weighted"]), parts, steps, scratch=scratch
    )


def write_manifest(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write what :func:`open_folder` reads; the last thing to be written."""
    said = {"format": _FORMAT, "version": _VERSION, **facts}
    text = json.dumps(said | {"checksum": _checksum(said)}, indent=1)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
    sync(folder / MANIFEST)


def write_frame(frame: pl.DataFrame, path: Path) -> int:
    """Write a Parquet file, bring it to disk, and return its checksum."""
    content = io.BytesIO()
    frame.write_parquet(content)
    with content.getbuffer() as written:
        path.write_bytes(written)
        checksum = zlib.crc32(written)
    sync(path)
    return checksum


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder beside the one that is to be made, which it becomes if nothing goes wrong, and else vanishes.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as above:
    ...     with new_folder(Path(above) / "parts") as building:
    ...         _ = (building / "a").write_text("tea")
    ...     [path.name for path in Path(above).iterdir()], (Path(above) / "parts" / "a").read_text()
    (['parts'], 'tea')
    """
    folder = Path(os.path.abspath(folder))
    if folder.exists():
        what = "is a folder of partitions already" if is_partition_folder(folder) else "exists already"
        raise DataError(f"{folder} {what}: name a new folder, or remove it first")
    if not folder.parent.is_dir():
        raise DataError(f"there is no folder {folder.parent} to put the partitions in")
    building = folder.with_name(f".{folder.name}.partial")
    try:
        lock = _claim(building)
    except OSError as error:
        raise DataError(f"{folder} could not be written: {reason(error)}") from None
    done = False
    try:
        yield building
        sync(building)
        building.rename(folder)
        done = True
        (folder / _LOCK).unlink(missing_ok=True)  # not before: who finds none there takes over what it lies among
        sync(folder.parent)
    except OSError as error:
        raise DataError(f"{folder} could not be written: {reason(error)}") from None
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{folder} could not be written: {' '.join(str(error).split())}") from None
    finally:
        if not done:  # while the lock is held: from then on it may be another process's
            shutil.rmtree(building, ignore_errors=True)
        if lock >= 0:
            os.close(lock)


def _claim(building: Path) -> int:
    """Make the folder, or take over what a killed process left; the descriptor of its lock, −1 where there is none."""
    building.mkdir(exist_ok=True)
    lock = lock_file(building / _LOCK) if os.name == "posix" else -1
    if lock is None:
        raise DataError(f"{building} is being written by another process: wait for it, or name another folder")
    for left in building.iterdir():
        if left.name != _LOCK:
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    return lock


def scratch_name(above: Path) -> Path:
    """A name in a folder that nothing has."""
    return above / f"deql-partitions-{secrets.token_hex(8)}"


def _checksum(said: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(said, sort_keys=True).encode())


def _damaged(folder: Path) -> DataError:
    return DataError(f"{folder / MANIFEST} is damaged: restore it, or partition the table again")
