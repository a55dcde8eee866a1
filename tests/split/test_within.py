from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, vstack

from deql import Interactions
from deql.errors import DataError, ParameterError
from deql.split import split_leave_last, split_weak
from tests.split.common import cells, fingerprint, parts, tables

SHARES = st.sampled_from([0.1, 0.2, 0.35, 0.5, 0.9])


@pytest.fixture(scope="module")
def patterned():
    """Twenty users with four to twelve of twelve items, from a formula rather than a generator."""
    pairs = [(f"u{u:02}", f"i{i:02}") for u in range(20) for i in range(12) if (7 * u + 5 * i + u * i) % 12 < 5]
    return Interactions.from_pairs(*zip(*pairs, strict=True))


def sizes(data):
    return dict(zip(data.users.tolist(), np.diff(data.matrix.indptr).tolist(), strict=True))


def assert_honest(data, split):
    """No leak, nothing lost without being counted, and the same items everywhere."""
    train, test = cells(split.train), cells(split.test.held_out)
    validation = set() if split.validation is None else cells(split.validation.held_out)
    assert not train & test
    assert not train & validation
    assert not validation & test
    everything = train | validation | test
    assert everything <= cells(data)
    assert len(everything) == data.n_interactions - split.dropped["interactions"]
    known = {item for _, item, _ in train}
    assert {cell for cell in cells(data) if cell[1] in known} == everything
    assert split.train.users.tolist() == data.users.tolist()
    assert split.train.items.tolist() == sorted(known)
    assert split.dropped["items"] == data.n_items - len(known)
    assert split.dropped["users"] == data.n_users - split.test.seen.n_users
    for part in parts(split):
        assert part.items.tolist() == split.train.items.tolist()
        assert part.titles.tolist() == [f"title {item}" for item in part.items.tolist()]
        assert part.steps == data.steps
    for judged, seen in ((split.test, train | validation), (split.validation, train)):
        if judged is not None:
            users = set(judged.seen.users.tolist())
            assert judged.seen.users.tolist() == judged.held_out.users.tolist()
            assert min(sizes(judged.held_out).values(), default=1) > 0
            assert cells(judged.seen) == {cell for cell in seen if cell[0] in users}


def attempt(protocol, *arguments):
    """The split, or None where the protocol says that there is too little data."""
    try:
        return protocol(*arguments)
    except DataError as error:
        message = str(error)
    assert "cannot be split" in message
    return None


class TestWeak:
    @given(tables(), SHARES, st.sampled_from([0, 0.1, 0.5]), st.integers(0, 99))
    def test_is_honest(self, data, held_out, validation, seed):
        split = attempt(split_weak, data, held_out, validation, seed)
        if split is None:
            return
        assert_honest(data, split)
        assert (split.validation is None) == (validation == 0)
        assert (split.protocol, split.seed) == ("weak", seed)
        assert split.parameters == {"held_out": held_out, "validation": validation}

    @given(tables(), SHARES, SHARES)
    def test_shares_are_as_asked(self, data, held_out, validation):
        # Every item once more, by a user who has only that: then train has all items and nothing is dropped.
        solo = np.eye(data.n_items, dtype=np.float32)
        whole = Interactions.from_csr(np.vstack([data.matrix.toarray(), solo]))
        split = split_weak(whole, held_out, validation)
        assert split.dropped["items"] == split.dropped["interactions"] == 0
        tested, validated = sizes(split.test.held_out), sizes(split.validation.held_out)
        for user, size in sizes(whole).items():
            hidden = int(np.clip(np.round(held_out * size), 1, size - 1)) if size > 1 else 0
            rest = size - hidden
            also = int(np.clip(np.round(validation * rest), 1, rest - 1)) if rest > 1 else 0
            assert (tested.get(user, 0), validated.get(user, 0)) == (hidden, also)

    def test_the_same_seed_gives_the_same_split_and_another_seed_another(self, patterned):
        prints = [fingerprint(split_weak(patterned, seed=seed)) for seed in (0, 0, 1, 2)]
        assert prints[0] == prints[1]
        assert len(set(prints)) == 3

    def test_the_split_of_seed_0_never_changes(self, patterned):
        split = split_weak(patterned)
        assert [(user, item) for user, item, _ in sorted(cells(split.validation.held_out))][:4] == [
            ("u00", "i00"), ("u01", "i01"), ("u02", "i10"), ("u03", "i11"),
        ]  # fmt: skip
        assert fingerprint(split) == "6e02c530439a2c28ef4286c3edb3baa757f94c62bd1ff0752c92c96a82686178"

    def test_users_with_one_interaction_stay_in_train(self, patterned):
        alone = csr_array(np.eye(1, patterned.n_items, dtype=np.float32))
        data = Interactions.from_csr(vstack([patterned.matrix, alone]), users=[*patterned.users, "zoe"])
        for seed in range(5):
            split = split_weak(data, seed=seed)
            assert "zoe" not in split.test.seen.users.tolist() + split.validation.seen.users.tolist()
            assert len(split.train.history("zoe")) == 1
            assert split.dropped["users"] >= 1

    def test_items_that_only_the_held_out_have_are_dropped_and_counted(self):
        """Own items are in one part only: whichever part, train cannot know those of the test."""
        pairs = [(f"u{u}", item) for u in range(10) for item in (f"own{u}", "s", "t")]
        data = Interactions.from_pairs(*zip(*pairs, strict=True))
        split = split_weak(data, held_out=0.34, validation=0)
        lost = split.dropped["items"]
        assert 0 < lost < 10
        assert split.dropped == {"items": lost, "interactions": lost, "users": lost}
        assert split.train.n_items == 12 - lost
        assert split.test.seen.n_users == 10 - lost

    def test_nothing_to_hold_out(self):
        with pytest.raises(DataError, match="2 users with 2 interactions cannot be split"):
            split_weak(Interactions.from_pairs(["a", "b"], ["tea", "jam"]))

    @pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, np.nan, True, "half"])
    @pytest.mark.parametrize("name", ["held_out", "validation"])
    def test_shares_must_lie_between_0_and_1(self, patterned, name, share):
        if name == "validation" and share == 0:
            assert split_weak(patterned, validation=0).validation is None
            return
        with pytest.raises(ParameterError, match=f"{name} must be a share between 0 and 1"):
            split_weak(patterned, **{name: share})

    @pytest.mark.parametrize("seed", [-1, 0.5, "zero", True])
    def test_a_seed_is_a_whole_number_from_0_up(self, patterned, seed):
        with pytest.raises(ParameterError, match="seed"):
            split_weak(patterned, seed=seed)


