"""Models that hold some entries of P: all that they can do, and one sentence for what they cannot."""

import inspect
import pickle
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

import deql
from deql.engines import Neighbours
from deql.errors import DeqlError, ModelFileError, ParameterError
from deql.evaluation.evaluator import ranked_slices
from deql.io import model_file
from deql.priors import ItemFeatures, LowPass
from tests.models.contract import N, interactions

KINDS = {
    "EASE": lambda: deql.EASE(l2=2.0, engine=Neighbours(k=4)),
    "EDLAE, float64": lambda: deql.EDLAE(l2=2.0, dropout=0.3, engine=Neighbours(k=4), dtype="float64"),
    "DEQL, prior": lambda: deql.DEQL(
        l2=2.0, b=1.5, engine=Neighbours(k=4), prior=LowPass(rank=4, power_in=0.2), prior_weight=0.6
    ),
}
HISTORY = ["item 3", "item 11", "item 0", "item 7"]
FEATURES = {f"item {i}": {"kind": "ab"[i % 2], "size": float(i)} for i in range(N)}


@pytest.fixture(scope="module")
def data():
    return replace(interactions(), users=np.arange(80))


@pytest.fixture(scope="module")
def X():
    return interactions(users=30, seed=1).matrix


@pytest.fixture(scope="module", params=KINDS)
def model(request, data):
    return KINDS[request.param]().fit(data, keep_data=True)


def best(scores, k, blocked, counts):
    """The best items of dense scores, of those at 0 the more popular first."""
    scores = np.where(blocked, -np.inf, scores)
    columns = np.lexsort((np.broadcast_to(-counts, scores.shape) * (scores == 0), -scores))[:, :k]
    top = np.take_along_axis(scores, columns, axis=1)
    return [
        [f"item {column}" if np.isfinite(score) else None for column, score in zip(*row, strict=True)]
        for row in zip(columns, top, strict=True)
    ]


class TestAnswers:
    @pytest.mark.parametrize("exclude_seen", [True, False])
    @pytest.mark.parametrize(
        ("exclude", "candidates"), [(None, None), ([0, 3, 5], None), (None, [1, 2, 8, 11]), ([2], [1, 2, 8])]
    )
    def test_lists_are_those_of_the_weights(self, model, X, exclude, candidates, exclude_seen):
        allowed = np.isin(np.arange(N), range(N) if candidates is None else candidates)
        allowed &= ~np.isin(np.arange(N), [] if exclude is None else exclude)
        filters = {
            name: [f"item {i}" for i in given]
            for name, given in (("exclude", exclude), ("candidates", candidates))
            if given is not None
        }
        found = model.recommend(X, k=N, exclude_seen=exclude_seen, **filters)
        blocked = ~allowed | ((X.toarray() != 0) & exclude_seen)
        scores = X.toarray().astype(float) @ model.weights().astype(float)
        assert (np.abs(scores) < 1e-12).any()  # more are asked for than have any weight
        scores[np.abs(scores) < 1e-12] = 0.0
        assert found.ids.tolist() == best(scores, N, blocked, model.item_counts_)

    def test_explanations_add_up_to_the_last_bit(self, model):
        found = model.recommend([HISTORY], k=N)
        for item, score in zip(found.ids[0].tolist(), found.scores[0].tolist(), strict=True):
            if item is None:
                continue
            parts = model.explain(HISTORY, item)
            assert parts.score == score == sum(part.value for part in parts)

    def test_similar_items_are_the_largest_of_a_row(self, model):
        row = model.weights()[[3]].astype(float)
        expected = best(row, N, np.arange(N) == 3, model.item_counts_)
        assert model.similar_items("item 3", k=N).ids.tolist() == expected[0]

    def test_score_pairs(self, model):
        found = model.score_pairs([HISTORY], [["item 5", "item 3"]])
        expected = model.weights().astype(float)[[3, 11, 0, 7]].sum(axis=0)[[5, 3]]
        np.testing.assert_allclose(found.scores, expected, rtol=1e-5, atol=1e-7)

    def test_evaluate_alone_and_with_other_rules(self, model, data):
        target = deql.split_strong(interactions(users=60, seed=3)).test
        names = ("ndcg@5", "recall@5", "mse", "coverage@5", "novelty@5")
        together = deql.evaluate([model, model.with_rule(b=2.0)], target, names)
        alone = [deql.evaluate(one, target, names) for one in (model, model.with_rule(b=2.0))]
        assert [one.means for one in together] == [one.means for one in alone]

    def test_with_rule_is_another_fit(self, model, data):
        other = model.with_rule(b=2.5)
        assert other.precision_ is model.precision_
        fields = {name: value for name, value in model.get_params().items() if name not in ("b", "zero_diagonal")}
        again = deql.DEQL(**{"dropout": 0.0} | fields, b=2.5, zero_diagonal=other.zero_diagonal).fit(data)
        assert other.weights().tobytes() == again.weights().tobytes()

    def test_prior_weight(self, data):
        half = KINDS["DEQL, prior"]().fit(data).with_rule(prior_weight=0.2)
        again = KINDS["DEQL, prior"]().set_params(prior_weight=0.2).fit(data)
        assert half.weights().tobytes() == again.weights().tobytes()

    def test_every_other_verb(self, model, data, tmp_path):
        assert "Neighbourhood" in repr(model.neighbours("item 3"))
        assert model.score(data) > 0
        assert model.write_recommendations(tmp_path / "lists.csv", data, k=3).users == data.n_users
        assert model.recommend(users=[3], k=2, reasons=2).ids.shape == (1, 2)
        assert model.to("cpu") is model
        assert "Neighbours(k=4)" in repr(model)
        assert "Neighbours" in model._repr_html_()
        assert model.paper_l2_ > 0
        assert model.data_.n_users == data.n_users
        assert pickle.loads(pickle.dumps(model)).checksum() == model.checksum()
        assert np.abs(deql.EASE(l2=3.0, prior=deql.priors.Model(model)).fit(data).weights()).max() > 0


