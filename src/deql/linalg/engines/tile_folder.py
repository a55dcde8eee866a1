"""Where the disk engine keeps its tiles: a folder from which a killed fit resumes, or files that vanish with it."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import xxhash
from numpy.typing import DTypeLike, NDArray

from deql._system.formatting import parse_json
from deql.errors import ParameterError, TileFileError, name_some, reason
from deql.io.atomic import replace_file, sync, try_lock
from deql.linalg.engines.tile_file import RESUME, TileFile

__all__ = [
    "Checkpoint",
    "Scratch",
    "TileFolder",
    "as_path",
    "check_room",
    "has_checkpoint",
    "remove_tiles",
]

VERSION = 1

MANIFEST, _NEXT_MANIFEST, _PROBES, _LOCK = (
    "deql-tiles.json", "deql-tiles.json.new", "deql-probes.npy", "deql-tiles.lock",
)  # fmt: skip
_TILES = ("deql-tiles-0.bin", "deql-tiles-1.bin")
_OWN = (MANIFEST, _NEXT_MANIFEST, _PROBES, *_TILES, _LOCK)


class Checkpoint(NamedTuple):
    """How far a fit is.

    Attributes
    ----------
    pivot : int
        Columns of a pivot, which are also the most rows of a slab.
    done : int
        Pivots that are swept.
    generation : int
        Which of the two files holds the matrix.
    checksums : list of str
        Of its slabs.
    """

    pivot: int
    done: int
    generation: int
    checksums: list[str]


class Scratch:
    """Files without a name, which the system removes when the process ends, however it ends.

    Parameters
    ----------
    path : Path
        The folder whose disk is used.
    """

    checkpoint: Checkpoint | None = None

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def open_tiles(self, generation: int, size: int, dtype: DTypeLike) -> TileFile:
        """A new file of ``size`` bytes."""
        try:
            with tempfile.TemporaryFile(dir=self.path) as file:
                file.truncate(size)
                return TileFile(os.dup(file.fileno()), f"a temporary file in {self.path}", dtype, keeps=False)
        except OSError as error:
            raise _unusable(self.path, error) from None

    def begin(self, images: NDArray[np.float64]) -> None:
        """Keep the images of the probes."""
        self.images = images

    def save(self, checkpoint: Checkpoint) -> None:
        """Note how far the fit is."""
        self.checkpoint = checkpoint

    def drop_tiles(self, generation: int) -> None:
        """Remove a file that is not needed any more."""

    def clear(self) -> None:
        """Remove everything."""


class TileFolder:
    """Two files of tiles in turn, and a manifest that says which one holds the matrix and how far it is swept.

    Parameters
    ----------
    path : Path
        The folder; made if it is not there.
    matrix : dict
        What the tiles depend on. A folder that was begun with another one is refused.

    Attributes
    ----------
    checkpoint : Checkpoint or None
        The last one; None if there is none yet.
    images : ndarray
        The images of the probes, once there is a checkpoint.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     for done in (1, 2):
    ...         with TileFolder(Path(parent, "tiles"), {"n": 3}) as folder:
    ...             before = folder.checkpoint
    ...             folder.begin(np.ones((3, 4)))
    ...             folder.save(Checkpoint(2, done, 0, ["5f"]))
    ...     before
    Checkpoint(pivot=2, done=1, generation=0, checksums=['5f'])
    """

    def __init__(self, path: Path, matrix: dict[str, Any]) -> None:
        self.path = path.absolute()
        self._matrix = matrix
        self.checkpoint: Checkpoint | None = None
        self._probes = ""
        self._made = not self.path.exists()
        try:
            self.path.mkdir(exist_ok=True)
            foreign = sorted({place.name for place in self.path.iterdir()} - set(_OWN))
            if foreign:
                raise TileFileError(f"{self.path} holds other files, {foreign[0]} for one: name an empty folder")
            self._lock = _lock(self.path)
        except OSError as error:
            if self._made:
                with suppress(OSError):  # it could not be made, or others use it already
                    self.path.rmdir()
            raise _unusable(self.path, error) from None
        try:
            self._read()
        except BaseException:
            os.close(self._lock)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is not None and self.checkpoint is None:  # nothing to resume from
            self.clear()
        os.close(self._lock)

    def open_tiles(self, generation: int, size: int, dtype: DTypeLike) -> TileFile:
        """The file of a generation: new, unless it holds the matrix."""
        place = self.path / _TILES[generation]
        holds = self.checkpoint is not None and self.checkpoint.generation == generation
        try:
            if not holds:
                place.unlink(missing_ok=True)  # a model may be mapped on what is there
            descriptor = os.open(place, os.O_RDWR | (0 if holds else os.O_CREAT | os.O_EXCL), 0o666)
            try:
                if holds and os.fstat(descriptor).st_size != size:
                    raise TileFileError(f"{place} is not of its size, {size:,} bytes: delete the folder to begin again")
                os.truncate(descriptor, size)
            except BaseException:
                os.close(descriptor)
                raise
        except FileNotFoundError:
            raise TileFileError(f"{place} is missing: delete the folder to begin again") from None
        except OSError as error:
            raise _unusable(place, error) from None
        return TileFile(descriptor, str(place), dtype, keeps=True)

    def begin(self, images: NDArray[np.float64]) -> None:
        """Keep the images of the probes, for the check at the end."""
        self.images, self._probes = images, xxhash.xxh3_64_hexdigest(images.data)
        try:
            np.save(self.path / _PROBES, images)
            sync(self.path / _PROBES)
        except OSError as error:
            raise self._unwritten(_PROBES, error) from None

    def save(self, checkpoint: Checkpoint) -> None:
        """Note how far the fit is; what the checkpoint says must be on disk before."""
        content = json.dumps(checkpoint._asdict() | {"matrix": self._matrix, "probes": self._probes})
        manifest = {"deql": "tiles", "version": VERSION, "checksum": _checksum(content), "content": content}
        try:
            replace_file(self.path / MANIFEST, lambda place: place.write_text(json.dumps(manifest)), _NEXT_MANIFEST)
        except OSError as error:
            raise self._unwritten(MANIFEST, error) from None
        self.checkpoint = checkpoint

    def drop_tiles(self, generation: int) -> None:
        """Remove a file that is not needed any more."""
        (self.path / _TILES[generation]).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove all files of the engine, and the folder if it was made for them."""
        _remove_own(self.path, keep_folder=not self._made)

    def damaged(self) -> TileFileError:
        """What to say of a manifest that makes no sense."""
        return TileFileError(f"{self.path / MANIFEST} is damaged: delete the folder to begin again")

    def _unwritten(self, name: str, error: OSError) -> TileFileError:
        return TileFileError(f"{self.path / name} cannot be written: {reason(error)}; {RESUME}")

    def _read(self) -> None:
        """What the manifest says, if there is one, once it is known to be whole and of this fit."""
        place = self.path / MANIFEST
        if not place.exists():
            return
        try:
            manifest = parse_json(place.read_bytes())
            if manifest["version"] != VERSION:
                raise TileFileError(
                    f"{place} is of version {name_some([manifest['version']])}, this library reads {VERSION}: "
                    "name another folder"
                )
            content = parse_json(manifest["content"])
            if manifest["checksum"] != _checksum(manifest["content"]):
                raise ValueError
            matrix, probes = content["matrix"], content["probes"]
            checkpoint = _checked(Checkpoint(*(content[name] for name in Checkpoint._fields)))
        except OSError as error:
            raise _unusable(place, error) from None
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, TileFileError):
                raise
            raise self.damaged() from None
        if matrix != self._matrix:
            raise TileFileError(
                f"{self.path} holds the tiles of another fit, of other data or parameters: "
                "name another folder, or delete it"
            )
        self.checkpoint, self._probes = checkpoint, probes
        self._read_images(self.path / _PROBES)

    def _read_images(self, place: Path) -> None:
        try:
            self.images = np.load(place, allow_pickle=False)
            whole = xxhash.xxh3_64_hexdigest(np.ascontiguousarray(self.images).data) == self._probes
        except Exception:  # a header may be any Python, or of more numbers than there is memory for
            whole = False
        if not whole:
            raise TileFileError(f"{place} is missing or damaged: delete the folder to begin again")


