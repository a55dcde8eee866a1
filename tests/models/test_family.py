"""Every model against brute-force minimisation of its own loss."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.base import clone

import deql
from deql.errors import InaccurateInverseError, NotFittedError, NotPositiveDefiniteError, ParameterError
from deql.evaluation.model_groups import describe
from deql.objective import brute_force, expected_loss
from tests.random_data import ratings

DROPOUT = st.floats(0.05, 0.9)
RIDGE = st.sampled_from([0.0, 0.3, 5.0, 100.0])
EMPHASIS = st.sampled_from([0.0, 0.1, 0.5, 1.0, 1.7, 4.0, np.inf])
BOUND = st.sampled_from([0.0, 0.01, 0.1, 0.3, 0.6, 1.0])
USER_POWER = st.sampled_from([0.0, 0.0, 0.6])


def gram_of(R, user_power=0.0):
    weights = np.maximum((R != 0).sum(axis=1), 1) ** -float(user_power)
    return R.T @ (weights[:, None] * R)


def paper_terms(l2, p, b):
    """λ, a and b of the paper for the library's l2 and b."""
    a, b = (1.0, b) if np.isfinite(b) else (0.0, 1.0)
    return {"lam": l2 * (1 - p) ** 2 * (p * a**2 + (1 - p) * b**2), "p": p, "a": a, "b": b}


def assert_agrees(model, R, expected):
    """1e-10 in float64 and 1e-4 relative in float32; returns the float64 model."""
    double = model.set_params(dtype="float64").fit(csr_array(R))
    np.testing.assert_allclose(double.weights(), expected, rtol=0, atol=1e-10 * max(1.0, np.abs(expected).max()))
    single = clone(model).set_params(dtype="float32").fit(csr_array(R))
    assert single.weights().dtype == np.float32
    np.testing.assert_allclose(single.weights(), expected, rtol=0, atol=1e-4 * np.abs(expected).max())
    return double


@given(R=ratings(), l2=RIDGE, p=DROPOUT, b=EMPHASIS, zero=st.booleans(), power=USER_POWER)
def test_deql_is_the_minimiser(R, l2, p, b, zero, power):
    expected = brute_force(gram_of(R, power), zero_diagonal=zero, **paper_terms(l2, p, b))
    model = assert_agrees(deql.DEQL(l2=l2, dropout=p, b=b, zero_diagonal=zero, user_power=power), R, expected)
    assert model.paper_l2_ == pytest.approx(paper_terms(l2, p, b)["lam"])
    np.testing.assert_allclose(model.diagonal(), np.diag(expected), atol=1e-9)


@given(R=ratings(), l2=st.sampled_from([0.3, 5.0, 100.0]))
def test_ridge_models_are_minimisers(R, l2):
    S = gram_of(R)
    assert_agrees(deql.LAE(l2=l2), R, np.linalg.inv(S + l2 * np.eye(len(S))) @ S)
    assert_agrees(deql.LAE(l2=l2), R, brute_force(S, lam=l2, p=0.0, a=1.0, b=1.0))
    assert_agrees(deql.EASE(l2=l2), R, brute_force(S, lam=l2, p=0.0, a=1.0, b=1.0, zero_diagonal=True))


@given(R=ratings(), l2=RIDGE, p=DROPOUT)
def test_denoising_models_are_minimisers(R, l2, p):
    S = gram_of(R)
    assert_agrees(deql.DLAE(l2=l2, dropout=p), R, brute_force(S, **paper_terms(l2, p, 1.0)))
    assert_agrees(deql.EDLAE(l2=l2, dropout=p), R, brute_force(S, **paper_terms(l2, p, 0.0)))


@given(R=ratings(), l2=st.sampled_from([0.3, 5.0, 100.0]), p=DROPOUT, xi=BOUND)
def test_relaxed_models_are_constrained_minimisers(R, l2, p, xi):
    S = gram_of(R)
    assert_agrees(deql.RLAE(l2=l2, xi=xi), R, brute_force(S, bound=xi, **paper_terms(l2, 0.0, 1.0)))
    assert_agrees(deql.RDLAE(l2=l2, dropout=p, xi=xi), R, brute_force(S, bound=xi / (1 - p), **paper_terms(l2, p, 1.0)))


