"""Models with a prior, against column-by-column minimisation of their loss."""

import dataclasses
import json
import pickle
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.base import clone

import deql
from deql.errors import ModelFileError, ParameterError
from deql.evaluation.evaluator import group_models
from deql.evaluation.model_groups import fit_and_evaluate
from deql.io import container
from deql.io.model_file import _KIND
from deql.linalg.gram import SharedGram, gram
from deql.models import linear
from deql.models.fitted_prior import FittedPrior
from deql.objective import moments
from deql.priors import LowPass, Matrix, Prior, PriorWeights
from tests.models.contract import interactions
from tests.models.test_family import BOUND, EMPHASIS, gram_of, paper_terms
from tests.models.test_loading import forged, refused
from tests.random_data import ratings

RIDGE = st.sampled_from([0.3, 5.0, 100.0])
DROPOUT = st.floats(0.05, 0.9)
SHARE = st.sampled_from([0.0, 0.2, 1.0, 1.7])
KINDS = st.sampled_from(["dense", "thin", "thin with a diagonal"])


@dataclass(frozen=True, eq=False)
class Given(Prior):
    """Any prior, as it is."""

    of: Any

    def weights(self, data, **_how):
        return self.of

    @property
    def config(self):
        return {"prior": "given"}


def prior_weights(n, kind="thin", seed=5, rank=3):
    generator = np.random.default_rng(seed)
    left = generator.normal(size=(n, n if kind == "dense" else rank)).astype(np.float32)
    right = None if kind == "dense" else generator.normal(size=(n, rank)).astype(np.float32)
    scale = generator.uniform(0.2, 1.5, n)
    return PriorWeights(left, right, scale, generator.normal(size=n) * (kind == "thin with a diagonal"))


def brute_force(S, W0, share, *, lam, p, a, b, most=None, own=None):
    """The minimiser with share·λ·‖W − W₀‖² for as much of the ridge; W_ii at most ``most``, or exactly ``own``."""
    n = len(S)
    W = np.empty((n, n))
    for i in range(n):
        H, v = moments(S, i, p=p, a=a, b=b)
        H, v, others = H + lam * np.eye(n), v + share * lam * W0[:, i], np.arange(n) != i
        W[:, i] = np.linalg.solve(H, v)
        fixed = own if own is not None else most if most is not None and W[i, i] > most else None
        if fixed is not None:
            W[others, i] = np.linalg.solve(H[np.ix_(others, others)], v[others] - H[others, i] * fixed)
            W[i, i] = fixed
    return W


def assert_agrees(model, R, expected):
    """The factors are in float32, whatever the type of P."""
    largest = max(1.0, abs(expected).max())
    for dtype, limit in (("float64", 2e-5), ("float32", 3e-4)):
        fitted = clone(model).set_params(dtype=dtype).fit(csr_array(R))
        np.testing.assert_allclose(fitted.weights(), expected, rtol=0, atol=limit * largest)
        np.testing.assert_allclose(fitted.diagonal(), np.diag(expected), rtol=0, atol=limit * largest)
    return fitted


@settings(max_examples=60)
@given(
    R=ratings(), l2=RIDGE, p=DROPOUT, b=EMPHASIS, zero=st.booleans(), share=SHARE, kind=KINDS,
    power=st.sampled_from([0.0, 0.6]), alpha=st.sampled_from([0.0, 0.4]),
)  # fmt: skip
def test_deql_is_the_minimiser(R, l2, p, b, zero, share, kind, power, alpha):
    W0 = prior_weights(R.shape[1], kind)
    terms = paper_terms(l2, p, b)
    expected = brute_force(gram_of(R, power), W0.to_dense(), share, own=0.0 if zero else None, **terms)
    expected *= (R != 0).sum(axis=0) ** -alpha
    model = deql.DEQL(l2, p, b, zero, user_power=power, popularity_power=alpha, prior=Given(W0), prior_weight=share)
    fitted = assert_agrees(model, R, expected)
    if zero:
        n = np.arange(R.shape[1], dtype=np.int32)
        for diagonal in (fitted.diagonal(), fitted.weights().diagonal(), fitted._weights_at(n, n)):
            assert (diagonal == 0).all()