class TestFiles:
    @pytest.mark.parametrize("shards", [False, True, 4096])
    def test_are_read_as_they_were_written(self, model, X, tmp_path, shards):
        model.save(tmp_path / "model.deql", shards=shards)
        loaded = deql.load(tmp_path / "model.deql")
        assert (tmp_path / "model.deql").is_dir() is bool(shards)
        assert loaded.checksum() == model.checksum()
        assert loaded.engine == Neighbours(k=4)
        assert loaded.weights().tobytes() == model.weights().tobytes()
        assert loaded.recommend(X, k=N).scores.tobytes() == model.recommend(X, k=N).scores.tobytes()
        assert loaded.with_rule(b=2.0).gain_.tobytes() == model.with_rule(b=2.0).gain_.tobytes()

    @pytest.mark.parametrize(
        ("name", "change", "said"),
        [
            ("precision_columns", lambda a: a + 1, "columns beyond the items"),
            ("precision_columns", lambda a: -a, "columns beyond the items"),
            ("precision_columns", lambda a: a[::-1].copy(), "not in order|diagonal of its P is not whole"),
            ("precision_columns", lambda a: a[:-1], "differ in number"),
            ("precision_columns", lambda a: a.astype(np.int64), "are of int64 and int64"),
            ("precision_starts", lambda a: a[:-1], "differ in number"),
            ("precision_starts", lambda a: a[::-1].copy(), "contradict themselves"),
            ("precision_starts", lambda a: np.concatenate([[0, 10**9], a[2:]]), "contradict themselves"),
            ("precision_starts", lambda a: np.concatenate([[0, -5], a[2:]]), "contradict themselves"),
            ("precision_entries", lambda a: a * np.nan, "entries of P"),
            ("precision_entries", lambda a: -a, "not positive at place 0"),
            ("precision_entries", lambda a: a.astype(np.float64), "not where those of its P are"),
            ("prior_images", lambda a: a[:-1], "not where those of its P are"),
            ("prior_images", lambda a: a * np.inf, "entries of P"),
            ("prior_own", lambda a: a[:-1], "prior_own"),
            ("prior_factor", lambda a: a[:-1], "prior_factor"),
            ("gain", lambda a: a[:-1], "gain"),
        ],
    )
    def test_that_are_damaged_are_refused_in_one_sentence(self, data, tmp_path, name, change, said):
        record = KINDS["DEQL, prior"]().fit(data)._as_record()
        record.arrays[name] = change(np.array(record.arrays[name]))
        model_file.write(tmp_path / "model.deql", record)
        with pytest.raises(ModelFileError, match=rf"^.*model.deql is damaged: .*({said})[^\n]*$"):
            deql.load(tmp_path / "model.deql")

    @pytest.mark.parametrize("name", ["precision_starts", "precision_columns", "precision_entries", "prior_images"])
    def test_that_lack_something_are_refused(self, data, tmp_path, name):
        record = KINDS["DEQL, prior"]().fit(data)._as_record()
        del record.arrays[name]
        model_file.write(tmp_path / "model.deql", record)
        with pytest.raises(ModelFileError, match=r"model.deql is damaged: [^\n]*$"):
            deql.load(tmp_path / "model.deql")

    def test_of_an_engine_that_is_not_known_here_load(self, data, tmp_path):
        record = KINDS["EASE"]().fit(data)._as_record()
        other = replace(record, parameters={**record.parameters, "engine": "abacus"})
        model_file.write(tmp_path / "model.deql", other)
        assert deql.load(tmp_path / "model.deql").engine == "auto"


