"""What every model promises, asked of every model: see ``contract.py`` for the models."""

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import clone

import deql
from deql.errors import DataError, NotFittedError, ParameterError, UnknownItemError
from deql.models import Recommender
from deql.priors.saved import prior_from_config
from tests.models.contract import CASES, IDS, N, cases, interactions, unregistered

ITEMS = IDS["text"]
HISTORY = ["item 3", "item 11", "item 0", "item 7"]
VERBS = {
    "recommend": lambda model, path: model.recommend([HISTORY]),
    "similar_items": lambda model, path: model.similar_items("item 3"),
    "explain": lambda model, path: model.explain(HISTORY, "item 5"),
    "neighbours": lambda model, path: model.neighbours("item 3"),
    "save": lambda model, path: model.save(path),
}
LINEAR = cases(lambda case: case.is_linear)


@pytest.fixture(scope="module")
def data():
    return interactions()


@pytest.fixture(scope="module")
def X():
    """Histories of others: thirty users, with weights."""
    return interactions(users=30, seed=1).matrix


@pytest.fixture(scope="module", params=cases())
def case(request):
    return request.param


@pytest.fixture(scope="module")
def model(case, data):
    return case.make().fit(data)


def best(model, scores, k, blocked=False):
    """The k best items of dense scores, the lower column first among equals, then None with NaN.

    Where W is sparse, the more popular item comes first among those that score 0.
    """
    sparse = not getattr(getattr(model, "precision_", None), "whole", True)
    ties = np.where((scores == 0) & sparse, -model.item_counts_, 0)
    scores = np.where(blocked, -np.inf, scores)
    columns = np.lexsort((ties, -scores))[:, :k]
    top = np.take_along_axis(scores, columns, axis=1)
    ids = [
        [ITEMS[column] if np.isfinite(score) else None for column, score in zip(*row, strict=True)]
        for row in zip(columns, top, strict=True)
    ]
    return ids, np.where(np.isfinite(top), top, np.nan)


def assert_lists(found, expected):
    """The same items in the same order, and the scores but for rounding."""
    assert found.ids.tolist() == expected[0]
    np.testing.assert_allclose(found.scores, expected[1], rtol=1e-4, atol=1e-6)


def assert_same_bits(found, expected):
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.scores.tobytes() == expected.scores.tobytes()
    assert found.from_popularity.tolist() == expected.from_popularity.tolist()


def assert_same_answers(found, expected, X):
    """Two models say the same about everything, to the last bit."""
    for exclude_seen in (True, False):
        lists = (one.recommend(X, k=N, exclude_seen=exclude_seen) for one in (found, expected))
        assert_same_bits(*lists)
    history = expected.items_[[3, 11, 0, 7]].tolist()
    assert found.explain(history, expected.items_.tolist()[5]) == expected.explain(history, expected.items_.tolist()[5])


def popularity_order(model):
    counts = model.item_counts_
    order = np.argsort(-counts, kind="stable")
    return [ITEMS[i] for i in order], (counts[order] / model.n_users_).tolist()


class TestRegistration:
    def test_every_model_is_registered(self):
        assert unregistered() == set()

    def test_one_that_is_not_is_named(self):
        assert unregistered({name: case for name, case in CASES.items() if name != "SLIM"}) == {"SLIM"}


