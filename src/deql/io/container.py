"""Files of arrays: safetensors plus JSON metadata, written whole or not at all, read without running anything."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from deql._system.formatting import parse_json
from deql._version import __version__
from deql.errors import DeqlError, reason, shorten
from deql.io.atomic import remove_stale, replace_file

__all__ = [
    "Arrays",
    "FileKind",
    "Placed",
    "check_version",
    "checksum",
    "digest",
    "pack_text",
    "read",
    "read_header",
    "signed",
    "unpack_text",
    "write",
    "write_arrays",
]

# In the order in which safetensors lays arrays out, so that each begins at a multiple of its numbers' size.
_DTYPES = {"I64": np.int64, "F64": np.float64, "F32": np.float32, "I32": np.int32, "U8": np.uint8}
_KINDS = {
    "deql-model": "model",
    "deql-split": "split",
    "deql-shard": "shard",
    "deql-arrays": "model",
    "deql-checkpoint": "checkpoint",
}

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class FileKind:
    """What a file holds.

    Attributes
    ----------
    key : str
        The entry of the safetensors metadata under which the file's own metadata is.
    version : int
        The newest format version that is read, and the one that is written.
    error : type
        Raised for whatever is wrong with a file of this kind.
    remedy : str
        What to do about a damaged file.
    """

    key: str
    version: int
    error: type[DeqlError]
    remedy: str

    @property
    def noun(self) -> str:
        """The kind in words."""
        return _KINDS[self.key]


def write(kind: FileKind, path: Path, metadata: dict[str, str], arrays: Arrays) -> None:
    """Write a file beside ``path`` and rename it there once it is safely on disk."""
    metadata = signed(kind, metadata, arrays)
    # Under one key: safetensors keeps several in random order, and equal contents should be equal files.
    header = {kind.key: json.dumps(metadata, sort_keys=True)}
    if path.is_dir():
        raise kind.error(f"{path} is a folder: name a file to save the {kind.noun} in")
    if not path.absolute().parent.is_dir():
        raise kind.error(f"there is no folder {path.absolute().parent} to save the {kind.noun} in")
    path = Path(os.path.realpath(path))
    try:
        replace_file(path, lambda place: write_arrays(place, header, arrays))
    except OSError as error:
        raise kind.error(f"the {kind.noun} could not be saved as {path}: {reason(error)}") from None


def signed(kind: FileKind, metadata: dict[str, str], arrays: Arrays) -> dict[str, str]:
    """The metadata of a file that is written with these: versions and the checksum beside what is given."""
    metadata = {"format_version": str(kind.version), "library_version": __version__} | metadata
    return metadata | {"checksum": digest(metadata, arrays)}


def write_arrays(place: Path, metadata: dict[str, str], arrays: Arrays, align: int = 8) -> None:
    """Write a safetensors file, byte for byte as the library's ``save_file`` would.

    That one writes another file of its own beside it, which nobody would remove after a kill, and renames it over
    the one that is locked. With a larger ``align``, the first array begins at a multiple of so many bytes.
    """
    names = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}
    order = sorted(arrays, key=lambda name: ([*names].index(arrays[name].dtype), name))
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name in order:
        array, begin = arrays[name], end
        end += array.nbytes
        header[name] = {"dtype": names[array.dtype], "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % align)
    with open(place, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            file.write(np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data)


def read(kind: FileKind, path: Path, *, verify: bool = True) -> tuple[dict[str, str], Arrays]:
    """Metadata and memory-mapped arrays of a file, its version and, if asked, its checksum checked.

    What killed processes left of earlier saves is removed, as by the next save.
    """
    remove_stale(path)
    metadata, arrays = _map_file(kind, path)
    check_version(kind, path, metadata)
    expected = metadata.pop("checksum", "")
    if verify and digest(metadata, arrays) != expected:
        raise kind.error(f"{path} is damaged: its checksum does not match; restore it or {kind.remedy}")
    return metadata, arrays


def check_version(kind: FileKind, path: Path, metadata: dict[str, str]) -> None:
    """Refuse a file of a newer format than this version reads."""
    version = metadata.get("format_version", "")
    if not re.fullmatch("[0-9]+", version) or int(version) > kind.version:
        raise kind.error(
            f"{path} has format version {shorten(version) or 'none'}, written by deql "
            f"{shorten(metadata.get('library_version', '?'))}; "
            f"this is deql {__version__}, which reads up to {kind.version}: update deql"
        )


def checksum(kind: FileKind, path: Path, without: Iterable[str] = ()) -> str:
    """What the file says its checksum is: a name for these contents, read without reading them.

    Of a file with arrays that are named in ``without``, what it would be without them, for which it is read.
    """
    metadata, arrays = _map_file(kind, path)
    rest = {name: array for name, array in arrays.items() if name not in set(without)}
    said = metadata.pop("checksum", "")
    return said if len(rest) == len(arrays) else digest(metadata, rest)


class Placed(NamedTuple):
    """Where an array lies in a file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int