CANNOT = {
    "to": lambda model, path: model.to("cuda"),
    "quantize_rows": lambda model, path: model.quantize_rows(),
    "save": lambda model, path: model.save(path, quantized_rows=True),
    "update": lambda model, path: model.update(interactions(users=3, seed=5)),
    "plan_update": lambda model, path: model.plan_update(forget_users=[0]),
    "forget": lambda model, path: model.forget(0),
    "age": lambda model, path: model.age(10),
    "attach_data": lambda model, path: model.attach_data(interactions()),
    "add_items": lambda model, path: model.add_items({"new": {"kind": "a"}}),
}


class TestRefusals:
    @pytest.mark.parametrize("verb", CANNOT)
    def test_what_needs_a_whole_p_says_so(self, model, verb, tmp_path):
        before = model.checksum()
        with pytest.raises(ParameterError, match=rf"^this {type(model).__name__} holds some entries of P alone, and "):
            CANNOT[verb](model, tmp_path / "model.deql")
        assert model.checksum() == before
        assert not list(tmp_path.iterdir())

    def test_nothing_else_is_asked_of_p(self, model):
        """A new verb must be tried here: each that may be called without arguments works, or refuses in a sentence."""
        for name, verb in inspect.getmembers(model, inspect.ismethod):
            if name.startswith("_") or name in ("fit", "fit_beside", "fit_gram", "share_fit", "plot_neighbours"):
                continue
            required = [
                one for one in inspect.signature(verb).parameters.values()
                if one.default is one.empty and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
            ]  # fmt: skip
            if not required:
                with suppress(DeqlError):
                    verb()


class TestFeatures:
    def test_are_a_prior_like_others(self, data):
        found, exact = (
            deql.EASE(l2=2.0, prior=ItemFeatures(FEATURES), engine=engine).fit(data)
            for engine in (Neighbours(k=N), "memory")
        )
        np.testing.assert_allclose(found.weights(), exact.weights(), rtol=0, atol=1e-6)
        shared = [part.shared for part in found.explain(["item 3", "item 0"], "item 5")]
        assert shared == [part.shared for part in exact.explain(["item 3", "item 0"], "item 5")]
        assert any(shared)

    def test_cold_items_are_left_out_with_a_note(self, data, capsys, tmp_path):
        more = FEATURES | {f"new {i}": {"kind": "a", "size": 3.0} for i in range(2)}
        model = deql.EASE(l2=2.0, prior=ItemFeatures(more), engine=Neighbours(k=4)).fit(data)
        assert model.items_.tolist() == data.items.tolist()
        noted = "deql: 2 items that nobody has are left out, as the neighbours engine places none"
        assert noted in capsys.readouterr().err.splitlines()
        with pytest.raises(ParameterError, match="cannot add items"):
            model.add_items({"newer": {"kind": "a", "size": 3.0}})
        model.save(tmp_path / "model.deql")
        loaded = deql.load(tmp_path / "model.deql")
        assert loaded.explain(["item 3"], "item 5") == model.explain(["item 3"], "item 5")


FEW = {
    "pruned": lambda data: deql.EDLAE(l2=5.0, dropout=0.3).fit(data).prune(per_item=1),
    "pruned, prior": lambda data: deql.DEQL(l2=5.0, b=1.5, prior=LowPass(rank=3)).fit(data).prune(per_item=2),
    "neighbours": lambda data: deql.EASE(l2=5.0, engine=Neighbours(k=1)).fit(data),
}


@pytest.fixture(scope="module", params=FEW)
def sparse(request):
    """A model of few weights; ids are in reverse order of popularity, so that neither is mistaken for the other."""
    X = np.random.default_rng(4).random((150, 30)) < np.linspace(0.02, 0.5, 30)
    return FEW[request.param](deql.Interactions.from_csr(csr_array(X[X.any(axis=1)].astype(np.float32))))