class TestFit:
    def test_returns_the_model(self, case, data):
        model = case.make()
        assert isinstance(model, Recommender)
        assert model.fit(data) is model

    def test_keeps_what_it_was_fitted_on(self, model, data):
        assert model.items_.tolist() == ITEMS
        assert model.titles_.tolist() == data.titles.tolist()
        assert model.item_counts_.tolist() == (data.matrix != 0).sum(axis=0).tolist()
        assert model.n_users_ == data.n_users
        assert model.weighted_ is True

    def test_knows_whether_there_were_weights(self, case, data, tmp_path):
        model = case.make().fit((data.matrix != 0).astype(float))
        model.save(tmp_path / "model.deql")
        assert model.weighted_ is deql.load(tmp_path / "model.deql").weighted_ is False

    def test_of_a_matrix_is_that_of_interactions_numbered(self, case, model, data, X):
        numbered = case.make().fit(data.matrix)
        assert numbered.items_.tolist() == list(range(N))
        assert numbered.titles_ is None
        found, expected = (one.recommend(X, k=N) for one in (numbered, model))
        assert found.scores.tobytes() == expected.scores.tobytes()

    def test_leaves_the_data_alone(self, case, data):
        before = data.matrix.copy()
        for given in (data, data.matrix):
            case.make().fit(given)
            assert (data.matrix != before).nnz == 0

    def test_twice_gives_the_same_model(self, case, model, data, X):
        assert_same_answers(case.make().fit(data), model, X)

    def test_again_on_other_data_forgets_the_first(self, case, model, data, X):
        again = case.make().fit(interactions(users=50, seed=7, ids=IDS["integers"])).fit(data)
        assert again.items_.tolist() == ITEMS
        assert_same_answers(again, model, X)

    @pytest.mark.parametrize("case", cases(lambda case: bool(case.wrong)), indirect=True)
    def test_refuses_a_parameter_out_of_range(self, case, data):
        (name, value), *_ = case.wrong.items()
        with pytest.raises(ParameterError, match="the weights" if name == "W" else f"^{name} must be"):
            case.make().set_params(**{name: value}).fit(data)

    def test_refuses_data_without_interactions(self, case):
        with pytest.raises(DataError, match="no interactions"):
            case.make().fit(csr_array((3, 4)))

    def test_and_lists_are_the_same_with_any_number_of_threads(self, case, monkeypatch):
        data = interactions(users=400, items=300)  # enough that the work is divided
        lists = []
        for threads in ("1", "2"):
            monkeypatch.setenv("DEQL_THREADS", threads)
            lists.append(case.make().fit(data).recommend(data, k=10).ids.tolist())
        assert lists[0] == lists[1]


class TestBeforeFit:
    @pytest.mark.parametrize("verb", VERBS)
    def test_every_verb_says_so(self, case, verb, tmp_path):
        model = case.make()
        with pytest.raises(NotFittedError, match=f"^this {type(model).__name__} is not fitted yet: call fit first$"):
            VERBS[verb](model, tmp_path / "model.deql")
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("case", LINEAR, indirect=True)
    @pytest.mark.parametrize("verb", ["weights", "diagonal"])
    def test_there_are_no_weights(self, case, verb):
        with pytest.raises(NotFittedError, match="call fit first"):
            getattr(case.make(), verb)()


class TestRecommend:
    def test_ranks_by_the_scores(self, case, model, X):
        scores = case.scores(model, X.toarray())
        assert_lists(model.recommend(X, k=5), best(model, scores, 5, X.toarray() != 0))

    def test_what_was_seen_too_if_so_asked(self, case, model, X):
        assert_lists(model.recommend(X, k=N, exclude_seen=False), best(model, case.scores(model, X.toarray()), N))

    @pytest.mark.parametrize(
        ("exclude", "candidates"),
        [(range(0, N, 3), None), (None, [1, 2, 8, 11]), ([2, 5], [1, 2, 8, 11]), (None, []), (range(N), None)],
        ids=["exclude", "candidates", "both", "no candidates", "all excluded"],
    )
    @pytest.mark.parametrize("exclude_seen", [True, False])
    def test_only_what_the_filters_leave(self, case, model, X, exclude, candidates, exclude_seen):
        allowed = np.isin(np.arange(N), range(N) if candidates is None else candidates)
        allowed &= ~np.isin(np.arange(N), [] if exclude is None else exclude)
        filters = {
            name: iter([ITEMS[i] for i in given])
            for name, given in (("exclude", exclude), ("candidates", candidates))
            if given is not None
        }
        found = model.recommend(X, k=4, exclude_seen=exclude_seen, **filters)
        blocked = ~allowed | ((X.toarray() != 0) & exclude_seen)
        assert_lists(found, best(model, case.scores(model, X.toarray()), 4, blocked))

    def test_at_most_all_items(self, model):
        ids, scores = model.recommend([HISTORY, []], k=1000)
        assert ids.shape == scores.shape == (2, N)
        assert set(ids[0].tolist()) == (set(ITEMS) - set(HISTORY)) | {None}
        assert np.isnan(scores[0]).tolist() == [False] * (N - 4) + [True] * 4

    def test_a_shorter_list_is_the_beginning_of_a_longer_one(self, model, X):
        whole, part = (model.recommend(X, k=k) for k in (N, 3))
        assert part.ids.tolist() == whole.ids[:, :3].tolist()
        assert part.scores.tobytes() == whole.scores[:, :3].tobytes()

    def test_k_is_a_whole_number_from_1_up(self, model):
        for k in (0, -1, True, 2.5, "3", None):
            with pytest.raises(ParameterError, match=r"^k must be a whole number from 1 up"):
                model.recommend([HISTORY], k=k)

    def test_whoever_else_is_asked_for(self, model, X):
        whole = model.recommend(X, k=5)
        for user in (0, 17):
            alone = model.recommend(X[[user]], k=5)
            assert alone.ids.tolist() == whole.ids[[user]].tolist()
            assert alone.scores.tobytes() == whole.scores[[user]].tobytes()

    def test_nobody_gets_no_rows(self, model):
        found = model.recommend([], k=3)
        assert found.ids.shape == found.scores.shape == (0, 3)
        assert found.from_popularity.shape == (0,)


