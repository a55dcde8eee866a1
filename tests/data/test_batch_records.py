"""Batches as lines of JSON: the same batch comes back, to the order of its ids and the last bit of its numbers."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

import deql
from deql.data.batch_records import batch_from_record, batch_to_record
from deql.data.changes import Batch, change_data

IDS = st.one_of(
    st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=5, unique=True),
    st.lists(st.text(max_size=4), min_size=1, max_size=5, unique=True),
)


@st.composite
def interactions(draw):
    users, items = draw(IDS), draw(IDS)
    cells = draw(
        st.lists(
            st.tuples(st.integers(0, len(users) - 1), st.integers(0, len(items) - 1)), min_size=1, max_size=9,
            unique=True,
        )
    )  # fmt: skip
    dense = np.zeros((len(users), len(items)))
    weights = st.just(1.0) | st.floats(1e-30, 1e30)
    for row, column in cells:
        dense[row, column] = draw(weights)
    matrix = csr_array(dense.astype(draw(st.sampled_from([np.float32, np.float64]))))
    times = draw(st.none() | st.lists(st.floats(-1e15, 1e15), min_size=matrix.nnz, max_size=matrix.nnz))
    titles = draw(st.none() | st.lists(st.text(max_size=3), min_size=len(items), max_size=len(items)))
    as_ids = deql.data.id_arrays.id_array
    return deql.Interactions(
        matrix, as_ids(users), as_ids(items), None if times is None else np.array(times),
        None if titles is None else np.array(titles, object),
    )  # fmt: skip


def same(mine, other):
    if mine is None:
        return other is None
    mine = mine.without_empty()
    assert mine.users.tolist() == other.users.tolist()
    assert mine.items.tolist() == other.items.tolist()
    assert mine.users.dtype == other.users.dtype
    assert mine.matrix.indices.tolist() == other.matrix.indices.tolist()
    assert mine.matrix.indptr.tolist() == other.matrix.indptr.tolist()
    np.testing.assert_array_equal(mine.matrix.data, other.matrix.data)
    for name in ("times", "titles"):
        values, others = getattr(mine, name), getattr(other, name)
        assert (None if values is None else values.tolist()) == (None if others is None else others.tolist())
    return True


@given(st.none() | interactions(), st.none() | interactions(), IDS, IDS)
def test_what_is_written_comes_back(added, removed, users, items):
    batch = Batch(added, removed, tuple(users), tuple(items))
    again = batch_from_record(json.loads(json.dumps(batch_to_record(batch))))
    assert same(added, again.added)
    assert same(removed, again.removed)
    assert (again.forget_users, again.retire_items) == (batch.forget_users, batch.retire_items)


def test_new_items_come_in_the_same_order():
    """Ids that are not sorted, and some without interactions, as slices of a table have them."""
    data = deql.Interactions.from_pairs(list("aab"), list("xyx"))
    matrix = csr_array(np.float32([[1, 0, 1], [0, 0, 1]]))
    added = deql.Interactions(matrix, np.array(["q", "b"], object), np.array(["z", "none", "c"], object))
    again = batch_from_record(batch_to_record(Batch(added)))
    changes = [change_data(data, batch) for batch in (Batch(added), again)]
    assert [one.items.tolist() for one in changes] == [["x", "y", "z", "c"]] * 2
    assert [one.final.users.tolist() for one in changes] == [["a", "b", "q"]] * 2


def test_an_id_that_is_asked_for_twice_is_written_once():
    record = batch_to_record(Batch(forget_users=("a", "b", "a"), retire_items=(3, 3)))
    assert record == {"forget_users": ["a", "b"], "retire_items": [3]}


GOOD = {"users": ["a"], "items": ["x", "y"], "ends": [2], "columns": [0, 1]}


@pytest.mark.parametrize(
    "change",
    [
        {"users": ["a", 1]}, {"users": "a"}, {"users": [1.5]}, {"items": ["x", "x"]}, {"columns": [0, 7]},
        {"columns": [0, True]}, {"columns": [0, 0.5]}, {"ends": [5]}, {"ends": []}, {"weights": [1, None]},
        {"times": [1]}, {"times": [1, float("nan")]}, {"titles": ["one"]}, {"ends": [2**40]}, {"columns": [1, 1]},
    ],
    ids=str,
)  # fmt: skip
def test_damage_is_told(change):
    batch_from_record({"added": GOOD})
    with pytest.raises(deql.errors.DeqlError):
        batch_from_record({"added": GOOD | change})


@pytest.mark.parametrize("record", [None, [], {"added": 3}, {"else": 1}, {"forget_users": 3}, {"added": {}}], ids=str)
def test_what_is_no_batch_is_told(record):
    with pytest.raises(deql.DataError, match="a batch of changes is damaged: "):
        batch_from_record(record)
