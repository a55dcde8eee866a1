"""The interactions that a model was fitted on, kept with it: as arrays of a model file, and by user."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.callers import levels_to_the_caller
from deql.data import Interactions
from deql.data.hashed_users import DIGITS, SALT_BYTES, hash_users, hashed_interactions, new_salt
from deql.data.id_arrays import id_array
from deql.data.interactions import UserId, is_frame
from deql.data.matrices import check_compressed, masked, shortest_float
from deql.data.partitions import PartitionedInteractions, TrainingData
from deql.errors import DataError, ModelFileError, ParameterError, Setting, name_some
from deql.io.container import Arrays, pack_text, unpack_text

__all__ = [
    "KeepData", "data_to_keep", "kept_arrays", "kept_salt", "pack_interactions", "pick_users",
    "unpack_interactions",
]  # fmt: skip

KeepData: TypeAlias = bool | Literal["hashed"]
"""Whether a model keeps its data, and if so under the ids of their users or under salted hashes of these."""

_SALT = "users_salt"
_FIELDS = ("interactions_indptr", "interactions_indices", "interactions_weights", "interactions_times")
_NAMES = (*_FIELDS, "users", "users_text", "users_ends", _SALT)


def data_to_keep(data: TrainingData, keep_data: KeepData) -> tuple[Interactions | None, bytes | None]:
    """What a model keeps of its data, and the salt of the hashes that its users are under, if they are.

    Examples
    --------
    >>> data = Interactions.from_pairs(["ann", "bob"], ["tea", "jam"])
    >>> kept, salt = data_to_keep(data, "hashed")
    >>> kept.users.tolist() == sorted(hash_users(["ann", "bob"], salt))
    True
    """
    if keep_data not in (True, False, "hashed"):
        raise ParameterError(
            f"keep_data must be True, False or 'hashed', got {name_some([keep_data])}", parameter="keep_data"
        )
    if not keep_data:
        return None, None
    if isinstance(data, PartitionedInteractions):
        raise ParameterError(
            "partitions stay where they are and are not kept in a model: leave ",
            Setting("keep_data", noun="keep_data"),
            " out, or fit on data.to_interactions()",
            parameter="keep_data",
        )
    if keep_data != "hashed":
        return data, None
    salt = new_salt()
    return hashed_interactions(data, salt), salt


def pack_interactions(data: Interactions, salt: bytes | None = None) -> Arrays:
    """Interactions without their items, which the model has: rows, columns, weights unless all are 1, times, users.

    Parameters
    ----------
    data : Interactions
    salt : bytes, optional
        That of the hashes which its users are.

    Examples
    --------
    >>> sorted(pack_interactions(Interactions.from_pairs([1, 2], ["tea", "jam"])))
    ['interactions_indices', 'interactions_indptr', 'users']
    """
    matrix = data.matrix
    try:
        arrays = pack_text("users", data.users)
    except TypeError:
        raise ModelFileError("a model can be saved with its data only if user ids are integers or text") from None
    arrays |= {"interactions_indptr": matrix.indptr, "interactions_indices": matrix.indices}
    if salt is not None:
        arrays[_SALT] = np.frombuffer(salt, np.uint8)
    if (matrix.data != 1).any():
        arrays["interactions_weights"] = shortest_float(matrix.data)
    if data.times is None:
        return arrays
    if not np.isfinite(data.times).all():
        raise ModelFileError("a model can be saved with its data only if all their times are finite")
    return arrays | {"interactions_times": data.times}


def kept_arrays(arrays: Arrays) -> Arrays | None:
    """Those of a model file's arrays that hold its interactions; None if it has none."""
    return {name: arrays[name] for name in _NAMES if name in arrays} if _FIELDS[0] in arrays else None


def kept_salt(arrays: Arrays) -> bytes | None:
    """The salt of the hashes that the users of a model file are; ValueError if it is not one."""
    salt = arrays.get(_SALT)
    if salt is not None and (salt.dtype != np.uint8 or salt.shape != (SALT_BYTES,) or _FIELDS[0] not in arrays):
        raise ValueError(f"the salt of its users is not {SALT_BYTES} bytes beside its data")
    return None if salt is None else salt.tobytes()


