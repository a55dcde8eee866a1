"""Joined tables hold what a dict of dicts would."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

import deql
from deql import DataError, Interactions, ParameterError
from tests.data.reading import cells, moments

PARTS = st.lists(
    st.dictionaries(
        st.tuples(st.integers(0, 4), st.sampled_from(["egg", "jam", "oat", "tea"])),
        st.tuples(st.integers(-3, 3).filter(bool), st.integers(0, 9)),
        max_size=9,
    ),
    min_size=1,
    max_size=4,
)


def table(rows, timed):
    """{(user, item): (weight, time)} as Interactions, whose ids are in no order."""
    users = sorted({user for user, _ in rows}, reverse=True)
    items = sorted({item for _, item in rows}, key=lambda item: item[::-1])
    matrix, times = np.zeros((len(users), len(items))), np.zeros((len(users), len(items)))
    for (user, item), (weight, time) in rows.items():
        place = users.index(user), items.index(item)
        matrix[place], times[place] = weight, time
    data = Interactions.from_csr(csr_array(matrix), np.array(users, int), np.array(items, object))
    return replace(data, times=times[matrix != 0]) if timed else data


@given(PARTS, st.sampled_from(["sum", "max"]), st.booleans())
def test_what_a_dict_of_dicts_holds(parts, weights, timed):
    expected, latest = {}, {}
    ones = all(weight == 1 for part in parts for weight, _ in part.values())
    for part in parts:
        for pair, (weight, time) in part.items():
            by_item = expected.setdefault(pair[0], {})
            old = by_item.get(pair[1])
            add = max if weights == "max" or ones else lambda *both: sum(both)
            by_item[pair[1]] = weight if old is None else add(old, weight)
            latest[pair] = max(latest.get(pair, time), time)
    flat = {(user, item): weight for user, row in expected.items() for item, weight in row.items() if weight}
    joined = deql.join(*(table(part, timed) for part in parts), weights=weights)
    assert cells(joined) == flat
    assert joined.users.tolist() == sorted({user for part in parts for user, _ in part})
    assert joined.items.tolist() == sorted({item for part in parts for _, item in part})
    if timed:
        assert moments(joined) == {pair: latest[pair] for pair in flat}


def test_pairs_that_count_one_each_still_do():
    one = Interactions.from_pairs(["ann", "bob"], ["tea", "jam"])
    assert set(deql.join(one, one).matrix.data) == {1.0}
    assert [step.what for step in deql.join(one, one).steps] == ["joined 2 tables", "repeated pairs merged"]
    assert [step.interactions for step in deql.join(one, one).steps] == [4, 2]


def test_titles_are_merged():
    one = replace(Interactions.from_pairs([1, 1], [7, 8]), titles=np.array(["Tea", "8"], object))
    two = replace(Interactions.from_pairs([1, 1], [8, 9]), titles=np.array(["Jam", "Oat"], object))
    bare = Interactions.from_pairs([1, 1], [6, 7])
    assert deql.join(one, two).titles.tolist() == ["Tea", "Jam", "Oat"]
    assert deql.join(bare, two, one).titles.tolist() == ["6", "Tea", "Jam", "Oat"]
    assert deql.join(replace(one, titles=np.array(["Black tea", "8"], object)), one).titles[0] == "Black tea"
    assert deql.join(bare, bare).titles is None


def test_what_cannot_be_joined():
    numbers, text = Interactions.from_pairs([1], ["tea"]), Interactions.from_pairs(["1"], ["tea"])
    with pytest.raises(DataError, match=r"users are whole numbers in one part and text in another: .*ids=.text."):
        deql.join(numbers, text)
    with pytest.raises(DataError, match="items are whole numbers"):
        deql.join(numbers, Interactions.from_pairs([1], [5]))
    with pytest.raises(DataError, match="some parts have times and others none: read all with time=…"):
        deql.join(numbers, replace(numbers, times=np.ones(1)))
    with pytest.raises(ParameterError, match="weights must be 'sum' or 'max', got 'mean'"):
        deql.join(numbers, numbers, weights="mean")
    with pytest.raises(ParameterError, match="only Interactions can be joined, got csr_array"):
        deql.join(numbers, csr_array([[1]]))
    with pytest.raises(ParameterError, match="nothing to join"):
        deql.join()


def test_large_weights_that_add_up_to_infinity():
    huge = Interactions.from_pairs([1], [2], [1e308])
    with pytest.raises(DataError, match="is inf"):
        deql.join(huge, huge)