class TestHistories:
    def test_may_be_lists_in_any_order_with_repeats(self, model, X):
        lists = [model.items_[row].tolist() for row in np.split(X.indices, X.indptr[1:-1])]
        expected = model.recommend((X != 0).astype(np.float64), k=6)
        assert_same_bits(model.recommend(lists, k=6), expected)
        assert_same_bits(model.recommend(tuple(row[::-1] + row[:2] for row in lists), k=6), expected)
        assert_same_bits(model.recommend((np.array(row) for row in lists), k=6), expected)

    def test_may_be_any_matrix(self, model, X):
        for matrix in (csr_matrix(X), X.tocsc(), X.astype(np.int64), X.toarray()):
            assert_same_bits(model.recommend(matrix, k=6), model.recommend(X, k=6))

    def test_may_be_interactions_with_items_in_any_order(self, model, X):
        for order in (np.arange(N), np.random.default_rng(0).permutation(N)):
            histories = deql.Interactions.from_csr(X[:, order], items=model.items_[order])
            assert_same_bits(model.recommend(histories, k=6), model.recommend(X, k=6))

    def test_that_are_empty_get_the_popularity_order_and_a_mark(self, model):
        found = model.recommend([[], HISTORY, []], k=N)
        assert found.from_popularity.tolist() == [True, False, True]
        order, shares = popularity_order(model)
        assert found.ids[0].tolist() == found.ids[2].tolist() == order
        assert found.scores[0].tolist() == found.scores[2].tolist() == shares

    def test_that_are_empty_are_filtered_too(self, model):
        order, _ = popularity_order(model)
        found = model.recommend([[]], k=3, exclude=order[:2], candidates=order[:3])
        assert found.ids.tolist() == [[order[2], None, None]]
        assert np.isnan(found.scores).tolist() == [[False, True, True]]

    def test_of_unknown_items_alone_count_as_empty(self, model):
        with pytest.warns(UserWarning, match="^ignored 2 unknown items in histories: 'gin', 'rum'$"):
            found = model.recommend([["gin", "rum"]], k=3)
        assert_same_bits(found, model.recommend([[]], k=3))

    def test_lose_unknown_items_with_a_warning_that_counts_them(self, model):
        with pytest.warns(UserWarning, match="^ignored 3 unknown items in histories: 'gin', 'rum'$") as caught:
            found = model.recommend([[*HISTORY, "gin"], ["gin", "item 2", "rum"]], k=4)
        assert [warning.filename for warning in caught] == [__file__]
        assert_same_bits(found, model.recommend([HISTORY, ["item 2"]], k=4))

    def test_with_unknown_items_are_refused_if_strict(self, model):
        with pytest.raises(UnknownItemError, match="the model does not know: 'gin'"):
            model.recommend([["item 1", "gin"]], strict=True)

    def test_that_are_no_lists_of_lists_are_refused(self, model):
        for histories in (["item 1"], "item 1", b"item 1", None, 5, [3, 4], [["item 1"], "item 2"], {"item 1": 1}):
            with pytest.raises(ParameterError, match=r"such as \[\['a', 'b'\], \['c'\]\]"):
                model.recommend(histories)

    def test_need_the_columns_of_the_model(self, model):
        for columns in (N - 1, N + 1):
            with pytest.raises(ParameterError, match=f"the model's {N} columns, got {columns}"):
                model.recommend(csr_array(np.ones((1, columns))))


@pytest.fixture(scope="module", params=["fitted", "loaded", "with quantised rows"])
def asked(request, model, tmp_path_factory):
    """The model as it was fitted, from its file, and with quantised rows where it can have any."""
    if request.param == "fitted":
        return model
    path = tmp_path_factory.mktemp("asked") / "model.deql"
    if request.param == "loaded":
        model.save(path)
    elif hasattr(model, "quantize_rows") and model.precision_.whole:
        model.save(path, quantized_rows=True)
    else:
        pytest.skip("it has no rows")
    return deql.load(path)


