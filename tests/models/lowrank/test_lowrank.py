import warnings

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

import deql
from deql.errors import DataError, NotPositiveDefiniteError, ParameterError, TooLargeError
from deql.linalg.gram import user_weights
from deql.linalg.sparse_product import GramOperator
from deql.models.lowrank.solver import solve_dense, solve_operators
from deql.objective import expected_loss


def by_the_theorem(S, l2, p, k):
    """eq:36 as the paper has it: symmetric roots and a whole singular value decomposition."""
    D = np.diag(S)
    xx = (1 - p) ** 2 * S + (1 - p) * p * np.diag(D) + l2 * (1 - p) ** 2 * np.eye(len(S))
    root = np.real(scipy.linalg.sqrtm(xx))
    U, s, V = np.linalg.svd(np.linalg.solve(root, (1 - p) * S))
    return np.linalg.solve(root, (U[:, :k] * s[:k]) @ V[:k])


@given(seed=st.integers(0, 10**6), k=st.integers(1, 9), p=st.sampled_from([0.0, 0.3, 0.8]), l2=st.floats(0.1, 50.0))
@settings(max_examples=25, deadline=None)
def test_dense_weights_are_those_of_the_theorem(seed, k, p, l2):
    generator = np.random.default_rng(seed)
    R = (generator.random((30, 9)) < np.linspace(0.1, 0.9, 9)) * generator.uniform(0.5, 2.0, (30, 9))
    gamma = generator.choice([0.0, 0.7])
    model = deql.LowRankDEQL(k, l2, p, user_power=gamma)
    if not R.any():
        return
    model.fit(csr_array(R))
    w = user_weights(csr_array(R), gamma)
    S = R.T @ (w[:, None] * R)
    expected = by_the_theorem(S, l2, p, k)
    np.testing.assert_allclose(model.weights(), expected, atol=2e-5)
    loss = expected_loss(expected, S, lam=l2 * (1 - p) ** 2, p=p, a=1.0, b=1.0)
    assert model.loss_ == pytest.approx(loss, rel=1e-9, abs=1e-9)
    assert model.solver_ == "dense"


def test_full_rank_is_dlae(asymmetric_ratings):
    model = deql.LowRankDEQL(7, 3.0, 0.4).fit(asymmetric_ratings)
    full = deql.DLAE(3.0, 0.4, dtype="float64").fit(asymmetric_ratings)
    np.testing.assert_allclose(model.weights(), full.weights(), atol=1e-5)


@pytest.mark.parametrize(("p", "l2"), [(0.3, 20.0), (0.0, 0.5), (0.7, 0.0)])
@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_sparse_solver_comes_within_the_tolerance_of_the_dense_loss(p, l2, gamma):
    generator = np.random.default_rng(0)
    counts = generator.zipf(1.3, 4000) % 300
    R = csr_array((np.ones(4000), (generator.integers(600, size=4000), counts)), shape=(600, 300)).astype(np.float32)
    R = csr_array(R[:, np.flatnonzero(np.bincount(R.indices, minlength=300))])
    dense, sparse = (
        deql.LowRankDEQL(20, l2, p, user_power=gamma, solver=solver).fit(R) for solver in ("dense", "sparse")
    )
    assert sparse.solver_ == "sparse"
    assert 0 < sparse.iterations_ < 100
    assert 1 - 1e-5 < sparse.loss_ / dense.loss_ < 1 + 5e-4  # asked for: 1e-3
    S = (R.T @ R.multiply(user_weights(R, gamma)[:, None])).toarray()
    true = expected_loss(sparse.weights().astype(float), S, lam=l2 * (1 - p) ** 2, p=p, a=1.0, b=1.0)
    assert true == pytest.approx(sparse.loss_, rel=1e-4)
    assert np.linalg.matrix_rank(sparse.weights(), tol=1e-4) == 20


@pytest.mark.parametrize(("density", "rank"), [(0.3, 100), (1.0, 40), (0.05, 150)])
def test_no_direction_is_lost_where_the_spectrum_is_wide(density, rank):
    generator = np.random.default_rng(1)
    tastes = generator.standard_normal((400, 6)) @ generator.standard_normal((6, 200))
    R = csr_array((generator.random((400, 200)) < density / (1 + np.exp(-3 * tastes))) * 1.0)
    dense, sparse = (deql.LowRankDEQL(rank, 10.0, 0.3, solver=solver).fit(R) for solver in ("dense", "sparse"))
    assert (sparse.captured_ > 0).all()
    assert 1 - 1e-6 < sparse.loss_ / dense.loss_ < 1 + 3e-4


