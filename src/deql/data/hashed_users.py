"""Users under a salted hash of their ids: pseudonyms, under which those who know an id still find its user.

Whoever has the salt can hash ids that they guess, and see whether they are there: this is not anonymity.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql.data.changes import Batch
from deql.data.interactions import Interactions, UserId
from deql.errors import DataError, name_some

__all__ = [
    "DIGITS", "SALT_BYTES", "hash_histories", "hash_users", "hashed_batch", "hashed_interactions", "id_text",
    "new_salt", "ordered_hashes",
]  # fmt: skip

SALT_BYTES = 16
_DIGEST_BYTES = 16
DIGITS = 2 * _DIGEST_BYTES
"""How long a hash is, in hexadecimal digits."""

# Of splitmix64, which leaves no two numbers alike.
_STEP, _FIRST, _SECOND = (np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def new_salt() -> bytes:
    """Random bytes that nobody can guess, so that hashes of two models have nothing to do with each other."""
    return secrets.token_bytes(SALT_BYTES)


def id_text(user: UserId) -> str:
    """An id as text: that of a whole number is the same whatever type holds it.

    Examples
    --------
    >>> id_text("ann"), id_text(3), id_text(3.0)  # a gap in a column makes 3.0 of 3
    ('ann', '3', '3')
    """
    if isinstance(user, float | np.floating) and user.is_integer():
        return str(int(user))
    return str(user)


def hash_users(ids: Iterable[UserId], salt: bytes) -> NDArray[Any]:
    """The hash of each id's text, as 32 hexadecimal digits: BLAKE2b with the salt as its key.

    Examples
    --------
    >>> hashes = hash_users(["3", 3, 3.0, "ann"], bytes(16))
    >>> hashes[0] == hashes[1] == hashes[2], hashes[3]
    (True, '3e07cef84bce80c4d34c5897e1fc362a')
    """
    keyed = hashlib.blake2b(key=salt, digest_size=_DIGEST_BYTES)  # which is set up once, and copied for every id
    listed = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
    hashes = np.empty(len(listed), object)
    for place, user in enumerate(listed):
        if user is None or user != user:
            raise DataError(f"a user's id is missing, at place {place:,}: there is nothing to hash")
        own = keyed.copy()
        own.update(id_text(user).encode("utf-8", "surrogatepass"))
        hashes[place] = own.hexdigest()
    return hashes


def hashed_interactions(data: Interactions, salt: bytes) -> Interactions:
    """The same interactions under hashes of the users' ids, and in the order of these: the old order may name users.

    Examples
    --------
    >>> data = hashed_interactions(Interactions.from_pairs(["ann", "ann", "bob"], ["tea", "jam", "tea"]), bytes(16))
    >>> data.history(hash_users(["ann"], bytes(16))[0])
    ['jam', 'tea']
    """
    hashes, order = ordered_hashes(data.users, salt)
    return replace(data.take_users(order), users=hashes)


def ordered_hashes(users: NDArray[Any], salt: bytes) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The hashes of users' ids in ascending order, and the place of each one's user; refused if two are the same.

    Examples
    --------
    >>> ordered_hashes(np.array(["ann", "bob"]), bytes(16))[1].tolist()
    [0, 1]
    """
    hashes = hash_users(users, salt)
    order = np.argsort(hashes, kind="stable")
    twice = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
    if len(twice):
        pair = users[order[twice[0] : twice[0] + 2]].tolist()
        raise DataError(
            f"the users {name_some(pair)} have the same text, and so the same hash: give them different ids"
        )
    return hashes[order], order


def hashed_batch(batch: Batch, salt: bytes) -> Batch:
    """A batch of changes with users under hashes of their ids, which errors still name.

    Examples
    --------
    >>> batch = hashed_batch(Batch(forget_users=("ann",)), bytes(16))
    >>> batch.forget_users, batch.names[batch.forget_users[0]]
    (('3e07cef84bce80c4d34c5897e1fc362a',), 'ann')
    """
    given = list(batch.forget_users)
    for part in (batch.added, batch.removed):
        given += [] if part is None else part.users.tolist()
    return replace(
        batch,
        added=None if batch.added is None else hashed_interactions(batch.added, salt),
        removed=None if batch.removed is None else hashed_interactions(batch.removed, salt),
        forget_users=tuple(hash_users(batch.forget_users, salt)),
        names=dict(zip(hash_users(given, salt).tolist(), given, strict=True)),
    )


def hash_histories(matrix: csr_array, salt: bytes) -> NDArray[np.int64]:
    """A number for each row, the same for the same columns with the same weights in whatever order; 0 for an empty one.

    Examples
    --------
    >>> rows = hash_histories(csr_array(np.array([[1.0, 2.0], [1.0, 2.0], [2.0, 1.0], [0.0, 0.0]])), bytes(16))
    >>> bool(rows[0] == rows[1] != rows[2]), int(rows[3])
    (True, 0)
    """
    key = np.frombuffer(hashlib.blake2b(salt, digest_size=8).digest(), np.uint64)[0]
    with np.errstate(over="ignore"):  # all of it is modulo 2⁶⁴
        mixed = _mix(matrix.indices.astype(np.uint64) + key)
        mixed = _mix(mixed ^ matrix.data.astype(np.float32).view(np.uint32).astype(np.uint64))
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
        return np.asarray(sums[matrix.indptr[1:]] - sums[matrix.indptr[:-1]]).view(np.int64)


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    values = values + _STEP
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    return values ^ (values >> np.uint64(31))