@pytest.fixture(scope="module")
def weighted(X):
    """Weights of all sizes and both signs that single precision cannot hold."""
    generator = np.random.default_rng(5)
    return csr_array(
        (generator.normal(size=X.nnz) * 10.0 ** generator.integers(-3, 4, X.nnz), X.indices, X.indptr), X.shape
    )


@pytest.fixture(scope="module")
def mappings(weighted):
    return [
        {ITEMS[column]: weighted[user, column] for column in weighted[[user]].indices.tolist()}
        for user in range(weighted.shape[0])
    ]


class TestWeightedHistories:
    @pytest.mark.parametrize("exclude_seen", [True, False])
    def test_are_mappings_matrices_or_interactions(self, asked, model, weighted, mappings, exclude_seen):
        options = {"k": N, "exclude_seen": exclude_seen}
        expected = model.recommend(weighted, **options)
        assert_same_bits(asked.recommend(mappings, **options), expected)
        assert_same_bits(asked.recommend([dict(reversed(one.items())) for one in mappings], **options), expected)
        assert_same_bits(asked.recommend(weighted, **options), expected)
        order = np.random.default_rng(0).permutation(N)
        shuffled = deql.Interactions.from_csr(weighted[:, order], items=asked.items_[order])
        assert_same_bits(asked.recommend(shuffled, **options), expected)

    def test_are_ranked_by_their_scores(self, case, asked, weighted, mappings):
        X = weighted.toarray()
        found, scores = asked.recommend(mappings, k=N), case.scores(asked, X)
        # A score is what is left of larger parts: of weights, which may be what is left of products of factors.
        if hasattr(asked, "right_"):
            sizes = abs(X) @ abs(asked.left_.astype(float)) @ abs(asked.right_.astype(float)).T
        else:
            sizes = abs(X) @ abs(asked.weights().astype(float)) if case.is_linear else scores
        for row in range(len(X)):
            columns = [ITEMS.index(item) for item in found.ids[row].tolist() if item is not None]
            assert sorted(columns) == np.flatnonzero(X[row] == 0).tolist()
            assert (abs(found.scores[row, : len(columns)] - scores[row, columns]) <= 1e-5 * sizes[row, columns]).all()
            assert (np.diff(found.scores[row, : len(columns)]) <= 0).all()

    def test_give_other_lists_than_those_without_weights(self, case, asked, weighted, mappings):
        found, without = (asked.recommend(given, k=5).ids.tolist() for given in (mappings, list(map(list, mappings))))
        assert (found != without) == case.is_linear

    def test_do_not_depend_on_who_else_is_in_the_batch(self, asked, mappings):
        """One that single precision can hold, and one that it cannot."""
        batch = [{"item 3": 2.0, "item 8": 0.5}, mappings[0], HISTORY]
        together = asked.recommend(batch, k=N)
        for row, history in enumerate(batch):
            alone = asked.recommend([history], k=N)
            assert alone.ids.tolist() == together.ids[[row]].tolist()
            assert alone.scores.tobytes() == together.scores[[row]].tobytes()

    def test_are_explained_to_the_last_bit(self, asked, weighted, mappings):
        found = asked.recommend(mappings[:8], k=N, exclude_seen=False)
        for row, mapping in enumerate(mappings[:8]):
            for item, score in zip(found.ids[row].tolist(), found.scores[row].tolist(), strict=True):
                why = asked.explain(mapping, item)
                values = [part.value for part in why]
                assert {part.item for part in why} == set(mapping)
                for order in (values, values[::-1], sorted(values)):
                    assert sum(order) + why.rest == math.fsum([*order, why.rest]) == why.score == score

    def test_are_explained_as_a_row_too(self, asked, weighted, mappings):
        histories = deql.Interactions.from_csr(weighted, items=ITEMS)
        for user in (0, 7):
            expected = asked.explain(mappings[user], "item 5", k=2)
            row = weighted[[user]]
            for given in (row, row.toarray(), csr_matrix(row), histories.take_users(np.array([user]))):
                assert asked.explain(given, "item 5", k=2) == expected
        with pytest.raises(ParameterError, match="one history is wanted, one row, got 30"):
            asked.explain(weighted, "item 5")

    def test_have_parts_that_are_weights_times_entries_of_w(self, case, asked, mappings):
        W = asked.weights().astype(float) if case.is_linear else np.zeros((N, N))
        for item, value in asked.explain(mappings[2], "item 5"):
            expected = mappings[2][item] * W[ITEMS.index(item), 5]
            assert value == pytest.approx(expected, rel=1e-5, abs=1e-6 * max(map(abs, mappings[2].values())))

    def test_have_not_what_weighs_nothing(self, asked):
        given = {"item 3": 2.0, "item 8": 0.0, "gin": 0}
        assert_same_bits(asked.recommend([given], k=N), asked.recommend([{"item 3": 2.0}], k=N))
        assert "item 8" in asked.recommend([given], k=N).ids[0].tolist()
        assert_same_bits(asked.recommend([{"item 3": 0.0}], k=N), asked.recommend([[]], k=N))
        assert asked.explain({"item 3": 0.0}, "item 5") == asked.explain([], "item 5")

    def test_of_1_are_those_without_weights(self, asked):
        for one in (1, 1.0, True, np.float32(1), np.int8(1)):
            assert_same_bits(asked.recommend([dict.fromkeys(HISTORY, one)]), asked.recommend([HISTORY]))

    @pytest.mark.parametrize("weight", [math.nan, math.inf, -math.inf, 1e39, 10**400, "2", None, [1.0], 1j])
    def test_must_be_finite_numbers(self, asked, weight):
        for ask in (lambda given: asked.recommend([HISTORY, given]), lambda given: asked.explain(given, "item 5")):
            with pytest.raises(ParameterError, match=r"^the weight of 'item 2' in a history must be a finite number"):
                ask({"item 1": 2.0, "item 2": weight})

    def test_lose_unknown_items_with_a_warning(self, asked):
        with pytest.warns(UserWarning, match="^ignored 1 unknown item in histories: 'gin'$"):
            found = asked.recommend([{"gin": 3.0, "item 2": 0.5}], k=N)
        assert_same_bits(found, asked.recommend([{"item 2": 0.5}], k=N))
        with pytest.raises(UnknownItemError, match="the model does not know: 'gin'"):
            asked.explain({"gin": 3.0, "item 2": 0.5}, "item 5", strict=True)


