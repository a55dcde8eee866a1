import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from deql.split import protocols


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=30), st.floats(0.01, 0.99), st.integers(1, 20), st.integers(0, 9)
)
def test_the_smallest_keys_of_each_row_are_hidden_however_the_rows_are_taken(sizes, share, at_a_time, seed):
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    indices = np.concatenate([np.arange(size) for size in sizes])
    matrix = csr_array((np.ones(len(indices)), indices, indptr), shape=(len(sizes), 10))
    keys = np.random.default_rng(seed).integers(0, 6, len(indices)).astype(np.uint64)  # with ties: the first goes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocols, "_AT_A_TIME", at_a_time)
        hidden = protocols.hide(matrix, share, keys)
    for start, size in zip(indptr.tolist(), sizes, strict=False):
        count = max(1, min(round(share * size), size - 1)) if size > 1 else 0
        expected = sorted(range(size), key=lambda place: (keys[start + place], place))[:count]
        assert np.flatnonzero(hidden[start : start + size]).tolist() == sorted(expected)
