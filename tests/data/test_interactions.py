from contextlib import suppress

import numpy as np
import pytest
from scipy.sparse import coo_array, csc_array, csr_array, csr_matrix

from deql import DeqlError, Interactions
from deql.data import as_interactions
from deql.errors import DataError


def test_pairs_become_a_matrix_with_sorted_ids():
    data = Interactions.from_pairs(["bob", "ann", "ann"], ["tea", "tea", "jam"])
    assert data.users.tolist() == ["ann", "bob"]
    assert data.items.tolist() == ["jam", "tea"]
    assert data.matrix.toarray().tolist() == [[1, 1], [0, 1]]
    assert repr(data) == "Interactions(2 users × 2 items, 3 interactions)"
    assert (data.n_users, data.n_items, data.n_interactions) == (2, 2, 3)
    assert data.item_index == {"jam": 0, "tea": 1}


def test_repeated_pairs_count_once_and_their_weights_add_up():
    users, items = ["a", "a", "b"], ["x", "x", "x"]
    assert Interactions.from_pairs(users, items).matrix.toarray().tolist() == [[1], [1]]
    assert Interactions.from_pairs(users, items, [1, 2, 5]).matrix.toarray().tolist() == [[3], [5]]


def test_weights_that_cancel_leave_nothing_stored():
    data = Interactions.from_pairs(["a", "a", "b"], ["x", "x", "y"], [1, -1, 2])
    assert data.n_interactions == 1
    assert data.items.tolist() == ["x", "y"]


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint32])
def test_integer_ids_stay_integers(dtype):
    data = Interactions.from_pairs(np.array([7, 3], dtype), np.array([30, 20], dtype))
    assert data.users.dtype == data.items.dtype == np.int64
    assert data.users.tolist() == [3, 7]
    assert data.history(7) == [30]
    assert type(data.history(7)[0]) is int


def test_ids_beyond_int64_are_kept_or_refused_but_never_changed():
    large = 2**63 + 5
    with suppress(DataError):
        assert str(Interactions.from_pairs(np.array([large], np.uint64), ["x"]).users[0]) == str(large)


@pytest.mark.parametrize(
    ("users", "items", "weights"),
    [(["a", "b"], ["x"], None), (["a", "b"], ["x", "y"], [1.0]), ([["a", "b"]], [["x", "y"]], None)],
    ids=["items", "weights", "nested"],
)
def test_sequences_that_do_not_match_are_an_error(users, items, weights):
    with pytest.raises(DataError):
        Interactions.from_pairs(users, items, weights)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_weight_that_is_not_finite_is_named_with_its_place(value):
    with pytest.raises(DataError, match=f"row 1, column 0 is {value}"):
        Interactions.from_csr(csr_array([[1.0, 2.0], [value, 0.0]]))


def test_history_and_take_users(toy):
    assert toy.history("fay") == ["egg", "rye", "tea"]
    part = toy.take_users(np.array([5, 0]))
    assert part.users.tolist() == ["fay", "ann"]
    assert part.items is toy.items
    assert part.history("fay") == toy.history("fay")
    with pytest.raises(DataError, match="no user 'zoe' among 7"):
        toy.history("zoe")


@pytest.mark.parametrize("kind", [csr_array, csr_matrix, coo_array, np.asarray])
def test_any_matrix_will_do_and_ids_default_to_numbers(kind):
    data = as_interactions(kind(np.array([[0, 2], [1, 0], [0, 0]])))
    assert data.matrix.toarray().tolist() == [[0, 2], [1, 0], [0, 0]]
    assert data.users.tolist() == [0, 1, 2]
    assert data.items.tolist() == [0, 1]
    assert as_interactions(data) is data


def test_a_clean_float_matrix_is_not_copied():
    matrix = csr_array(np.array([[1.0, 0.0], [0.0, 2.0]]))
    assert np.shares_memory(Interactions.from_csr(matrix).matrix.data, matrix.data)


def test_an_untidy_matrix_is_tidied_in_a_copy():
    # Row 0: columns out of order, one twice, and a stored zero.
    values, columns, starts = np.array([3.0, 1.0, 2.0, 0.0]), np.array([2, 0, 0, 1]), np.array([0, 4])
    matrix = csr_array((values, columns, starts), shape=(1, 3))
    data = Interactions.from_csr(matrix)
    assert data.matrix.indices.tolist() == [0, 2]
    assert data.matrix.data.tolist() == [3.0, 3.0]
    assert matrix.indices.tolist() == [2, 0, 0, 1]
    assert matrix.data.tolist() == [3.0, 1.0, 2.0, 0.0]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ({"items": ["x"]}, "2 items need 2 ids, got 1"),
        ({"items": ["x", "x"]}, "ids of items must be unique"),
        ({"users": [[1], [2]]}, "flat sequence"),
    ],
)
def test_ids_must_fit_the_matrix(ids, message):
    with pytest.raises(DataError, match=message):
        Interactions.from_csr(csr_array(np.eye(2)), **ids)


@pytest.mark.parametrize("thing", ["a text", [1, 2], np.array([["a", "b"]]), csr_array(np.eye(2) * 1j), None])
def test_what_is_no_matrix_of_numbers_is_an_error(thing):
    with pytest.raises(DeqlError, match="numbers"):
        as_interactions(thing)


@pytest.mark.parametrize("kind", [csr_array, csc_array])
@pytest.mark.parametrize("index", [-1, 3, 2**32])
def test_a_matrix_with_entries_outside_its_shape_is_refused(kind, index):
    outside = kind((np.ones(1, np.float32), np.array([index]), np.array([0, 1, 1, 1])), shape=(3, 3))
    with pytest.raises(DataError, match=r"the sparse matrix contradicts itself: indices must be (<|>=) "):
        Interactions.from_csr(outside)


def test_duplicates_that_add_up_to_infinity_are_named():
    twice = csr_array((np.full(2, 3e38, np.float32), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    with pytest.raises(DataError, match="row 0, column 1 is inf"):
        Interactions.from_csr(twice)


def test_a_matrix_with_unsorted_columns_is_put_in_order():
    unsorted = csr_array((np.ones(4, np.float32), np.array([2, 0, 1, 2]), np.array([0, 2, 4])), shape=(2, 3))
    data = Interactions(unsorted, np.arange(2), np.arange(3))
    assert data.matrix.indices.tolist() == [0, 2, 1, 2]
    with pytest.raises(DataError, match="as many ids"):
        Interactions(unsorted, np.arange(2), np.arange(2))


def test_ids_of_several_kinds_are_refused():
    with pytest.raises(DataError, match="all of one kind"):
        Interactions.from_pairs(["u", "v"], ["tea", 1])


def test_weights_keep_their_digits():
    data = Interactions.from_pairs(["u", "v"], ["a", "b"], [0.1, 16777217.0])
    assert data.matrix.data.tolist() == [0.1, 16777217.0]
    assert Interactions.from_pairs(["u", "v"], ["a", "b"], [0.5, 3]).matrix.dtype == np.float32


def test_rows_that_end_before_they_begin_where_differences_go_around():
    matrix = csr_array(np.eye(3, dtype=np.float32))
    matrix.indptr = np.array([0, 1, 2, -(2**31)], np.int32)
    with pytest.raises(DataError, match="contradicts itself"):
        Interactions.from_csr(matrix)


def test_lists_of_histories_are_no_matrix():
    with pytest.raises(DataError, match=r"got lists that differ in length: deql.Interactions.from_pairs"):
        Interactions.from_csr([["tea", "jam"], ["tea"]])
