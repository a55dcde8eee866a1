"""Certificates: that users were forgotten, by which update of which model, for whoever wants to check it."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql._system.formatting import as_json, parse_json
from deql._version import __version__
from deql.data import Interactions
from deql.data.hashed_users import hash_users, new_salt
from deql.errors import DataError, reason
from deql.io.atomic import sync, write_whole
from deql.models.update_report import UpdateReport

__all__ = ["Certificate", "Removed", "certify"]

FORMAT_VERSION = 1

_HOW_TO_VERIFY = (
    "Whoever has the model file and the data as they are now, without these users, runs: deql verify CERTIFICATE MODEL "
    "--data FILE. It compares the file's checksum with the one given here as after, looks for the users in the data "
    "that the model keeps, fits the model again on FILE, and compares. The users stand here under salted hashes: "
    "BLAKE2b of 16 bytes, with the salt as its key, of the text of the id that the model has, which is a "
    "hash itself where the model keeps hashes."
)


@dataclass(frozen=True)
class Certificate:
    """That users were forgotten.

    Attributes
    ----------
    model : str
        Its kind.
    parameters : dict
        Its hyper-parameters.
    users : tuple of str
        Salted hashes of the ids, which name nobody and let whoever knows an id find it here.
    salt : str
        Theirs, in hexadecimal digits.
    interactions, items : int
        How many interactions the users had, and with how many items.
    before, after : str
        Checksums of the models: see :meth:`deql.EASE.checksum`.
    method : {"low rank", "refit"}
        How P was changed.
    residual_before, residual : float
        How far P·A was from the identity, and is.
    time : str
        When, in ISO 8601.
    library_version : str
    format_version : int
    how_to_verify : str
    """

    model: str
    parameters: dict[str, Any]
    users: tuple[str, ...]
    salt: str
    interactions: int
    items: int
    before: str
    after: str
    method: str
    residual_before: float
    residual: float
    time: str
    library_version: str = __version__
    format_version: int = FORMAT_VERSION
    how_to_verify: str = _HOW_TO_VERIFY

    def to_json(self) -> str:
        """As JSON, for people too."""
        told = {"deql": "certificate", "format_version": self.format_version} | dataclasses.asdict(self)
        return json.dumps(as_json(told), indent=2, ensure_ascii=False) + "\n"

    def save(self, path: str | os.PathLike[str], before: Callable[[], object] | None = None) -> None:
        """Write it to a file, whole or not at all.

        Parameters
        ----------
        path : str or path
        before : callable, optional
            Called when all is on disk but the name: what saves the model. If it fails there is no certificate, and
            where there is no room for the certificate the model, of which there could never be another, is not saved.
        """

        def write(place: Path) -> None:
            place.write_text(self.to_json(), encoding="utf-8", errors="replace")
            if before is not None:
                sync(place)
                before()

        write_whole(Path(path), write)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Certificate:
        """Read what :meth:`save` wrote; DataError if the file is no certificate."""
        try:
            found = parse_json(Path(path).read_bytes())
        except OSError as error:
            raise DataError(f"the certificate {path} cannot be read: {reason(error)}") from None
        except ValueError as error:
            raise DataError(f"{path} is not a certificate: it is no JSON ({error})") from None
        if not isinstance(found, dict) or found.pop("deql", None) != "certificate":
            raise DataError(f"{path} is not a certificate of deql: give the file that --certificate wrote")
        version = found.get("format_version")
        if not isinstance(version, int) or version > FORMAT_VERSION:
            raise DataError(f"{path} is a certificate of format {version!r}, this is deql {__version__}: update deql")
        try:
            return _checked(found)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"the certificate {path} is damaged: {_words(error)}") from None

    def among(self, keys: Sequence[Any] | NDArray[Any]) -> NDArray[np.bool_]:
        """Which users, by the ids that the model has them under, are those of the certificate.

        Examples
        --------
        >>> import deql
        >>> data = deql.Interactions.from_pairs(list("aabbc"), ["tea", "jam", "tea", "oat", "jam"])
        >>> deql.EASE(l2=1.0).fit(data, keep_data=True).forget("b").among(["a", "b"]).tolist()
        [False, True]
        """
        forgotten = set(self.users)
        return np.array([one in forgotten for one in hash_users(keys, bytes.fromhex(self.salt))], bool)


def _checked(found: dict[str, Any]) -> Certificate:
    """The certificate that JSON says; KeyError, TypeError or ValueError if it says none."""
    kinds: dict[str, Any] = {
        "model": str, "parameters": dict, "salt": str, "interactions": int, "items": int, "before": str, "after": str,
        "method": str, "residual_before": int | float, "residual": int | float, "time": str, "library_version": str,
        "users": list,
    }  # fmt: skip
    for name, kind in kinds.items():
        if not isinstance(found[name], kind) or isinstance(found[name], bool):
            raise ValueError(f"its {name} is {str(found[name])[:40]!r}")
    if not found["users"] or not all(isinstance(user, str) for user in found["users"]):
        raise ValueError("its users are not hashes")
    if not 1 <= len(bytes.fromhex(found["salt"])) <= 64:
        raise ValueError("its salt is too short or too long")
    known = {field.name for field in dataclasses.fields(Certificate)}
    return Certificate(**{name: value for name, value in found.items() if name in known} | {
        "users": tuple(found["users"])
    })  # fmt: skip


def _words(error: Exception) -> str:
    return f"it has no {error.args[0]}" if isinstance(error, KeyError) else str(error)


@dataclass(frozen=True)
class Removed:
    """What goes with users who are forgotten, looked at while it is there.

    Attributes
    ----------
    keys : tuple
        The users, as the model has them.
    interactions, items : int
    """

    keys: tuple[Any, ...]
    interactions: int
    items: int

    @classmethod
    def of(cls, data: Interactions, keys: Iterable[Any]) -> Removed:
        """What users have; those who are not there have nothing."""
        keys = tuple(dict.fromkeys(keys))
        rows = np.array([row for key in keys if (row := data.user_index.get(key)) is not None], np.int64)
        theirs = data.matrix[rows]
        return cls(keys, int(theirs.nnz), len(np.unique(theirs.indices)))


def certify(
    model: str, parameters: dict[str, Any], removed: Removed, report: UpdateReport, before: str, after: str
) -> Certificate:
    """The certificate of an update that forgot users.

    Parameters
    ----------
    model, parameters
        The kind and the hyper-parameters.
    removed : Removed
    report : UpdateReport
    before, after : str
        Checksums.
    """
    salt = new_salt()
    when = datetime.fromtimestamp(report.state.time, UTC).isoformat(timespec="seconds")
    return Certificate(
        model, parameters, tuple(sorted(hash_users(removed.keys, salt))), salt.hex(), removed.interactions,
        removed.items, before, after, report.method, report.residual_before, report.residual, when,
    )  # fmt: skip