@settings(max_examples=20)
@given(R=ratings(), l2=RIDGE, p=DROPOUT, share=SHARE, kind=KINDS)
def test_so_are_its_kin(R, l2, p, share, kind):
    S, W0 = gram_of(R), prior_weights(R.shape[1], kind)
    towards = {"prior": Given(W0), "prior_weight": share}
    found = {
        deql.EASE(l2, **towards): brute_force(S, W0.to_dense(), share, own=0.0, **paper_terms(l2, 0.0, 1.0)),
        deql.LAE(l2, **towards): brute_force(S, W0.to_dense(), share, **paper_terms(l2, 0.0, 1.0)),
        deql.DLAE(l2, p, **towards): brute_force(S, W0.to_dense(), share, **paper_terms(l2, p, 1.0)),
        deql.EDLAE(l2, p, **towards): brute_force(S, W0.to_dense(), share, **paper_terms(l2, p, 0.0)),
    }
    for model, expected in found.items():
        assert_agrees(model, R, expected)


@settings(max_examples=30)
@given(R=ratings(), l2=RIDGE, p=DROPOUT, xi=BOUND, share=SHARE, kind=KINDS)
def test_bounded_diagonals_are_constrained_minimisers(R, l2, p, xi, share, kind):
    S, W0 = gram_of(R), prior_weights(R.shape[1], kind)
    towards = {"prior": Given(W0), "prior_weight": share}
    rlae = brute_force(S, W0.to_dense(), share, most=xi, **paper_terms(l2, 0.0, 1.0))
    assert_agrees(deql.RLAE(l2, xi, **towards), R, rlae)
    rdlae = brute_force(S, W0.to_dense(), share, most=xi / (1 - p), **paper_terms(l2, p, 1.0))
    assert_agrees(deql.RDLAE(l2, p, xi, **towards), R, rdlae)


@pytest.fixture(scope="module")
def data():
    return interactions()


@pytest.fixture(scope="module")
def model(data):
    return deql.DEQL(l2=2.0, b=1.5, prior=LowPass(rank=4), prior_weight=0.5).fit(data)


class TestWithRule:
    @pytest.mark.parametrize(
        "changes",
        [
            {"prior_weight": 0.9}, {"b": 0.0}, {"zero_diagonal": True}, {"popularity_power": 0.4}, {"xi": 0.2},
            {"xi": 0.2, "prior_weight": 0.1}, {"b": 3.0, "prior_weight": 0.0, "popularity_power": -0.1},
        ],
    )  # fmt: skip
    def test_is_another_fit(self, model, data, changes):
        other = model.with_rule(**changes)
        assert other.precision_ is model.precision_
        assert other.prior_ is model.prior_
        again = type(other)(**other.get_params()).fit(data)
        assert again.weights().tobytes() == other.weights().tobytes()
        assert (again.gain_ == other.gain_).all()
        assert (again.prior_scale_ == other.prior_scale_).all()

    def test_changes_no_weight_of_a_prior_that_is_not_there(self, data):
        plain = deql.EASE(l2=2.0).fit(data)
        with pytest.raises(ParameterError, match=r"has no prior whose weight could be changed: fit it with prior=…$"):
            plain.with_rule(prior_weight=0.5)

    def test_keeps_the_prior(self, model):
        with pytest.raises(ParameterError, match=r"^with_rule keeps the prior: another one needs another fit$"):
            model.with_rule(prior=LowPass(2))

    def test_weight_zero_is_no_prior(self, model, data):
        plain = deql.DEQL(l2=2.0, b=1.5).fit(data)
        assert plain.prior_ is None
        assert plain.prior_scale_ is None
        np.testing.assert_allclose(model.with_rule(prior_weight=0.0).weights(), plain.weights(), atol=1e-6)

    def test_takes_another_prior_whose_product_is_there(self, model, data):
        prior = LowPass(rank=2)
        product = FittedPrior.of(prior.weights(data), model.precision_)
        other = model._with_prior(prior, product, prior_weight=0.3, b=0.7)
        again = deql.DEQL(l2=2.0, b=0.7, prior=prior, prior_weight=0.3).fit(data)
        assert other.weights().tobytes() == again.weights().tobytes()
        assert other.fitted_params_ == again.fitted_params_
        none = model._with_prior(None, None)
        assert none.weights().tobytes() == deql.DEQL(l2=2.0, b=1.5).fit(data).weights().tobytes()


