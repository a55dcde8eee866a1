"""Counting passes against a dict."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deql.data.matrices import shortest_float
from deql.data.readers.coo_to_csr import coo_to_csr


def oracle(rows, weighted):
    values, times = {}, {}
    for user, item, weight, time in rows:
        values[user, item] = values.get((user, item), 0) + weight if weighted else 1
        times[user, item] = max(times.get((user, item), -np.inf), time)
    return values, times


@st.composite
def numbered(draw):
    """More users and items than occur, pairs that repeat, weights whose sums are exact."""
    n_users, n_items = draw(st.integers(1, 9)), draw(st.integers(1, 7))
    row = st.tuples(
        st.integers(0, n_users - 1), st.integers(0, n_items - 1),
        st.integers(-8, 8).map(lambda eighths: eighths / 8), st.integers(-5, 5).map(float),
    )  # fmt: skip
    return n_users, n_items, draw(st.lists(row, max_size=40))


@settings(deadline=None, max_examples=150)
@given(numbered(), st.booleans(), st.booleans(), st.sampled_from(["1", "2", "5"]))
def test_agrees_with_a_dict(table, weighted, timed, threads):
    n_users, n_items, rows = table
    users, items, weights, times = (
        (np.array(column) for column in zip(*rows, strict=True)) if rows else [np.empty(0)] * 4
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEQL_THREADS", threads)
        columns = {
            "users": users.astype(np.int32), "items": items.astype(np.int32),
            "weights": weights.astype(float) if weighted else None, "times": times.astype(float) if timed else None,
        }  # fmt: skip
        matrix, moments = coo_to_csr(columns, n_users, n_items)
        assert not columns, "nothing is kept in memory longer than needed"
    expected, latest = oracle(rows, weighted)
    assert matrix.shape == (n_users, n_items)
    assert matrix.has_canonical_format
    pairs = [
        (user, int(item))
        for user in range(n_users)
        for item in matrix.indices[matrix.indptr[user] : matrix.indptr[user + 1]]
    ]
    assert pairs == sorted(set(expected)), "rows in order, columns sorted, nothing twice"
    assert matrix.data.tolist() == [expected[pair] for pair in pairs]
    assert (moments.tolist() if timed and rows else None) == (
        [latest[pair] for pair in pairs] if timed and rows else None
    )
    assert matrix.indices.dtype == matrix.indptr.dtype == np.int32


def test_the_given_arrays_are_left_as_they_are():
    users, items = np.array([1, 0, 1], np.int32), np.array([1, 1, 1], np.int32)
    weights, times = np.array([1.0, 2, 3]), np.array([3.0, 2, 1])
    before = [array.copy() for array in (users, items, weights, times)]
    coo_to_csr({"users": users, "items": items, "weights": weights, "times": times}, 2, 2)
    for array, copy in zip((users, items, weights, times), before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_sums_are_in_double_precision():
    """2²⁴ + 1 + 1 stands still at 2²⁴ in single precision."""
    zeros, weights = np.zeros(3, np.int32), np.array([2**24, 1, 1], np.float32)
    matrix, _ = coo_to_csr({"users": zeros, "items": zeros, "weights": weights, "times": None}, 1, 1)
    assert matrix.data.tolist() == [2**24 + 2]


@given(st.lists(st.floats(allow_nan=False), max_size=8))
def test_shortest_float_loses_nothing(values):
    given_values = np.array(values, float)
    short = shortest_float(given_values)
    np.testing.assert_array_equal(short.astype(float), given_values)
    fits = all(float(np.float32(value)) == value for value in values if abs(value) < 3e38)
    over = any(3.5e38 < abs(value) < np.inf for value in values)
    if not fits or over:
        assert short.dtype == np.float64
    elif all(abs(value) < 3e38 or np.isinf(value) for value in values):
        assert short.dtype == np.float32
