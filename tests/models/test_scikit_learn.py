"""scikit-learn's tools on every model: the real ones."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import NotFittedError as UnfittedByScikitLearn
from sklearn.model_selection import GridSearchCV, KFold, RandomizedSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

import deql
from deql.errors import DataError, NotFittedError
from deql.split import HeldOut
from deql.split.new_users import hold_out_items
from tests.models.contract import CASES, cases, interactions

DATA = interactions(users=90)


def binary(X):
    return (X != 0).astype(np.float64)


@pytest.mark.parametrize("case", cases())
@pytest.mark.parametrize("data", [DATA, DATA.matrix], ids=["interactions", "matrix"])
def test_every_model_is_searched(case, data):
    (name, value), *_ = case.other.items()
    model = case.make()
    search = GridSearchCV(model, {name: [getattr(model, name), value]}, cv=2).fit(data)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert search.best_score_ == scores.max() > 0
    assert search.score(data) == search.best_estimator_.score(data)


@pytest.mark.parametrize("case", cases())
def test_a_fold_of_interactions_is_one_of_the_matrix(case):
    by_ids, by_numbers = (cross_val_score(case.make(), data, cv=3) for data in (DATA, DATA.matrix))
    assert by_ids.tolist() == by_numbers.tolist()


def test_the_best_of_a_grid_is_what_evaluating_each_fold_finds():
    values = [0.1, 3.0, 300.0]
    search = GridSearchCV(deql.EASE(), {"l2": values}, cv=KFold(3)).fit(DATA)
    means = []
    for l2 in values:
        folds = []
        for train, test in KFold(3).split(DATA.matrix):
            model = deql.EASE(l2).fit(DATA.take_users(train))
            folds.append(deql.evaluate(model, hold_out_items(DATA.take_users(test)), "ndcg@20").means["ndcg@20"])
        means.append(np.mean(folds))
    assert search.cv_results_["mean_test_score"].tolist() == pytest.approx(means, abs=1e-15)
    assert search.best_params_ == {"l2": values[int(np.argmax(means))]}


def test_a_random_search():
    search = RandomizedSearchCV(deql.DEQL(), {"l2": [1.0, 10.0], "b": [0.1, 1.0]}, n_iter=3, cv=2, random_state=0)
    assert search.fit(DATA.matrix).best_score_ > 0


def test_a_pipeline_is_fitted_scored_and_searched():
    pipeline = Pipeline([("binary", FunctionTransformer(binary)), ("model", deql.EASE(l2=2.0))])
    assert pipeline.fit(DATA.matrix).score(DATA.matrix) == deql.EASE(2.0).fit(binary(DATA.matrix)).score(
        binary(DATA.matrix)
    )
    search = GridSearchCV(pipeline, {"model__l2": [1.0, 10.0]}, cv=2).fit(DATA.matrix)
    assert isinstance(search.best_estimator_[-1], deql.EASE)
    assert make_pipeline(deql.Popularity()).fit(DATA).score(DATA) == deql.Popularity().fit(DATA).score(DATA)


def test_interactions_are_divided_like_a_matrix():
    for ours, theirs in zip(
        train_test_split(DATA, random_state=0), train_test_split(DATA.matrix, random_state=0), strict=True
    ):
        assert (ours.matrix != theirs).nnz == 0
        assert ours.items is DATA.items


@pytest.mark.parametrize("name", CASES)
def test_clones_are_not_fitted(name):
    model = CASES[name].make()
    assert clone(model).get_params().keys() == model.get_params().keys()
    with pytest.raises(UnfittedByScikitLearn):
        check_is_fitted(clone(model))


def test_a_fitted_model_is_known_as_such():
    check_is_fitted(deql.EASE().fit(DATA))


class TestScore:
    def test_is_the_same_in_every_call(self):
        model = deql.EASE(2.0).fit(DATA)
        assert model.score(DATA) == model.score(DATA) == model.score(DATA.matrix)

    def test_by_hand(self):
        # W leads from 0 to 1 to 2 …; whichever of two neighbours is held out, the other one tells where it may be.
        X = csr_array(np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1]], float))
        model = deql.CustomLinear(np.array([[0, 2, 1], [2, 0, 1], [0, 1, 0]], float)).fit(X)
        part = hold_out_items(X)
        ranks = []
        for seen, target in zip(part.seen.matrix.toarray(), part.held_out.matrix.toarray(), strict=True):
            scores = np.where(seen > 0, -np.inf, seen @ model.weights())
            ranks.append(np.argsort(-scores, kind="stable").tolist().index(int(target.argmax())))
        assert len(ranks) == 2
        assert model.score(X) == pytest.approx(np.mean(1 / np.log2(np.array(ranks) + 2)))

    def test_counts_what_the_model_does_not_know_as_missed(self):
        model = deql.Popularity().fit(DATA.take_items(np.arange(6)))
        part = hold_out_items(DATA)
        with pytest.warns(UserWarning, match="unknown items"):
            expected = deql.evaluate(model, HeldOut(part.seen, part.held_out), "ndcg@20").means["ndcg@20"]
        with pytest.warns(UserWarning, match="unknown items"):
            assert model.score(DATA) == expected

    def test_needs_a_fit_and_somebody_with_two_items(self):
        with pytest.raises(NotFittedError, match="call fit first"):
            deql.EASE().score(DATA)
        with pytest.raises(DataError, match="no user has two items"):
            deql.EASE().fit(DATA).score(csr_array(np.eye(12)))


class TestInteractionsByRows:
    def test_are_taken_by_number_slice_and_mask(self):
        mask = np.arange(90) % 2 == 0
        for rows in (3, [3, 1], slice(2, 5), mask, (mask, ...), (slice(2, 5), slice(None))):
            wanted = rows[0] if isinstance(rows, tuple) else rows
            expected = DATA.take_users(np.atleast_1d(wanted) if not isinstance(wanted, slice) else wanted)
            assert DATA[rows].users.tolist() == expected.users.tolist()
            assert (DATA[rows].matrix != expected.matrix).nnz == 0

    def test_have_the_shape_of_their_matrix(self):
        assert DATA.shape == DATA.matrix.shape

    def test_columns_are_refused(self):
        for columns in (3, [0, 1], np.array([0, 1])):
            with pytest.raises(DataError, match="indexed by users alone"):
                DATA[:, columns]

    def test_are_not_gone_through(self):
        with pytest.raises(TypeError):
            iter(DATA)
