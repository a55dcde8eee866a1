"""Model files: safetensors plus JSON metadata, written whole or not at all, read without running anything."""

from __future__ import annotations

import json
import os
import re
import secrets
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

import deql
from deql.errors import DeqlError, ModelFileError
from deql.models.base import Recommender

__all__ = ["FORMAT_VERSION", "load", "write"]

FORMAT_VERSION = 1
_FORMAT = "deql-model"
_DTYPES = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "U8": np.uint8}

Arrays = dict[str, NDArray[Any]]


def write(path: Path, model: Recommender) -> None:
    """Write a fitted model beside ``path`` and rename it there once it is safely on disk."""
    from safetensors.numpy import save_file

    arrays, facts = model._state()
    parameters = {name: value for name, value in model.fitted_params_.items() if name != "progress"}
    arrays |= _pack_ids(model.items_)
    metadata = {
        "format_version": str(FORMAT_VERSION),
        "library_version": deql.__version__,
        "model": type(model).__name__,
        "parameters": json.dumps(parameters, sort_keys=True, default=np.generic.item),
        "facts": json.dumps(facts, sort_keys=True),
        "vocabulary_checksum": _digest({}, {name: a for name, a in arrays.items() if name.startswith("items")}),
    }
    metadata["checksum"] = _digest(metadata, arrays)
    # Under one key: safetensors keeps several in random order, and equal models should be equal files.
    header = {_FORMAT: json.dumps(metadata, sort_keys=True)}
    if path.is_dir():
        raise ModelFileError(f"{path} is a folder: name a file to save the model in")
    if not path.absolute().parent.is_dir():
        raise ModelFileError(f"there is no folder {path.absolute().parent} to save the model in")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        save_file(arrays, temporary, metadata=header)
        _to_disk(temporary, os.O_RDWR)
        os.replace(temporary, path)
        if os.name == "posix":  # elsewhere a folder cannot be opened, and renaming is durable by itself
            _to_disk(path.absolute().parent, os.O_RDONLY)
    except DeqlError:
        raise
    except Exception as error:  # safetensors has its own error type for a full disk
        raise ModelFileError(f"the model could not be saved as {path}: {error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def load(path: str | os.PathLike[str], *, verify: bool = True) -> Recommender:
    """Read a model file; P stays on disk and is mapped into memory as it is used.

    Parameters
    ----------
    path : path
        What ``model.save`` wrote.
    verify : bool, default True
        Check the checksum, which reads the whole file once.

    Returns
    -------
    The fitted model, of the class that was saved.

    Raises
    ------
    ModelFileError
        If the file is missing, truncated, altered, not a model file, or of a newer format.

    Examples
    --------
    >>> import tempfile, os, deql
    >>> data = deql.Interactions.from_pairs(list("aabbcccd"), ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     deql.EASE(l2=1.0).fit(data).save(os.path.join(folder, "shop.deql"))
    ...     model = deql.load(os.path.join(folder, "shop.deql"))
    ...     model.similar_items("jam", k=1)[0].tolist()
    ['tea']
    """
    from deql import models

    path = Path(path)
    metadata, arrays = _map_file(path)
    version = metadata.get("format_version", "")
    if not re.fullmatch("[0-9]+", version) or int(version) > FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has format version {version or 'none'}, written by deql {metadata.get('library_version', '?')}; "
            f"this is deql {deql.__version__}, which reads up to {FORMAT_VERSION}: update deql"
        )
    if verify:
        expected = metadata.pop("checksum", "")
        if _digest(metadata, arrays) != expected:
            raise ModelFileError(f"{path} is damaged: its checksum does not match; restore it or fit the model again")
    try:
        name = metadata["model"]
        if name not in models.__all__:
            raise ModelFileError(f"{path} holds a model of the unknown kind {name!r}: update deql")
        model: Recommender = getattr(models, name)(**json.loads(metadata["parameters"]))
        model.items_ = _unpack_ids(arrays)
        model._restore(arrays, json.loads(metadata["facts"]))
        model.fitted_params_ = model.get_params()
    except ModelFileError:
        raise
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise ModelFileError(f"{path} is damaged: {error}") from None
    return model


def _map_file(path: Path) -> tuple[dict[str, str], Arrays]:
    """Metadata and memory-mapped arrays of a safetensors file, its layout checked by safetensors itself."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise ModelFileError(f"there is no model file {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = json.loads((file.metadata() or {}).get(_FORMAT, "null"))
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            raise ModelFileError(f"{path} is not a deql model file")
        with open(path, "rb") as raw:
            size = int.from_bytes(raw.read(8), "little")
            header: dict[str, Any] = json.loads(raw.read(size))
        arrays = {}
        for name, entry in header.items():
            if name != "__metadata__":
                start = 8 + size + entry["data_offsets"][0]
                shape, dtype = tuple(entry["shape"]), _DTYPES[entry["dtype"]]
                empty = 0 in shape  # nothing to map
                arrays[name] = np.empty(shape, dtype) if empty else np.memmap(path, dtype, "r", start, shape)
    except SafetensorError as error:
        raise ModelFileError(f"{path} is not a deql model file, or is damaged or cut short: {error}") from None
    except ModelFileError:
        raise
    except (OSError, ValueError, KeyError) as error:
        raise ModelFileError(f"{path} cannot be read as a model file: {error}") from None
    return metadata, arrays


def _digest(metadata: dict[str, str], arrays: Arrays) -> str:
    """XXH3 of everything that counts, in an order of its own rather than the file's."""
    digest = xxhash.xxh3_128(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).view(np.uint8).data)
    return digest.hexdigest()


def _pack_ids(ids: NDArray[Any]) -> Arrays:
    """Ids as arrays of numbers: integers as they are, text as UTF-8 and the place where each begins."""
    if ids.dtype != object:
        return {"items": ids.astype(np.int64)}
    if not all(isinstance(item, str) for item in ids.tolist()):
        raise ModelFileError("a model can be saved only if its item ids are integers or text")
    encoded = [item.encode("utf-8", "surrogatepass") for item in ids.tolist()]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return {"items_text": np.frombuffer(b"".join(encoded), np.uint8), "items_ends": ends}


def _unpack_ids(arrays: Arrays) -> NDArray[Any]:
    if "items" in arrays:
        return np.array(arrays["items"])
    text, ends = arrays["items_text"].tobytes(), arrays["items_ends"].tolist()
    ids = np.empty(len(ends) - 1, object)
    ids[:] = [text[i:j].decode("utf-8", "surrogatepass") for i, j in pairwise(ends)]
    return ids


def _to_disk(path: Path, mode: int) -> None:
    descriptor = os.open(path, mode)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
