"""Weights of one's own as a prior."""

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_matrix

import deql
from deql.errors import DataError, ParameterError, TooLargeError
from deql.priors import LowPass, Matrix
from deql.priors.matrix import as_prior


@pytest.fixture(scope="module")
def W():
    return np.random.default_rng(0).normal(size=(5, 5))


@pytest.mark.parametrize(
    "kind", [np.array, np.asfortranarray, csr_matrix, coo_array, lambda W: W.astype(np.float32), lambda W: Matrix(W)]
)
def test_any_array_is_the_weights(toy, W, kind):
    weights = as_prior(kind(W)).weights(toy)
    assert weights.right is None
    assert weights.left.flags.c_contiguous
    np.testing.assert_allclose(weights.to_dense(), W, rtol=1e-6)


def test_a_pair_stands_for_its_product(toy):
    U, V = np.arange(10.0).reshape(5, 2), np.arange(10).reshape(5, 2) % 3
    np.testing.assert_allclose(as_prior((U, V)).weights(toy).to_dense(), U @ V.T)


def test_whole_numbers_and_switches_are_numbers(toy):
    assert as_prior(np.eye(5, dtype=bool)).weights(toy).to_dense().tolist() == np.eye(5).tolist()
    assert as_prior(np.eye(5, dtype=int)).weights(toy).to_dense().tolist() == np.eye(5).tolist()


def test_priors_stay_as_they_are(W):
    prior = LowPass()
    assert as_prior(prior) is prior
    assert as_prior(None) is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (np.zeros((4, 5)), r"^the prior must have shape \(5, 5\), a row and a column for each item, got \(4, 5\)$"),
        (coo_array((6, 6)), r"got \(6, 6\)$"),
        ((np.zeros((5, 2)), np.zeros((5, 3))), r"^the factors .* must both have 5 rows, .* got \(5, 2\) and \(5, 3\)$"),
        ((np.zeros((4, 2)), np.zeros((4, 2))), r"must both have 5 rows"),
        ((np.zeros(5), np.zeros(5)), r"got \(5\) and \(5\)$"),
        ((np.zeros((5, 0)), np.zeros((5, 0))), r"at least one, got \(5, 0\) and \(5, 0\)$"),
        (np.eye(5) * 1j, "^the prior's weights must be real numbers in an array, got ndarray of complex128$"),
        (coo_array(np.eye(5) * 1j), "must be real numbers in an array, got coo_array of complex128$"),
        (np.full((5, 5), "tea"), "must be real numbers"),
        (np.ma.masked_array(np.eye(5)), "must be real numbers"),
    ],
)
def test_what_is_no_weights_is_refused(toy, given, said):
    with pytest.raises(ParameterError, match=said) as caught:
        deql.EASE(prior=given).fit(toy)
    assert caught.value.parameter == "prior"


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_what_is_not_finite_is_refused(toy, W, value):
    bad = W.copy()
    bad[2, 3] = value
    for given in (bad, coo_array(bad), (np.eye(5), bad)):
        with pytest.raises(DataError, match=r"^the prior's weights of item 'oat' are not all finite in float32$"):
            as_prior(given).weights(toy)


def test_large_numbers_are_finite(toy):
    assert as_prior(np.full((5, 5), 1e38)).weights(toy).left.max() == np.float32(1e38)


def test_what_does_not_fit_in_memory_is_refused(toy, monkeypatch):
    monkeypatch.setattr("deql.priors.matrix.free_memory", lambda: 100)
    with pytest.raises(TooLargeError, match=r"^a prior of 5 × 5 weights takes .*, and .* are free: use a thin one"):
        as_prior(np.eye(5)).weights(toy)
    as_prior((np.eye(5), np.eye(5))).weights(toy)


def test_in_words():
    assert repr(Matrix(np.eye(5))) == "Matrix(5 × 5 ndarray)"
    assert repr(Matrix((np.zeros((5, 2)), np.zeros((5, 2))))) == "Matrix(5 × 2 ndarray, 5 × 2 ndarray)"