def test_edlae_is_steck_s_formula(asymmetric_ratings):
    R, p = asymmetric_ratings, 0.4
    S = (R.T @ R).toarray()
    C = np.linalg.inv(S + p / (1 - p) * np.diag(np.diag(S)))
    steck = (np.eye(len(S)) - C / np.diag(C)) / (1 - p)
    np.testing.assert_allclose(deql.EDLAE(0.0, p, dtype="float64").fit(R).weights(), steck, atol=1e-12)


@given(R=ratings(), lam=st.sampled_from([0.5, 10.0]), p=DROPOUT, b=st.sampled_from([0.3, 1.0, 2.5]))
def test_zero_diagonal_is_edlae_at_another_ridge(R, lam, p, b):
    """DEQL(L2 + zero-diag) at λ equals EDLAE at λ·p/κ."""
    kappa = p + (1 - p) * b**2
    constrained = deql.DEQL.from_paper(lam, p, 1.0, b, zero_diagonal=True, dtype="float64").fit(csr_array(R))
    emphasised = deql.DEQL.from_paper(lam * p / kappa, p, 1.0, 0.0, dtype="float64").fit(csr_array(R))
    np.testing.assert_allclose(constrained.weights(), emphasised.weights(), atol=1e-10)
    edlae = deql.EDLAE(constrained.l2, p, dtype="float64").fit(csr_array(R))
    np.testing.assert_allclose(constrained.weights(), edlae.weights(), atol=1e-12)


@given(R=ratings(), a=st.sampled_from([0.5, 2.0]), b=st.sampled_from([0.4, 1.0, 3.0]), p=DROPOUT)
def test_paper_parameters_are_spoken_as_in_the_paper(R, a, b, p):
    model = deql.DEQL.from_paper(lam=4.0, p=p, a=a, b=b, dtype="float64").fit(csr_array(R))
    np.testing.assert_allclose(model.weights(), brute_force(gram_of(R), lam=4.0, p=p, a=a, b=b), atol=1e-10)
    assert model.paper_l2_ == pytest.approx(4.0 / a**2)


def test_from_paper_with_nothing_dropped_counting(asymmetric_ratings):
    R = asymmetric_ratings
    model = deql.DEQL.from_paper(lam=4.0, p=0.3, a=0.0, b=2.0, dtype="float64").fit(R)
    assert np.isinf(model.b)
    np.testing.assert_allclose(
        model.weights(), brute_force((R.T @ R).toarray(), lam=4.0, p=0.3, a=0.0, b=2.0), atol=1e-10
    )
    with pytest.raises(ParameterError, match="loss is empty"):
        deql.DEQL.from_paper(lam=1.0, p=0.0, a=1.0, b=0.0)


@pytest.mark.parametrize(("b", "zero"), [(0.0, False), (0.5, False), (1.0, False), (3.0, False), (0.5, True)])
def test_no_perturbation_has_a_smaller_loss(b, zero, asymmetric_ratings):
    R, p, l2 = asymmetric_ratings, 0.35, 1.5
    S, terms = (R.T @ R).toarray(), paper_terms(l2, p, b)
    W = deql.DEQL(l2, p, b, zero, dtype="float64").fit(R).weights()
    best = expected_loss(W, S, **terms)
    generator = np.random.default_rng(0)
    for trial in range(1000):
        step = generator.standard_normal(W.shape) * 10.0 ** -(trial % 6)
        if zero or b == 0:
            np.fill_diagonal(step, 0.0)
        assert expected_loss(W + step, S, **terms) >= best * (1 - 1e-13)


