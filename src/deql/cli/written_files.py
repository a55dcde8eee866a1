"""Files that a command is to write: none that it reads, and none that cannot be written, known before the work."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from deql.data.partition_folder import is_partition_folder
from deql.data.readers.files import find_files, would_be_read
from deql.data.readers.split_folder import split_files
from deql.errors import DataError, ParameterError
from deql.io.folder import refusal
from deql.io.model_file import is_model_folder

__all__ = ["check_folder_written", "check_outputs"]


def check_outputs(
    *outputs: Path | None,
    model: Path | None = None,
    shards: bool = False,
    inputs: Iterable[Path | None] = (),
    tiles: Path | None = None,
    shared: Path | None = None,
) -> None:
    """Refuse files that cannot be written, or would be written over what is read, before any work is done for them.

    Parameters
    ----------
    *outputs : Path or None
        Files to write; None for one that was not asked for.
    model : Path, optional
        A model to write: a file, or a folder where one is, which is replaced whole.
    shards : bool, default False
        The model is to be a folder, whatever is there.
    inputs : iterable of Path or None
        What is read: files, and folders with all that is read from them.
    tiles : Path, optional
        The folder in which the disk engine makes and removes files.
    shared : Path, optional
        The folder in which the workers of a cluster make and remove folders of their own.
    """
    written = [path for path in (model, *outputs) if path is not None]
    read = [path for path in inputs if path is not None]
    known = (is_model_folder, is_partition_folder)  # where nothing is read but what is named there
    folders = [path for path in read if path.is_dir() and not any(is_one(path) for is_one in known)]
    parts = [(part, folder) for folder in folders for part in _parts(folder)]
    for place, path in enumerate(written):
        if path is model and (shards or is_model_folder(path)):
            _check_model_folder(path)
        else:
            _check_output(path)
        if any(_same_file(path, other) for other in written[:place] + written[place + 1 :] + read):
            raise ParameterError(f"{path} is used twice in this command, and would be overwritten: name another file")
        for part, folder in parts:
            if _same_file(path, part):
                raise ParameterError(
                    f"{path} is used twice in this command, as {part.name} of {folder} too, and would be overwritten: "
                    "name another file"
                )
        for folder in folders:
            if would_be_read(folder, path):
                raise ParameterError(
                    f"{path} would be read as data by the next command: name a file outside of {folder}"
                )
    if tiles is not None:
        for path in (*written, *read, *(part for part, _ in parts)):
            if Path(os.path.realpath(path)).parent == Path(os.path.realpath(tiles)):
                raise ParameterError(
                    f"{path} lies in {tiles}, where the disk engine makes and removes files: name another --folder"
                )
    # What workers leave there has names of its own, which readers pass over: data and models may lie beside it.
    if shared is not None and model is not None and not shards and _same_file(shared, model):
        raise ParameterError(f"{model} would be a file, and is the --folder of the workers: name another one")


def check_folder_written(folder: Path, inputs: Iterable[Path]) -> None:
    """Refuse a folder to write into if something in it is a file that is read."""
    inside = [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
    for path in inputs:
        for other in inside:
            if _same_file(path, other):
                raise ParameterError(f"{other} is read as data, and {folder} is written into: name another folder")


def _parts(folder: Path) -> Iterator[Path]:
    """All that is read from a folder, as a table or as a split."""
    if parts := split_files(folder):
        yield from parts.values()
        with suppress(DataError):  # some commands read it as a table, and can only if there is another in it
            yield from find_files(folder)
    else:
        yield from find_files(folder)


def _check_output(path: Path) -> None:
    if str(path) == "-":
        raise ParameterError('"-" is no file to write: name one')
    target = Path(os.path.realpath(path))  # what a link points to is written, not the link
    folder = target.parent
    if path.is_dir():
        raise ParameterError(f"{path} is a folder: name a file to write")
    if not folder.is_dir():
        raise ParameterError(f"there is no folder {folder} to write {target.name} in")
    if path.exists() and not path.is_file():
        raise ParameterError(f"{path} is not a plain file: name one, or leave the option out and redirect the output")
    _check_writable(folder, target.name)


def _check_model_folder(path: Path) -> None:
    if why := refusal(path, "model"):
        raise ParameterError(why)
    target = Path(os.path.realpath(path))
    if target.is_dir():
        _check_writable(target, "a model")
    else:
        _check_writable(target.parent, target.name)


def _check_writable(folder: Path, name: str) -> None:
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise ParameterError(f"the folder {folder} may not be written to, so {name} cannot be made there")


def _same_file(path: Path, other: Path) -> bool:
    """Whether both names are of one file, by way of links of either kind, or would be once it is there."""
    if os.path.realpath(path) == os.path.realpath(other):
        return True
    return path.exists() and other.exists() and path.samefile(other)
