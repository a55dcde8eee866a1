"""Models that hold W itself: the same verbs, and the same answers as X @ W by NumPy."""

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csc_array, csr_array
from sklearn.base import clone

import deql
from deql.errors import DataError, ModelFileError, ParameterError

N = 40


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(3)
    return deql.Interactions.from_csr(
        csr_array((generator.random((120, N)) < np.linspace(0.05, 0.4, N)) * generator.uniform(0.5, 2.0, (120, N))),
        items=[f"item {i}" for i in range(N)],
    )


@pytest.fixture(scope="module")
def W():
    generator = np.random.default_rng(4)
    return generator.standard_normal((N, N)) * (generator.random((N, N)) < 0.6)


def sparse(W):
    return deql.CustomLinear(csc_array(W))


def dense(W):
    return deql.CustomLinear(W)


def factored(W):
    return deql.LowRankDEQL(rank=5, l2=1.0, dropout=0.2)


@pytest.fixture(params=[sparse, dense, factored])
def model(request, data, W):
    return request.param(W).fit(data)


def best(scores, history, allowed, k):
    order = sorted((i for i in range(N) if allowed[i] and i not in history), key=lambda i: (-scores[i], i))
    return order[:k]


@pytest.mark.parametrize("power", [0.0, 0.4])
@pytest.mark.parametrize("kind", [sparse, dense, factored])
def test_lists_are_those_of_numpy(data, W, kind, power):
    model = kind(W).set_params(popularity_power=power).fit(data)
    plain = kind(W).fit(data).weights()
    scaled = plain * np.maximum(model.item_counts_, 1.0) ** -power
    np.testing.assert_allclose(model.weights(), scaled, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.diagonal(), np.diag(scaled), rtol=1e-5, atol=1e-6)
    X = data.matrix[:50]
    allowed = np.arange(N) % 7 != 0
    found = model.recommend(X, k=6, exclude=[f"item {i}" for i in range(0, N, 7)])
    scores = X.toarray() @ model.weights()
    for u in range(50):
        items = best(scores[u], set(X[[u]].indices), allowed, 6)
        if X[[u]].nnz:
            assert found.ids[u].tolist() == [f"item {i}" for i in items]
            np.testing.assert_allclose(found.scores[u], scores[u, items], rtol=1e-4, atol=1e-5)


def test_squared_error_is_that_of_numpy(model, data):
    split = deql.split_weak(data, seed=1)
    fitted = clone(model).fit(split.train)
    result = deql.evaluate(fitted, split.test, metrics=["mse", "recall@5"])
    X, Y = split.test.seen.matrix.toarray(), split.test.held_out.matrix.toarray()
    judged = (Y != 0).any(axis=1)
    errors = ((Y - X @ fitted.weights()) ** 2 * (X == 0))[judged].sum(axis=1)
    cold = ~X[judged].any(axis=1)
    errors[cold] = (Y[judged][cold] ** 2).sum(axis=1)
    deql_rows = deql.evaluate(deql.EASE(1e12).fit(split.train), split.test, metrics=["mse"])
    nothing = (Y**2 * (X == 0))[judged].sum()
    assert result.means["mse"] / deql_rows.means["mse"] == pytest.approx(errors.sum() / nothing, rel=1e-4)


def test_custom_weights_from_a_function_are_fitted_anew_on_every_split(data):
    seen = []

    def weights(train):
        seen.append(train.n_interactions)
        return np.ones((train.n_items, train.n_items))

    table = deql.compare({"ones": deql.CustomLinear(weights), "pop": deql.Popularity()}, data, splits=2)
    assert len(seen) == 2
    assert "ones" in str(table)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.ones((3, N)), "(40, 40)"),
        (np.ones(N), "(40, 40)"),
        (np.full((N, N), "a"), "real numbers"),
        ([[1.0], [1.0, 2.0]], "real numbers"),
        (np.ma.masked_array(np.eye(N), np.eye(N) > 0), "without a mask"),
        (pd.DataFrame(np.eye(N)), "got a frame"),
        (np.full((N, N), 1j), "real numbers"),
        (np.where(np.arange(N) == 7, np.nan, np.ones((N, N))), "item 7"),
        (csc_array(np.where(np.arange(N) == 7, np.inf, np.eye(N))), "item 7"),
        (lambda data: np.ones((2, 2)), "(40, 40)"),
        (None, "no weights"),
    ],
)
def test_wrong_weights_are_refused_in_a_sentence(data, given, words):
    with pytest.raises((ParameterError, DataError), match=words.replace("(", r"\(").replace(")", r"\)")):
        deql.CustomLinear(given).fit(data)


