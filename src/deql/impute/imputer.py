"""The imputer as scikit-learn's users expect it."""

from __future__ import annotations

import numbers
import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.impute import MissingIndicator
from sklearn.utils.validation import check_is_fitted

from deql._system.checks import check_range, check_whole
from deql.errors import NotFittedError, ParameterError
from deql.impute.array_input import check_none_empty, floats
from deql.impute.expectation import IncompleteRows, filled
from deql.impute.ridge_path import choose_l2, fit_precision

__all__ = ["LinearImputer"]


class _NotFittedError(NotFittedError, SklearnNotFittedError):  # type: ignore[misc]
    """The error of both libraries, so that whoever catches either catches it."""


class LinearImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Fills missing numbers with linear predictions from what else is observed in the row.

    Columns are centred and scaled by their observed entries. Then P = A⁻¹ with A = S + l2·I as in the rest of the
    family, where S is the Gram matrix to be expected given what is observed, and a row's missing entries are
    x̂_M = −P_MM⁻¹·P_MO·x_O. For a single missing entry that is EASE.

    Parameters
    ----------
    l2 : float or "auto", default "auto"
        What is added to the Gram matrix's diagonal: so many rows of unrelated columns. "auto" chooses it on rows held
        out, by predicting their observed entries.
    max_iter : int, default 100
        Most rounds once a given l2 is reached; if they do not suffice, ``fit`` warns. Without effect if l2 is "auto",
        whose rounds are part of its choice.
    tol : float, default 1e-3
        Those rounds end when no covariance of the scaled columns changes by more than this.
    missing_values : float, default NaN
        What stands for a missing entry.
    add_indicator : bool, default False
        Append a column of 0 and 1 for each column that had missing entries in ``fit``.
    keep_empty_features : bool, default False
        Fill a column without any observed entry with 0; otherwise ``fit`` refuses it.

    Attributes
    ----------
    l2_ : float
        The l2 in use.
    precision_ : ndarray of float64
        P; row and column 0 belong to the constant, the others to the columns in ``modelled_``.
    mean_, scale_ : ndarray of float64
        Mean and standard deviation of each column's observed entries.
    modelled_ : ndarray of int64
        Columns that vary; the others are filled with their one value.
    n_iter_ : int
        Rounds made, those on the way to l2 included: it may be more than ``max_iter``.
    indicator_ : MissingIndicator or None
        What appends the columns of ``add_indicator``.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from deql.impute import LinearImputer
    >>> X = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0], [5.0, np.nan]])
    >>> LinearImputer(l2=0.01).fit_transform(X).round(1)[-1]
    array([ 5. , 49.9])
    """

    def __init__(
        self,
        l2: float | str = "auto",
        *,
        max_iter: int = 100,
        tol: float = 1e-3,
        missing_values: float = np.nan,
        add_indicator: bool = False,
        keep_empty_features: bool = False,
    ) -> None:
        self.l2 = l2
        self.max_iter = max_iter
        self.tol = tol
        self.missing_values = missing_values
        self.add_indicator = add_indicator
        self.keep_empty_features = keep_empty_features

    def fit(self, X: Any, y: None = None) -> Self:
        """Learn from rows with missing entries.

        Parameters
        ----------
        X : array-like or frame of numbers
            Rows × columns.
        y : ignored
            Present for scikit-learn's conventions.

        Returns
        -------
        self
        """
        self._check_parameters()
        values = self._values(X, reset=True).astype(np.float64)
        observed = ~np.isnan(values)
        if not self.keep_empty_features:
            check_none_empty(observed, getattr(self, "feature_names_in_", np.arange(observed.shape[1])))
        self.mean_, self.scale_ = _observed_moments(values, observed)
        self.modelled_ = np.flatnonzero(self.scale_ > 0)
        self._learn(self._scaled(values))
        self.indicator_ = None
        if self.add_indicator:
            self.indicator_ = MissingIndicator(error_on_new=False).fit(values)
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """Rows with their missing entries filled; what is observed is left as it is.

        Parameters
        ----------
        X : array-like or frame of numbers
            Rows × the columns of ``fit``. A row without any observed entry gets each column's mean as the model has it.

        Returns
        -------
        ndarray
            float32 if X is, otherwise float64.
        """
        self._check_fitted()
        values = self._values(X, reset=False)
        missing = np.isnan(values)
        guesses = np.tile(self.mean_, (len(values), 1))
        columns = self.modelled_
        if missing[:, columns].any():
            scaled = filled(IncompleteRows.of(self._scaled(values)), self.precision_)
            guesses[:, columns] += scaled * self.scale_[columns]
        result = np.where(missing, guesses, values).astype(values.dtype)
        if self.indicator_ is None:
            return result
        return np.hstack([result, self.indicator_.transform(values).astype(values.dtype)])

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the columns that ``transform`` gives.

        Parameters
        ----------
        input_features : array-like of str, optional
            Names of the columns, where ``fit`` was not given a frame.
        """
        self._check_fitted()
        names: NDArray[Any] = super().get_feature_names_out(input_features)
        if self.indicator_ is None:
            return names
        return np.concatenate([names, self.indicator_.get_feature_names_out(names)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _learn(self, scaled: NDArray[np.float64]) -> None:
        chosen = isinstance(self.l2, str)
        if not scaled.size:
            self.l2_, self.precision_, self.n_iter_ = 0.0 if chosen else float(self.l2), np.ones((1, 1)), 1
            return
        self.l2_ = choose_l2(scaled) if chosen else float(self.l2)
        found = fit_precision(scaled, self.l2_, 0 if chosen else self.max_iter, self.tol)
        self.precision_, self.n_iter_ = found.precision, found.rounds
        if not found.converged:
            warnings.warn(
                f"covariances still changed by more than tol={self.tol:g} after max_iter={self.max_iter:,} rounds at "
                f"l2={self.l2_:g}: set max_iter, tol or l2 higher",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _scaled(self, values: NDArray[Any]) -> NDArray[np.float64]:
        columns = self.modelled_
        return (values[:, columns].astype(np.float64) - self.mean_[columns]) / self.scale_[columns]

    def _values(self, X: Any, reset: bool) -> NDArray[Any]:
        return floats(self, X, reset=reset, missing_values=self.missing_values)

    def _check_fitted(self) -> None:
        try:
            check_is_fitted(self, msg="this %(name)s is not fitted yet: call fit first")
        except SklearnNotFittedError as error:
            raise _NotFittedError(str(error)) from None

    def _check_parameters(self) -> None:
        if isinstance(self.l2, str):
            if self.l2 != "auto":
                raise ParameterError(f"l2 must be a number from 0 up or 'auto', got {self.l2!r}", parameter="l2")
        else:
            check_range("l2", self.l2, 0.0, np.inf)
        check_range("tol", self.tol, 0.0, np.inf)
        check_whole("max_iter", self.max_iter)
        if not isinstance(self.missing_values, numbers.Real) or np.isinf(self.missing_values):
            raise ParameterError(
                f"missing_values must be NaN or a finite number, got {self.missing_values!r}",
                parameter="missing_values",
            )


def _observed_moments(
    values: NDArray[np.float64], observed: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of each column's observed entries; 0 and 0 of a column without any.

    A deviation that rounding alone can make is 0: the column is constant.
    """
    counts = np.maximum(observed.sum(axis=0), 1)
    mean = np.where(observed, values / counts, 0.0).sum(axis=0)
    away = np.where(observed, values - mean, 0.0)
    largest = np.abs(away).max(axis=0)
    unit = np.where(largest > 0, largest, 1.0)  # squares of very large or small numbers would overflow or vanish
    deviation = unit * np.sqrt(((away / unit) ** 2).sum(axis=0) / counts)
    return mean, np.where(largest > 8 * np.finfo(np.float64).eps * np.abs(mean), deviation, 0.0)
