"""Metrics over b, all else fixed: one inverse for a whole curve, or, at a fixed λ, one for each b."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from deql.errors import TooLargeError
from deql.evaluation import Evaluation
from deql.evaluation.model_groups import fit_and_evaluate
from deql.evaluation.significance import LEVEL, paired_t
from deql.linalg.engines.torch_engine import Torch
from deql.linalg.planner.choose import choose_engine
from deql.models import DEQL
from deql.models.linear import LinearAutoencoder
from deql.paper.hyperparameters import Choice
from deql.paper.measurement_log import MeasurementLog
from deql.paper.paper_datasets import PaperDataset
from deql.paper.published import METRICS
from deql.rules import paper_l2, ridge_of_gram

__all__ = [
    "AFFORDABLE", "ROW", "FixedLambdaCurve", "MetricCurve", "SensitivityCurve", "as_deql", "at_fixed_l2",
    "at_fixed_lambda", "curve_facts",
]  # fmt: skip

ROW = "DEQL(L2)"
"""Whose curves they are."""

AT_FIXED_LAMBDA = tuple(step / 4 for step in range(9))
"""Values of b at a fixed λ, where each takes an inverse of its own."""

AFFORDABLE = 8_000
"""Up to so many items a curve at a fixed λ is made without a GPU."""


@dataclass(frozen=True)
class MetricCurve:
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

    @property
    def peak_b(self) -> float:
        """The best b itself."""
        return self.b[self.peak]

    def gain(self, b: float, over: float = 0.0) -> float:
        """How much better one b is than another."""
        return self.means[self.b.index(b)] - self.means[self.b.index(over)]

    @property
    def as_good(self) -> tuple[float, float]:
        """The range of b around the peak that a test over users does not tell from it.

        Examples
        --------
        >>> under_peak = [0.01, 0.3, 1, 0.02]
        >>> MetricCurve("ndcg@20", [0, 1, 2, 3], [0.1, 0.3, 0.4, 0.2], [1, 0.01, 0.01, 0.01], under_peak).as_good
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
class SensitivityCurve:
    """The curves of one choice, one for each metric; ``chosen`` is its own b, and so many ``users`` are evaluated."""

    choice: Choice
    chosen: float
    lines: Sequence[MetricCurve]
    users: int

    @property
    def fixed(self) -> str:
        """What does not vary along the curve, in words."""
        return " ".join(f"{name}={value:g}" for name, value in self.choice.parameters.items() if name != "b")


@dataclass(frozen=True)
class FixedLambdaCurve:
    """The curves as the paper draws them, one for each metric: at its λ (for a = 1) each b has another ``l2``."""

    lam: float
    l2: Sequence[float]
    lines: Sequence[MetricCurve]

    @property
    def b(self) -> Sequence[float]:
        """The values of b."""
        return self.lines[0].b


def curve_facts(bs: Sequence[float], results: Sequence[Evaluation]) -> dict[str, Any]:
    """Means of each metric over b and the p-values that the report needs, as plain values; ``bs`` begins with 0."""
    if len(bs) != len(results):
        raise ValueError(f"there are {len(bs)} values of b and {len(results)} models")
    found: dict[str, Any] = {"b": list(bs), "users": len(results[0].users)}
    for metric in METRICS:
        values = [one.per_user[metric] for one in results]
        means = [one.means[metric] for one in results]
        peak = values[means.index(max(means))]
        found[metric] = {
            "means": means,
            "over_zero": [paired_t(one, values[0]) for one in values],
            "under_peak": [paired_t(peak, one) for one in values],
        }
    return found


def at_fixed_l2(log: MeasurementLog, dataset: PaperDataset, choice: Choice, bs: Sequence[float]) -> SensitivityCurve:
    """Measure all values of b with one inverse, or find them in the journal."""
    models = {_name(b): _model(log, choice, b=b) for b in bs}
    key = log.key(dataset, models["0"]) | {"b": ", ".join(models)}
    told = f"{choice.words} for {len(bs)} values of b, one inverse of {dataset.first.train.n_items:,} items"
    found = log.get_or_measure("curve", key, partial(_measure, log, dataset, models, bs, told))["found"]
    return SensitivityCurve(choice, as_deql(choice).b, _lines(found), found["users"])


def at_fixed_lambda(log: MeasurementLog, dataset: PaperDataset, choice: Choice) -> FixedLambdaCurve | None:
    """Measure some values of b at the λ that the choice amounts to, one inverse after the other, or find them.

    None if they are not in the journal, and there are many items and no GPU to compute on.
    """
    model = as_deql(choice)
    lam = paper_l2(model.l2, model.dropout, model.b)
    bs = sorted({*AT_FIXED_LAMBDA, model.b})
    # At the chosen b, l2 is the chosen one, not one that rounding has moved.
    l2 = [model.l2 if b == model.b else ridge_of_gram(lam, model.dropout, 1.0, b) for b in bs]
    models = {_name(b): _model(log, choice, b=b, l2=ridge) for b, ridge in zip(bs, l2, strict=True)}
    key = log.key(dataset, models["0"]) | {"b": ", ".join(models), "lambda": lam}
    del key["l2"]
    if log.find("curve", key) is None and not _affordable(models["0"], dataset):
        return None
    size = dataset.first.train.n_items
    told = f"at λ={lam:.4g} for {len(bs)} values of b, an inverse of {size:,} items for each"
    found = log.get_or_measure("curve", key, partial(_measure, log, dataset, models, bs, told))["found"]
    return FixedLambdaCurve(lam, l2, _lines(found))


def _model(log: MeasurementLog, choice: Choice, **changed: float) -> LinearAutoencoder:
    return replace(choice, parameters=choice.parameters | changed).linear(**log.machine)


def _name(b: float) -> str:
    """A value of b, short where that is exact: no two have one name.

    Examples
    --------
    >>> _name(0.0), _name(0.45), _name(1.00000001)
    ('0', '0.45', '1.00000001')
    """
    return short if float(short := f"{b:g}") == b else repr(b)


def _measure(
    log: MeasurementLog, dataset: PaperDataset, models: Mapping[str, LinearAutoencoder], bs: Sequence[float], told: str
) -> dict[str, Any]:
    log.tell(f"{dataset.label}: fitting {ROW} {told}")
    return curve_facts(bs, list(fit_and_evaluate(models, dataset.first.train, dataset.first.test, METRICS).values()))


def _lines(found: Mapping[str, Any]) -> list[MetricCurve]:
    """What was measured, as curves; the journal has null for a p-value that there is not."""
    return [
        MetricCurve(metric, found["b"], *([float("nan") if value is None else value for value in found[metric][name]]
                                          for name in ("means", "over_zero", "under_peak")))
        for metric in METRICS
    ]  # fmt: skip


def _affordable(model: LinearAutoencoder, dataset: PaperDataset) -> bool:
    """Whether several inverses take minutes at most: of few items, or on a GPU."""
    train = dataset.first.train
    if train.n_items <= AFFORDABLE:
        return True
    try:
        engine = choose_engine(train.matrix, engine=model.engine, dtype=model.dtype)
        return isinstance(engine, Torch) and engine.device != "cpu"
    except TooLargeError:
        return False


def as_deql(choice: Choice) -> DEQL:
    """The model of a choice for that row, not fitted."""
    model = choice.linear()
    assert isinstance(model, DEQL)
    return model