def test_whole_numbers_will_do_and_a_loaded_model_cannot_be_fitted(data, tmp_path):
    model = deql.CustomLinear(np.eye(N, dtype=int)).fit(data)
    assert model.diagonal().tolist() == [1.0] * N
    model.save(tmp_path / "a.deql")
    with pytest.raises(ParameterError, match="model file keeps the weights"):
        deql.load(tmp_path / "a.deql").fit(data)


@pytest.mark.parametrize("name", ["left", "values", "weights"])
def test_a_file_whose_parts_do_not_fit_is_refused(data, W, tmp_path, monkeypatch, name):
    kind = {"left": factored, "values": sparse, "weights": dense}[name]
    model = kind(W).fit(data)
    state = type(model)._state

    def cut(self):
        arrays, facts = state(self)
        return arrays | {name: arrays[name][1:]}, facts

    monkeypatch.setattr(type(model), "_state", cut)
    model.save(tmp_path / "a.deql")
    with pytest.raises(ModelFileError, match="damaged"):
        deql.load(tmp_path / "a.deql")


def test_ties_go_to_the_lower_column_and_few_candidates_leave_gaps(data):
    model = deql.CustomLinear(np.zeros((N, N))).fit(data)
    found = model.recommend([["item 2"]], k=5, candidates=["item 9", "item 4", "item 2"])
    assert found.ids.tolist() == [["item 4", "item 9", None, None, None]]
    assert np.isnan(found.scores[0, 2:]).all()


def test_the_weights_given_stay_the_callers(data, W):
    given = csc_array(([1.0, 2.0, 3.0], [5, 1, 1], [0, 3] + [3] * (N - 1)), shape=(N, N))  # unsorted, one entry twice
    before = (given.data.copy(), given.indices.copy())
    model = deql.CustomLinear(given, popularity_power=0.5).fit(data)
    assert np.array_equal(given.data, before[0])
    assert np.array_equal(given.indices, before[1])
    assert model.weights_.nnz == 2
    mine = W.copy()
    model = deql.CustomLinear(mine).fit(data)
    mine[:] = 0
    assert np.array_equal(model.weights(), W)


def test_a_fit_that_fails_leaves_the_one_before(data):
    model = deql.CustomLinear(np.eye(N)).fit(data)
    with pytest.raises(ParameterError, match="shape"):
        model.set_params(W=np.eye(3)).fit(data)
    assert model.diagonal().tolist() == [1.0] * N
    assert model.recommend([["item 3"]], k=1).ids.shape == (1, 1)


@pytest.mark.parametrize("kind", [sparse, dense, factored])
def test_a_power_that_overflows_is_refused(data, W, kind):
    with pytest.raises(ParameterError, match="popularity_power=-500 makes weights too large"):
        kind(W).set_params(popularity_power=-500.0).fit(data)


@pytest.mark.parametrize(("name", "place", "value"), [("rows", 0, N), ("rows", 0, -1), ("indptr", 5, 10**6)])
def test_a_file_whose_weights_lie_outside_is_refused(data, W, tmp_path, monkeypatch, name, place, value):
    model = sparse(W).fit(data)
    state = type(model)._state

    def forged(self):
        arrays, facts = state(self)
        wrong = arrays[name].copy()
        wrong[place] = value
        return arrays | {name: wrong}, facts

    monkeypatch.setattr(type(model), "_state", forged)
    model.save(tmp_path / "a.deql")
    with pytest.raises(ModelFileError, match="damaged"):
        deql.load(tmp_path / "a.deql")


def test_a_contest_says_which_model_failed_and_calls_functions_by_name(data):
    def nothing(train):
        return np.zeros((2, 2))

    with pytest.raises(ParameterError, match=r"^CustomLinear nothing: the weights must have shape"):
        deql.compare([deql.Popularity(), deql.CustomLinear(nothing)], data, splits=2)
