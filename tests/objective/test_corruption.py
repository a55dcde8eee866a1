import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import deql
from deql.errors import DataError, NotPositiveDefiniteError, ParameterError
from deql.objective import Corruption, brute_force, from_sampler, moments, solve
from tests.random_data import ratings

R = (lambda g: (g.random((12, 5)) < [0.9, 0.7, 0.5, 0.4, 0.3]) * g.uniform(0.5, 2.0, (12, 5)))(np.random.default_rng(3))
ITEM_DROPOUT = np.array([0.6, 0.1, 0.0, 0.3, 0.5])
ITEM_NOISE = np.array([0.0, 0.5, 0.1, 0.0, 1.0])
USERS = np.random.default_rng(4).uniform(0.1, 2.0, 12)

CASES = {
    "i.i.d. dropout": {"dropout": 0.3},
    "emphasis": {"dropout": 0.3, "a": 0.7, "b": 2.0},
    "dropout of each item": {"dropout": ITEM_DROPOUT},
    "dropout of each item, emphasis": {"dropout": ITEM_DROPOUT, "a": 1.0, "b": 0.5},
    "user weights": {"dropout": 0.3, "b": 0.5, "user_weights": USERS},
    "noise": {"noise_variance": 0.4},
    "all": {"dropout": ITEM_DROPOUT, "a": 1.5, "b": 0.5, "noise_variance": ITEM_NOISE, "user_weights": USERS},
}


def sampler_of(dropout=0.0, a=1.0, b=1.0, noise_variance=0.0, user_weights=None):
    # Forty copies of the users in one draw, each of a fortieth of the weight: fewer and better draws.
    users = np.tile(np.ones(12) if user_weights is None else user_weights, 40)[:, None]
    root, many = np.sqrt(users / 40), np.tile(R, (40, 1))

    def sampler(generator):
        kept = generator.random(many.shape) >= dropout
        X = kept * many + np.sqrt(noise_variance) * generator.standard_normal(many.shape)
        return root * X, root * many, np.where(kept, b, a)

    return sampler


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_formulas_are_the_means_of_samples(case):
    exact, sampled = Corruption(R, **case), from_sampler(sampler_of(**case), 100, seed=1)
    for i in range(5):
        for formula, mean, error in zip(exact(i), sampled(i), sampled.standard_errors(i), strict=True):
            np.testing.assert_array_less(np.abs(formula - mean), 5 * error + 1e-9)


def test_standard_errors_are_the_spread_of_estimates():
    # Over seeds (estimate − truth)/error has mean 0 and deviation 1. Entries of one seed go together, so that a dozen
    # seeds leave either uncertain by about 0.1.
    exact, units = Corruption(R, **CASES["all"]), []
    for seed in range(12):
        sampled = from_sampler(sampler_of(**CASES["all"]), 60, seed=seed)
        for i in range(5):
            for formula, mean, error in zip(exact(i), sampled(i), sampled.standard_errors(i), strict=True):
                units.append(((mean - formula)[error > 0] / error[error > 0]).ravel())
    found = np.concatenate(units)
    assert abs(found.mean()) < 0.3
    assert 0.75 < found.std() < 1.25


@given(R=ratings(), p=st.sampled_from([0.0, 0.4]), a=st.sampled_from([0.0, 1.0]), b=st.sampled_from([0.5, 1.0, 2.0]))
@settings(max_examples=10)
def test_one_dropout_for_all_is_lemma_1(R, p, a, b):
    S = R.T @ R
    for loss in (Corruption(R, dropout=p, a=a, b=b), Corruption.of_gram(S, dropout=p, a=a, b=b)):
        for i in range(len(S)):
            for found, expected in zip(loss(i), moments(S, i, p=p, a=a, b=b), strict=True):
                np.testing.assert_allclose(found, expected, atol=1e-10)


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("lam", [0.0, 2.0])
@pytest.mark.parametrize("l2", [0.0, 1.5])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_fast_way_is_the_slow_one(case, l2, lam, zero):
    loss = Corruption(R, l2=l2, **case)
    fast = loss.as_updates(lam)
    # One λ is not one ridge of K where κ differs from item to item.
    assert (fast is None) == (lam > 0 and "dropout" in case and np.ndim(case["dropout"]) > 0 and "b" in case)
    slow = solve(lambda i: loss(i), lam=lam, zero_diagonal=zero)
    np.testing.assert_allclose(solve(loss, lam=lam, zero_diagonal=zero), slow, atol=1e-9)


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("b", [0.0, 0.5, 1.0, 3.0])
def test_solutions_are_the_brute_force_and_the_models(b, zero):
    S, p, l2 = R.T @ R, 0.3, 1.2
    lam = l2 * (1 - p) ** 2 * (p + (1 - p) * b**2)
    expected = brute_force(S, lam=lam, p=p, a=1.0, b=b, zero_diagonal=zero)
    np.testing.assert_allclose(solve(Corruption(R, dropout=p, b=b, l2=l2), zero_diagonal=zero), expected, atol=1e-11)
    np.testing.assert_allclose(solve(Corruption(R, dropout=p, b=b), lam=lam, zero_diagonal=zero), expected, atol=1e-11)
    model = deql.DEQL(l2, p, b, zero, dtype="float64").fit(csr_array(R))
    np.testing.assert_allclose(model.weights(), expected, atol=1e-11)