@given(R=ratings(), l2=st.sampled_from([0.5, 20.0]), p=DROPOUT)
@settings(max_examples=50)
def test_special_cases_coincide(R, l2, p):
    def weights(model):
        return model.set_params(dtype="float64").fit(csr_array(R)).weights()

    for one, *others in [
        (deql.EDLAE(l2, p), deql.DEQL(l2, p, 0.0), deql.RDLAE(l2, p, 0.0)),
        (deql.DLAE(l2, p), deql.DEQL(l2, p, 1.0), deql.RDLAE(l2, p, 1.0)),
        (deql.LAE(l2), deql.DEQL(l2, 0.0, 2.0), deql.RLAE(l2, 1.0)),
        (deql.EASE(l2), deql.DEQL(l2, 0.0, 0.0), deql.DEQL(l2, 0.0, 0.7, True), deql.RLAE(l2, 0.0)),
        (deql.DEQL(l2, p, np.inf), deql.DEQL(l2, p, 1e200)),
    ]:
        expected = weights(one)
        for other in others:
            np.testing.assert_allclose(weights(other), expected, atol=1e-10)


@given(R=ratings(), p=DROPOUT, l2=RIDGE, b=EMPHASIS, zero=st.booleans())
def test_with_rule_equals_a_fresh_fit(R, p, l2, b, zero):
    first = deql.DEQL(l2, p, 0.5, dtype="float64").fit(csr_array(R))
    other = first.with_rule(b=b, zero_diagonal=zero, popularity_power=0.3)
    fresh = deql.DEQL(l2, p, b, zero, popularity_power=0.3, dtype="float64").fit(csr_array(R))
    np.testing.assert_array_equal(other.weights(), fresh.weights())
    assert other.precision_ is first.precision_
    assert (first.b, other.b) == (0.5, b)


@given(R=ratings(), l2=st.sampled_from([0.5, 20.0]), p=DROPOUT)
@settings(max_examples=50)
def test_one_inverse_serves_the_whole_family(R, l2, p):
    def fitted(model):
        return model.set_params(dtype="float64").fit(csr_array(R))

    for one, changes, other in [
        (deql.EDLAE(l2, p), {"b": 0.7}, deql.DEQL(l2, p, 0.7)),
        (deql.EASE(l2), {"zero_diagonal": False}, deql.LAE(l2)),
        (deql.DLAE(l2, p), {"zero_diagonal": True}, deql.EDLAE(l2, p)),
        (deql.DEQL(l2, p, 0.2), {"xi": 0.3}, deql.RDLAE(l2, p, 0.3)),
        (deql.LAE(l2), {"xi": 0.3, "popularity_power": 0.2}, deql.RLAE(l2, 0.3, popularity_power=0.2)),
        (deql.RDLAE(l2, p, 0.1), {"xi": 1.0}, deql.DLAE(l2, p)),
        (deql.RDLAE(l2, p, 0.1), {"b": 0.0}, deql.EDLAE(l2, p)),
    ]:
        changed = fitted(one).with_rule(**changes)
        np.testing.assert_allclose(changed.weights(), fitted(other).weights(), atol=1e-10)
    assert fitted(deql.RLAE(l2, 0.2)).with_rule(xi=0.4).__class__ is deql.RLAE


def test_with_rule_says_what_it_cannot_change(asymmetric_ratings):
    model = deql.EASE(2.0).fit(asymmetric_ratings)
    for changes in ({"l2": 3.0}, {"b": 1.0, "xi": 0.1}, {"speed": 1}):
        with pytest.raises(ParameterError, match="need another fit"):
            model.with_rule(**changes)
    with pytest.raises(ParameterError, match="b must be"):
        model.with_rule(b=-1.0)


def test_popularity_power_scales_columns(asymmetric_ratings):
    R = asymmetric_ratings
    plain = deql.DEQL(2.0, 0.3, 0.7, dtype="float64").fit(R)
    scaled = plain.with_rule(popularity_power=0.5)
    counts = (R.toarray() != 0).sum(axis=0)
    np.testing.assert_allclose(scaled.weights(), plain.weights() * counts**-0.5, atol=1e-12)
    assert not deql.EASE(2.0, popularity_power=0.5).fit(R).diagonal().any()


@pytest.mark.parametrize("changes", [{"l2": 1000.0}, {"dropout": 0.9}, {"b": 3.0}])
def test_parameters_set_after_the_fit_wait_for_the_next(changes, asymmetric_ratings, tmp_path):
    model = deql.DEQL(10.0, 0.3, 0.5).fit(asymmetric_ratings)
    before, other = model.paper_l2_, model.with_rule(zero_diagonal=True).weights()
    model.set_params(**changes)
    assert model.paper_l2_ == before
    np.testing.assert_array_equal(model.with_rule(zero_diagonal=True).weights(), other)
    model.save(tmp_path / "m.deql")
    assert deql.load(tmp_path / "m.deql").get_params() == deql.DEQL(10.0, 0.3, 0.5).get_params()


