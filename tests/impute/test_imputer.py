"""The imputer: against normal conditioning by hand, plain EM, refitting, and scikit-learn's checks and imputers."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_array
from sklearn import datasets
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from deql.errors import DataError, DeqlError, NotFittedError, NotPositiveDefiniteError, ParameterError
from deql.impute import LinearImputer
from deql.impute.expectation import IncompleteRows, expected_gram, filled, left_out_errors, ridge_inverse
from deql.impute.ridge_path import _sample, choose_l2, iterate_to_convergence, ridge_values
from deql.rules import decoupled

ROOT = Path(__file__).parents[2]


def table(rows=40, columns=5, missing=0.3, seed=0):
    """Correlated columns of different means and scales, with holes."""
    generator = np.random.default_rng(seed)
    values = generator.standard_normal((rows, columns)) @ generator.standard_normal((columns, columns))
    values = values * np.arange(1, columns + 1) + 10
    holes = generator.random(values.shape) < missing
    holes[:2] = False
    return np.where(holes, np.nan, values)


def with_constant(values):
    return np.hstack([np.ones((len(values), 1)), values])


def covariance_like(n, seed=1):
    half = np.random.default_rng(seed).standard_normal((n, 2 * n))
    return half @ half.T


def slow_gram(values, A, weight):
    """E-step row by row, with A's blocks rather than P's."""
    total = np.zeros_like(A)
    rows = with_constant(values).copy()
    for x in rows:
        M, O = np.flatnonzero(np.isnan(x)), np.flatnonzero(~np.isnan(x))  # noqa: E741
        slope = A[np.ix_(M, O)] @ np.linalg.inv(A[np.ix_(O, O)])
        x[M] = slope @ x[O]
        total += np.outer(x, x)
        total[np.ix_(M, M)] += (A[np.ix_(M, M)] - slope @ A[np.ix_(O, M)]) / weight
    return total, rows[:, 1:]


def ridge(n, l2):
    return np.diag(np.append(0.0, np.full(n - 1, l2)))


# The mathematics


def test_filled_by_the_conditional_mean_worked_out_by_hand():
    # Unit variances, correlation 1/2: the mean of the second given the first is half the first.
    A = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.5, 1.0]])
    rows = IncompleteRows.of(np.array([[2.0, np.nan], [np.nan, np.nan], [np.nan, -4.0], [1.0, 3.0]]))
    expected = [[2.0, 1.0], [0.0, 0.0], [-2.0, -4.0], [1.0, 3.0]]
    np.testing.assert_allclose(filled(rows, np.linalg.inv(A)), expected, atol=1e-12)


@pytest.mark.parametrize("batch", [10**6, 40])
def test_expectation_equals_one_row_at_a_time(monkeypatch, batch):
    monkeypatch.setattr("deql.impute.expectation._BATCH", batch)
    values = table(missing=0.5)
    A = covariance_like(6)
    total, rows = slow_gram(values, A, 7.0)
    np.testing.assert_allclose(expected_gram(IncompleteRows.of(values), np.linalg.inv(A), 7.0), total, rtol=1e-9)
    np.testing.assert_allclose(filled(IncompleteRows.of(values), np.linalg.inv(A)), rows, rtol=1e-9)


def test_threads_change_nothing(monkeypatch):
    values, A = table(missing=0.5), covariance_like(6)
    one = expected_gram(IncompleteRows.of(values), np.linalg.inv(A), 7.0)
    monkeypatch.setattr("deql.impute.expectation._QUICK", 0.0)
    monkeypatch.setattr("deql.impute.expectation.thread_count", lambda: 3)
    np.testing.assert_allclose(expected_gram(IncompleteRows.of(values), np.linalg.inv(A), 7.0), one, rtol=1e-12)


def test_settles_where_plain_em_does():
    values = table(rows=25, missing=0.2)
    values = (values - np.nanmean(values, axis=0)) / np.nanstd(values, axis=0)
    l2, count = 2.0, len(values)
    A = np.eye(6) * count
    for _ in range(150):
        A = slow_gram(values, A, count + l2)[0] + ridge(6, l2)
    found = iterate_to_convergence(IncompleteRows.of(values), np.eye(6) / count, l2, 300, 1e-7)
    np.testing.assert_allclose(np.linalg.inv(found.precision), A, atol=1e-5 * count)
    assert found.converged
    assert found.rounds < 300


def test_without_holes_the_gram_matrix_is_the_gram_matrix():
    values = table(missing=0.0)
    full = with_constant(values)
    np.testing.assert_allclose(expected_gram(IncompleteRows.of(values), np.eye(6), 1.0), full.T @ full, rtol=1e-12)


def test_errors_left_out_equal_filling_with_one_entry_removed():
    values, P = table(rows=12), np.linalg.inv(covariance_like(6))
    total = 0.0
    for place in zip(*np.nonzero(~np.isnan(values)), strict=True):
        without = values.copy()
        without[place] = np.nan
        total += (filled(IncompleteRows.of(without), P)[place] - values[place]) ** 2
    assert left_out_errors(IncompleteRows.of(values), P) == pytest.approx(total, rel=1e-9)


def test_one_missing_entry_is_ease():
    values = table(missing=0.0)
    model = LinearImputer(l2=3.0).fit(values)
    scaled = (values - values.mean(axis=0)) / values.std(axis=0)
    S = scaled.T @ scaled
    P = np.linalg.inv(S + 3.0 * np.eye(5))
    gain, shift = decoupled(np.diag(P), np.diag(S), l2=3.0, dropout=0.0, b=0.0)
    predicted = scaled @ (P * gain + np.diag(shift)) * values.std(axis=0) + values.mean(axis=0)
    for column in range(5):
        given = values.copy()
        given[:, column] = np.nan
        np.testing.assert_allclose(model.transform(given)[:, column], predicted[:, column], rtol=1e-8)


@pytest.mark.parametrize("small", [0, 10])
def test_inverse_with_and_without_blas(monkeypatch, small):
    monkeypatch.setattr("deql.impute.expectation._SMALL", small)
    n = 7
    S = covariance_like(n)
    np.testing.assert_allclose(ridge_inverse(S, 2.0) @ (S + ridge(n, 2.0)), np.eye(n), atol=1e-10)
    with pytest.raises(NotPositiveDefiniteError, match=r"with l2=0 there is no solution.*give a larger l2"):
        ridge_inverse(np.ones((n, n)), 0.0)


def test_ways_end_at_the_ridge_asked_for():
    assert ridge_values(200.0, 100) == [200.0]
    assert ridge_values(0.0, 100)[-2:] == [0.01, 0.0]
    way = ridge_values(1.0, 100)
    assert way[0] == pytest.approx(100.0)
    assert way[-1] == 1.0
    assert np.all(np.diff(way) < 0)


def test_chosen_ridge_follows_the_noise():
    generator = np.random.default_rng(0)
    noise = generator.standard_normal((60, 8))
    related = generator.standard_normal((60, 1)) + 0.05 * noise
    assert choose_l2(noise) >= 10 * choose_l2(related / related.std(axis=0))


# Tables


def hidden(values, share, seed):
    generator = np.random.default_rng(seed)
    holes = generator.random(values.shape) < share
    holes[:, (~holes).sum(axis=0) < 2] = False
    return np.where(holes, np.nan, values), holes


@pytest.mark.parametrize("name", ["iris", "wine", "diabetes", "breast_cancer", "digits", "linnerud"])
def test_beats_the_mean_and_the_median_on_real_tables(name):
    values = getattr(datasets, f"load_{name}")().data[::3]
    if name == "linnerud":
        found = datasets.load_linnerud()
        values = np.hstack([found.data, found.target])
    values = values[:, values.std(axis=0) > 0]
    errors = np.zeros(3)
    for seed in range(5 if name == "linnerud" else 1):
        given, holes = hidden(values, 0.3, seed)
        for place, imputer in enumerate((LinearImputer(), SimpleImputer(), SimpleImputer(strategy="median"))):
            errors[place] += np.mean(((imputer.fit_transform(given) - values) / values.std(axis=0))[holes] ** 2)
    assert errors[0] < 0.9 * errors[1:].min()


def test_more_columns_than_rows():
    generator = np.random.default_rng(0)
    values = generator.standard_normal((30, 2)) @ generator.standard_normal((2, 60))
    given, holes = hidden(values, 0.2, 1)
    found = LinearImputer().fit_transform(given)
    assert np.mean((found - values)[holes] ** 2) < 0.1 * np.mean(values[holes] ** 2)
    with pytest.raises(NotPositiveDefiniteError):
        LinearImputer(l2=0).fit(values)


# scikit-learn's conventions


@pytest.mark.parametrize(
    ("estimator", "check"),
    [
        pair
        for model in (LinearImputer(), LinearImputer(l2=1.0, add_indicator=True))
        for pair in estimator_checks_generator(model)
    ],
    ids=lambda one: getattr(getattr(one, "func", None), "__name__", ""),
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_observed_entries_stay_and_the_type_too():
    for dtype in (np.float32, np.float64):
        values = table().astype(dtype)
        before = values.copy()
        found = LinearImputer().fit_transform(values)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found[~np.isnan(values)], values[~np.isnan(values)])
        np.testing.assert_array_equal(values, before)
        assert np.isfinite(found).all()


def test_rows_without_an_entry_get_the_means():
    values = table(missing=0.0)
    model = LinearImputer().fit(values)
    np.testing.assert_allclose(model.transform(np.full((1, 5), np.nan))[0], values.mean(axis=0))


def test_units_do_not_matter():
    values = table()
    found = LinearImputer().fit_transform(values)
    for factor in (1e-200, 1e-3, 1e200):
        np.testing.assert_allclose(LinearImputer().fit_transform(values * factor), found * factor, rtol=1e-6)


def test_columns_that_do_not_vary():
    values = np.hstack([table(), np.full((40, 1), 0.1), np.full((40, 1), np.nan)])
    values[1:7, 5] = np.nan
    values[3, 6] = -2.0
    found = LinearImputer().fit_transform(values)
    np.testing.assert_allclose(found[:, 5], 0.1)
    np.testing.assert_allclose(found[:, 6], -2.0)
    np.testing.assert_allclose(found[:, :5], LinearImputer().fit_transform(values[:, :5]))
    constant = LinearImputer().fit_transform([[1, 2], [1, np.nan]])
    np.testing.assert_array_equal(constant, [[1, 2], [1, 2]])


def test_whole_numbers_with_a_mark_for_missing():
    values = np.array([[1, 2], [2, 4], [3, 6], [4, -1]])
    found = LinearImputer(l2=1e-3, missing_values=-1).fit_transform(values)
    assert found[3, 1] == pytest.approx(8.0, abs=0.05)
    with pytest.raises(DataError, match=r"^column 0, 1 of X has NaN, but missing_values is -1$"):
        LinearImputer(missing_values=-1).fit(values * np.nan)


def test_frames_keep_their_names():
    frame = pd.DataFrame(table(), columns=list("abcde"))
    frame["e"] = 1.0
    model = LinearImputer(add_indicator=True).set_output(transform="pandas").fit(frame)
    found = model.transform(frame)
    assert found.columns.tolist() == [*"abcde", *(f"missingindicator_{name}" for name in "abcd")]
    np.testing.assert_array_equal(found["missingindicator_a"], frame["a"].isna())
    with pytest.raises(DataError, match="feature names should match"):
        model.transform(frame[list("bacde")])


def test_in_a_pipeline_and_cloned():
    pipeline = clone(make_pipeline(LinearImputer(l2=2.0), StandardScaler()))
    assert np.isfinite(pipeline.fit_transform(table())).all()
    assert pipeline[0].get_params()["l2"] == 2.0
    assert pipeline[0].l2_ == 2.0


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[1.0, np.inf], [2.0, 3.0]], "^column 1 of X has infinity"),
        ([[1.7e308, 1.0], [-1.7e308, 3.0]], "^column 0 of X has infinity or a number nearly as large$"),
        (np.zeros((3, 2), "M8[s]"), "^X has dates or times: turn them into numbers"),
        (pd.DataFrame({"a": [1.0], "when": [pd.Timestamp(0)]}), "^column 'when' of X has dates or times"),
        (pl.DataFrame({"a": [1.0], "when": [date(2000, 1, 1)]}), "^column 'when' of X has dates or times"),
        ([[1j, 2.0], [3.0, 4.0]], "^Complex data not supported$"),
        (pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}), "^column 'b' of X: could not convert string to float: 'x'$"),
        (csr_array(np.eye(3)), "sparse"),
        ([[1.0, "a"], [2.0, "b"]], "^column 1 of X: could not convert string"),
        (np.ma.masked_equal([[1.0, 2.0], [3.0, 4.0]], 2.0), "masked array"),
        ([[np.datetime64(0, "s")]], "^X has dates or times"),
        ([[1.0, {}]], "^column 1 of X: float.. argument must be"),
        ([[1.0, 2.0], [3.0]], "^the rows of X are not all of one length$"),
        ([1.0, 2.0], "Expected 2D array"),
        ([[1.0, np.nan], [2.0, np.nan]], r"^no entry is observed in column 1: leave it out, or fill it with 0 by keep"),
        (
            np.full((2, 2), np.nan),
            r"^no entry is observed in columns 0, 1: leave them out, or fill them with 0 by keep",
        ),
        (pd.DataFrame({"a": [1.0, 2.0], "b": [np.nan] * 2}), r"^no entry is observed in column 'b': "),
    ],
)
def test_bad_tables(X, message):
    with pytest.raises(DataError, match=message):
        LinearImputer().fit(X)


def test_empty_columns_are_kept_as_zeros_if_asked():
    values = np.array([[1.0, np.nan], [2.0, np.nan], [np.nan, np.nan]])
    found = LinearImputer(keep_empty_features=True).fit(values).transform([[np.nan, np.nan], [3.0, 7.0]])
    np.testing.assert_allclose(found, [[1.5, 0.0], [3.0, 7.0]])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"l2": -1.0}, "l2 must be a number from 0 up, got -1.0"),
        ({"l2": "much"}, "l2 must be a number from 0 up or 'auto', got 'much'"),
        ({"tol": np.nan}, "tol must be"),
        ({"max_iter": 0}, "max_iter must be a whole number from 1 up, got 0"),
        ({"missing_values": "?"}, "missing_values must be NaN or a finite number"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ParameterError, match=message):
        LinearImputer(**parameters).fit(table())


def test_another_number_of_columns():
    with pytest.raises(DeqlError, match="X has 2 features, but LinearImputer is expecting 5"):
        LinearImputer().fit(table()).transform([[1.0, np.nan]])


@pytest.mark.parametrize("error", [NotFittedError, SklearnNotFittedError])
@pytest.mark.parametrize("ask", [lambda model: model.transform(table()), lambda model: model.get_feature_names_out()])
def test_not_fitted_is_the_error_of_both_libraries(error, ask):
    with pytest.raises(error, match="this LinearImputer is not fitted yet: call fit first"):
        ask(LinearImputer())


def test_rounds_that_do_not_suffice():
    with pytest.warns(ConvergenceWarning, match=r"tol=0.001 after max_iter=1 rounds at l2=1: set max_iter, tol or l2"):
        LinearImputer(l2=1.0, max_iter=1).fit(table())
    # No warning, which would be an error here: nothing is missing, or l2 has been chosen together with the rounds.
    LinearImputer(l2=1.0, max_iter=1).fit(table(missing=0.0))
    LinearImputer(max_iter=1).fit(table())


def test_a_period_in_the_rows_does_not_matter():
    # Every third of 3,000 rows tells nothing; a sample of every third row would see no others, or only those.
    generator = np.random.default_rng(0)
    values = generator.standard_normal((3000, 1)) + 0.1 * generator.standard_normal((3000, 4))
    values[::3] = generator.standard_normal((1000, 4))
    shares = np.isin(_sample(values)[:, 0], values[::3, 0]).mean()
    assert shares == pytest.approx(1 / 3, abs=0.06)


WITHOUT = """
import pydoc, sys
sys.modules["sklearn"] = sys.modules["sklearn.base"] = None
import deql
from deql import *
assert hasattr(deql, "LinearImputer")
assert "it needs scikit-learn" in pydoc.render_doc(deql.LinearImputer)
pydoc.render_doc(deql)
try:
    LinearImputer(l2=1.0)
except DeqlError as error:
    print(error)
"""


def test_without_scikit_learn_only_making_one_fails():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert done.stdout == 'LinearImputer needs scikit-learn, 1.6 or newer: pip install "deql[impute]"\n'


def test_the_code_of_the_guide_runs():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "imputing.md").read_text(), re.S)
    assert len(blocks) >= 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