def unpack_interactions(
    arrays: Arrays, items: NDArray[Any], titles: NDArray[Any] | None, item_counts: NDArray[np.int64], n_users: int
) -> Interactions:
    """What :func:`pack_interactions` packed, in memory of its own; ModelFileError if it is not of this model.

    Parameters
    ----------
    arrays : dict of ndarray
    items, titles
        The model's.
    item_counts : ndarray of int64
        How many users have each item, as the model counted them.
    n_users : int
    """
    try:
        users = unpack_text("users", arrays)
        indptr, indices = (np.array(arrays[name]) for name in _FIELDS[:2])
        weights = np.array(arrays[_FIELDS[2]]) if _FIELDS[2] in arrays else np.ones(len(indices), np.float32)
        times = np.array(arrays[_FIELDS[3]]) if _FIELDS[3] in arrays else None
        if len(users) != n_users or len(set(users.tolist())) != n_users:
            raise ValueError("the ids of its users are not one for each")
        if _SALT in arrays and not all(isinstance(user, str) and len(user) == DIGITS for user in users.tolist()):
            raise ValueError("its users are not all hashes, though it has their salt")
        if weights.dtype.kind != "f" or not np.isfinite(weights).all():
            raise ValueError("its weights are not all finite numbers")
        if times is not None and (times.dtype != np.float64 or times.shape != indices.shape):
            raise ValueError("its times are not one for each interaction")
        if times is not None and not np.isfinite(times).all():
            raise ValueError("its times are not all finite numbers")
        matrix = csr_array((weights, indices, indptr), shape=(n_users, len(items)))
        check_compressed(matrix)
        if not matrix.has_canonical_format:
            raise ValueError("a user has an item twice, or items out of order")
        if not np.array_equal(np.bincount(indices, minlength=len(items)), item_counts):
            raise ValueError("its items have other numbers of users than the model counted")
        return Interactions(matrix, users, items, times, titles)
    except KeyError as error:
        raise ModelFileError(f"the data kept with this model are damaged: there is no {error.args[0]}") from None
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"the data kept with this model are damaged: {error}") from None


def pick_users(
    data: Interactions, users: Iterable[UserId], strict: bool, salt: bytes | None = None
) -> tuple[csr_array, NDArray[Any]]:
    """The rows of users by id, in the order asked for, and their ids; a user without data has an empty row.

    Parameters
    ----------
    data : Interactions
    users : iterable of ids
    strict : bool
        Whether users without data are an error; else they are told.
    salt : bytes, optional
        That of the hashes which the data have in place of ids; users are asked for, and returned, by their ids.

    Examples
    --------
    >>> data = Interactions.from_pairs(["ann", "ann", "bob"], ["tea", "jam", "tea"])
    >>> matrix, ids = pick_users(data, ["bob", "ann"], strict=True)
    >>> matrix.toarray().tolist(), ids.tolist()
    ([[0.0, 1.0], [1.0, 1.0]], ['bob', 'ann'])
    """
    if is_frame(users):
        raise ParameterError(
            "users must be a list of user ids, got a frame: give its column of users", parameter="users"
        )
    if isinstance(users, str | bytes) or not isinstance(users, Iterable):
        raise ParameterError(f"users must be a list of user ids, got {name_some([users])}", parameter="users")
    listed: list[Any] = list(users)
    given = id_array(listed).tolist()
    try:
        rows = _rows_of(data, given)
    except TypeError:
        raise ParameterError("a user id must be a single value, such as a number or text", parameter="users") from None
    asked = _as_asked(data, given, rows)
    if salt is not None:
        rows = _rows_of(data, hash_users(asked, salt).tolist())
    known = rows >= 0
    if not known.all():
        _tell_unknown(data, list(dict.fromkeys(asked[~known].tolist())), strict, hashed=salt is not None)
    if not known.any():
        return csr_array((len(rows), data.n_items), dtype=data.matrix.dtype), asked
    matrix = csr_array(data.matrix[np.maximum(rows, 0)])
    return matrix if known.all() else masked(matrix, np.repeat(known, np.diff(matrix.indptr))), asked


def _rows_of(data: Interactions, users: list[Any]) -> NDArray[np.int64]:
    """The row of each user; -1 for those that there are no data on."""
    return np.array([data.user_index.get(user, -1) for user in users], np.int64)


def _as_asked(data: Interactions, given: list[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    """The ids as the data have them, so that 3.0, which a gap made of 3, is 3; those that they do not have as given."""
    own = data.users[np.maximum(rows, 0)].tolist() if data.n_users else given
    asked = [
        mine if row >= 0 else int(user) if isinstance(user, float) and user.is_integer() else user
        for user, row, mine in zip(given, rows.tolist(), own, strict=True)
    ]
    kinds = {"text" if isinstance(user, str) else type(user).__name__ for user in asked}
    if len(kinds) > 1 or any(user is None or user != user for user in asked):
        raise ParameterError(
            f"users must be whole numbers or text, all of one kind and none missing, got {' and '.join(sorted(kinds))}",
            parameter="users",
        )
    return id_array(asked)


def _tell_unknown(data: Interactions, unknown: list[Any], strict: bool, hashed: bool) -> None:
    text = data.users.dtype == object
    other = [user for user in unknown if isinstance(user, str) != text and not hashed]
    hint = f"; ids of users are {'text' if text else 'whole numbers'} in these data" if other else ""
    if strict:
        raise DataError(f"there are no data on the users {name_some(unknown)}{hint}")
    several = f"{len(unknown):,} users get" if len(unknown) > 1 else "1 user gets"
    warnings.warn(
        f"{several} the popularity order, for want of data: {name_some(unknown)}{hint}",
        stacklevel=levels_to_the_caller(),
    )
