"""How exact P stays over updates: measured, told, mended by a refit, and refused where it is lost."""

import copy
import pickle

import numpy as np
import pytest
from scipy.sparse import csr_array

import deql
from deql.errors import InaccurateInverseError, NotPositiveDefiniteError, ParameterError
from deql.models import update
from deql.priors import ItemFeatures

N = 30


def users_of(generator, count, n=N, first=0):
    """Users with a popularity of each item's own, numbered from ``first``."""
    chance = np.random.default_rng(1).permutation(np.linspace(0.05, 0.5, n))
    R = (generator.random((count, n)) < chance).astype(np.float32)
    R[np.arange(count), generator.integers(0, n, count)] = 1
    return deql.Interactions.from_csr(csr_array(R), users=np.arange(first, first + count))


@pytest.fixture
def data():
    return users_of(np.random.default_rng(0), 90)


@pytest.fixture
def more():
    return users_of(np.random.default_rng(5), 3, first=1000)


def precision(model):
    return model.precision_.to_dense().astype(np.float64)


def test_rounding_that_has_added_up_is_mended_by_a_refit(data, more, monkeypatch):
    monkeypatch.setattr(update, "DRIFT", 0.0)
    model = deql.EASE(l2=1e-3).fit(data, keep_data=True)
    model.updated_ = deql.models.update_report.UpdateState(4, 0.0, 1.0)
    report = model.update(more)
    assert (report.plan.method, report.method) == ("low rank", "refit")
    assert "so P was computed anew" in report.notes[0]
    assert "so P was computed anew" in str(report)
    assert report.state.count == 0
    assert report.state.fit_residual == report.residual == model.residual_
    assert np.array_equal(precision(model), precision(deql.EASE(l2=1e-3).fit(model.data_)))


@pytest.mark.parametrize("keep", [True, False])
def test_a_refit_is_advised_where_none_is_done(data, more, keep, monkeypatch):
    monkeypatch.setattr(update, "DRIFT", 0.0)
    model = deql.EASE(l2=1e-3).fit(data, keep_data=keep)
    model.updated_ = deql.models.update_report.UpdateState(4, 0.0, 1.0)
    report = model.update(more, new_users=True, method="low rank" if keep else "auto")
    assert report.method == "low rank"
    assert report.notes[0].endswith("fit the model again soon.")
    assert report.state.count == 5


@pytest.mark.parametrize("keep", [True, False])
def test_an_inverse_that_is_lost_is_refused_and_the_model_stays(data, more, keep, monkeypatch):
    model = deql.EASE(l2=1.0).fit(data, keep_data=keep)
    before = dict(model.__dict__)
    monkeypatch.setattr(update, "DRIFT", 0.0)
    monkeypatch.setattr(update, "LARGEST_RESIDUAL", 0.0)
    model.updated_ = before["updated_"] = deql.models.update_report.UpdateState(4, 0.0, 1.0)
    with pytest.raises(InaccurateInverseError, match="so nothing was changed: fit the model again"):
        model.update(more, new_users=True, method="low rank")
    assert model.__dict__ == before


def test_what_rounding_leaves_not_positive_is_fitted_anew(data):
    model = deql.EASE(l2=1.0, dtype="float64").fit(data, keep_data=True)
    wrong = precision(model)
    wrong[0, 0] *= -1
    model.precision_ = type(model.precision_).from_dense(wrong, model.precision_.tile)
    report = model.update(forget_users=[3])
    assert report.method == "refit"
    assert np.allclose(precision(model), precision(deql.EASE(l2=1.0, dtype="float64").fit(model.data_)), rtol=1e-10)


def test_without_a_ridge_what_would_be_singular_is_refused(data):
    model = deql.EDLAE(l2=0.0, dropout=0.4, dtype="float64").fit(data, keep_data=True)
    P = model.precision_
    last = data.take_users(data.matrix[:, [7]].toarray().ravel() > 0).take_items(np.array([7]))
    with pytest.raises(NotPositiveDefiniteError, match="1 item has no interactions"):
        model.update(removed=last)
    assert model.precision_ is P
    model.update(removed=last, retire_items=[7])
    assert 7 not in model.items_


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_without_a_ridge_items_come_and_go(data, dropout):
    model = deql.DEQL(l2=0.0, dropout=dropout, dtype="float64").fit(data, keep_data=True)
    new = deql.Interactions.from_pairs([3, 5, 77, 2000], [500, 500, 501, 501])
    assert model.update(new, retire_items=[4], method="low rank").residual < 1e-10
    expected = deql.DEQL(l2=0.0, dropout=dropout, dtype="float64").fit(model.data_)
    assert np.allclose(model.weights(), expected.weights(), rtol=0, atol=1e-8)


