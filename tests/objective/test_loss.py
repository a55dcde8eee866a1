import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deql.objective import brute_force, expected_loss, moments, sampled_loss
from tests.random_data import ratings

SETTINGS = [
    {"p": 0.3, "a": 1.0, "b": 0.5},
    {"p": 0.5, "a": 1.0, "b": 1.0},
    {"p": 0.2, "a": 0.5, "b": 2.0},
    {"p": 0.4, "a": 0.0, "b": 1.0},
    {"p": 0.6, "a": 1.0, "b": 0.0},
]


@pytest.mark.parametrize("setting", SETTINGS)
def test_moments_are_the_means_over_masks(setting):
    generator = np.random.default_rng(0)
    R = generator.uniform(0.5, 2.0, (6, 4)) * (generator.random((6, 4)) < 0.7)
    p, a, b = setting["p"], setting["a"], setting["b"]
    n_samples = 40_000
    kept = generator.random((n_samples, *R.shape)) >= p
    for i in (0, 3):
        X = kept * R
        emphasis = np.where(kept[:, :, i], b, a) ** 2
        H = np.einsum("sui,su,suj->ij", X, emphasis, X, optimize=True) / n_samples
        v = np.einsum("sui,su,u->i", X, emphasis, R[:, i], optimize=True) / n_samples
        expected_H, expected_v = moments(R.T @ R, i, **setting)
        np.testing.assert_allclose(H, expected_H, atol=0.03 * np.abs(expected_H).max())
        np.testing.assert_allclose(v, expected_v, atol=0.03 * np.abs(expected_v).max())


@given(R=ratings(), setting=st.sampled_from(SETTINGS), lam=st.sampled_from([0.0, 2.0]), seed=st.integers(0, 99))
def test_expected_loss_sums_up_the_moments(R, setting, lam, seed):
    S = R.T @ R
    W = np.random.default_rng(seed).standard_normal(S.shape)
    kappa = setting["p"] * setting["a"] ** 2 + (1 - setting["p"]) * setting["b"] ** 2
    total = lam * (W**2).sum()
    for i in range(len(S)):
        H, v = moments(S, i, **setting)
        total += W[:, i] @ H @ W[:, i] - 2 * W[:, i] @ v + kappa * S[i, i]
    assert expected_loss(W, S, lam=lam, **setting) == pytest.approx(total, rel=1e-10)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("weighted", [False, True])
def test_expected_loss_is_the_mean_of_sampled_losses(setting, weighted):
    generator = np.random.default_rng(1)
    R = generator.uniform(0.5, 2.0, (12, 5)) * (generator.random((12, 5)) < 0.6)
    W = generator.standard_normal((5, 5)) * 0.3
    users = generator.uniform(0.2, 1.0, 12) if weighted else np.ones(12)
    mean, error = sampled_loss(W, R, lam=1.5, n_samples=4000, seed=2, weights=users, **setting)
    exact = expected_loss(W, R.T @ (users[:, None] * R), lam=1.5, **setting)
    assert abs(mean - exact) < 4 * error + 1e-9


@given(R=ratings(), setting=st.sampled_from(SETTINGS), lam=st.sampled_from([0.5, 3.0]), zero=st.booleans())
def test_brute_force_has_no_slope_left(R, setting, lam, zero):
    S = R.T @ R
    W = brute_force(S, lam=lam, zero_diagonal=zero, **setting)
    for i in range(len(S)):
        H, v = moments(S, i, **setting)
        slope = (H + lam * np.eye(len(S))) @ W[:, i] - v
        if zero or setting["b"] == 0:
            assert W[i, i] == 0
            slope[i] = 0
        assert np.abs(slope).max() < 1e-8


def test_bound_holds_where_the_free_solution_would_pass_it():
    generator = np.random.default_rng(3)
    R = (generator.random((30, 6)) < np.linspace(0.2, 0.8, 6)).astype(float)
    S = R.T @ R
    free = np.diag(brute_force(S, lam=1.0, p=0.3, a=1.0, b=1.0))
    bound = float(np.median(free))
    bounded = np.diag(brute_force(S, lam=1.0, p=0.3, a=1.0, b=1.0, bound=bound))
    np.testing.assert_allclose(bounded, np.minimum(free, bound))
