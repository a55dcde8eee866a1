import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

from deql.data.matrices import canonical
from deql.linalg.gram import gram, gram_bands, user_weights
from tests.random_data import ratings


@given(R=ratings(max_items=12), power=st.sampled_from([0.0, 0.5, 1.0, -0.3]), tile=st.integers(1, 14))
def test_gram_is_the_weighted_product(R, power, tile):
    weights = np.maximum((R != 0).sum(axis=1), 1) ** -float(power)
    matrix = canonical(R)
    packed = gram(matrix, weights=user_weights(matrix, power), dtype=np.float64, tile=tile)
    np.testing.assert_allclose(packed.to_dense(), R.T @ np.diag(weights) @ R, rtol=1e-12)


@given(R=ratings(max_items=12), tile=st.integers(1, 14))
def test_bands_are_the_rows_of_the_gram_matrix(R, tile):
    matrix = canonical(R)
    whole = gram(matrix, weights=user_weights(matrix, 0.5), tile=tile)
    rows = 0
    for first, parts in gram_bands(matrix, weights=user_weights(matrix, 0.5), tile=tile):
        assert first == rows
        rows += len(parts[0])
        for block, part in enumerate(parts):
            start = first - block * tile
            np.testing.assert_array_equal(part, whole.block(block)[start : start + len(part)])
    assert rows == matrix.shape[1]


@pytest.mark.parametrize("tile", [64, 100, 700])
def test_counts_are_exact_in_single_precision(tile):
    R = canonical(random_array((900, 700), density=0.05, rng=np.random.default_rng(0)) != 0)
    packed = gram(R, tile=tile)
    assert packed.dtype == np.float32
    np.testing.assert_array_equal(packed.to_dense(), (R.T @ R).toarray())


def test_large_counts_do_not_drift():
    # Ones added one by one in float32 would stop growing at 2²⁴.
    values = np.full(20, 2.0**11.5)
    R = canonical(csr_array(values.reshape(-1, 1)))
    assert gram(R).to_dense()[0, 0] == np.float32(20 * 2.0**23)


@pytest.mark.parametrize("threads", ["1", "3", "8"])
def test_gram_does_not_depend_on_threads(threads, monkeypatch):
    R = canonical(random_array((500, 600), density=0.05, rng=np.random.default_rng(1)))
    expected = gram(R, weights=user_weights(R, 0.7), tile=128).data.copy()
    monkeypatch.setenv("DEQL_THREADS", threads)
    np.testing.assert_array_equal(gram(R, weights=user_weights(R, 0.7), tile=128).data, expected)


def test_gram_reports_progress_to_the_end():
    seen = []
    R = canonical(random_array((500, 600), density=0.05, rng=np.random.default_rng(1)))
    gram(R, report=lambda done, total: seen.append(done / total))
    assert seen == sorted(seen)
    assert seen[-1] == 1


def test_users_without_items_weigh_nothing():
    assert user_weights(csr_array([[1.0, 1.0], [0.0, 0.0]]), 1.0).tolist() == [0.5, 0.0]
