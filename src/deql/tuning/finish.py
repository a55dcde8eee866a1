"""The end of a search: the leaderboard, the winner fitted, its curve over b, and the comparison with b = 0."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from deql._system.strict_json import as_json
from deql.errors import DataError, JournalError
from deql.evaluation import Evaluation, evaluate
from deql.evaluation.comparison import lower_is_better
from deql.evaluation.significance import paired_t
from deql.models import DEQL
from deql.tuning.space import PARAMETERS, Point, Rule, Space, in_words
from deql.tuning.trials import Outcome, Workbench
from deql.tuning.tuning_result import Curve, Rival, Tuning

if TYPE_CHECKING:
    import polars as pl

__all__ = ["finish"]

CURVE = (*(step / 10 for step in range(21)), 2.5, 3.0, 4.0)
"""Values of b of the sensitivity curve: the paper's range, and some way beyond."""

_ROUNDING = 1e-3
"""How far apart a measurement and its repetition may be: other threads or processors round otherwise."""

Row = dict[str, Any]


def finish(bench: Workbench, space: Space, points: int | None, complete: bool) -> Tuning:
    """Rank what was measured, fit the winner and put into words what was found.

    ``points`` is how many the grid has, if it is one. What an earlier run found out about the same winner is in the
    journal and not computed again.
    """
    trainer, ground = bench.full, bench.full.ground
    rows = _leaderboard(bench)
    failures = [
        f"{in_words(point._asdict())} ({outcome.failure})"
        for known in (bench.outcomes, bench.looks) for point, outcome in known.items() if outcome.failure is not None
    ]  # fmt: skip
    if not rows:
        raise DataError(f"no point of the space gave a model, such as {failures[0]}")
    winner = rows[0]
    fitted = None
    end = next((record for record in reversed(bench.journal.records) if record["step"] == "end"), None)
    if end is None or end.get("best") != as_json(winner) or end.get("complete") != complete:
        curve, rival, judged, fitted = _examine(bench, rows)
        end = {"step": "end", "best": winner, "curve": vars(curve), "rival": vars(rival), "judged": judged,
               "complete": complete}  # fmt: skip
        bench.journal.append(end)
        end = bench.journal.records[-1]
    if ground.final is not ground.train:
        fitted = None
        trainer.release()
        fitted = trainer.model(Point.of(winner)).fit(ground.final)
    model = (fitted or trainer.fit(Point.of(winner))).with_rule(**_rule(winner))
    return Tuning(
        model=model, table=_frame(rows, bench.metrics), metric=bench.metrics[0], best=winner,
        curve=Curve(**_numbers(end["curve"])), rival=Rival(**end["rival"] | _numbers({
            name: end["rival"][name] for name in ("value", "difference", "p_value")
        })), space=space, looks=_frame(_looks(bench), bench.metrics[:1]), judged=end["judged"], how=ground.how,
        complete=complete, points=points, inverses=sum(outcome.failure is None for outcome in bench.outcomes.values()),
        left_out=bench.left_out, failures=failures, seconds=bench.spent, journal=bench.journal.path,
    )  # fmt: skip


def _numbers(plain: Any) -> Any:
    """Numbers as they were before they went to JSON, which has no infinity and no NaN."""
    if isinstance(plain, dict):
        return {name: _numbers(value) for name, value in plain.items()}
    if isinstance(plain, list):
        return [_numbers(value) for value in plain]
    return float("nan") if plain is None else float(plain)


def _examine(bench: Workbench, rows: list[Row]) -> tuple[Curve, Rival, int, DEQL]:
    """The winner's curve over b, its rival, the number of users that judged, and a model on its P."""
    metric, trainer = bench.metrics[0], bench.full
    winner = rows[0]
    zero = next((row for row in rows if row["b"] == 0), None)
    beaten = zero or winner | {"b": 0.0, "xi": None}
    # The rival first, so that two inverses are never there at once.
    at_zero = (
        None if Point.of(beaten) == Point.of(winner) else trainer.judge(Point.of(beaten), [_rule(beaten)], [metric])[0]
    )
    fitted = trainer.fit(Point.of(winner))
    bs = sorted({*CURVE, *([] if winner["b"] is None else [winner["b"]])})
    rules = [_rule(winner), _rule(beaten), *({"b": b, "popularity_power": winner["popularity_power"]} for b in bs)]
    judged = evaluate([fitted.with_rule(**rule) for rule in rules], trainer.ground.validation, bench.metrics)
    if bench.journal.path is not None and not math.isclose(
        judged[0].means[metric], winner[metric], rel_tol=_ROUNDING, abs_tol=_ROUNDING
    ):
        raise JournalError(
            f"{bench.journal.path} has {metric} {winner[metric]:.4f} for the best model, but it is "
            f"{judged[0].means[metric]:.4f}: delete the file to begin again"
        )
    rival = _compare(metric, judged[0], judged[1] if at_zero is None else at_zero, beaten, zero is not None)
    return _curve(bs, judged[2:], bench.metrics), rival, len(judged[0].users), fitted


def _leaderboard(bench: Workbench) -> list[Row]:
    """A row for each model measured, best first; of equal ones the smaller parameters first."""
    metric = bench.metrics[0]
    sign = 1.0 if lower_is_better(metric) else -1.0
    found = [
        (sign * outcome.values[metric][place], outcome.point, place, outcome)
        for outcome in bench.outcomes.values() if outcome.failure is None
        for place in range(len(bench.rules))
    ]  # fmt: skip
    found.sort(key=lambda entry: entry[:3])
    return [_row(outcome, bench.rules[place], place) for _, _, place, outcome in found]


def _looks(bench: Workbench) -> list[Row]:
    """A row for each first look that gave a model, best first."""
    found = [outcome for outcome in bench.looks.values() if outcome.failure is None]
    rows = [_row(outcome, bench.rules[bench.best_rule(outcome)], bench.best_rule(outcome)) for outcome in found]
    return sorted(rows, key=lambda row: row[bench.metrics[0]], reverse=not lower_is_better(bench.metrics[0]))


def _row(outcome: Outcome, rule: Rule, place: int) -> Row:
    return (
        outcome.point._asdict()
        | {
            "b": rule.get("b"),
            "xi": rule.get("xi"),
            "popularity_power": rule["popularity_power"],
        }
        | {metric: values[place] for metric, values in outcome.values.items()}
    )


def _frame(rows: list[Row], metrics: list[str]) -> pl.DataFrame:
    import polars as pl

    return pl.DataFrame(rows, schema=dict.fromkeys([*PARAMETERS, *metrics], pl.Float64))


def _rule(row: Row) -> Rule:
    return {name: row[name] for name in PARAMETERS if name not in Point._fields and row[name] is not None}


def _curve(bs: list[float], judged: list[Evaluation], metrics: list[str]) -> Curve:
    return Curve(
        bs,
        {metric: [one.means[metric] for one in judged] for metric in metrics},
        {metric: [one.standard_errors[metric] for one in judged] for metric in metrics},
    )


def _compare(metric: str, winner: Evaluation, other: Evaluation, row: Row, searched: bool) -> Rival:
    mine, theirs = winner.per_user[metric], other.per_user[metric]
    p_value = paired_t(theirs, mine) if lower_is_better(metric) else paired_t(mine, theirs)
    parameters = {name: value for name, value in row.items() if name in (*Point._fields, "b", "popularity_power")}
    return Rival(parameters, searched, other.means[metric], winner.means[metric] - other.means[metric], p_value)