def test_single_precision_values_are_squared_in_double():
    R = np.array([[4097.0, 1.0], [1.0, 3.0], [0.1, 0.0]], np.float32)
    model = deql.DEQL(1.0, 0.3, 0.5, dtype="float64").fit(csr_array(R))
    S = R.astype(float).T @ R.astype(float)
    np.testing.assert_array_equal(model.gram_diagonal_, np.diag(S))
    np.testing.assert_allclose(model.weights(), brute_force(S, **paper_terms(1.0, 0.3, 0.5)), atol=1e-10)


@pytest.mark.parametrize("b", [1e-170, 1e-9, 1e9, 1e200])
def test_extreme_emphasis_reaches_its_limit(b, asymmetric_ratings):
    model = deql.DEQL(2.0, 0.3, b, dtype="float64").fit(asymmetric_ratings)
    limit = model.with_rule(b=0.0 if b < 1 else np.inf)
    np.testing.assert_allclose(model.weights(), limit.weights(), atol=1e-9)
    assert model.paper_l2_ >= 0


def test_fit_on_many_items_goes_through_tiles():
    """Above 2,048 items the matrix is cut: the same weights, and half the memory."""
    generator = np.random.default_rng(5)
    n = 2300
    R = csr_array((generator.random((800, n)) < 0.02).astype(np.float32))
    model = deql.DEQL(20.0, 0.3, 0.5).fit(R)
    assert model.precision_.n_blocks == 12
    S = (R.T @ R).toarray().astype(float)
    P = np.linalg.inv(S + np.diag(0.3 / 0.7 * np.diag(S) + 20.0))
    gain, shift = deql.rules.decoupled(np.diag(P), np.diag(S), l2=20.0, dropout=0.3, b=0.5)
    expected = P * gain + np.diag(shift)
    np.testing.assert_allclose(model.weights(), expected, atol=1e-5 * np.abs(expected).max())