class TestTitles:
    """``Item No. 3`` is the title of ``item 3``."""

    def test_stand_for_items_in_every_question(self, model):
        titles = [f"Item No. {item.split()[1]}" for item in HISTORY]
        assert_same_bits(model.recommend([titles], k=N), model.recommend([HISTORY], k=N))
        assert_same_bits(
            model.recommend([{"item no. 3": 2.5, "item 0": 1.0}], k=N),
            model.recommend([{"item 3": 2.5, "item 0": 1.0}], k=N),
        )
        assert model.explain(titles, "Item No. 5") == model.explain(HISTORY, "item 5")
        similar = [model.similar_items(item)[0].tolist() for item in ("Item No. 3", "item 3")]
        assert similar[0] == similar[1]
        assert model.neighbours("ITEM NO. 3").items == model.neighbours("item 3").items
        for name in ("exclude", "candidates"):
            found, expected = (
                model.recommend([HISTORY], k=N, **{name: given})
                for given in (["Item No. 5", "item 6"], ["item 5", "item 6"])
            )
            assert_same_bits(found, expected)

    def test_stand_for_items_in_interactions(self, model, X, data):
        by_title = deql.Interactions.from_csr(X, items=data.titles)
        assert_same_bits(model.recommend(by_title, k=6), model.recommend(X, k=6))

    def test_and_ids_of_one_item_count_once_without_weights_and_else_add_up(self, model):
        assert_same_bits(model.recommend([["item 3", "Item No. 3"]], k=N), model.recommend([["item 3"]], k=N))
        found = model.recommend([{"item 3": 2.0, "Item No. 3": 0.5}], k=N)
        assert_same_bits(found, model.recommend([{"item 3": 2.5}], k=N))
        for values, weight in (([1.0, 1.0], 1.0), ([2.0, 0.5], 2.5)):
            table = deql.Interactions.from_csr(csr_array([values]), items=["item 3", "Item No. 3"])
            assert_same_bits(model.recommend(table, k=N), model.recommend([{"item 3": weight}], k=N))

    def test_of_several_items_need_an_id(self, case):
        titles = np.array(["Tea", "tea", *(f"Item No. {i}" for i in range(2, N))], object)
        model = case.make().fit(replace(interactions(), titles=titles))
        for ask in (
            lambda: model.recommend([["TEA"]]),
            lambda: model.recommend([HISTORY], exclude=["TEA"]),
            lambda: model.explain(HISTORY, "TEA"),
        ):
            with pytest.raises(UnknownItemError, match=r"^2 items are called 'TEA': say which by its id, 'item 0', "):
                ask()

    def test_stand_back_behind_ids(self, case, model, X):
        """Every title is the id of another item."""
        turned = case.make().fit(replace(interactions(), titles=np.array(ITEMS[1:] + ITEMS[:1], object)))
        assert_same_bits(turned.recommend([HISTORY], k=N), model.recommend([HISTORY], k=N))
        assert turned.explain(HISTORY, "item 5") == model.explain(HISTORY, "item 5")

    def test_of_another_fit_are_forgotten(self, case, data):
        model = case.make().fit(data)
        model.similar_items("Item No. 3")
        model.fit(replace(data, titles=None))
        with pytest.raises(UnknownItemError, match=r"'Item No. 3' \(did you mean item 3"):
            model.similar_items("Item No. 3")


