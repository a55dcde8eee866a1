"""Metrics over b, all else fixed: one inverse for a whole curve, or, at a fixed λ, one for each b."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from deql.errors import TooLargeError
from deql.evaluation import Evaluation
from deql.evaluation.comparison import LEVEL
from deql.evaluation.model_groups import fit_and_evaluate
from deql.evaluation.significance import paired_t
from deql.models import DEQL
from deql.models.linear import LinearAutoencoder
from deql.paper.hyperparameters import Choice
from deql.paper.paper_datasets import Bench
from deql.paper.published import METRICS
from deql.paper.runs import Run
from deql.rules import paper_l2, ridge_of_gram

__all__ = [
    "AFFORDABLE",
    "ROW",
    "FixedL2",
    "FixedLambda",
    "Line",
    "as_deql",
    "at_fixed_l2",
    "at_fixed_lambda",
    "measure",
]

ROW = "DEQL(L2)"
"""Whose curves they are."""

AT_FIXED_LAMBDA = tuple(step / 4 for step in range(9))
"""Values of b at a fixed λ, where each takes an inverse of its own."""

AFFORDABLE = 8_000
"""Up to so many items a curve at a fixed λ is made without a GPU."""


@dataclass(frozen=True)
class Line:
    """One metric over b, all else fixed.

    Attributes
    ----------
    metric : str
    b, means : list of float
    over_zero : list of float
        One-sided p-values: is this b better than b = 0?
    under_peak : list of float
        One-sided p-values: is the best b better than this one?
    """

    metric: str
    b: Sequence[float]
    means: Sequence[float]
    over_zero: Sequence[float]
    under_peak: Sequence[float]

    @property
    def flat(self) -> bool:
        """Whether b makes no difference: then nothing is a peak."""
        return max(self.means) == min(self.means)

    @cached_property
    def peak(self) -> int:
        """The place of the best b; of equal ones the smallest."""
        return self.means.index(max(self.means))

    def gain(self, b: float, over: float = 0.0) -> float:
        """How much better one b is than another."""
        return self.means[self.b.index(b)] - self.means[self.b.index(over)]

    @property
    def as_good(self) -> tuple[float, float]:
        """The range of b around the peak that a test over users does not tell from it.

        Examples
        --------
        >>> Line("ndcg@20", [0, 1, 2, 3], [0.1, 0.3, 0.4, 0.2], [1, 0.01, 0.01, 0.01], [0.01, 0.3, 1, 0.02]).as_good
        (1, 2)
        """
        told = [p < LEVEL for p in self.under_peak]  # of a single user there is no p-value, and nothing is told
        low = high = self.peak
        while low > 0 and not told[low - 1]:
            low -= 1
        while high < len(self.b) - 1 and not told[high + 1]:
            high += 1
        return self.b[low], self.b[high]


@dataclass(frozen=True)
class FixedL2:
    """The lines of one choice.

    Attributes
    ----------
    choice : Choice
    chosen : float
        Its own b.
    lines : list of Line
        For each metric.
    users : int
        How many are judged.
    """

    choice: Choice
    chosen: float
    lines: Sequence[Line]
    users: int

    @property
    def fixed(self) -> str:
        """What does not vary along the curve, in words."""
        return " ".join(f"{name}={value:g}" for name, value in self.choice.parameters.items() if name != "b")


@dataclass(frozen=True)
class FixedLambda:
    """The curve as the paper draws it: each b has another l2.

    Attributes
    ----------
    lam : float
        The paper's λ at a = 1.
    l2 : list of float
        For each b.
    lines : list of Line
        For each metric.
    """

    lam: float
    l2: Sequence[float]
    lines: Sequence[Line]

    @property
    def b(self) -> Sequence[float]:
        """The values of b."""
        return self.lines[0].b


def measure(bs: Sequence[float], judged: Sequence[Evaluation]) -> dict[str, Any]:
    """Means of each metric over b and the p-values that the report needs, as plain values; ``bs`` begins with 0."""
    if len(bs) != len(judged):
        raise ValueError(f"there are {len(bs)} values of b and {len(judged)} models")
    found: dict[str, Any] = {"b": list(bs), "users": len(judged[0].users)}
    for metric in METRICS:
        values = [one.per_user[metric] for one in judged]
        means = [one.means[metric] for one in judged]
        peak = values[means.index(max(means))]
        found[metric] = {
            "means": means,
            "over_zero": [paired_t(one, values[0]) for one in values],
            "under_peak": [paired_t(peak, one) for one in values],
        }
    return found


def at_fixed_l2(run: Run, bench: Bench, choice: Choice, bs: Sequence[float]) -> FixedL2:
    """Measure all values of b with one inverse, or remember them."""
    models = {_name(b): choice.model(**run.machine | {"b": b}) for b in bs}
    size = bench.first.train.n_items
    told = f"fitting {ROW} {choice.words} for {len(bs)} values of b, one inverse of {size:,} items"
    key = run.key(bench, models["0"]) | {"b": ", ".join(models)}
    found = run.remember("curve", key, _work(run, bench, models, bs, told))["found"]
    return FixedL2(choice, as_deql(choice).b, _lines(found), found["users"])


def at_fixed_lambda(run: Run, bench: Bench, choice: Choice) -> FixedLambda | None:
    """Measure some values of b at the λ that the choice amounts to, one inverse after the other, or remember them.

    None if they are not in the journal, and there are many items and no GPU to compute on.
    """
    model = as_deql(choice)
    lam = paper_l2(model.l2, model.dropout, model.b)
    bs = sorted({*AT_FIXED_LAMBDA, model.b})
    # At the chosen b, l2 is the chosen one, not one that rounding has moved.
    l2 = [model.l2 if b == model.b else ridge_of_gram(lam, model.dropout, 1.0, b) for b in bs]
    models = {_name(b): choice.model(**run.machine | {"l2": ridge, "b": b}) for b, ridge in zip(bs, l2, strict=True)}
    key = run.key(bench, models["0"]) | {"b": ", ".join(models), "lambda": lam}
    del key["l2"]
    if run.recall("curve", key) is None and not _affordable(models["0"], bench):
        return None
    size = bench.first.train.n_items
    told = f"fitting {ROW} at λ={lam:.4g} for {len(bs)} values of b, an inverse of {size:,} items for each"
    found = run.remember("curve", key, _work(run, bench, models, bs, told))["found"]
    return FixedLambda(lam, l2, _lines(found))


def _name(b: float) -> str:
    """A value of b, short where that is exact: no two have one name.

    Examples
    --------
    >>> _name(0.0), _name(0.45), _name(1.00000001)
    ('0', '0.45', '1.00000001')
    """
    return short if float(short := f"{b:g}") == b else repr(b)


def _work(
    run: Run, bench: Bench, models: Mapping[str, LinearAutoencoder], bs: Sequence[float], told: str
) -> Callable[[], dict[str, Any]]:
    """What measures a curve, when it is called."""

    def work() -> dict[str, Any]:
        run.say(f"{bench.label}: {told}")
        return measure(bs, list(fit_and_evaluate(models, bench.first.train, bench.first.test, METRICS).values()))

    return work


def _lines(found: Mapping[str, Any]) -> list[Line]:
    """What was measured, as lines; the journal has null for a p-value that there is not."""
    return [
        Line(metric, found["b"], *([float("nan") if value is None else value for value in found[metric][name]]
                                   for name in ("means", "over_zero", "under_peak")))
        for metric in METRICS
    ]  # fmt: skip


def _affordable(model: LinearAutoencoder, bench: Bench) -> bool:
    """Whether several inverses take minutes at most: of few items, or on a GPU."""
    train = bench.first.train
    if train.n_items <= AFFORDABLE:
        return True
    try:
        return model._options.choose(train.matrix) == "torch" and model.device != "cpu"
    except TooLargeError:
        return False


def as_deql(choice: Choice) -> DEQL:
    """The model of a choice for that row, not fitted."""
    model = choice.model()
    assert isinstance(model, DEQL)
    return model