class TestEvaluation:
    def test_groups_are_of_one_prior(self, model, data):
        other = deql.DEQL(l2=2.0, b=1.5).fit(data)
        same = model.with_rule(b=0.2, prior_weight=0.1)
        without = model._with_prior(None, None)
        assert group_models([model, other, same, without]) == [[0, 2], [1], [3]]

    def test_models_together_are_as_alone(self, model):
        held_out = deql.split_strong(interactions(users=200, seed=3)).test
        models = [model, model.with_rule(prior_weight=2.0, b=0.1), model._with_prior(None, None)]
        metrics = ["recall@3", "ndcg@5", "mse"]
        together = deql.evaluate(models, held_out, metrics)
        assert [one.means for one in together] == [deql.evaluate(one, held_out, metrics).means for one in models]
        W = models[1].weights().astype(float)
        seen, truth = held_out.seen.matrix.toarray(), held_out.held_out.matrix.toarray()
        errors = np.where(seen == 0, (truth - seen @ W) ** 2, 0.0)
        per_user = together[1].per_user["mse"]
        np.testing.assert_allclose(per_user / per_user.sum(), errors.sum(axis=1) / errors.sum(), rtol=1e-4)

    def test_models_of_several_priors_share_one_inverse(self, data, monkeypatch):
        W, more = np.ones((12, 12)), WithMore(prior_weights(15))
        models = {
            "a": deql.EASE(2.0, prior=LowPass(2)), "b": deql.EASE(2.0), "c": deql.LAE(2.0, prior=LowPass(2)),
            "d": deql.EASE(2.0, prior=W), "e": deql.LAE(2.0, prior=W), "f": deql.EASE(2.0, prior=more),
        }  # fmt: skip
        target = deql.split_strong(interactions(users=200, seed=3)).test
        alone = {name: deql.evaluate(clone(model).fit(data), target) for name, model in models.items()}
        inverses, products, solve, of = [], [], linear.solve, FittedPrior.of
        monkeypatch.setattr(linear, "solve", lambda *given, **named: inverses.append(1) or solve(*given, **named))
        monkeypatch.setattr(FittedPrior, "of", lambda *given: products.append(1) or of(*given))
        together = fit_and_evaluate(models, data, target, ["recall@20", "ndcg@20"])
        assert (len(inverses), len(products)) == (1, 3)
        assert {name: one.means for name, one in together.items()} == {name: one.means for name, one in alone.items()}
        # A prior that adds items leaves a P that fits no other.
        fit_and_evaluate({name: models[name] for name in "fa"}, data, target, ["recall@20"])
        assert len(inverses) == 3

    def test_pairs_are_scored_as_they_are_ranked(self, model):
        history = {"item 1": 2.0, "item 4": 1.0}
        ids, scores = model.recommend([history], k=12, exclude_seen=False)
        assert [model.explain(history, item).score for item in ids[0].tolist()] == scores[0].tolist()


@pytest.mark.parametrize("kind", ["dense", "thin", "thin with a diagonal"])
def test_engines_agree(kind, tmp_path, random_matrix):
    data = deql.Interactions.from_csr(random_matrix(900, 600))
    prior = Given(prior_weights(600, kind))
    engines = [deql.engines.Memory(), deql.engines.Disk(folder=tmp_path / "tiles")]
    if pytest.importorskip("torch"):
        engines.append(deql.engines.Torch(device="cpu"))
    first, *others = (deql.DEQL(l2=20.0, prior=prior, engine=engine).fit(data) for engine in engines)
    assert [first.engine_, *(other.engine_ for other in others)] == ["memory", "disk", "torch"]
    for other in others:
        np.testing.assert_allclose(other.prior_.left, first.prior_.left, atol=1e-6)
        np.testing.assert_allclose(other.weights(), first.weights(), atol=1e-5)
    rows = data.matrix[:20]
    lists = first.recommend(rows, k=5)
    assert first.to("cpu").recommend(rows, k=5).ids.tolist() == lists.ids.tolist()
    assert first.quantize_rows().recommend(rows, k=5).scores.tobytes() == lists.scores.tobytes()


