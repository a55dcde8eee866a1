"""Salted hashes in place of the ids of users."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deql
from deql.data.changes import Batch, change_data
from deql.data.hashed_users import DIGITS, hash_users, hashed_batch, hashed_interactions, new_salt
from deql.errors import DataError

SALT = bytes(range(16))
ANY_TEXT = st.text(st.characters(), max_size=12)  # with surrogates, as files in other encodings have them


@given(st.lists(ANY_TEXT | st.integers(-(2**63), 2**63 - 1), unique_by=str, min_size=1))
def test_hashes_are_those_of_the_text_and_as_different(ids):
    hashes = hash_users(ids, SALT).tolist()
    for one, other in zip(ids, hashes, strict=True):
        text = str(one).encode("utf-8", "surrogatepass")
        assert other == hashlib.blake2b(text, digest_size=16, key=SALT).hexdigest()
    assert len(set(hashes)) == len(ids)
    assert {len(one) for one in hashes} == {DIGITS}
    assert not set(hashes) & set(hash_users(ids, new_salt()))


@given(st.integers(-(2**53), 2**53))
def test_a_number_is_one_user_however_it_is_held(number):
    ways = [number, str(number), float(number), np.int64(number), np.float64(number)]
    assert len(set(hash_users(ways, SALT))) == 1
    assert hash_users(np.array([number]), SALT)[0] == hash_users([number], SALT)[0]


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_id_is_refused(missing):
    with pytest.raises(DataError, match="a user's id is missing, at place 1"):
        hash_users(["ann", missing], SALT)


def rows_by_user(data):
    """What each user has: item → weight and time."""
    times = np.zeros(data.n_interactions) if data.times is None else data.times
    found = {}
    for user, begin, end in zip(data.users.tolist(), data.matrix.indptr, data.matrix.indptr[1:], strict=False):
        found[user] = [part[begin:end].tolist() for part in (data.items[data.matrix.indices], data.matrix.data, times)]
    return found


@given(st.integers(0, 1000), st.booleans())
def test_users_keep_what_they_have(seed, timed):
    generator = np.random.default_rng(seed)
    data = deql.Interactions.from_csr((generator.random((7, 4)) < 0.4) * generator.random((7, 4)), [*"gbfadec"])
    if timed:
        data = replace(data, times=generator.random(data.n_interactions))
    hashed = hashed_interactions(data, SALT)
    own = rows_by_user(data)
    assert rows_by_user(hashed) == {key: own[user] for user, key in zip(own, hash_users(own, SALT), strict=True)}
    assert hashed.users.tolist() == sorted(hashed.users)  # nothing of the old order is left


def test_users_of_the_same_text_cannot_be_told_apart():
    data = deql.Interactions.from_csr(np.ones((3, 2)), users=[3, "ann", "3"])
    with pytest.raises(DataError, match=r"users (3, '3'|'3', 3) have the same text"):
        hashed_interactions(data, SALT)


def test_a_batch_changes_hashed_data_as_it_does_the_data():
    data = deql.Interactions.from_pairs(list("aabbccd"), list("xyxzyzz"))
    batch = Batch(
        deql.Interactions.from_pairs(["b", "e"], ["y", "w"]), deql.Interactions.from_pairs(["c"], ["y"]), ("a",)
    )
    plain = change_data(data, batch).final
    hashed = change_data(hashed_interactions(data, SALT), hashed_batch(batch, SALT)).final
    assert rows_by_user(hashed) == rows_by_user(hashed_interactions(plain, SALT))


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (Batch(forget_users=("zoe", "a")), "no user 'zoe' to forget"),
        (Batch(removed=deql.Interactions.from_pairs(["a"], ["z"])), "interaction of user 'a' with item 'z'"),
        (Batch(removed=deql.Interactions.from_pairs(["zoe"], ["x"])), "interaction of user 'zoe' with item 'x'"),
        (Batch(deql.Interactions.from_pairs(["a"], ["z"]), forget_users=("a",)), "user 'a' cannot be forgotten and"),
    ],
)
def test_errors_name_the_ids_that_were_given(batch, said):
    data = deql.Interactions.from_pairs(list("aabb"), list("xyxz"))
    with pytest.raises(DataError, match=said):
        change_data(hashed_interactions(data, SALT), hashed_batch(batch, SALT))