class TestBadInput:
    def test_empty_items_without_a_ridge_are_named_before_the_work(self, monkeypatch):
        monkeypatch.setattr("deql.linalg.gram.gram", lambda *a, **k: pytest.fail("the work was started"))
        R = np.array([[1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
        data = deql.Interactions.from_csr(csr_array(R), items=["tea", "jam", "egg", "oat"])
        for model in (deql.EASE(0.0), deql.DEQL(0.0, 0.3, 0.5)):
            with pytest.raises(
                NotPositiveDefiniteError, match=r"2 items have no interactions \('jam', 'oat'\)"
            ) as caught:
                model.fit(data)
            assert caught.value.indices == [1, 3]

    def test_empty_items_with_a_ridge_get_no_weight(self):
        R = csr_array(np.array([[1.0, 0.0, 1.0], [1.0, 0.0, 0.0]]))
        W = deql.DEQL(1.0, 0.3, 0.5).fit(R).weights()
        assert not W[1].any()
        assert not W[:, 1].any()

    def test_more_items_than_users_need_a_ridge(self):
        with pytest.raises(NotPositiveDefiniteError, match="2 users cannot determine 3 items"):
            deql.EASE(0.0).fit(csr_array(np.array([[1.0, 1.0, 1.0], [0.0, 1.0, 1.0]])))

    def test_equal_items_without_a_ridge_are_named(self):
        R = np.array([[1.0, 0.0, 1.0], [1.0, 1.0, 1.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
        data = deql.Interactions.from_csr(csr_array(R), items=["tea", "jam", "egg"])
        with pytest.raises(NotPositiveDefiniteError, match="'tea', 'egg' occur with exactly the same users"):
            deql.LAE(0.0).fit(data)

    def test_a_dependent_item_is_named_or_the_inverse_refused(self):
        generator = np.random.default_rng(0)
        R = (generator.random((40, 5)) < 0.5).astype(float)
        R[:, 4] = R[:, 0] + R[:, 1]
        data = deql.Interactions.from_csr(csr_array(R), items=list("abcde"))
        with pytest.raises((NotPositiveDefiniteError, InaccurateInverseError), match="set l2 above 0"):
            deql.EASE(0.0).fit(data)

    @pytest.mark.parametrize(
        ("model", "message"),
        [
            (deql.EASE(-1.0), "l2 must be a number from 0 up, got -1"),
            (deql.EASE(float("nan")), "l2 must be a number from 0 up, got nan"),
            (deql.EASE("many"), "l2 must be a number from 0 up, got 'many'"),
            (deql.DLAE(1.0, 1.0), "dropout must be a number from 0 to below 1, got 1"),
            (deql.DEQL(1.0, 0.3, -0.1), "b must be a number from 0 up"),
            (deql.DEQL(1.0, 0.3, float("nan")), "b must be a number from 0 up"),
            (deql.RLAE(1.0, 1.5), "xi must be a number from 0 to 1, got 1.5"),
            (deql.EASE(1.0, user_power=float("inf")), "user_power must be a number, got inf"),
            (
                deql.EASE(1.0, engine="abacus"),
                "'auto', 'memory', 'disk', 'torch', 'dask' or 'neighbours', got 'abacus'",
            ),
            (deql.EASE(1.0, dtype="int8"), "dtype must be 'float32' or 'float64', got 'int8'"),
        ],
    )
    def test_parameters_out_of_range(self, model, message, asymmetric_ratings):
        with pytest.raises(ParameterError, match=message):
            model.fit(asymmetric_ratings)

    def test_unfitted(self):
        with pytest.raises(NotFittedError, match="call fit first"):
            _ = deql.EASE().paper_l2_


@pytest.mark.parametrize("kind", [deql.EASE, deql.LAE, deql.DLAE, deql.EDLAE, deql.RLAE, deql.RDLAE, deql.DEQL])
def test_few_items_are_inverted_in_memory(kind, asymmetric_ratings):
    assert kind(l2=3.0, user_power=0.2).fit(asymmetric_ratings).engine_ == "memory"


def test_the_repr_starts_with_the_models_own_parameters():
    assert repr(deql.DEQL()) == "DEQL(l2=60.0, dropout=0.3, b=0.5)"
    assert repr(deql.DEQL(user_power=0.5)) == "DEQL(l2=60.0, dropout=0.3, b=0.5, user_power=0.5)"
    assert repr(deql.DEQL(zero_diagonal=True)) == "DEQL(l2=60.0, dropout=0.3, b=0.5, zero_diagonal=True)"
    slim = deql.SLIM(2.0, 3.0, popularity_power=0.1, user_power=0.3)
    assert repr(slim) == "SLIM(l1=2.0, l2=3.0, user_power=0.3, popularity_power=0.1)"
    assert describe(slim) == "SLIM l1=2 l2=3 user_power=0.3 popularity_power=0.1"
    assert repr(deql.EASE(np.array([1.0, 2.0]))) == "EASE(l2=array([1., 2.]))"  # refused by fit, and to be read there
    assert repr(deql.DEQL(80.0, user_power=0.5, b=2.0)) == "DEQL(l2=80.0, dropout=0.3, b=2.0, user_power=0.5)"
    own = deql.CustomLinear(np.eye(3), popularity_power=0.1)
    assert repr(own) == "CustomLinear(W=<3 × 3 ndarray>, popularity_power=0.1)"
    assert repr(deql.EASE(engine=deql.engines.Disk("4GiB"))) == "EASE(l2=250.0, engine=Disk(memory='4GiB'))"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"memory": "4GiB"}, r"say engine=deql\.engines\.Disk\(memory='4GiB'\)"),
        ({"folder": "tiles"}, r"Disk\(folder='tiles'\)"),
        ({"device": "cuda:1"}, r"Torch\(device='cuda:1'\)"),
        ({"precision": "tf32"}, r"Torch\(arithmetic='tf32'\)"),
    ],
)
def test_who_gives_an_engine_s_parameter_to_a_model_is_told_where_it_goes(given, said):
    for kind in (deql.EASE, deql.DEQL):
        with pytest.raises(deql.ParameterError, match=said):
            kind(**given)
