"""Pruned models, against dense weights pruned by NumPy."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import deql
from deql.engines import Disk, Neighbours
from deql.errors import DataError, NotFittedError, ParameterError, TooLargeError
from deql.linalg.packed import PackedSymmetric
from deql.models import largest_weights as module
from deql.models import pruning
from deql.models.largest_weights import largest_weights
from deql.priors import ItemFeatures, LowPass
from tests.models.contract import N, cases, interactions

FAMILY = cases(lambda case: getattr(case.make(), "engine", None) == "auto")


@pytest.fixture(scope="module")
def data():
    return interactions()


@pytest.fixture(scope="module")
def X():
    return interactions(users=30, seed=1).matrix


@pytest.fixture(scope="module")
def model(data):
    return deql.EDLAE(l2=2.0, dropout=0.4).fit(data)


def pruned(W, k):
    """The diagonal and the k largest of each column, of equals the first."""
    off = np.where(np.eye(len(W), dtype=bool), -1.0, np.abs(W.astype(float)))
    kept = np.zeros(W.shape, bool)
    np.put_along_axis(kept, np.argsort(-off, axis=0, kind="stable")[:k], True, axis=0)
    np.fill_diagonal(kept, True)
    return np.where(kept, W, 0.0), kept


class TestWeights:
    @pytest.mark.parametrize("case", FAMILY)
    @pytest.mark.parametrize("k", [1, 5])
    def test_are_the_largest_of_each_column(self, case, data, k, capsys):
        model = case.make().fit(data)
        before = model.checksum()
        small = model.prune(k)
        assert type(small) is type(model)
        np.testing.assert_allclose(small.weights(), pruned(model.weights(), k)[0], rtol=0, atol=1e-6)
        np.testing.assert_allclose(small.diagonal(), model.diagonal(), rtol=0, atol=1e-6)
        assert model.checksum() == before
        assert model.pruned_ is None
        assert small.get_params() == model.get_params()

    @pytest.mark.parametrize("case", FAMILY)
    @pytest.mark.parametrize("k", [N - 1, 1000, 10**30])
    def test_all_of_them_give_the_same_lists(self, case, data, X, k):
        model = case.make().fit(data)
        small = model.prune(k)
        assert small.pruned_.per_item == N - 1
        assert small.pruned_.share == pytest.approx(1.0)
        for exclude_seen in (True, False):
            found, expected = (one.recommend(X, k=N, exclude_seen=exclude_seen) for one in (small, model))
            assert found.ids.tolist() == expected.ids.tolist()
            np.testing.assert_allclose(found.scores, expected.scores, rtol=0, atol=1e-5)

    @settings(max_examples=40, deadline=None)
    @given(
        n=st.integers(1, 40), tile=st.integers(1, 40), k=st.integers(1, 45), panel=st.integers(1, 500),
        whole_numbers=st.booleans(), double=st.booleans(),
    )  # fmt: skip
    def test_of_any_tiles_and_panels_with_ties(self, n, tile, k, panel, whole_numbers, double):
        generator = np.random.default_rng(n * tile)
        half = generator.integers(-2, 3, (n, n)) if whole_numbers else generator.normal(size=(n, n))
        P = PackedSymmetric.from_dense((half + half.T).astype(np.float64 if double else np.float32), min(tile, n))
        gain = generator.normal(size=n)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_PANEL", panel)
            found = largest_weights(P, gain, None, None, k)
        expected, kept = pruned(P.to_dense(), k)
        assert found.precision.to_dense().tolist() == expected.tolist()
        assert len(found.precision.columns) == kept.sum()
        off = (P.to_dense() * gain) ** 2 * (1 - np.eye(n))
        assert found.share == pytest.approx(off[kept].sum() / off.sum() if off.sum() else 1.0)

    def test_are_the_same_with_any_number_of_threads(self, monkeypatch):
        model, found = deql.EASE(l2=2.0).fit(interactions(users=300, items=200)), []
        for threads in ("1", "3"):
            monkeypatch.setenv("DEQL_THREADS", threads)
            found.append(model.prune(20).checksum())
        assert found[0] == found[1]

    def test_of_p_on_disk(self, data, tmp_path):
        items = 700  # more than one tile
        many = interactions(users=300, items=items)
        there, here = (
            deql.EASE(l2=200.0, engine=engine).fit(many) for engine in (Disk(folder=tmp_path / "tiles"), "memory")
        )
        np.testing.assert_allclose(
            there.prune(30).precision_.to_dense(), pruned(there.precision_.to_dense(), 30)[0], rtol=0, atol=0
        )
        here.save(tmp_path / "model.deql", shards=True)
        loaded = deql.load(tmp_path / "model.deql")
        assert loaded.prune(30).precision_.data.tobytes() == here.prune(30).precision_.data.tobytes()

    def test_of_features_with_cold_items_and_those_added(self, data, capsys):
        features = {f"item {i}": {"kind": "ab"[i % 2], "size": float(i)} for i in range(N)}
        model = deql.DEQL(l2=2.0, prior=ItemFeatures(features | {"cold": {"kind": "a", "size": 3.0}})).fit(data)
        model.add_items({"newer": {"kind": "b", "size": 2.0}})
        small = model.prune(6)
        assert small.items_.tolist() == model.items_.tolist()
        np.testing.assert_allclose(small.weights(), pruned(model.weights(), 6)[0], rtol=0, atol=1e-6)
        assert [part.shared for part in small.explain(["item 3"], "item 5")] == [
            part.shared for part in model.explain(["item 3"], "item 5")
        ]

    def test_whatever_was_set_since_the_fit(self, data):
        model = deql.DEQL(l2=2.0, b=1.5).fit(data)
        expected = model.prune(4).weights()
        model.set_params(b=9.0, l2=77.0)
        assert model.prune(4).weights().tobytes() == expected.tobytes()


class TestModel:
    @pytest.mark.parametrize("prior", [None, LowPass(3)])
    def test_is_saved_and_loaded(self, data, X, prior, tmp_path):
        small = deql.DEQL(l2=2.0, b=1.5, prior=prior).fit(data, keep_data=True).prune(4)
        for shards in (False, True):
            path = tmp_path / f"small{shards}.deql"
            small.save(path, shards=shards)
            loaded = deql.load(path)
            assert loaded.checksum() == small.checksum()
            assert loaded.recommend(X, k=5).scores.tobytes() == small.recommend(X, k=5).scores.tobytes()
            assert loaded.pruned_ is None
            assert loaded.data_.n_users == data.n_users

    def test_other_rules_keep_the_same_places(self, model):
        small = model.prune(4)
        kept = pruned(model.weights(), 4)[1]
        expected = np.where(kept, model.with_rule(b=2.0).weights(), 0.0)
        np.testing.assert_allclose(small.with_rule(b=2.0).weights(), expected, rtol=0, atol=1e-7)

    def test_is_exact_again_after_a_fit(self, model, data):
        small = model.prune(2)
        assert small.fit(data).pruned_ is None
        assert small.checksum() == model.checksum()

    def test_leaves_other_copies_of_p_behind(self, data):
        model = deql.EASE(l2=2.0).fit(data).quantize_rows()
        assert model.prune(3).quantized_rows_ is None
        assert model.quantized_rows_ is not None

    def test_cannot_be_pruned_again_or_updated(self, model, data):
        for small in (model.prune(3), deql.EASE(l2=2.0, engine=Neighbours(k=3)).fit(data)):
            with pytest.raises(ParameterError, match="holds some entries of P alone, and cannot be pruned"):
                small.prune(2)
            with pytest.raises(ParameterError, match="holds some entries of P alone, and cannot be updated"):
                small.update(data)


class TestCost:
    def test_on_a_target_is_that_of_evaluate(self, model, data, capsys):
        target = deql.split_strong(interactions(users=200, seed=3)).test
        small = model.prune(2, target)
        facts = small.pruned_
        for one, found in ((model, facts.before), (small, facts.after)):
            assert found == pytest.approx(deql.evaluate(one, target, ("ndcg@20", "recall@20")).means)
        assert (facts.users, facts.own_data, facts.per_item) == (target.seen.n_users, False, 2)
        assert (facts.weights, facts.weights_before) == (3 * N, N * N)
        assert facts.bytes == 8 * (N + 1) + 8 * 3 * N
        assert facts.bytes_before == model.precision_.data.nbytes
        assert capsys.readouterr().err == f"deql: {facts}\n"
        assert f"NDCG@20 {facts.before['ndcg@20']:.4f} → {facts.after['ndcg@20']:.4f}" in str(facts)
        assert f"on {facts.users} users" in str(facts)

    def test_on_a_table_of_others_is_the_score(self, model):
        others = interactions(users=40, seed=4)
        small = model.prune(2, others)
        assert small.pruned_.before["ndcg@20"] == pytest.approx(model.score(others))
        assert small.pruned_.after["ndcg@20"] == pytest.approx(small.score(others))
        assert model.prune(2, others.matrix).pruned_.after == small.pruned_.after

    def test_on_the_models_own_data_is_said_to_be_that(self, data, monkeypatch):
        model = deql.EASE(l2=2.0).fit(data, keep_data="hashed")
        facts = model.prune(2).pruned_
        assert facts.own_data
        assert facts.users == (np.diff(data.matrix.indptr) > 1).sum()
        assert "of the model's own data, on which it does too well: give a target" in str(facts)
        monkeypatch.setattr(pruning, "_OWN_USERS", 7)
        assert model.prune(2).pruned_.users == 7
        assert model.prune(2).pruned_ == model.prune(2).pruned_

    def test_without_data_is_a_share(self, model):
        facts = model.prune(2).pruned_
        W = model.weights().astype(float) * (1 - np.eye(N))
        assert facts.share == pytest.approx((pruned(W, 2)[0] ** 2).sum() / (W**2).sum(), rel=1e-5)
        assert (facts.users, facts.before, facts.after) == (0, None, None)
        assert str(facts).endswith("give a target (split.test, --data FILE) to see what that costs in accuracy")

    def test_of_own_data_in_which_nobody_has_two_items_is_a_share(self):
        model = deql.EASE(l2=1.0).fit(csr_array(np.eye(4)), keep_data=True)
        assert model.prune(2).pruned_.before is None

    def test_leaves_out_users_with_nothing_held_out(self, model, data):
        part = deql.split_strong(interactions(users=200, seed=3)).test
        empty = replace(part.held_out, matrix=part.held_out.matrix * (np.arange(part.held_out.n_users) > 4)[:, None])
        empty = replace(empty, matrix=csr_array(empty.matrix.toarray()))
        assert model.prune(2, deql.HeldOut(part.seen, empty)).pruned_.users == part.seen.n_users - 5


class TestRefusals:
    @pytest.mark.parametrize("k", [0, -1, 2.5, "x", None, True])
    def test_per_item(self, model, k):
        with pytest.raises(ParameterError, match=r"^per_item must be a whole number from 1 up, got"):
            model.prune(k)

    def test_before_a_fit(self):
        with pytest.raises(NotFittedError):
            deql.EASE().prune(3)

    def test_targets(self, model, data):
        split = deql.split_strong(data)
        with pytest.raises(ParameterError, match=r"such as split\.test"):
            model.prune(2, split)
        with pytest.raises(deql.DeqlError, match=r"^[^\n]+$"):
            model.prune(2, 3)
        for items in ([f"other {i}" for i in range(N)], range(N)):
            with pytest.raises(DataError, match="knows none of the items"):
                model.prune(2, deql.Interactions.from_csr(data.matrix, items=list(items)))
        nothing = replace(split.test.held_out, matrix=csr_array(split.test.held_out.shape))
        with pytest.raises(DataError, match="no user has anything held out"):
            model.prune(2, deql.HeldOut(split.test.seen, nothing))

    def test_too_little_memory(self, model, monkeypatch):
        monkeypatch.setattr(module, "free_memory", lambda: 1000)
        with pytest.raises(TooLargeError, match=r"^3 weights for each of 12 items are too many to keep: it needs"):
            model.prune(3)

    @pytest.mark.parametrize("kind", [deql.Popularity, deql.SLIM, deql.LowRankDEQL, deql.ELSA, deql.CustomLinear])
    def test_models_without_p_have_no_such_verb(self, kind):
        assert not hasattr(kind, "prune")