@dataclass(frozen=True, eq=False)
class WithMore(Given):
    """A prior that knows further items."""

    extra: int = 3

    def with_items(self, data):
        names = np.array([*data.items.tolist(), *(f"new {place}" for place in range(self.extra))], object)
        matrix = csr_array((data.matrix.data, data.matrix.indices, data.matrix.indptr), (data.n_users, len(names)))
        return deql.Interactions(matrix, data.users, names)


@dataclass(frozen=True, eq=False)
class Asked(Given):
    """A prior that remembers what it may compute with."""

    told: dict[str, Any] = field(default_factory=dict)

    def weights(self, data, **how):
        self.told.update(how)
        return self.of


class TestWhatAPriorMayUse:
    @pytest.mark.parametrize("progress", [False, True])
    def test_is_told_by_the_fit(self, data, progress):
        prior = Asked(prior_weights(12))
        deql.EASE(2.0, prior=prior, progress=progress).fit(data)
        assert prior.told["device"] is None
        assert callable(prior.told["report"]) == progress

    @pytest.mark.parametrize(("device", "told"), [("cpu", None), (None, "cuda"), ("cuda:1", "cuda:1")])
    def test_is_the_device_that_fits(self, data, device, told, monkeypatch):
        prior = Asked(prior_weights(12))
        monkeypatch.setattr(linear, "choose_engine", lambda *_given, **_named: deql.engines.Torch(device))
        deql.EASE(2.0, prior=prior).fit(data)
        assert prior.told["device"] == told

    def test_is_the_device_that_has_the_Gram_matrix(self, data):
        torch = pytest.importorskip("torch")
        S = gram(data.matrix)
        prior = Asked(prior_weights(12))
        deql.EASE(2.0, prior=prior).fit_gram(data, SharedGram(0.0, S, S.diagonal()))
        assert prior.told["device"] is None
        from deql.linalg.engines.torch_packed import DevicePacked

        there = DevicePacked.from_host(S, torch.device("cpu"))
        deql.EASE(2.0, prior=prior).fit_gram(data, SharedGram(0.0, there, S.diagonal()))
        assert prior.told["device"] is None

    def test_what_its_product_takes_is_counted(self, data, monkeypatch):
        counted, solve, cold = [], linear.solve, np.arange(15) >= 12
        monkeypatch.setattr(
            linear,
            "solve",
            lambda problem, *given, **named: counted.append(problem.beside) or solve(problem, *given, **named),
        )
        wide = prior_weights(15, rank=200)
        deql.EASE(2.0, prior=WithMore(wide)).fit(data)
        deql.EASE(2.0, prior=WithMore(dataclasses.replace(wide, cold=cold))).fit(data)
        assert counted == [4 * 15 * 200, 5 * 4 * 15 * 200]


class TestItemsThatNobodyHas:
    @pytest.mark.parametrize("power", [0.0, 0.6])
    @pytest.mark.parametrize("kind", ["dense", "thin", "thin with a diagonal"])
    def test_get_the_weights_that_minimise_the_loss(self, data, kind, power):
        W0 = prior_weights(15, kind)
        model = deql.DEQL(5.0, 0.3, 0.7, user_power=power, prior=WithMore(W0), prior_weight=0.5).fit(data)
        R = np.hstack([data.matrix.toarray(), np.zeros((data.n_users, 3))])
        expected = brute_force(gram_of(R, power), W0.to_dense(), 0.5, **paper_terms(5.0, 0.3, 0.7))
        np.testing.assert_allclose(model.weights(), expected, atol=1e-5)
        assert model.items_.tolist()[12:] == ["new 0", "new 1", "new 2"]
        assert model.item_counts_[12:].tolist() == [0, 0, 0]
        assert model.precision_.n == len(model.gram_diagonal_) == 15
        # A cold item is evidence by the prior alone: its row of W is m/l2·W₀.
        np.testing.assert_allclose(model.weights()[12, :12], 0.5 * W0.to_dense()[12, :12], atol=1e-6)

    def test_are_recommended_kept_and_saved(self, data, tmp_path):
        model = deql.EASE(2.0, prior=WithMore(prior_weights(15))).fit(data, keep_data=True)
        assert "new 1" in model.recommend([["item 3"]], k=15).ids[0].tolist()
        assert model.explain(["new 1"], "item 3").score != 0
        model.save(tmp_path / "m.deql")
        loaded = deql.load(tmp_path / "m.deql")
        assert loaded.weights().tobytes() == model.weights().tobytes()
        assert loaded.data_.items.tolist() == model.data_.items.tolist() == model.items_.tolist()

    def test_need_no_gram_matrix(self, data):
        model = deql.EASE(2.0, prior=WithMore(prior_weights(15)))
        S = gram(data.matrix)
        shared = SharedGram(0.0, S, S.diagonal())
        assert model.fit_gram(data, shared).weights().tobytes() == model.fit(data).weights().tobytes()

    def test_are_on_the_device_too(self, random_matrix):
        pytest.importorskip("torch")
        data = deql.Interactions.from_csr(random_matrix(300, 40), items=[f"item {i}" for i in range(40)])
        prior = WithMore(prior_weights(43))
        model = deql.EASE(2.0, prior=prior, engine=deql.engines.Torch(device="cpu")).fit(data)
        np.testing.assert_allclose(model.weights(), deql.EASE(2.0, prior=prior).fit(data).weights(), atol=1e-5)