def test_a_hundred_updates_in_single_precision_are_a_fit_in_double():
    n, generator = 200, np.random.default_rng(2)
    model = deql.EDLAE(l2=5.0, dropout=0.3, user_power=0.3).fit(users_of(generator, 400, n), keep_data=True)
    for step in range(100):
        there = model.data_
        gone = generator.choice(there.users, 2, replace=False)
        row = there.take_users(np.flatnonzero(~np.isin(there.users, gone))[[step]])
        model.update(
            users_of(generator, 2, n, first=1000 + 10 * step),
            row.keep(np.arange(row.n_interactions) == 0),
            forget_users=gone,
            method="low rank",
        )
    assert model.updated_.count == 100
    exact = precision(deql.EDLAE(l2=5.0, dropout=0.3, user_power=0.3, dtype="float64").fit(model.data_))
    assert np.abs(precision(model) - exact).max() <= 1e-3 * np.abs(exact).max()
    assert np.linalg.norm(precision(model) - exact) <= 1e-3 * np.linalg.norm(exact)
    assert model.residual_ < update.DRIFT


def test_the_state_of_updates_goes_where_the_model_goes(data, more, tmp_path):
    kinds = {item: {"kind": f"kind {item % 4}"} for item in range(N)}
    model = deql.EDLAE(l2=2.0, dropout=0.3, prior=ItemFeatures(kinds)).fit(data, keep_data=True)
    model.updated_ = state = deql.models.update_report.UpdateState(7, 1e-6, 123.5)
    model.save(tmp_path / "model.deql")
    assert deql.load(tmp_path / "model.deql").updated_ == state
    for other in (model.with_rule(b=2.0), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other.updated_ == state
    model.add_items({900: {"kind": "kind 1"}})
    assert model.updated_ == state
    assert model.fit(data).updated_ is None


def test_a_refit_begins_to_count_anew(data, more):
    model = deql.EASE(l2=2.0).fit(data, keep_data=True)
    model.update(more, method="low rank")
    model.update(forget_users=[1], method="low rank")
    assert model.updated_.count == 2
    fitted = model.updated_.fit_residual
    assert model.update(method="auto").method == "none"
    assert (model.updated_.count, model.updated_.fit_residual) == (2, fitted)
    model.update(forget_users=[2], method="refit")
    assert model.updated_.count == 0


def test_copies_of_the_inverse_by_rows_follow_either_way(data):
    model = deql.EASE(l2=2.0).fit(data, keep_data=True)
    model.quantize_rows()
    for method in ("low rank", "refit"):
        old = model.quantized_rows_
        model.update(forget_users=model.data_.users[:1], method=method)
        assert model.quantized_rows_ is not None
        assert model.quantized_rows_ is not old


def test_a_refit_leaves_the_tiles_alone_that_others_use(data, tmp_path):
    engine = deql.engines.Disk(memory="64MiB", folder=tmp_path / "tiles")
    model = deql.EASE(l2=2.0, engine=engine).fit(data, keep_data=True)
    other = model.with_rule(popularity_power=0.0)
    weights = other.weights()
    for method in ("low rank", "refit", "low rank"):
        model.update(forget_users=model.data_.users[:1], method=method)
        expected = deql.EASE(l2=2.0).fit(model.data_).weights()
        assert np.abs(model.weights() - expected).max() < 1e-5
        assert np.array_equal(other.weights(), weights)
    assert model.engine == model.fitted_params_["engine"] == engine


def test_a_refit_needs_the_data(data, more):
    model = deql.EASE(l2=2.0).fit(data)
    with pytest.raises(ParameterError, match="a refit needs the data"):
        model.update(more, new_users=True, method="refit")


def test_new_users_follow_without_data(data, more):
    model = deql.DEQL(l2=2.0, dropout=0.4, user_power=0.5, dtype="float64").fit(data)
    report = model.update(more, new_users=True)
    assert report.plan.reason.endswith("a refit would need the data.")
    expected = deql.DEQL(l2=2.0, dropout=0.4, user_power=0.5, dtype="float64").fit(deql.join(data, more))
    assert model.n_users_ == expected.n_users_
    assert model.item_counts_.tolist() == expected.item_counts_.tolist()
    assert np.allclose(model.weights(), expected.weights(), rtol=0, atol=1e-12)
    assert 0 < report.residual < 1e-12


def test_what_was_set_since_the_fit_does_not_count(data):
    model = deql.EASE(l2=2.0, dtype="float64").fit(data, keep_data=True)
    model.set_params(dtype="float32", l2=900.0)
    model.update(forget_users=[1], method="low rank")
    assert model.precision_.dtype == np.float64
    expected = deql.EASE(l2=2.0, dtype="float64").fit(model.data_)
    assert np.allclose(precision(model), precision(expected), rtol=0, atol=1e-12)