def _map_file(kind: FileKind, path: Path) -> tuple[dict[str, str], Arrays]:
    """Metadata and memory-mapped arrays of a safetensors file."""
    metadata, places = read_header(kind, path)
    try:
        return metadata, {
            name: np.empty(shape, dtype) if 0 in shape else np.memmap(path, dtype, "r", offset, shape)
            for name, (dtype, shape, offset) in places.items()
        }
    except (OSError, ValueError) as error:
        raise kind.error(f"{path} cannot be read as a {kind.noun} file: {error}") from None


def read_header(kind: FileKind, path: Path) -> tuple[dict[str, str], dict[str, Placed]]:
    """Metadata of a safetensors file and where its arrays lie, its layout checked by safetensors itself."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise kind.error(f"there is no {kind.noun} file {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            entries = file.metadata() or {}
        metadata = parse_json(entries.get(kind.key, "null"))
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            other = next((noun for key, noun in _KINDS.items() if key in entries and key != kind.key), None)
            raise kind.error(f"{path} is not a deql {kind.noun} file" + (f" but a {other} file" if other else ""))
        with open(path, "rb") as raw:
            size = int.from_bytes(raw.read(8), "little")
            header: dict[str, Any] = parse_json(raw.read(size))
        header.pop("__metadata__", None)
        places = {
            name: Placed(np.dtype(_DTYPES[entry["dtype"]]), tuple(entry["shape"]), 8 + size + entry["data_offsets"][0])
            for name, entry in header.items()
        }
    except SafetensorError as error:
        raise kind.error(f"{path} is not a deql {kind.noun} file, or is damaged or cut short: {error}") from None
    except DeqlError:
        raise
    except (OSError, ValueError, KeyError) as error:
        raise kind.error(f"{path} cannot be read as a {kind.noun} file: {error}") from None
    return metadata, places


def digest(metadata: dict[str, str], arrays: Arrays) -> str:
    """XXH3 of everything that counts, in an order of its own rather than the file's."""
    whole = xxhash.xxh3_128(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(arrays):
        whole.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}".encode())
        whole.update(np.ascontiguousarray(arrays[name]).view(np.uint8).data)
    return whole.hexdigest()


def pack_text(name: str, values: NDArray[Any]) -> Arrays:
    """Ids or titles as arrays of numbers: integers as they are, text as UTF-8 and the place where each begins.

    Examples
    --------
    >>> sorted(pack_text("items", np.array(["tea", "jam"], object)))
    ['items_ends', 'items_text']
    >>> unpack_text("items", pack_text("items", np.array(["tea", "jam"], object))).tolist()
    ['tea', 'jam']
    """
    if values.dtype.kind in "iu":
        return {name: values.astype(np.int64)}
    texts = values.tolist()
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"{name} can be saved only if they are integers or text")
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return {f"{name}_text": np.frombuffer(b"".join(encoded), np.uint8), f"{name}_ends": ends}


def unpack_text(name: str, arrays: Arrays) -> NDArray[Any]:
    """What :func:`pack_text` packed under this name; ValueError or KeyError if that is not what is there."""
    if name in arrays:
        if arrays[name].dtype != np.int64 or arrays[name].ndim != 1:
            raise ValueError(f"its {name} are {arrays[name].ndim}-dimensional {arrays[name].dtype}")
        return np.array(arrays[name])
    letters, ends = arrays[f"{name}_text"], arrays[f"{name}_ends"]
    whole = letters.dtype == np.uint8 and ends.dtype == np.int64 and letters.ndim == ends.ndim == 1 and len(ends) > 0
    if not whole or ends[0] != 0 or ends[-1] != len(letters) or (np.diff(ends) < 0).any():
        raise ValueError(f"the text of its {name} is not cut where it should be")
    text, ends = letters.tobytes(), ends.tolist()
    values = np.empty(len(ends) - 1, object)
    values[:] = [text[i:j].decode("utf-8", "surrogatepass") for i, j in pairwise(ends)]
    return values