class TestParameters:
    def test_of_a_prior_are_checked(self, data):
        for wrong, said in (
            (
                {"prior": "lowpass"},
                r"^prior must be an object of deql.priors, .*, got str: say deql.priors.LowPass\(\)$",
            ),
            ({"prior": LowPass}, r"got the class LowPass: say LowPass\(\)$"),
            ({"prior": deql.EASE()}, r"got EASE: say deql.priors.Model\(model\)$"),
            ({"prior": np.zeros(3)}, "got ndarray$"),
            ({"prior_weight": -0.1}, "^prior_weight must be a number from 0 up"),
            ({"prior_weight": np.inf}, "^prior_weight must be a number from 0 up"),
            ({"prior": LowPass(2), "l2": 0.0}, "^a prior takes its share of l2, which is 0: set l2 above 0"),
        ):
            with pytest.raises(ParameterError, match=said):
                deql.DEQL(**wrong).fit(data)

    def test_weights_that_are_too_large_are_refused(self, data):
        with pytest.raises(ParameterError, match=r"^prior_weight=1e\+30 makes weights too large for float32"):
            deql.EASE(2.0, prior=np.full((12, 12), 1e20), prior_weight=1e30).fit(data)

    def test_are_cloned_and_pickled(self, model, data):
        copy = clone(model).set_params(prior_weight=0.1)
        assert copy.prior == LowPass(rank=4)
        assert copy.fit(data).weights().tobytes() == model.with_rule(prior_weight=0.1).weights().tobytes()
        back = pickle.loads(pickle.dumps(model))
        assert back.weights().tobytes() == model.weights().tobytes()
        assert back.with_rule(prior_weight=0.1).gain_.tobytes() == copy.gain_.tobytes()

    def test_of_a_matrix_are_short_in_words(self):
        model = deql.EASE(2.0, prior=np.zeros((500, 500)), prior_weight=0.5)
        assert repr(model) == "EASE(l2=2.0, prior=Matrix(500 × 500 ndarray), prior_weight=0.5)"
        assert "prior" not in repr(deql.EASE(2.0))
        assert repr(deql.EASE(2.0, prior=3)) == "EASE(l2=2.0, prior=3)"

    def test_a_second_fit_without_a_prior_forgets_it(self, data):
        model = deql.EASE(2.0, prior=LowPass(2)).fit(data).set_params(prior=None).fit(data)
        assert model.prior_ is None
        assert model.weights().tobytes() == deql.EASE(2.0).fit(data).weights().tobytes()


def saved(model, path):
    model.save(path)
    metadata, arrays = container.read(_KIND, path)
    return metadata, {name: np.array(array) for name, array in arrays.items()}


