"""Ids as arrays, whatever they are given as."""

import tracemalloc

import pytest

from deql.data.id_arrays import id_array
from deql.errors import DataError


def test_one_long_id_does_not_make_all_of_them_long():
    ids = ["ann"] * 2000 + ["x" * 20_000]
    tracemalloc.start()
    assert id_array(ids).tolist() == ids
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20


@pytest.mark.parametrize("ids", [["ann", 7], [7, "ann"], [("ann", 1), "bob"], ["bob", ("ann", 1)]])
def test_of_several_kinds_stay_as_they_are(ids):
    assert id_array(ids).tolist() == ids


def test_in_several_dimensions_are_refused():
    with pytest.raises(DataError, match="a flat sequence, got 2 dimensions"):
        id_array([("ann", 1), ("bob", 2)])
