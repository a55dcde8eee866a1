"""Tests of pairs of models over seeded splits, and over the users of all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql.evaluation.significance import holm, paired_t, t_tail
from deql.paper.published import METRICS

__all__ = ["Pair", "SplitTest", "difference_sums", "null", "split_tests", "values_on"]

Pair = tuple[str, str]
"""Two rows; the null hypothesis is that the first is no better than the second."""


@dataclass(frozen=True)
class SplitTest:
    """One null hypothesis by one metric.

    Attributes
    ----------
    pair : tuple of str
    metric : str
    differences : ndarray
        The first − the second on each split.
    p, overlap, users : float
        One-sided p-values of t-tests: over splits as the paper makes it, the same for splits that share users, and
        over users. NaN where nothing differs: no test was made.
    holm : float
        The first, corrected for all tests by this metric.
    """

    pair: Pair
    metric: str
    differences: NDArray[np.float64]
    p: float = math.nan
    overlap: float = math.nan
    users: float = math.nan
    holm: float = math.nan

    @property
    def made(self) -> bool:
        """Whether there is anything to test."""
        return bool(self.differences.any())


def null(pair: Pair) -> str:
    """A null hypothesis as the paper writes it.

    Examples
    --------
    >>> null(("DEQL(L2)", "EDLAE"))
    'DEQL(L2) ≤ EDLAE'
    """
    return " ≤ ".join(pair)


def values_on(splits: Sequence[Mapping[str, Any]], row: str, metric: str) -> NDArray[np.float64]:
    """One value for each split."""
    return np.array([split["means"][row][metric] for split in splits])


def difference_sums(differences: NDArray[np.float64]) -> list[float]:
    """n, Σd and Σd²: all that a t-test over users needs, and small enough to be written down.

    Examples
    --------
    >>> difference_sums(np.array([1.0, 3.0]))
    [2, 4.0, 10.0]
    """
    return [len(differences), float(differences.sum()), float(differences @ differences)]


def split_tests(
    splits: Sequence[Mapping[str, Any]], pairs: Sequence[Pair], model_of: Mapping[str, str]
) -> list[SplitTest]:
    """A test of each pair by each metric.

    Parameters
    ----------
    splits : sequence of dict
        What was found on each: ``means`` by row and metric, ``sums`` of differences by null hypothesis and metric,
        numbers of evaluated ``users`` and of users to learn from (``train``).
    pairs : sequence of Pair
    model_of : dict
        For each row the one under which its model was measured. Pairs of the same two models are one test, which
        Holm's correction counts once.
    """
    tests = []
    models = {pair: (model_of[pair[0]], model_of[pair[1]]) for pair in pairs}
    for metric in METRICS:
        several = {pair: _test(splits, pair, metric) for pair in dict.fromkeys(models.values())}
        corrected = dict(zip(several, holm([test.p for test in several.values()]).tolist(), strict=True))
        tests += [replace(several[tested], pair=pair, holm=corrected[tested]) for pair, tested in models.items()]
    return tests


def _test(splits: Sequence[Mapping[str, Any]], pair: Pair, metric: str) -> SplitTest:
    first, second = (values_on(splits, row, metric) for row in pair)
    test = SplitTest(pair, metric, first - second)
    if not test.made:
        return test
    # The test part of one split is in the training part of others: Nadeau and Bengio (2003) add test ÷ training users.
    share = float(np.mean([split["users"] / split["train"] for split in splits]))
    d, n = test.differences, len(splits)
    users = _from_sums(*np.sum([split["sums"][null(pair)][metric] for split in splits], axis=0))
    overlap = t_tail(n, d.mean(), d.var(ddof=1), 1 / n + share)
    return replace(test, p=paired_t(first, second), overlap=overlap, users=users)


def _from_sums(n: float, total: float, squares: float) -> float:
    """The paired t-test of n differences of which only the sum and the sum of squares are known.

    Examples
    --------
    >>> round(_from_sums(*difference_sums(np.array([0.01, 0.02, 0.03]))), 4)
    0.0371
    """
    return t_tail(int(n), total / n, (squares - total * total / n) / (n - 1)) if n > 1 else math.nan
