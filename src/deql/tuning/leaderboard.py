"""Rows of the leaderboard: what was measured, best first, and the models behind it."""

from __future__ import annotations

from typing import Any

from deql._system.lazy import pl
from deql.evaluation import Evaluation, evaluate
from deql.metrics import lower_is_better
from deql.tuning.prior_space import PRIOR_PARAMETERS, Variant
from deql.tuning.space import PARAMETERS, WITHOUT_PRIOR, Point, RuleParameters
from deql.tuning.trial import Trial
from deql.tuning.trials import TrialStore

__all__ = [
    "Row", "as_frame", "best_row", "evaluate_rows", "leaderboard", "rule_of", "screened_rows", "variant_of",
]  # fmt: skip

Row = dict[str, Any]
"""Parameters and values by name."""


def leaderboard(store: TrialStore) -> list[Row]:
    """A row for each model measured, best first; of equal ones those without a prior and smaller parameters first."""
    metric = store.metrics[0]
    sign = 1.0 if lower_is_better(metric) else -1.0
    found = [
        (sign * trial.values[metric][place], trial.point, place)
        for trial in store.trials.values() if trial.failure is None
        for place in range(len(store.rules))
    ]  # fmt: skip
    without = WITHOUT_PRIOR | ({} if store.prior is None else {"prior_weight": 0.0})
    rows = [_row(store.trials[point], store.rules[place], place, without) for _, point, place in sorted(found)]
    with_prior = [] if store.prior is None else store.prior.rows()
    # Python's sort keeps the order of equal ones.
    return sorted([*rows, *with_prior], key=lambda row: sign * float(row[metric]))


def screened_rows(store: TrialStore) -> list[Row]:
    """A row for each point that was screened and gave a model, best first."""
    found = [(trial, store.best_rule(trial)) for trial in store.screened.values() if trial.failure is None]
    rows = [_row(trial, store.rules[place], place, WITHOUT_PRIOR) for trial, place in found]
    return sorted(rows, key=lambda row: row[store.metrics[0]], reverse=not lower_is_better(store.metrics[0]))


def _row(trial: Trial, rule: RuleParameters, place: int, without: Row) -> Row:
    values = {metric: values[place] for metric, values in trial.values.items()}
    return trial.point.row() | {"b": None, "xi": None} | rule | without | values


def variant_of(row: Row) -> Variant | None:
    """The factors of a row's prior; None if it has none."""
    return Variant(row["prior_rank"], row["prior_power_in"]) if row["prior_weight"] else None


def best_row(rows: list[Row], with_prior: bool) -> Any:
    """The first row with a prior, or without; None if there is none, but where any has a model, one without has."""
    return next((row for row in rows if (variant_of(row) is not None) == with_prior), None)


def rule_of(row: Row) -> RuleParameters:
    """What a model of the row differs in from others on its P with the factors of its prior."""
    names = [name for name in PARAMETERS if name not in (*Point._fields, "prior_rank", "prior_power_in")]
    if not row["prior_weight"]:
        names = [name for name in names if name not in PRIOR_PARAMETERS]
    return {name: row[name] for name in names if row[name] is not None}


def evaluate_rows(store: TrialStore, rows: list[Row]) -> list[Evaluation]:
    """Evaluations of models, in their order: those with the same point and prior in one pass, point by point."""
    found: dict[int, Evaluation] = {}
    for point in dict.fromkeys(Point.of(row) for row in rows):
        for variant in dict.fromkeys(variant_of(row) for row in rows if Point.of(row) == point):
            some = [
                place for place, row in enumerate(rows) if Point.of(row) == point and variant_of(row) == variant
            ]  # fmt: skip
            rules = [rule_of(rows[place]) for place in some]
            if variant is None:
                fitted = store.full.fit(point)
                models = [fitted.with_rule(**rule) for rule in rules]
                values = evaluate(models, store.full.data.validation, store.metrics)
            else:
                assert store.prior is not None
                values = store.prior.evaluate(point, variant, rules)
            found |= dict(zip(some, values, strict=True))
    return [found[place] for place in range(len(rows))]


def as_frame(rows: list[Row], metrics: list[str]) -> pl.DataFrame:
    """Rows as a table of numbers."""
    return pl.DataFrame(rows, schema=dict.fromkeys([*PARAMETERS, *metrics], pl.Float64))
