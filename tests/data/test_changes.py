"""What a batch makes of interactions, in all the ways that people can ask for it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import deql
from deql.data.changes import Batch, add_users, change_data
from deql.errors import DataError

pairs_of = deql.Interactions.from_pairs


def table(data):
    """{(user, item): value}."""
    rows, columns = data.matrix.tocoo().coords
    return dict(
        zip(
            zip(data.users[rows].tolist(), data.items[columns].tolist(), strict=True), data.matrix.data.tolist(),
            strict=True,
        )
    )  # fmt: skip


@pytest.fixture
def data():
    return pairs_of(["ann", "ann", "bob", "cid"], ["jam", "tea", "tea", "oat"], [1, 2, 3, 4])


@st.composite
def two_tables(draw):
    """Weighted tables on some of the same users and items, with times."""
    made = []
    for _ in range(2):
        pairs = draw(
            st.lists(
                st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from([1.0, 0.5, -1.0, 2.5])),
                min_size=1, max_size=12, unique_by=lambda pair: pair[:2],
            )
        )  # fmt: skip
        one = pairs_of(*zip(*pairs, strict=True))
        when = draw(st.lists(st.integers(-3, 3), min_size=len(pairs), max_size=len(pairs)))
        made.append(replace(one, times=np.array(when, float)[: one.n_interactions]))
    return made


@settings(max_examples=80, deadline=None)
@given(two_tables(), st.booleans(), st.booleans())
def test_what_comes_adds_up_as_tables_that_are_joined(tables, binary, timed):
    if binary:
        tables = [replace(one, matrix=csr_array(one.matrix != 0, dtype=np.float32)) for one in tables]
    if not timed:
        tables = [replace(one, times=None) for one in tables]
    old, come = tables
    joined = deql.join(old, come)
    final = change_data(old, Batch(come)).final
    assert table(final) == table(joined)
    assert final.items[: old.n_items].tolist() == old.items.tolist()
    assert final.matrix.has_canonical_format
    if timed:
        by_pair = [
            replace(one, matrix=csr_array((one.times + 10, one.matrix.indices, one.matrix.indptr), one.shape))
            for one in (final, joined)
        ]
        assert table(by_pair[0]) == table(by_pair[1])
    back = change_data(final, Batch(removed=come.keep(np.array([pair in table(final) for pair in table(come)])))).final
    assert table(back) == {pair: value for pair, value in table(old).items() if pair not in table(come)}


def test_rows_of_before_and_after_are_those_of_users_who_change(data):
    more = pairs_of(["bob", "dee"], ["jam", "egg"])
    change = change_data(data, Batch(more, forget_users=("cid",), retire_items=("oat",)))
    assert change.items.tolist() == ["jam", "tea", "egg"]
    assert change.before.users.tolist() == change.after.users.tolist() == ["bob", "cid", "dee"]
    assert change.before.matrix.toarray().tolist() == [[0, 3, 0], [0, 0, 0], [0, 0, 0]]
    assert change.after.matrix.toarray().tolist() == [[1, 3, 0], [0, 0, 0], [0, 0, 1]]
    assert change.sizes_before.tolist() == [1, 1, 0]  # cid's oat counts, though its column is gone
    assert change.sizes_after.tolist() == [2, 0, 1]
    assert change.final.users.tolist() == ["ann", "bob", "dee"]
    counted = change.n_added, change.n_removed, change.n_new_users, change.n_changed_users, change.n_forgotten_users
    assert counted == (2, 1, 1, 1, 1)


def test_a_pair_that_goes_and_comes_is_replaced(data):
    one = pairs_of(["ann"], ["tea"], [5])
    assert table(change_data(data, Batch(one, one)).final)["ann", "tea"] == 5
    assert table(change_data(data, Batch(one)).final)["ann", "tea"] == 7


def test_weights_that_add_up_to_nothing_are_gone_and_so_is_who_had_no_others(data):
    change = change_data(data, Batch(pairs_of(["cid"], ["oat"], [-4])))
    assert change.final.users.tolist() == ["ann", "bob"]
    assert change.final.items.tolist() == ["jam", "oat", "tea"]  # which is retired only if that is asked for
    assert change.n_forgotten_users == 1


def test_users_without_anything_stay_unless_they_change():
    data = deql.Interactions.from_csr(csr_array([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]))
    assert change_data(data, Batch(forget_users=(2,))).final.users.tolist() == [0, 1]
    assert change_data(data, Batch(forget_users=(1, 1))).final.users.tolist() == [0, 2]
    assert change_data(data, Batch(pairs_of([1], [0]))).final.matrix.toarray().tolist() == [[1, 0], [1, 0], [1, 1]]


def test_users_and_items_of_a_batch_that_have_nothing_do_not_come(data):
    wide = deql.Interactions.from_csr(csr_array([[1.0, 0.0], [0.0, 0.0]]), users=["dee", "eve"], items=["tea", "egg"])
    change = change_data(data, Batch(wide))
    assert (change.n_new_users, change.n_new_items) == (1, 0)


def test_nothing_asked_for_changes_nothing(data):
    none = pairs_of(["ann"], ["tea"]).keep(np.array([False]))
    for batch in (Batch(), Batch(none, none)):
        assert not batch
        change = change_data(data, batch)
        assert table(change.final) == table(data)
        assert not change.before.n_users
        assert not change.n_removed


def test_titles_come_with_new_items_and_stay_with_old_ones(data):
    titled = replace(data, titles=np.array(["Jam", "Oats", "Tea"], object))
    more = replace(pairs_of(["ann", "ann"], ["egg", "tea"]), titles=np.array(["Egg", "Other tea"], object))
    assert change_data(titled, Batch(more)).titles.tolist() == ["Jam", "Oats", "Tea", "Egg"]
    assert change_data(titled, Batch(replace(more, titles=None))).titles.tolist() == ["Jam", "Oats", "Tea", "egg"]
    assert change_data(data, Batch(more)).titles.tolist() == ["jam", "oat", "Other tea", "Egg"]


def test_places_in_a_file_are_those_of_no_file_afterwards(data):
    ordered = replace(data, order=np.arange(4))
    assert change_data(ordered, Batch(pairs_of(["ann"], ["egg"]))).final.order is None


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (Batch(forget_users=("dee",)), "there is no user 'dee' to forget: nothing was changed"),
        (Batch(forget_users=("dee", "ann", "eve")), "there are no users 'dee', 'eve' to forget"),
        (Batch(forget_users=(7,)), "there is no user 7 to forget"),
        (Batch(retire_items=("egg",)), "there is no item 'egg' to retire"),
        (Batch(removed=pairs_of(["ann"], ["oat"])), "no interaction of user 'ann' with item 'oat' to remove: nothing"),
        (Batch(removed=pairs_of(["dee"], ["tea"])), "no interaction of user 'dee' with item 'tea' to remove: nothing"),
        (Batch(removed=pairs_of(["ann", "ann", "bob"], ["tea", "oat", "jam"])), "nor 1 more of the 3 pairs"),
        (Batch(removed=pairs_of([1], ["tea"])), "ids of users are text in the data and whole numbers in what is to be"),
        (Batch(pairs_of([1], ["tea"])), "ids of users are text in the data and whole numbers in what is added"),
        (Batch(pairs_of(["ann"], [3])), "ids of items are text in the data and whole numbers in what is added"),
        (Batch(pairs_of(["ann"], ["egg"]), forget_users=("ann",)), "user 'ann' cannot be forgotten and added to"),
        (Batch(pairs_of(["ann"], ["tea"]), retire_items=("tea",)), "item 'tea' cannot be retired and added to"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_in_a_sentence(data, batch, said):
    with pytest.raises(DataError, match=said):
        change_data(data, batch)


def test_times_are_asked_for_where_the_data_have_them(data):
    timed = replace(data, times=np.arange(4.0))
    with pytest.raises(DataError, match="the data have times and what is added has none"):
        change_data(timed, Batch(pairs_of(["ann"], ["egg"])))
    late = replace(pairs_of(["ann"], ["tea"]), times=np.array([9.0]))
    assert change_data(timed, Batch(late)).final.times.tolist() == [0, 9, 2, 3]
    assert change_data(data, Batch(late)).final.times is None


def test_new_users_are_all_that_comes_where_the_data_are_not_known():
    more = replace(pairs_of([7, 8], ["tea", "egg"], [2, 1]), times=np.array([1.0, 2.0]))
    change = add_users(np.array(["jam", "tea"], object), None, 40, more)
    assert change.final is None
    assert (change.n_users, change.n_new_items, change.n_new_users) == (42, 1, 2)
    assert change.after.matrix.toarray().tolist() == [[0, 2, 0], [0, 0, 1]]
    assert not change.before.n_interactions
    assert change.after.times.tolist() == [1, 2]


def test_ids_of_two_kinds_that_are_no_numbers_do_not_mix(data):
    with pytest.raises(DataError, match="all of one kind"):
        change_data(data, Batch(pairs_of([2.5], ["tea"])))


@pytest.mark.parametrize("part", ["added", "removed"])
def test_text_in_place_of_numbers_is_not_to_be_read_as_text(part):
    numbered = pairs_of([1, 2], [3, 4])
    with pytest.raises(DataError, match=r"are whole numbers in the data and text in .*: give whole numbers"):
        change_data(numbered, Batch(**{part: pairs_of(["1"], [3])}))


def test_values_are_as_short_as_those_that_are_left(data):
    fine = change_data(data, Batch(pairs_of(["dee"], ["tea"], [0.1]))).final
    assert fine.matrix.data.dtype == np.float64
    assert table(fine) == table(data) | {("dee", "tea"): 0.1}
    coarse = change_data(fine, Batch(forget_users=("dee",))).final
    assert coarse.matrix.data.dtype == np.float32
    assert table(coarse) == table(data)
