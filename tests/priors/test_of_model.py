"""A fitted model as a prior, matched by item ids."""

import copy
import warnings

import numpy as np
import pytest

import deql
from deql.errors import DataError, ParameterError, TooLargeError
from deql.priors import LowPass, Model
from tests.models.contract import interactions

ITEMS = [f"item {i}" for i in range(12)]
MODELS = {
    "EASE": lambda: deql.EASE(2.0),
    "DEQL with a prior": lambda: deql.DEQL(2.0, prior=LowPass(3), popularity_power=0.2),
    "LowRankDEQL": lambda: deql.LowRankDEQL(rank=3, l2=1.0, popularity_power=0.2),
    "SLIM": lambda: deql.SLIM(l1=0.1, l2=1.0),
    "CustomLinear": lambda: deql.CustomLinear(np.arange(144.0).reshape(12, 12)),
}


@pytest.fixture(scope="module", params=MODELS)
def other(request):
    return MODELS[request.param]().fit(interactions(seed=4))


def test_has_the_weights_of_the_model(other):
    found = Model(other).weights(interactions())
    np.testing.assert_allclose(found.to_dense(), other.weights(), rtol=1e-5, atol=1e-6)
    assert (found.right is None) == (type(other) is not deql.LowRankDEQL)


def test_matches_items_by_their_ids(other):
    order = np.random.default_rng(0).permutation(12)
    data = interactions(ids=[ITEMS[i] for i in order])
    expected = other.weights()[np.ix_(order, order)]
    np.testing.assert_allclose(Model(other).weights(data).to_dense(), expected, rtol=1e-5, atol=1e-6)


def test_says_nothing_of_items_that_the_model_does_not_know(other):
    data = interactions(ids=["new", *ITEMS[1:11], "newer"])
    said = "^the model that is a prior does not know 2 of 12 items: it says nothing of them$"
    with pytest.warns(UserWarning, match=said) as caught:
        deql.EASE(2.0, prior=Model(other)).fit(data)
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings(action="ignore"):
        found = Model(other).weights(data).to_dense()
    assert not found[[0, 11]].any()
    assert not found[:, [0, 11]].any()
    np.testing.assert_allclose(found[1:11, 1:11], other.weights()[1:11, 1:11], rtol=1e-5, atol=1e-6)


def test_elsa_stays_thin():
    pytest.importorskip("torch")
    other = deql.ELSA(rank=4, epochs=1, batch_size=32).fit(interactions())
    found = Model(other).weights(interactions())
    assert found.left.shape == found.right.shape == (12, 4)
    np.testing.assert_allclose(found.to_dense(), other.weights(), atol=1e-6)


def test_pulls_all_the_way(other):
    data = interactions(users=6)
    heavy = deql.LAE(1e6, prior=Model(other), prior_weight=1.0, dtype="float64").fit(data)
    np.testing.assert_allclose(heavy.weights(), other.weights(), atol=1e-3 * abs(other.weights()).max())


def test_no_item_in_common_is_an_error(other):
    with pytest.raises(DataError, match=r"has no item in common with the data: its ids are such as 'item 0', .* 7$"):
        Model(other).weights(interactions(ids=[*range(7, 19)]))


def test_what_is_no_fitted_model_is_refused():
    data = interactions()
    for given, said in (
        (deql.EASE(), "^the model that is a prior is not fitted yet: fit it first$"),
        (deql.Popularity().fit(data), r"must be one whose scores are X @ W, such as deql.EASE, got Popularity$"),
        ("last-month.deql", "got str$"),
    ):
        with pytest.raises(ParameterError, match=said):
            deql.EASE(2.0, prior=Model(given)).fit(data)


def test_what_does_not_fit_in_memory_is_refused(monkeypatch):
    data = interactions()
    monkeypatch.setattr("deql.priors.matrix.free_memory", lambda: 100)
    with pytest.raises(TooLargeError, match="use a thin one"):
        Model(deql.EASE(2.0).fit(data)).weights(data)
    Model(deql.LowRankDEQL(rank=2).fit(data)).weights(data)


def test_copies_of_parameters_share_the_model(other):
    prior = Model(other)
    assert copy.deepcopy(prior) is prior
