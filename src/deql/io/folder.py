"""Folders of arrays: what a file of them holds, the large ones in shards, replaced whole or not at all.

The files of a folder have the checksums of their contents in their names, so that new ones lie beside the old; the
index names those that count. Whoever renames a new index there replaces all at once, and removes the others after that.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from deql._system.formatting import parse_json
from deql.errors import DeqlError, ModelFileError, reason
from deql.io import container
from deql.io.atomic import remove_stale, replace_file, sync
from deql.io.container import Arrays, FileKind
from deql.io.locks import lock_file
from deql.io.shards import ALIGNMENT, Shard, check_shard, cut, map_shards, shards_of, write_shard

__all__ = ["INDEX", "checksum", "is_folder", "read", "refusal", "size", "write"]

INDEX = "index.json"
_LOCK = ".lock"
_SMALL = FileKind("deql-arrays", 1, ModelFileError, "fit the model again")
_OURS = re.compile(r".+-[0-9]{15}-[0-9a-f]{8}\.safetensors|arrays-[0-9a-f]{8}\.safetensors")
_UNFINISHED = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp")
_LINKED = re.compile(rf"\.(?:{_OURS.pattern})\.link")
_TRIES = 3
"""How often a folder that is replaced while it is read is read again."""


def is_folder(path: Path) -> bool:
    """Whether there is such a folder at a path."""
    return (path / INDEX).is_file()


def size(path: Path) -> int:
    """Bytes of all files, but those that go meanwhile because the folder is written anew."""
    total = 0
    for file in path.iterdir():
        with suppress(FileNotFoundError):
            total += file.stat().st_size
    return total


def refusal(path: Path, noun: str) -> str | None:
    """Why a folder of arrays cannot be written at a path, if so, as far as that is seen without writing.

    Examples
    --------
    >>> refusal(Path("/nowhere/shop.deql"), "model")
    'there is no folder /nowhere to save the model in'
    """
    if path.exists() and not path.is_dir():
        return f"{path} is a file: name a folder to save the {noun} in, or remove it"
    if not path.absolute().parent.is_dir():
        return f"there is no folder {path.absolute().parent} to save the {noun} in"
    if not path.exists():
        return None
    try:
        names = [one.name for one in path.iterdir()]
        if is_folder(path):  # many things have an index of this name; a damaged one of ours has our files beside it
            if any(map(_OURS.fullmatch, names)) or _may_be_index(path / INDEX):
                return None
            return f"{path / INDEX} is not of a {noun} in shards: name a new folder to save the {noun} in"
    except OSError as error:
        return f"the folder {path} cannot be read: {reason(error)}"
    foreign = not all(map(_is_ours, names))
    return f"{path} is a folder with other files in it: name a new one to save the {noun} in" if foreign else None


def _may_be_index(path: Path) -> bool:
    """Whether a file has what an index of arrays has, damaged or not."""
    try:
        said = parse_json(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return isinstance(said, dict) and {"metadata", "arrays", "large", "checksum"} <= said.keys()


def _is_ours(name: str) -> bool:
    """Whether a file may be one of a folder of arrays that was not finished."""
    return name.startswith(".") or name == INDEX or _OURS.fullmatch(name) is not None


def write(kind: FileKind, path: Path, metadata: dict[str, str], arrays: Arrays, most: int) -> None:
    """Write a folder whose shards have at most about ``most`` bytes.

    Arrays that are mapped from shards are not written again: their files are linked into the folder, or copied.
    """
    if why := refusal(path, kind.noun):
        raise kind.error(why)
    metadata = container.signed(kind, metadata, arrays)
    path = Path(os.path.realpath(path))
    is_new = not path.exists()
    try:
        path.mkdir(exist_ok=True)
        if is_new:
            sync(path.parent)
        with _alone(kind, path):
            try:
                index = {"metadata": metadata} | _write_files(path, arrays, most)
                text = json.dumps(index | {"checksum": _sign(index)}, indent=1, sort_keys=True)
                sync(path)
                replace_file(path / INDEX, lambda place: place.write_text(text, encoding="utf-8"))
            finally:
                _remove_others(path)
    except OSError as error:
        raise kind.error(f"the {kind.noun} could not be saved as {path}: {reason(error)}") from None
    finally:
        if is_new and not is_folder(path):
            with suppress(OSError):  # it could not be made, or somebody else uses it
                path.rmdir()


def _write_files(path: Path, arrays: Arrays, most: int) -> dict[str, Any]:
    large: dict[str, Any] = {}
    for name, array in arrays.items():
        found = shards_of(array)
        if found is not None and _are_there(*found):  # else they were removed, and what is mapped is whole all the same
            folder, shards = found
            for shard in shards:
                _bring(folder / shard.file, path / shard.file, shard)
        elif array.nbytes >= ALIGNMENT:
            flat = np.ascontiguousarray(array).reshape(-1)
            shards = [
                write_shard(path, name, first, flat[first:last]) for first, last in cut(len(flat), flat.dtype, most)
            ]
        else:
            continue
        large[name] = {"shape": list(array.shape), "shards": [shard.to_dict() for shard in shards]}
    small = {name: array for name, array in arrays.items() if name not in large}
    file = f"arrays-{container.digest({}, small)[:8]}.safetensors"
    container.write(_SMALL, path / file, {}, small)
    return {"arrays": {"file": file, "checksum": container.checksum(_SMALL, path / file)}, "large": large}


def _are_there(folder: Path, shards: Sequence[Shard]) -> bool:
    with suppress(ModelFileError):
        for shard in shards:
            check_shard(folder / shard.file, shard)
        return True
    return False


def _bring(source: Path, target: Path, shard: Shard) -> None:
    """A shard that is elsewhere, under a second name, or where there cannot be one, copied."""
    if target.exists() and source.samefile(target):
        return
    linked = target.with_name(f".{target.name}.link")
    linked.unlink(missing_ok=True)
    try:
        os.link(source, linked)
    except OSError:  # another file system, or one without links
        replace_file(target, lambda place: shutil.copyfile(source, place))
    else:
        linked.replace(target)


@contextmanager
def _alone(kind: FileKind, path: Path) -> Iterator[None]:
    """While one process writes into a folder."""
    lock = lock_file(path / _LOCK)
    if lock is None:
        raise kind.error(f"another process is saving a {kind.noun} in {path}: try again when it is done")
    try:
        yield
    finally:
        (path / _LOCK).unlink(missing_ok=True)
        os.close(lock)


def _remove_others(path: Path) -> None:
    """Remove what the index does not name: what was replaced, or was not finished."""
    named: set[str] = set()
    with suppress(OSError, ValueError, KeyError, TypeError):
        index = parse_json((path / INDEX).read_text(encoding="utf-8"))
        named = {index["arrays"]["file"]}
        named |= {shard["file"] for one in index["large"].values() for shard in one["shards"]}
    for file in [*path.iterdir()]:
        if unfinished := _UNFINISHED.fullmatch(file.name):
            remove_stale(path / unfinished[1])
        elif (_OURS.fullmatch(file.name) or _LINKED.fullmatch(file.name)) and file.name not in named:
            file.unlink(missing_ok=True)


def _sign(index: dict[str, Any]) -> str:
    return xxhash.xxh3_128(json.dumps(index, sort_keys=True).encode()).hexdigest()


def read(kind: FileKind, path: Path, *, verify: bool = True) -> tuple[dict[str, str], Arrays]:
    """Metadata and mapped arrays of a folder, its version and, if asked, all checksums checked."""
    for left in reversed(range(_TRIES)):
        index, text = _read_index(kind, path)
        try:
            metadata, arrays = _map(path, index, verify)
            break
        except DeqlError:
            if not left or _read_index(kind, path)[1] == text:
                raise
    container.check_version(kind, path, metadata)
    metadata.pop("checksum", "")
    return metadata, arrays


def checksum(kind: FileKind, path: Path, without: Iterable[str] = ()) -> str:
    """What the folder says its checksum is, as :func:`deql.io.container.checksum` has it of a file."""
    index, _ = _read_index(kind, path)
    if not set(without) & set(index["large"]):
        return str(index["metadata"].get("checksum", ""))
    metadata, arrays = read(kind, path, verify=False)
    return container.digest(metadata, {name: array for name, array in arrays.items() if name not in set(without)})


def _read_index(kind: FileKind, path: Path) -> tuple[dict[str, Any], str]:
    place = path / INDEX
    if not place.is_file():
        raise kind.error(f"there is no {kind.noun} in the folder {path}: it has no {INDEX}")
    try:
        text = place.read_text(encoding="utf-8")
        index = parse_json(text)
        said = index.pop("checksum")
        metadata = index["metadata"]
        small = index["arrays"]["file"], index["arrays"]["checksum"]
        fine = all(isinstance(value, str) for value in (*metadata.values(), *small)) and said == _sign(index)
        index["large"] = {name: (tuple(one["shape"]), _shards(one)) for name, one in index["large"].items()}
        names = [small[0], *(shard.file for _, shards in index["large"].values() for shard in shards)]
        fine = fine and all(len(name) < 256 and _OURS.fullmatch(name) for name in names)
    except OSError as error:
        raise kind.error(f"{place} cannot be read: {reason(error)}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise kind.error(
            f"{place} is no index of a deql {kind.noun}, or is damaged: restore it or {kind.remedy}"
        ) from None
    if not fine:
        raise kind.error(f"{place} is damaged: its checksum does not match; restore it or {kind.remedy}")
    return index, text


def _shards(one: dict[str, Any]) -> list[Shard]:
    shards = [Shard(**shard) for shard in one["shards"]]
    if sum(shard.count for shard in shards) != np.prod(one["shape"], dtype=np.int64):
        raise ValueError
    return shards


def _map(path: Path, index: dict[str, Any], verify: bool) -> tuple[dict[str, str], Arrays]:
    small = path / index["arrays"]["file"]
    if not small.is_file():
        raise ModelFileError(f"{small} is missing: restore it or {_SMALL.remedy}")
    _, arrays = container.read(_SMALL, small, verify=verify)
    if container.checksum(_SMALL, small) != index["arrays"]["checksum"]:
        raise ModelFileError(f"{small} is another file than was written there: restore it or {_SMALL.remedy}")
    for name, (shape, shards) in index["large"].items():
        flat: NDArray[Any] = map_shards(path, shards, verify=verify)
        arrays[name] = flat if len(shape) == 1 else flat.reshape(shape)
    return index["metadata"], arrays
