"""SLIM against scikit-learn's elastic net, column by column, and what it says to bad input."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls
from scipy.sparse import csr_array
from sklearn.linear_model import ElasticNet

import deql
from deql.errors import DataError, ParameterError
from deql.linalg.gram import user_weights
from deql.models.slim.slim import SLIM


def elastic_nets(R, l1, l2, weights):
    """W by scikit-learn: one elastic net for each column, on rows scaled by the root of their weight."""
    X = R * np.sqrt(weights)[:, None]
    users, items = X.shape
    net = ElasticNet(
        alpha=(l1 + l2) / users,
        l1_ratio=l1 / (l1 + l2),
        positive=True,
        fit_intercept=False,
        tol=1e-13,
        max_iter=100_000,
    )
    W = np.zeros((items, items))
    for j in range(items):
        others = X.copy()
        others[:, j] = 0.0
        W[:, j] = net.fit(others, X[:, j]).coef_
    return W


@st.composite
def interactions(draw):
    """Small and uneven: an item nobody has, one that is another's double, values of the kind that is drawn."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    users, items = draw(st.integers(3, 30)), draw(st.integers(3, 9))
    R = (generator.random((users, items)) < np.linspace(0.1, 0.8, items)).astype(float)
    R[0, 0] = 1.0
    kind = draw(st.sampled_from(["binary", "ratings", "centred"]))
    if kind != "binary":
        R *= generator.integers(1, 6, R.shape) - (3.2 if kind == "centred" else 0.0)
    R[:, 1] = 0.0
    R[:, 2] = R[:, -1]
    return R


@settings(max_examples=40, deadline=None)
@given(interactions(), st.sampled_from([0.01, 0.2, 2.0]), st.sampled_from([0.5, 4.0]), st.sampled_from([0.0, 0.7]))
def test_columns_are_those_of_scikit_learn(R, l1, l2, user_power):
    matrix = csr_array(R)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "every weight")
        W = SLIM(l1, l2, user_power=user_power).fit(matrix).weights()
    expected = elastic_nets(R, l1, l2, user_weights(matrix, user_power))
    np.testing.assert_allclose(W, expected, atol=1e-5)
    assert not W.diagonal().any()
    assert not W[1].any()
    assert not W[:, 1].any()
    assert (W >= 0).all()


def test_without_l1_columns_are_those_of_non_negative_least_squares(random_matrix):
    R = random_matrix(60, 20, weighted=True).toarray()
    W = SLIM(l1=0.0, l2=2.0).fit(csr_array(R)).weights()
    for j in range(20):
        others = R.copy()
        others[:, j] = 0.0
        expected, _ = nnls(np.vstack([others, np.sqrt(2.0) * np.eye(20)]), np.concatenate([R[:, j], np.zeros(20)]))
        np.testing.assert_allclose(W[:, j], expected, atol=1e-5)


def test_columns_of_many_items_are_those_of_scikit_learn(random_matrix):
    R = random_matrix(300, 120, weighted=True)
    W = SLIM(l1=2.0, l2=3.0).fit(R)
    np.testing.assert_allclose(W.weights(), elastic_nets(R.toarray(), 2.0, 3.0, np.ones(300)), atol=1e-5)
    assert W.weights_.nnz < 120 * 119 / 2


@pytest.mark.parametrize("power", [0.0, 0.5])
def test_warm_start_ends_where_a_cold_one_does(random_matrix, power):
    R = random_matrix(200, 60)
    warm = SLIM(l1=0.5, l2=1.0, popularity_power=power, warm_start=True).fit(R)
    for l1, l2 in ((2.0, 1.0), (0.1, 5.0)):
        warm.set_params(l1=l1, l2=l2).fit(R)
        cold = SLIM(l1, l2, popularity_power=power).fit(R)
        np.testing.assert_allclose(warm.weights(), cold.weights(), atol=1e-6)


def test_warm_start_knows_items_by_their_ids(random_matrix):
    R = random_matrix(200, 30)
    old = deql.Interactions.from_csr(R[:, :20].tocsr(), items=[f"item {i}" for i in range(20)])
    turned = np.arange(29, 4, -1)  # other order, five items gone and ten new ones
    new = deql.Interactions.from_csr(R[:, turned].tocsr(), items=[f"item {i}" for i in turned])
    model = SLIM(l1=0.5, l2=1.0, warm_start=True).fit(old)
    start, kept = model._start(new).toarray(), turned[10:]
    np.testing.assert_array_equal(start[10:, 10:], model.weights()[np.ix_(kept, kept)])
    assert not start[:10].any()
    assert not start[:, :10].any()
    np.testing.assert_allclose(model.fit(new).weights(), SLIM(l1=0.5, l2=1.0).fit(new).weights(), atol=1e-6)


def test_warm_start_of_a_model_from_a_file(toy, tmp_path):
    SLIM(l1=0.1, l2=0.5, user_power=0.3).fit(toy).save(tmp_path / "slim.deql")
    loaded = deql.load(tmp_path / "slim.deql")
    loaded.set_params(warm_start=True, l1=0.3).fit(toy)
    np.testing.assert_allclose(loaded.weights(), SLIM(0.3, 0.5, user_power=0.3).fit(toy).weights(), atol=1e-6)


def test_out_of_sweeps(random_matrix):
    with pytest.warns(UserWarning, match=r"^\d+ of 30 columns of SLIM still moved after 2 sweeps; set .* higher$"):
        SLIM(l1=0.0, l2=0.1, max_sweeps=2).fit(random_matrix(100, 30))


def test_every_weight_zero(toy):
    with pytest.warns(
        UserWarning, match="^every weight of SLIM is zero: two items have at most 3 in common; set l1 below that$"
    ):
        model = SLIM(l1=3.0).fit(toy)
    assert model.weights_.nnz == 0
    assert model.recommend([["tea"]], k=2).ids.shape == (1, 2)


def test_items_that_nobody_has_together():
    with pytest.warns(UserWarning, match="at most 0 in common; SLIM has nothing to learn from these data$"):
        SLIM().fit(csr_array(np.eye(3)))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"l1": -1.0}, "l1 must be a number from 0 up, got -1.0"),
        ({"l2": float("nan")}, "l2 must be a number from 0 up, got nan"),
        ({"tolerance": "fine"}, "tolerance must be a number from 0 up, got 'fine'"),
        ({"max_sweeps": 0}, "max_sweeps must be a whole number from 1 up, got 0"),
        ({"user_power": float("inf")}, "user_power must be a number, got inf"),
    ],
)
def test_bad_parameters(toy, parameters, words):
    with pytest.raises(ParameterError, match=f"^{words}$"):
        SLIM(**parameters).fit(toy)


def test_bad_values():
    with pytest.raises(DataError, match="nan"):
        SLIM().fit(csr_array([[1.0, np.nan]]))
