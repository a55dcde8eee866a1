import numpy as np
import pytest

from deql import Interactions, split_strong
from deql.errors import DataError, ParameterError
from tests.split.common import cells, fingerprint, parts

SHARES = {"test_users": 0.2, "validation_users": 0.1, "held_out": 0.3}


@pytest.fixture(scope="module")
def data(random_matrix):
    return Interactions.from_csr(random_matrix(60, 25, weighted=True), users=[f"u{u:02}" for u in range(60)])


@pytest.fixture(scope="module")
def patterned():
    """Twenty users with four to twelve of twelve items, from a formula rather than a generator."""
    pairs = [(f"u{u:02}", f"i{i:02}") for u in range(20) for i in range(12) if (7 * u + 5 * i + u * i) % 12 < 5]
    return Interactions.from_pairs(*zip(*pairs, strict=True))


def test_users_are_in_one_part_only(data):
    split = split_strong(data, **SHARES)
    users = [user for part in (split.train, split.validation.seen, split.test.seen) for user in part.users.tolist()]
    assert len(users) == len(set(users)) == 60 - split.dropped["users"]
    assert split.train.n_users == 60 - 12 - 6
    assert set(users) <= set(data.users.tolist())


def test_train_is_all_that_its_users_have(data):
    train = split_strong(data, **SHARES).train
    users = set(train.users.tolist())
    assert cells(train) == {cell for cell in cells(data) if cell[0] in users}


def test_seen_and_held_out_are_disjoint_and_together_what_the_user_has(data):
    split = split_strong(data, **SHARES)
    known = set(split.train.items.tolist())
    for part in (split.validation, split.test):
        assert part.seen.users.tolist() == part.held_out.users.tolist()
        users = set(part.seen.users.tolist())
        seen, hidden = cells(part.seen), cells(part.held_out)
        assert not seen & hidden
        assert seen | hidden == {cell for cell in cells(data) if cell[0] in users and cell[1] in known}


@pytest.mark.parametrize("held_out", [0.001, 0.3, 0.5, 0.999])
def test_a_share_is_held_out_but_never_nothing_and_never_all(data, held_out):
    split = split_strong(data, 0.3, 0.3, held_out=held_out)
    for part in (split.validation, split.test):
        seen, hidden = (np.diff(p.matrix.indptr) for p in (part.seen, part.held_out))
        assert len(seen) > 10
        assert hidden.tolist() == np.clip(np.round(held_out * (seen + hidden)), 1, seen + hidden - 1).tolist()


def test_all_parts_have_the_items_of_train_in_its_order(data):
    split = split_strong(data, **SHARES)
    for part in parts(split):
        assert part.items.tolist() == split.train.items.tolist()
        for row in np.split(part.matrix.indices, part.matrix.indptr[1:-1]):
            assert (np.diff(row) > 0).all()
    assert np.bincount(split.train.matrix.indices, minlength=split.train.n_items).min() > 0


def with_own_items(shared):
    """Ten users: each has an item that nobody else has, and those of ``shared(u)``."""
    pairs = [(f"u{u}", item) for u in range(10) for item in [f"own{u}", *shared(u)]]
    return Interactions.from_pairs(*zip(*pairs, strict=True))


def test_items_unknown_to_train_are_dropped_and_counted():
    """A judged user's own item is unknown to train; two shared ones are left to see and to find."""
    split = split_strong(with_own_items(lambda u: ["s", "t"]))
    assert split.dropped == {"items": 2, "interactions": 2, "users": 0}
    assert split.train.n_items == 10
    assert split.test.seen.n_users == split.validation.seen.n_users == 1


def test_users_with_one_item_left_are_dropped_and_counted():
    """With one shared item nothing can be both seen and found: users of odd number go if they are judged."""
    split = split_strong(with_own_items(lambda u: ["s"] if u % 2 else ["s", "t"]), 0.3, 0.3)
    judged = {f"u{u}" for u in range(10)} - set(split.train.users)
    odd = {user for user in judged if int(user[1:]) % 2}
    assert odd
    assert split.dropped["users"] == len(odd)
    assert set(split.test.seen.users) | set(split.validation.seen.users) == judged - odd


def test_nobody_left_to_judge_is_an_error():
    with pytest.raises(DataError, match="no test user has two items that train has too"):
        split_strong(with_own_items(lambda u: ["s"]))


def test_the_same_seed_gives_the_same_split_and_another_seed_another(data):
    prints = [fingerprint(split_strong(data, **SHARES, seed=seed)) for seed in (0, 0, 1, 2)]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3
    assert fingerprint(split_strong(data, **SHARES)) == prints[0]


def test_the_split_of_seed_0_never_changes(patterned):
    split = split_strong(patterned, test_users=0.2, validation_users=0.1, held_out=0.3)
    assert [(user, item) for user, item, _ in sorted(cells(split.test.held_out))] == [
        ("u02", "i00"), ("u02", "i02"), ("u03", "i02"), ("u11", "i11"), ("u13", "i05"), ("u13", "i07"),
    ]  # fmt: skip
    assert fingerprint(split) == "358cd912ec24efadb7a79bb0323529e1fe1d2e8647f2d8df139b29717d37c2a7"


def test_the_data_is_not_changed(data):
    before = data.matrix.copy()
    split_strong(data, **SHARES)
    assert (data.matrix != before).nnz == 0


def test_the_split_says_what_was_asked(data):
    split = split_strong(data, **SHARES, seed=np.int64(3))
    assert (split.protocol, split.seed, split.parameters) == ("strong", 3, SHARES)
    assert split.describe() == (
        "strong split, test_users=0.2, validation_users=0.1, held_out=0.3, seed 3: "
        f"42 users × {split.train.n_items} items to train on, "
        f"{split.validation.seen.n_users} users to validate and {split.test.seen.n_users} to test on; "
        f"dropped: {split.dropped['items']} items, {split.dropped['interactions']} interactions, "
        f"{split.dropped['users']} users"
    )
    assert [row["part"] for row in split.sizes()] == ["train", "validation", "test"]
    assert [row["held_out"] for row in split.sizes()] == [
        None, split.validation.held_out.n_interactions, split.test.held_out.n_interactions,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "share"),
    [(name, share) for name in SHARES for share in (0, 1, -0.1, 1.5, np.nan, True)
     if (name, share) != ("validation_users", 0)],
)  # fmt: skip
def test_shares_must_lie_between_0_and_1(data, name, share):
    with pytest.raises(ParameterError, match=f"{name} must be a share between 0 and 1"):
        split_strong(data, **{name: share})


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.9, 0.2), (0.001, 0.1), (0.1, 0.001)])
def test_shares_that_leave_a_part_without_users(data, shares):
    with pytest.raises(DataError, match="60 users cannot be split"):
        split_strong(data, *shares)


@pytest.mark.parametrize("seed", [-1, 0.5, "zero"])
def test_a_seed_is_a_whole_number_from_0_up(data, seed):
    with pytest.raises(ParameterError, match="seed"):
        split_strong(data, seed=seed)