def _checked(found: Checkpoint) -> Checkpoint:
    """Raise ValueError if no fit can have written this."""
    whole = all(type(number) is int for number in found[:3])
    if not whole or found.pivot < 1 or found.done < 0 or found.generation not in (0, 1):
        raise ValueError
    if not isinstance(found.checksums, list) or not all(isinstance(one, str) for one in found.checksums):
        raise ValueError
    return found


def as_path(folder: Any) -> Path:
    """A folder's path; raise ParameterError if it cannot be one.

    Examples
    --------
    >>> as_path("tiles").name
    'tiles'
    """
    if not isinstance(folder, str | os.PathLike) or "\0" in os.fspath(folder):
        raise ParameterError(f"folder must be a path, got {folder!r}", parameter="folder")
    return Path(folder).absolute()


def has_checkpoint(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a checkpoint that a fit can resume from.

    Examples
    --------
    >>> has_checkpoint("/nowhere")
    False
    """
    return Path(folder, MANIFEST).is_file()


def remove_tiles(folder: str | os.PathLike[str], keep_folder: bool = False) -> None:
    """Remove the files of the disk engine from a folder, and the folder if it is then empty and not to be kept.

    Models that were fitted there go on working; other files are left alone.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     with TileFolder(Path(parent, "tiles"), {"n": 3}) as tiles:
    ...         tiles.save(Checkpoint(2, 1, 0, ["5f"]))
    ...     remove_tiles(Path(parent, "tiles"))
    ...     list(Path(parent).iterdir())
    []
    """
    path = Path(folder).absolute()
    if not path.is_dir():
        raise TileFileError(f"there is no folder {path}")
    if not any((path / name).exists() for name in _OWN):
        raise TileFileError(f"{path} holds no tiles")
    try:
        lock = _lock(path)
        try:
            _remove_own(path, keep_folder)
        finally:
            os.close(lock)
    except OSError as error:
        raise _unusable(path, error) from None


def check_room(path: Path, size: int) -> None:
    """Raise TileFileError unless the disk of a folder has room for tiles of ``size`` bytes, less those it has.

    Examples
    --------
    >>> from deql._system.machine import scratch_folder
    >>> check_room(scratch_folder(), 1)
    """
    held = sum((path / name).stat().st_blocks * 512 for name in _TILES if (path / name).exists())
    free = shutil.disk_usage(path).free
    if free < size - held:
        raise TileFileError(
            f"the tiles take {_gib(size - held)} in {path}, where {_gib(free)} are free: "
            "make room, or name a folder on another disk"
        )


def _remove_own(path: Path, keep_folder: bool = False) -> None:
    for name in _OWN:
        (path / name).unlink(missing_ok=True)
    if not keep_folder:
        with suppress(OSError):  # other files are in it
            path.rmdir()


def _gib(size: int) -> str:
    return f"{size / 2**30:,.2f} GiB"


def _checksum(text: str) -> str:
    return xxhash.xxh3_64_hexdigest(text.encode())


def _unusable(place: Path, error: OSError) -> TileFileError:
    return TileFileError(f"{place} cannot be used for tiles: {reason(error)}")


def _lock(path: Path) -> int:
    """Two processes in one folder would overwrite each other's tiles."""
    while True:
        descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        locked = try_lock(descriptor)
        with suppress(FileNotFoundError):
            if locked and os.path.samestat(os.fstat(descriptor), os.stat(path / _LOCK)):
                return descriptor
        os.close(descriptor)
        if not locked:
            raise TileFileError(f"{path} is in use: another process is fitting in it")
        # Its last holder removed it: what was locked is a file that has no name any more.