def test_user_weights_are_the_models_user_power():
    sizes = (R > 0).sum(axis=1)
    model = deql.DLAE(2.0, 0.4, user_power=0.5, dtype="float64").fit(csr_array(R))
    found = solve(Corruption(csr_array(R), dropout=0.4, user_weights=sizes**-0.5, l2=2.0))
    np.testing.assert_allclose(found, model.weights(), atol=1e-11)


def test_emphasis_on_dropped_entries_alone_needs_a_zero_diagonal_or_a_ridge(toy):
    loss = Corruption(toy, dropout=0.4, b=0.0)
    with pytest.raises(NotPositiveDefiniteError, match=r"H of item 'egg' is not positive definite.*zero_diagonal=True"):
        solve(loss)
    dense = toy.matrix.toarray().astype(float)
    expected = brute_force(dense.T @ dense, lam=0.0, p=0.4, a=1.0, b=0.0)
    np.testing.assert_allclose(solve(loss, zero_diagonal=True), expected, atol=1e-10)
    with pytest.raises(NotPositiveDefiniteError, match="H of item 'egg' is not positive definite"):
        solve(lambda i: loss(i), items=loss.items)


def test_one_emphasis_shares_one_array():
    loss = Corruption(R, dropout=ITEM_DROPOUT, a=2.0, b=2.0)
    assert loss(0)[0] is loss(3)[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dropout": 1.0}, "dropout must be from 0 to below 1, got 1"),
        ({"dropout": [0.1, 0.2, 1.5, 0, 0]}, "dropout must be from 0 to below 1, got 1.5 for item 'oat'"),
        ({"dropout": [0.1, 0.2]}, "dropout must be 5 numbers"),
        ({"dropout": "half"}, "dropout must be a real array of 5 numbers"),
        ({"noise_variance": -1}, "noise_variance must be from 0 up, got -1"),
        ({"user_weights": [1.0]}, "user_weights must be 7 numbers"),
        ({"user_weights": -np.ones(7)}, "user_weights must be finite and not negative"),
        ({"b": -1}, "b must be a number from 0 up, got -1"),
        ({"b": np.inf}, r"a and b must be at most 1e\+100, got a=1, b=inf"),
        ({"a": 1e200}, r"a and b must be at most 1e\+100, got a=1e\+200, b=1"),
        ({"l2": np.nan}, "l2 must be"),
        ({"dropout": [0.1, 0.0, 0.1, 0.1, 0.1], "b": 0}, "the loss of item 'jam' is empty at dropout 0, a=1, b=0"),
    ],
)
def test_wrong_parameters(toy, options, message):
    with pytest.raises(deql.DeqlError, match=message):
        Corruption(toy, **options)


def test_wrong_data_and_items_are_named():
    with pytest.raises(DataError, match="there are no items in the data"):
        Corruption(csr_array((3, 0)))
    with pytest.raises(DataError, match="S must be a dense array, got csr_array"):
        Corruption.of_gram(csr_array(R.T @ R))
    with pytest.raises(DataError, match="S is not symmetric: it must be RᵀΛR"):
        Corruption.of_gram([[1.0, 2.0], [0.0, 1.0]])
    for i in (-1, R.shape[1], "tea"):
        with pytest.raises(ParameterError, match="i must be the number of an item, from 0 to"):
            Corruption(R)(i)


def test_noise_on_a_gram_matrix_needs_the_users():
    with pytest.raises(ParameterError, match="needs total_weight"):
        Corruption.of_gram(R.T @ R, noise_variance=1.0)
    found = Corruption.of_gram(R.T @ R, noise_variance=1.0, total_weight=12)(1)
    np.testing.assert_allclose(found[0], Corruption(R, noise_variance=1.0)(1)[0])