def test_operator_is_the_gram_matrix():
    R = csr_array(random_array((50, 20), density=0.2, rng=np.random.default_rng(1)))
    w = np.random.default_rng(2).random(50)
    S = GramOperator(R, w) @ np.eye(20, dtype=np.float32)
    np.testing.assert_allclose(S, (R.T @ R.multiply(w[:, None])).toarray(), atol=1e-5)


def test_more_directions_than_users_leave_the_rest_empty():
    R = csr_array(np.random.default_rng(0).random((3, 12)))
    for solver in ("dense", "sparse"):
        model = deql.LowRankDEQL(8, 1.0, 0.0, solver=solver).fit(R)
        full = deql.LAE(1.0, dtype="float64").fit(R)
        np.testing.assert_allclose(model.weights(), full.weights(), atol=1e-3)
        assert np.isfinite(model.left_).all()


def test_the_solvers_agree_direction_by_direction():
    R = csr_array(np.random.default_rng(5).random((40, 15)) ** 4)
    D = (R.toarray() ** 2).sum(axis=0)
    one = solve_dense((R.T @ R).toarray(), 0.5 * D, 4)
    other = solve_operators(GramOperator(R), D, 0.5 * D, 4, tolerance=1e-10)
    np.testing.assert_allclose(other.captured, one.captured, rtol=1e-4)
    turn = np.sign((one.basis * other.basis).sum(axis=0))
    np.testing.assert_allclose(other.basis * turn, one.basis, atol=2e-2 * abs(one.basis).max())


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"rank": 0}, "rank must be a whole number from 1 up"),
        ({"rank": 2.5}, "rank must be a whole number"),
        ({"rank": 8}, "at most the number of items, 7, got 8"),
        ({"l2": -1.0}, "l2 must be"),
        ({"dropout": 1.0}, "dropout must be"),
        ({"solver": "disk"}, "auto, dense or sparse"),
        ({"tolerance": -1.0}, "tolerance must be"),
    ],
)
def test_what_has_no_solution_is_refused_in_a_sentence(asymmetric_ratings, parameters, words):
    with pytest.raises(ParameterError, match=words):
        deql.LowRankDEQL(**{"rank": 2} | parameters).fit(asymmetric_ratings)


def test_the_papers_parameters():
    assert deql.LowRankDEQL.from_paper(3, lam=8.0, p=0.5, a=2.0, b=2.0).l2 == 8.0
    with pytest.raises(ParameterError, match=r"needs b = a, got b/a = 0\.25"):
        deql.LowRankDEQL.from_paper(3, lam=8.0, p=0.5, a=2.0, b=0.5)
    with pytest.raises(ParameterError, match="needs b = a, got b/a = inf"):
        deql.LowRankDEQL.from_paper(3, lam=8.0, p=0.5, a=0.0, b=1.0)


def test_singular_and_huge_data_are_refused():
    R = csr_array(np.eye(3)[:, [0, 1, 1]])
    with pytest.raises(NotPositiveDefiniteError, match="l2 above 0"):
        deql.LowRankDEQL(1, 0.0, 0.0).fit(R)
    S = np.random.default_rng(0).integers(0, 9, (9, 4))
    S[:, 3] = S[:, 0] + S[:, 1]
    with pytest.raises(NotPositiveDefiniteError, match="item 3 follows from the items before it"):
        deql.LowRankDEQL(1, 0.0, 0.0).fit(csr_array(S.astype(float)))
    with pytest.raises(ParameterError, match="l2 or dropout above 0"):
        deql.LowRankDEQL(1, 0.0, 0.0, solver="sparse").fit(csr_array(np.eye(3)))
    with pytest.raises(DataError, match="too large"):
        deql.LowRankDEQL(1).fit(csr_array(np.eye(3) * 1e11))


def test_a_search_that_does_not_settle_says_so(monkeypatch):
    monkeypatch.setattr("deql.models.lowrank.lowrank._MOST_ITERATIONS", 2)
    R = csr_array(np.random.default_rng(0).random((60, 30)))
    with pytest.warns(UserWarning, match="still falling after 2"):
        deql.LowRankDEQL(3, 0.01, 0.0, solver="sparse", tolerance=0.0).fit(R)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        deql.LowRankDEQL(3, 1.0, 0.2, solver="sparse", tolerance=0.5).fit(R)


@pytest.mark.parametrize(("solver", "advice"), [("dense", "use solver='sparse'"), ("sparse", "choose a lower rank")])
def test_what_does_not_fit_is_said_before_it_is_tried(monkeypatch, asymmetric_ratings, solver, advice):
    monkeypatch.setattr("deql.models.lowrank.lowrank.free_memory", lambda: 100)
    with pytest.raises(TooLargeError, match=advice):
        deql.LowRankDEQL(2, solver=solver).fit(asymmetric_ratings)