class TestLeaveLast:
    @given(tables(), st.integers(1, 2), st.integers(0, 2))
    def test_is_honest_and_takes_the_last(self, data, test, validation):
        split = attempt(split_leave_last, data, test, validation)
        if split is None:
            return
        assert_honest(data, split)
        assert (split.protocol, split.seed) == ("leave-last", None)
        assert split.parameters == {"test": test, "validation": validation}
        known = set(split.train.items.tolist())
        for row, user in enumerate(data.users.tolist()):
            start, stop = data.matrix.indptr[row : row + 2]
            items = data.items[data.matrix.indices[start:stop]].tolist()
            in_time = [item for _, item in sorted(zip(data.times[start:stop].tolist(), items, strict=True))]
            if len(in_time) <= test + validation:
                last, before = [], []
            else:
                last, before = in_time[-test:], in_time[-test - validation : -test]
            for part, expected in ((split.test, last), (split.validation, before)):
                if part is not None:
                    found = part.held_out.history(user) if user in part.held_out.users.tolist() else []
                    assert found == sorted(item for item in expected if item in known)

    def test_times_go_with_their_interactions(self):
        data = Interactions.from_pairs(list("aaabbb"), ["egg", "jam", "tea", "egg", "jam", "tea"])
        split = split_leave_last(replace(data, times=np.array([5.0, 9.0, 7.0, 2.0, 1.0, 3.0])))
        # Ann: egg, tea, jam in time; Bob: jam, egg, tea. Train knows egg (Ann) and jam (Bob).
        assert split.train.items.tolist() == ["egg", "jam"]
        assert split.train.times.tolist() == [5.0, 1.0]
        assert split.validation.held_out.users.tolist() == ["b"]
        assert split.validation.held_out.times.tolist() == [2.0]
        assert split.test.held_out.users.tolist() == ["a"]
        assert split.test.held_out.times.tolist() == [9.0]
        assert split.test.seen.times.tolist() == [5.0]
        assert split.dropped == {"items": 1, "interactions": 2, "users": 1}

    def test_the_later_item_counts_as_later_at_the_same_time(self):
        data = Interactions.from_pairs(list("aabb"), ["jam", "tea", "jam", "tea"])
        data = replace(data, times=np.array([1.0, 1.0, 2.0, 1.0]))
        split = split_leave_last(data, validation=0)
        assert split.test.held_out.history("a") == ["tea"]
        assert split.test.held_out.history("b") == ["jam"]

    def test_without_times(self, patterned):
        with pytest.raises(DataError, match="say time=… with that column when reading"):
            split_leave_last(patterned)

    def test_a_time_that_is_missing(self, patterned):
        times = np.arange(patterned.n_interactions, dtype=float)
        times[3] = np.nan
        with pytest.raises(DataError, match="a time for every interaction"):
            split_leave_last(replace(patterned, times=times))

    @pytest.mark.parametrize(
        ("name", "count"), [("test", 0), ("test", 1.0), ("test", True), ("validation", -1), ("validation", "one")]
    )
    def test_counts_are_whole_numbers(self, patterned, name, count):
        with pytest.raises(ParameterError, match=f"{name} must be a whole number"):
            split_leave_last(patterned, **{name: count})

    def test_more_than_anybody_has(self, patterned):
        data = replace(patterned, times=np.zeros(patterned.n_interactions))
        with pytest.raises(DataError, match="cannot be split: users have too few"):
            split_leave_last(data, test=12)