class TestFilters:
    def test_what_is_excluded_need_not_be_known(self, model):
        found = model.recommend([HISTORY], exclude=["item 1", "gin"])
        assert_same_bits(found, model.recommend([HISTORY], exclude=["item 1"]))

    def test_unknown_candidates_are_ignored_with_a_warning_that_counts_them(self, model):
        with pytest.warns(UserWarning, match="^ignored 3 unknown items in candidates: 'gin', 'rum'$") as caught:
            found = model.recommend([HISTORY], candidates=["gin", "item 1", "rum", "gin", "item 2"])
        assert [warning.filename for warning in caught] == [__file__]
        assert_same_bits(found, model.recommend([HISTORY], candidates=["item 1", "item 2"]))

    def test_candidates_that_are_all_unknown_are_refused(self, model):
        with pytest.raises(UnknownItemError, match=r"^the model knows none of the candidates: 'gin', 'rum'$"):
            model.recommend([HISTORY], candidates=["gin", "rum"])

    def test_unknown_ids_are_refused_if_strict(self, model):
        for name in ("candidates", "exclude"):
            with pytest.raises(UnknownItemError, match=f"^{name} names items the model does not know: 'gin', 'rum'$"):
                model.recommend([HISTORY], **{name: ["item 1", "gin", "rum"]}, strict=True)

    @pytest.mark.parametrize("name", ["candidates", "exclude"])
    def test_must_be_lists_of_ids(self, model, name):
        for value in ("item 1", 3, [["item 1"]]):
            with pytest.raises(ParameterError):
                model.recommend([HISTORY], **{name: value})


class TestIds:
    @pytest.fixture(params=IDS)
    def ids(self, request):
        return IDS[request.param]

    def test_of_any_kind_come_back_as_they_were_given(self, case, model, ids, X):
        named = case.make().fit(interactions(ids=ids))
        found, expected = (one.recommend(X, k=N) for one in (named, model))
        marker = -1 if isinstance(ids[0], int) else None
        assert found.ids.dtype == (np.int64 if isinstance(ids[0], int) else object)
        assert found.ids.tolist() == [
            [marker if item is None else ids[ITEMS.index(item)] for item in row] for row in expected.ids.tolist()
        ]
        assert found.scores.tobytes() == expected.scores.tobytes()

    def test_of_any_kind_are_understood(self, case, model, ids):
        named = case.make().fit(interactions(ids=ids))
        found, expected = named.recommend([[ids[3], ids[5]]]), model.recommend([[ITEMS[3], ITEMS[5]]])
        assert found.scores.tobytes() == expected.scores.tobytes()

    def test_have_their_titles_beside_them(self, model, data):
        found = model.recommend([HISTORY], k=N)
        title = dict(zip(ITEMS, data.titles.tolist(), strict=True))
        assert found.titles.tolist() == [[title.get(item) for item in found.ids[0].tolist()]]


class TestSimilarItems:
    def test_are_those_its_own_history_would_get(self, case, model):
        ids, scores = model.similar_items("item 3", k=5)
        own = np.eye(N)[[3]]
        expected_ids, expected_scores = best(model, case.scores(model, own), 5, own != 0)
        assert ids.tolist() == expected_ids[0]
        np.testing.assert_allclose(scores, expected_scores[0], rtol=1e-4, atol=1e-6)

    def test_of_an_unknown_item(self, model):
        with pytest.raises(UnknownItemError, match="does not know the item 'gin'"):
            model.similar_items("gin")


