"""Is one model really better? One-sided tests on paired values, and Holm's correction for many of them.

Every test here asks the same question of two arrays of equal length: is ``better`` larger than
``other``? The null hypothesis is that it is not, as in the paper's table of p-values.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, stdtr

from deql.errors import ParameterError

__all__ = ["LEVEL", "holm", "is_tied", "paired_t", "standard_error", "t_tail", "wilcoxon"]

LEVEL = 0.05
"""Below it a p-value is called significant."""

# Up to here the signed-rank distribution is counted out; beyond, the normal curve is as good.
EXACT_PAIRS = 50


def paired_t(better: ArrayLike, other: ArrayLike) -> float:
    """Student's paired t-test: p-value of "the mean of better − other is above zero".

    Assumes that the differences are independent and roughly normal, or many.

    Parameters
    ----------
    better, other : array_like
        Values of two models on the same splits or for the same users.

    Returns
    -------
    float
        NaN for fewer than two pairs, which say nothing about their spread; 1 if nothing differs. A
        constant difference has no spread: 0 if it is positive, 1 if not.

    Examples
    --------
    >>> round(paired_t([0.31, 0.30, 0.33], [0.30, 0.28, 0.30]), 4)
    0.0371
    >>> paired_t([0.3, 0.4], [0.3, 0.4])
    1.0
    """
    differences = _differences(better, other)
    n = len(differences)
    return t_tail(n, differences.mean(), differences.var(ddof=1)) if n > 1 else float("nan")


def standard_error(differences: NDArray[np.float64]) -> float:
    """Of the mean of so many values: their standard deviation ÷ √n; NaN for fewer than two.

    Examples
    --------
    >>> round(standard_error(np.array([0.01, 0.02, 0.03])), 4)
    0.0058
    """
    n = len(differences)
    return float(np.std(differences, ddof=1) / np.sqrt(n)) if n > 1 else float("nan")


def is_tied(difference: float, error: float) -> bool:
    """Whether a mean difference is below one standard error, or too small to be seen in four digits.

    Examples
    --------
    >>> is_tied(0.0004, 0.0005), is_tied(0.0006, 0.0005), is_tied(0.00004, 0.00001), is_tied(0.01, float("nan"))
    (True, False, True, False)
    """
    # Where a single user differs, the two are equal but for rounding, which must not decide.
    return abs(difference) < error * (1 - 1e-9) or f"{abs(difference):.4f}" == "0.0000"


def t_tail(n: int, mean: float, variance: float, factor: float | None = None) -> float:
    """The same test of n differences of which only mean and variance are known.

    Parameters
    ----------
    n : int
        At least 2: there are n − 1 degrees of freedom.
    mean, variance : float
        Of the differences; the variance is that of a sample (÷ n − 1).
    factor : float, optional
        The variance of the mean as a share of that of the differences; 1/n, which holds for independent ones, if it
        is not given.

    Examples
    --------
    >>> round(t_tail(3, 0.02, 0.0001), 4)  # of 0.01, 0.02 and 0.03
    0.0371
    >>> round(t_tail(3, 0.02, 0.0001, 1 / 3 + 1 / 4), 4)
    0.0601
    """
    if variance <= 0:
        return 0.0 if mean > 0 else 1.0
    return float(stdtr(n - 1, -mean / np.sqrt(variance * (1 / n if factor is None else factor))))


def wilcoxon(better: ArrayLike, other: ArrayLike) -> float:
    """Wilcoxon's signed-rank test: p-value of "the differences better − other lie above zero".

    Assumes that the differences are independent and, under the null hypothesis, as likely to be
    positive as negative at every size. Pairs that do not differ are left out, as Wilcoxon did; equal
    sizes share the mean of their ranks. Up to 50 remaining pairs the p-value is exact, ties included:
    the share of the 2ⁿ assignments of signs that give as large a sum of positive ranks. Beyond that it
    is the normal approximation, without a continuity correction.

    Parameters
    ----------
    better, other : array_like
        Values of two models on the same splits or for the same users.

    Returns
    -------
    float
        Never below 2⁻ⁿ: 1/32 for five pairs, so five splits can hardly pass a correction. 1 if nothing
        differs, NaN without any pair.

    Examples
    --------
    >>> wilcoxon([0.31, 0.30, 0.33, 0.35, 0.36], [0.30, 0.28, 0.30, 0.31, 0.31])
    0.03125
    """
    differences = _differences(better, other)
    if not len(differences):
        return float("nan")
    # Differences that are equal on paper are so only to rounding: 0.3 − 0.2 is not 0.2 − 0.1.
    largest = np.abs(differences).max()
    differences = np.round(differences / largest, 12) if largest > 0 else differences
    differences = differences[differences != 0]
    if not len(differences):
        return 1.0
    # Twice the mid-rank is a whole number, so that sums of ranks can be counted.
    _, place, count = np.unique(np.abs(differences), return_inverse=True, return_counts=True)
    ranks = (2 * np.cumsum(count) - count + 1)[place]
    positive = int(ranks[differences > 0].sum())
    if len(ranks) <= EXACT_PAIRS:
        return float(_sign_sums(ranks)[positive:].sum())
    # Under the null hypothesis each rank r enters with probability ½: mean Σr/2, variance Σr²/4.
    return float(ndtr((ranks.sum() / 2 - positive) / np.sqrt((ranks.astype(np.float64) ** 2).sum() / 4)))


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's step-down correction: p-values that hold for all of the comparisons together.

    The smallest of m p-values is multiplied by m, the next by m − 1 and so on; none may come out below
    one before it, nor above 1. It assumes nothing about how the tests depend on each other.

    Parameters
    ----------
    p_values : array_like
        NaN marks a test that could not be made; it does not count and stays NaN.

    Returns
    -------
    ndarray of float64
        Corrected p-values, in the order given.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    raw = np.asarray(p_values, np.float64)
    made = np.flatnonzero(~np.isnan(raw))
    order = made[np.argsort(raw[made], kind="stable")]
    corrected = np.full(raw.shape, np.nan)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(raw[order] * np.arange(len(order), 0, -1)))
    return corrected


def _differences(better: ArrayLike, other: ArrayLike) -> NDArray[np.float64]:
    first, second = np.asarray(better, np.float64), np.asarray(other, np.float64)
    if first.ndim != 1 or first.shape != second.shape:
        raise ParameterError(f"a paired test needs two lists of equal length, got shapes {first.shape}, {second.shape}")
    differences = first - second
    if not np.isfinite(differences).all():
        raise ParameterError("a paired test needs finite values: leave out the pairs that are not")
    return differences


def _sign_sums(ranks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Probability of each sum of ranks when every rank enters with probability ½."""
    chances = np.zeros(int(ranks.sum()) + 1)
    chances[0] = 1.0
    for rank in ranks.tolist():
        shifted = np.zeros_like(chances)
        shifted[rank:] = chances[: len(chances) - rank]
        chances = (chances + shifted) / 2
    return chances