@pytest.fixture(scope="module")
def rows():
    several = np.random.default_rng(5).random((60, 30)) < 0.07
    return csr_array(np.concatenate([np.eye(30), several, np.zeros((1, 30))]).astype(np.float32))


class TestHistoriesOfWhichLittleIsSaid:
    """A few weights of each item: most histories reach few items, and some none."""

    @staticmethod
    def expected(model, rows, exclude_seen=True):
        """Lists, scores, and which are cold, by brute force."""
        X, W = rows.toarray(), model.weights().astype(float)
        scores, reached = X @ W, X @ (W != 0) > 0
        assert ((scores != 0) == reached).all()
        cold = ~(reached & (X == 0)).any(axis=1)
        ties = np.where(cold[:, None] | (scores == 0), -model.item_counts_, 0)
        scores[cold] = model.item_counts_ / model.n_users_
        scores[(X != 0) & exclude_seen] = -np.inf
        columns = np.lexsort((ties, -scores))
        scores = np.take_along_axis(scores, columns, axis=1)
        return np.where(np.isfinite(scores), columns, -1), np.where(np.isfinite(scores), scores, np.nan), cold

    @pytest.mark.parametrize("exclude_seen", [True, False])
    def test_unreached_items_come_by_popularity(self, sparse, rows, exclude_seen):
        columns, scores, cold = self.expected(sparse, rows, exclude_seen)
        assert 1 < cold.sum() < 60
        found = sparse.recommend(rows, k=30, exclude_seen=exclude_seen)
        assert found.from_popularity.tolist() == cold.tolist()
        np.testing.assert_array_equal(found.ids, columns)
        np.testing.assert_allclose(found.scores, scores, rtol=1e-5)
        best = sparse.recommend(rows, k=4, exclude_seen=exclude_seen, exclude=[29], reasons=1)
        some = [[column for column in row if column not in (-1, 29)][:4] for row in columns.tolist()]
        assert best.ids.tolist() == some
        assert all(why is None for why in best.reasons[cold].ravel())

    def test_files_pairs_and_explanations_agree(self, sparse, rows, tmp_path):
        found = sparse.recommend(rows, k=30, exclude_seen=False)
        sparse.save(tmp_path / "small.deql")
        again = deql.load(tmp_path / "small.deql").recommend(rows, k=30, exclude_seen=False)
        assert [part.tobytes() for part in again] == [part.tobytes() for part in found]
        written = sparse.write_recommendations(tmp_path / "lists.csv", rows, k=3)
        assert written.from_popularity == found.from_popularity.sum()
        pairs = sparse.score_pairs(rows, found.ids.tolist())
        assert pairs.scores.tobytes() == found.scores.ravel().tobytes()
        assert pairs.from_popularity.tolist() == found.from_popularity.tolist()
        for row in (0, 29, 40, 90):
            why = sparse.explain(rows[[row]], found.ids[row, 2])
            assert why.score == found.scores[row, 2] == sum(part.value for part in why) + why.rest
            assert why.from_popularity == found.from_popularity[row]

    def test_evaluation_ranks_the_same(self, sparse, rows):
        columns, _, cold = self.expected(sparse, rows)
        [ranked] = ranked_slices([sparse, sparse.with_rule(popularity_power=0.3)], rows, 5, False, None)
        np.testing.assert_array_equal(ranked.columns[0], columns[:, :5])
        np.testing.assert_array_equal(ranked.columns[1][cold], columns[cold, :5])

    def test_similar_items_end_with_the_most_popular_at_0(self, sparse):
        W = sparse.weights()
        found = sparse.similar_items(list(range(30)), k=29)
        np.testing.assert_allclose(found.scores, np.take_along_axis(W, found.ids, axis=1), rtol=1e-5)
        for ids, scores in zip(found.ids, found.scores, strict=True):
            unknown = sparse.item_counts_[ids[scores == 0]]
            assert (np.diff(unknown) <= 0).all()

    def test_the_server_answers_the_same(self, sparse, rows):
        pytest.importorskip("fastapi", reason="the service needs the extra serve")
        from deql.serve.rehearsal import rehearse
        from deql.serve.serving_model import Query, ServingModel

        serving, found = ServingModel(sparse), sparse.recommend(rows, k=7)
        rehearse(serving)
        queries = [Query(row.indices.tolist(), row.data.tolist(), 7) for row in (rows[[u]] for u in range(91))]
        answers = serving.rank(queries)
        assert [one.columns for one in answers] == found.ids.tolist()
        assert [one.scores for one in answers] == found.scores.tolist()
        assert [one.from_popularity for one in answers] == found.from_popularity.tolist()