class TestExplain:
    def test_adds_up_to_the_score_to_the_last_bit(self, model):
        for item in ITEMS:
            why = model.explain(HISTORY, item)
            values = [part.value for part in why]
            for order in (values, values[::-1], sorted(values)):
                assert sum(order) + why.rest == math.fsum([*order, why.rest]) == why.score

    def test_gives_the_score_that_recommend_gives(self, model):
        ids, scores = model.recommend([HISTORY], k=N, exclude_seen=False)
        assert [model.explain(HISTORY, item).score for item in ids[0].tolist()] == scores[0].tolist()

    def test_has_one_part_for_each_item_the_largest_first(self, model):
        why = model.explain(HISTORY * 2, "item 5")
        sizes = [abs(part.value) for part in why]
        assert why.item == "item 5"
        assert sorted(part.item for part in why) == sorted(HISTORY)
        assert sizes == sorted(sizes, reverse=True)
        assert model.explain(HISTORY[::-1], "item 5") == why

    def test_leaves_what_k_cuts_off_to_the_rest(self, model):
        whole = model.explain(HISTORY, "item 5")
        for k in (1, 3, 1000):
            cut = model.explain(HISTORY, "item 5", k=k)
            assert cut.parts == whole.parts[:k]
            assert cut.score == whole.score
            assert cut.rest == sum(part.value for part in whole.parts[k:]) + whole.rest
            assert sum(part.value for part in cut) + cut.rest == cut.score

    def test_k_is_a_whole_number_from_1_up(self, model):
        for k in (0, -1, 2.5, True, "2"):
            with pytest.raises(ParameterError, match=r"^k must be a whole number from 1 up"):
                model.explain(HISTORY, "item 5", k=k)

    def test_an_empty_history_leaves_the_popularity(self, model):
        why = model.explain([], "item 5")
        assert len(why) == 0
        assert why.score == why.rest == model.item_counts_[5] / model.n_users_

    def test_refuses_an_unknown_item(self, model):
        for item in ("gin", ["item 1"]):
            with pytest.raises(UnknownItemError, match="does not know the item"):
                model.explain(HISTORY, item)

    def test_ignores_unknown_items_of_the_history_with_a_warning(self, model):
        with pytest.warns(UserWarning, match="^ignored 1 unknown item in histories: 'gin'$") as caught:
            assert model.explain([*HISTORY, "gin"], "item 5") == model.explain(HISTORY, "item 5")
        assert [warning.filename for warning in caught] == [__file__]

    def test_refuses_unknown_items_of_the_history_if_strict(self, model):
        with pytest.raises(UnknownItemError, match="'gin'"):
            model.explain([*HISTORY, "gin"], "item 5", strict=True)

    def test_a_text_is_not_a_history(self, model):
        with pytest.raises(ParameterError, match="a history must be a list of item ids, got 'item 1'"):
            model.explain("item 1", "item 5")


class TestNeighbours:
    def test_are_those_with_the_largest_weights(self, case, model):
        W = model.weights().astype(float) if case.is_linear else np.zeros((N, N))
        size = np.maximum(abs(W[3]), abs(W[:, 3]))
        size[3] = np.inf
        for k in (1, 4, 1000):
            near = model.neighbours("item 3", k)
            columns = [ITEMS.index(item) for item in near.items]
            assert len(columns) == min(k + 1, np.count_nonzero(size))
            np.testing.assert_allclose(size[columns], np.sort(size)[::-1][: len(columns)], rtol=1e-5)
            np.testing.assert_allclose(near.weights, W[np.ix_(columns, columns)], rtol=1e-4, atol=1e-6)

    def test_of_an_unknown_item(self, model):
        with pytest.raises(UnknownItemError, match="gin"):
            model.neighbours("gin")

    def test_k_is_a_whole_number_from_1_up(self, model):
        for k in (0, -1, 2.5, True, "2"):
            with pytest.raises(ParameterError, match=r"^k must be a whole number from 1 up"):
                model.neighbours("item 3", k=k)