class TestFile:
    def test_without_a_prior_is_as_before(self, data, tmp_path):
        metadata, arrays = saved(deql.EASE(2.0).fit(data), tmp_path / "m.deql")
        assert json.loads(metadata["parameters"]) == {
            "dtype": "float32", "engine": "auto", "l2": 2.0, "popularity_power": 0.0, "user_power": 0.0
        }  # fmt: skip
        assert not [name for name in arrays if name.startswith("prior")]

    def test_brings_the_prior_back(self, model, tmp_path):
        metadata, _ = saved(model, tmp_path / "m.deql")
        config = {"prior": "lowpass", "rank": 4, "power_in": 0.0, "power_out": 0.6}
        assert json.loads(metadata["parameters"])["prior"] == config
        # By which a version that knows no priors says that it does not know the kind, and to update.
        assert metadata["model"] == "DEQL with a prior"
        loaded = deql.load(tmp_path / "m.deql")
        assert loaded.prior == LowPass(rank=4)
        assert loaded.weights().tobytes() == model.weights().tobytes()
        assert loaded.with_rule(prior_weight=0.1).gain_.tobytes() == model.with_rule(prior_weight=0.1).gain_.tobytes()

    @pytest.mark.parametrize("quantized", [False, True])
    def test_of_a_matrix_works_but_cannot_be_fitted_again(self, data, quantized, tmp_path):
        W0 = np.random.default_rng(0).normal(size=(12, 12))
        model = deql.EASE(2.0, prior=W0).fit(data)
        model.save(tmp_path / "m.deql", quantized_rows=quantized)
        loaded = deql.load(tmp_path / "m.deql")
        assert loaded.weights().tobytes() == model.weights().tobytes()
        rows = data.matrix[:9]
        assert loaded.recommend(rows, k=5).scores.tobytes() == model.recommend(rows, k=5).scores.tobytes()
        with pytest.raises(ParameterError, match=r"kept what its prior made, not the prior \(matrix\): give prior=…"):
            loaded.fit(data)
        loaded.save(tmp_path / "again.deql", quantized_rows=quantized)
        assert (tmp_path / "again.deql").read_bytes() == (tmp_path / "m.deql").read_bytes()

    def test_with_quantised_rows_gives_the_same_lists(self, model, data, tmp_path):
        model.save(tmp_path / "m.deql", quantized_rows=True)
        loaded = deql.load(tmp_path / "m.deql")
        lists = model.recommend(data.matrix[:9], k=5)
        assert loaded.quantized_rows_.covers(
            model.gain_, model.shift_, data.matrix, loaded._prior_term(loaded.prior_scale_)
        )
        assert loaded.recommend(data.matrix[:9], k=5).scores.tobytes() == lists.scores.tobytes()
        other = LowPass(rank=2)
        changed = loaded._with_prior(other, FittedPrior.of(other.weights(data), loaded.precision_))
        assert changed.quantized_rows_ is None

    def test_that_is_damaged_is_refused(self, model, data, tmp_path):
        for one in (model, deql.EASE(2.0, prior=Matrix(np.eye(12))).fit(data)):
            metadata, arrays = saved(one, tmp_path / "m.deql")
            for name in [name for name in arrays if name.startswith("prior")]:
                array, path = arrays[name], tmp_path / "damaged.deql"
                bad = array.copy()
                bad.flat[0] = np.nan
                for other in (bad, array[:-1], array.astype(np.int32), array.reshape(1, *array.shape)):
                    refused(forged(path, metadata, arrays | {name: np.ascontiguousarray(other)}))
                refused(forged(path, metadata, {key: value for key, value in arrays.items() if key != name}))
            parameters = json.loads(metadata["parameters"])
            for prior in ("lowpass", {}, {"prior": "lowpass", "rank": -1}, {"prior": "lowpass", "depth": 1}, None):
                forged(path, metadata, arrays, parameters=json.dumps(parameters | {"prior": prior}))
                refused(path)
            del parameters["prior"]
            forged(path, metadata, arrays, parameters=json.dumps(parameters))
            refused(path, "it has factors of a prior, and no prior")

    def test_of_a_model_without_one_has_no_factors(self, data, tmp_path):
        metadata, arrays = saved(deql.EASE(2.0).fit(data), tmp_path / "m.deql")
        parameters = json.loads(metadata["parameters"]) | {"prior": {"prior": "matrix"}}
        path = forged(tmp_path / "d.deql", metadata, arrays, parameters=json.dumps(parameters))
        with pytest.raises(ModelFileError, match="it has no prior_left"):
            deql.load(path)
