"""Whom a network was trained on, and by which histories: hashes alone, so that a file names nobody."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql.data.hashed_users import SALT_BYTES, hash_histories, hash_users, ordered_hashes
from deql.data.interactions import UserId
from deql.io.container import pack_text, unpack_text

__all__ = ["KnownUsers"]

_USERS, _DIGESTS, _SALT = "own_users", "own_histories", "own_salt"
"""Names of the arrays in a model file."""


@dataclass(frozen=True, eq=False)
class KnownUsers:
    """Users of the training data.

    Attributes
    ----------
    hashes : ndarray of str
        Of their ids.
    histories : ndarray of int64
        A digest of what each one had.
    salt : bytes
        Of both.
    """

    hashes: NDArray[Any]
    histories: NDArray[np.int64]
    salt: bytes

    @classmethod
    def of(cls, users: NDArray[Any], matrix: csr_array, salt: bytes) -> Self:
        """Users by their ids, and their rows; kept in the order of the hashes, as the order of data may name users."""
        hashes, order = ordered_hashes(users, salt)
        return cls(hashes, hash_histories(matrix, salt)[order], salt)

    def find(self, users: Iterable[UserId], matrix: csr_array) -> NDArray[np.int64]:
        """The place of each of some users with these rows; -1 for who is not known, or has another history."""
        listed: list[Any] = np.asarray(users).tolist()
        places = np.array([self._index.get(user, -1) for user in listed], np.int64)  # hashes, of data kept so
        others = np.flatnonzero(places < 0)
        hashes = hash_users([listed[place] for place in others.tolist()], self.salt)
        places[others] = [self._index.get(user, -1) for user in hashes.tolist()]
        changed = np.ones(len(places), bool)
        known = places >= 0
        changed[known] = hash_histories(matrix, self.salt)[known] != self.histories[places[known]]
        places[changed] = -1
        return places

    @cached_property
    def _index(self) -> dict[str, int]:
        return {user: place for place, user in enumerate(self.hashes.tolist())}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a model file keeps."""
        return pack_text(_USERS, self.hashes) | {_DIGESTS: self.histories, _SALT: np.frombuffer(self.salt, np.uint8)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Self:
        """The same from a file; ValueError if that is damaged."""
        hashes, histories, salt = unpack_text(_USERS, arrays), arrays[_DIGESTS], arrays[_SALT]
        if histories.dtype != np.int64 or histories.shape != (len(hashes),):
            raise ValueError("its users and their histories differ in number")
        if salt.dtype != np.uint8 or salt.shape != (SALT_BYTES,):
            raise ValueError(f"the salt of its users is not {SALT_BYTES} bytes")
        return cls(hashes, np.array(histories), salt.tobytes())