@pytest.mark.parametrize("case", LINEAR, indirect=True, scope="module")
class TestWeights:
    def test_column_i_predicts_item_i(self, model, X):
        W = model.weights().astype(float)
        assert W.shape == (N, N)
        others = W - np.diag(W.diagonal())
        assert abs(others - others.T).max() > 0.1 * abs(others).max(), "the data cannot tell W from its transpose"
        found = model.recommend(X, k=N, exclude_seen=False)
        assert_lists(found, best(model, X @ W, N))
        assert found.ids.tolist() != best(model, X @ W.T, N)[0]

    def test_are_the_parts_of_explanations(self, model):
        W = model.weights().astype(float)
        for target in range(N):
            for item, value in model.explain(HISTORY, ITEMS[target]):
                assert value == pytest.approx(W[ITEMS.index(item), target], rel=1e-5, abs=1e-6)

    def test_have_the_diagonal(self, model):
        diagonal = model.diagonal()
        assert diagonal.dtype == np.float64
        np.testing.assert_allclose(diagonal, model.weights().diagonal(), rtol=1e-5, atol=1e-6)

    def test_are_the_caller_s_to_change(self, model, X):
        before = model.recommend(X, k=5)
        for given in (model.weights(), model.diagonal()):
            given[:] = 0
        assert_same_bits(model.recommend(X, k=5), before)


class TestFile:
    @pytest.mark.parametrize("kind", IDS)
    def test_brings_the_same_model_back(self, case, kind, X, tmp_path):
        model = case.make().fit(interactions(ids=IDS[kind]))
        model.save(tmp_path / "model.deql")
        loaded = deql.load(tmp_path / "model.deql")
        assert type(loaded) is type(model)
        assert loaded.items_.tolist() == IDS[kind]
        assert loaded.items_.dtype == model.items_.dtype
        assert loaded.titles_.tolist() == model.titles_.tolist()
        assert loaded.n_users_ == model.n_users_
        assert loaded.item_counts_.tolist() == model.item_counts_.tolist()
        assert_same_answers(loaded, model, X)
        if case.is_linear:
            assert loaded.weights().tobytes() == model.weights().tobytes()

    def test_keeps_the_parameters(self, model, tmp_path):
        model.save(tmp_path / "model.deql")
        expected = model.get_params() | ({"W": None} if "W" in model.get_params() else {})  # a function is not kept
        if expected.get("prior") is not None:
            expected["prior"] = prior_from_config(expected["prior"].config)
        assert deql.load(tmp_path / "model.deql").get_params() == expected

    def test_gives_a_model_that_can_be_cloned(self, model, tmp_path):
        model.save(tmp_path / "model.deql")
        loaded = deql.load(tmp_path / "model.deql")
        copy = clone(loaded)
        assert copy.get_params() == loaded.get_params()
        assert not hasattr(copy, "items_")


class TestParameters:
    def test_the_constructor_only_stores(self, case):
        odd = object()
        for name in case.make().get_params():
            assert getattr(type(case.make())(**{name: odd}), name) is odd

    def test_are_those_of_the_signature(self, case):
        assert type(case.make())(**case.make().get_params()).get_params() == case.make().get_params()

    def test_stay_as_they_are_in_a_fit(self, case, model):
        assert model.get_params() == model.fitted_params_ == case.make().get_params()

    def test_can_be_cloned(self, model):
        copy = clone(model)
        assert type(copy) is type(model)
        assert copy.get_params() == model.get_params()
        assert not hasattr(copy, "items_")

    def test_can_be_set(self, case):
        model = case.make()
        assert model.set_params(**case.other) is model
        assert model.get_params() == case.make().get_params() | case.other

    def test_that_do_not_exist_are_refused(self, case):
        with pytest.raises(ParameterError, match="no parameter 'speed'"):
            case.make().set_params(speed=1)

    def test_set_after_the_fit_wait_for_the_next(self, case, model, data, X, tmp_path):
        changed = case.make().fit(data).set_params(**case.other)
        assert_same_answers(changed, model, X)
        changed.save(tmp_path / "model.deql")
        loaded = deql.load(tmp_path / "model.deql").get_params()
        assert {name: loaded[name] for name in case.other} == {name: model.get_params()[name] for name in case.other}

    def test_are_in_the_repr(self, case):
        text = repr(case.make().set_params(**case.other))
        assert text.startswith(type(case.make()).__name__ + "(")
        for name, value in case.other.items():
            assert f"{name}={value!r}" in text


def test_a_pickle_gives_the_same_model(model, X):
    assert_same_answers(pickle.loads(pickle.dumps(model)), model, X)
