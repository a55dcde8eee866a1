"""Interactions fade by their age, and half-lives are read as people write them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deql
from deql.data.recency import faded, latest_time, parse_half_life, written_half_life
from deql.errors import DataError, ParameterError

DATA = replace(
    deql.Interactions.from_pairs(list("aabbc"), ["tea", "jam", "tea", "oat", "jam"], [1, 2, 1, -3, 4]),
    times=np.array([3.0, 1.0, 2.0, 2.0, 5.0]),
)


@given(st.floats(0.1, 100.0), st.floats(-50.0, 50.0))
def test_values_halve_with_every_half_life(half_life, until):
    by_hand = DATA.matrix.data * 0.5 ** ((until - DATA.times) / half_life)
    found = faded(DATA, half_life, until)
    small = np.abs(until - DATA.times) < 99 * half_life
    np.testing.assert_allclose(found.matrix.data[small], by_hand[small], rtol=1e-12)
    assert found.matrix.nnz == DATA.matrix.nnz
    assert found.matrix.dtype == np.float64
    assert (np.sign(found.matrix.data) == np.sign(DATA.matrix.data)).all()


def test_nothing_vanishes_however_old_and_however_small():
    tiny = replace(DATA, matrix=DATA.matrix.astype(np.float64) * 1e-300)
    old = faded(tiny, "1s", 1e9)
    assert (np.diff(old.matrix.indptr) == np.diff(DATA.matrix.indptr)).all()
    assert old.matrix.data.min() < 0 < np.abs(old.matrix.data).min()


@pytest.mark.parametrize(
    ("text", "length"),
    [("30d", 30 * 86400), ("12h", 43200), ("2w", 14 * 86400), ("5 min", 300), ("1.5h", 5400), ("9s", 9), (7, 7.0),
     ("7", 7.0), (np.float32(0.5), 0.5), (" 3e2 ", 300.0)],
)  # fmt: skip
def test_half_lives_as_they_are_typed(text, length):
    assert parse_half_life(text) == length
    assert parse_half_life(written_half_life(length)) == length


@pytest.mark.parametrize(
    "nonsense", ["", "d", "0d", "-3d", "6mo", "thirty days", "nan", "inf", 0, -1.0, np.nan, np.inf, True, None, [3],
                 10**400]
)  # fmt: skip
def test_nonsense_is_refused_in_a_sentence(nonsense):
    with pytest.raises(ParameterError, match="half_life must be a number above 0 in the unit of the times, or") as told:
        parse_half_life(nonsense)
    assert told.value.parameter == "half_life"


def test_data_without_times_are_told_how_to_read_them():
    with pytest.raises(DataError, match=r"half_life needs to know when things happened: say time=… with that column"):
        faded(replace(DATA, times=None), 3, 5.0)
    with pytest.raises(DataError, match="half_life needs a time for every interaction"):
        latest_time(replace(DATA, times=np.array([1, 2, np.nan, 3, 4])))


def test_a_half_life_too_short_for_what_comes_later():
    with pytest.raises(ParameterError, match=r"half_life=1 is too short for what happened 4e\+03 half-lives after"):
        faded(replace(DATA, times=DATA.times + 4000), 1, 5.0)
