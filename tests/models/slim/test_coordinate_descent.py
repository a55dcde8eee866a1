"""The descent on a Gram matrix, by its optimality conditions, and the matrix itself."""

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array

from deql.errors import TooLargeError
from deql.linalg import sparse_gram as module
from deql.linalg.sparse_gram import sparse_gram
from deql.models.slim.coordinate_descent import descend


def furthest_step(S, W, l1, l2):
    """How far a weight would move alone: 0 at the minimum."""
    own = S.diagonal()[:, None]
    steps = np.maximum(0.0, (S - S @ W - l1 + own * W) / (own + l2)) - W
    np.fill_diagonal(steps, 0.0)
    return np.abs(steps).max()


def hub(generator):
    """Item 0 goes with 300 others that share few users: a large working set whose part of S is mostly empty."""
    R = np.zeros((900, 301))
    R[np.arange(900)[:, None], generator.integers(1, 301, (900, 2))] = 1.0
    R[:800, 0] = 1.0
    return R


def crowd(generator):
    """A hundred items that each add something to the others: dense working sets that outgrow their first room."""
    return np.eye(100) + generator.random((100, 100)) * 0.01


def centred(generator):
    """Values of both signs, so that no item can be left out beforehand."""
    return generator.standard_normal((80, 40)) * (generator.random((80, 40)) < 0.5) + 0.2


@pytest.mark.parametrize("make", [hub, crowd, centred])
def test_no_weight_would_move(make):
    R = make(np.random.default_rng(1))
    S = R.T @ R
    for l1 in (0.0, 0.005):
        found = descend(csr_array(S), l1, 0.5, tolerance=1e-9, max_sweeps=1000)
        W = found.weights.toarray()
        assert found.unfinished == 0
        assert (W >= 0).all()
        assert not W.diagonal().any()
        assert furthest_step(S, W, l1, 0.5) < 2e-9
    assert (W > 0).sum(axis=0).max() > {hub: 200, crowd: 64, centred: 5}[make]


def test_a_start_saves_sweeps_and_may_be_wrong(random_matrix):
    R = random_matrix(200, 80).toarray()
    S = csr_array(R.T @ R)
    cold = descend(S, 2.0, 1.0, tolerance=1e-9, max_sweeps=1000)
    near = descend(S, 2.1, 1.0, tolerance=1e-9, max_sweeps=1000).weights
    warm = descend(S, 2.0, 1.0, tolerance=1e-9, max_sweeps=1000, start=near)
    assert warm.sweeps < cold.sweeps
    np.testing.assert_allclose(warm.weights.toarray(), cold.weights.toarray(), atol=1e-7)
    # Weights on the diagonal and of items that cannot have one are no start.
    absurd = descend(S, 2.0, 1.0, tolerance=1e-9, max_sweeps=1000, start=csc_array(np.full((80, 80), 3.0)))
    np.testing.assert_allclose(absurd.weights.toarray(), cold.weights.toarray(), atol=1e-7)


def test_progress_is_told(random_matrix):
    R = random_matrix(50, 20)
    told = []
    descend(csr_array(R.T @ R), 1.0, 1.0, tolerance=1e-6, max_sweeps=100, report=lambda *done: told.append(done))
    assert told[-1] == (20, 20)


def test_sparse_gram(random_matrix):
    R = random_matrix(90, 25, weighted=True)
    R = csr_array(R.multiply(np.arange(25) != 7))  # item 7 has no user
    R.eliminate_zeros()
    weights = np.random.default_rng(0).random(90)
    S = sparse_gram(R, weights)
    dense = R.toarray()
    np.testing.assert_allclose(S.toarray(), dense.T @ (weights[:, None] * dense), rtol=1e-12)
    assert S.nnz == np.count_nonzero(S.toarray())


def test_a_gram_matrix_that_does_not_fit(monkeypatch):
    monkeypatch.setattr(module, "free_memory", lambda: 40)
    with pytest.raises(
        TooLargeError, match=r"^4 pairs of items share a user: .* 0\.0 GiB of memory, and 0\.0 GiB are free"
    ):
        sparse_gram(csr_array(np.ones((3, 2))), np.ones(3))
