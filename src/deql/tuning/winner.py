"""The end of a search: the leaderboard, the winner fitted, its curve over b, and the comparison with b = 0."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql._system.formatting import as_json
from deql._system.lazy import pl
from deql.errors import DataError, JournalError
from deql.evaluation import Evaluation, evaluate
from deql.evaluation.significance import is_tied, paired_t, standard_error
from deql.metrics import lower_is_better
from deql.models import DEQL
from deql.tuning.baselines import baseline_rows, popularity_row, popularity_values
from deql.tuning.prior_space import PRIOR_PARAMETERS, Variant
from deql.tuning.space import PARAMETERS, PLAIN, WITHOUT_PRIOR, Point, RuleParameters, Space, format_parameters
from deql.tuning.trial import Trial
from deql.tuning.trials import TrialStore
from deql.tuning.tuning_result import BaselineComparison, BCurve, PriorComparison, Tie, Tuning, is_beyond_choosing

__all__ = ["CURVE", "select_winner"]

CURVE = (*(step / 10 for step in range(21)), 2.5, 3.0, 4.0)
"""Values of b of the sensitivity curve: the paper's range, and some way beyond."""

_ROUNDING = 1e-3
"""How far apart a measurement and its repetition may be: other threads or processors round otherwise."""

_ZERO, _ALONE = "b = 0", "no prior"
_TESTED = ("value", "difference", "p_value")

Row = dict[str, Any]


def select_winner(store: TrialStore, space: Space, points: int | None, complete: bool) -> Tuning:
    """Rank what was measured, fit the winner and put into words what was found.

    ``points`` is how many the grid has, if it is one. What an earlier run found out about the same winner is in the
    journal and not computed again.
    """
    trainer, data = store.full, store.full.data
    rows, baselines = _leaderboard(store), baseline_rows(store)
    sign = -1.0 if lower_is_better(store.metrics[0]) else 1.0
    # No winner is worse than a baseline that the space has.
    inside = [row for row in baselines.values() if _in_space(row, space, points is None)]
    floor = max(inside, key=lambda row: sign * float(row[store.metrics[0]]), default=None)

    def is_above_floor(row: Row) -> bool:
        return floor is None or sign * row[store.metrics[0]] >= sign * floor[store.metrics[0]]

    if rows and floor is not None and not is_above_floor(_best(rows, with_prior=False)):
        rows = sorted([floor, *rows], key=lambda row: -sign * float(row[store.metrics[0]]))
    failures = [
        f"{format_parameters(trial.point._asdict())} ({trial.failure})"
        for known in (store.trials, store.screened) for trial in known.values() if trial.failure is not None
    ]  # fmt: skip
    if not rows:
        raise DataError(f"no point of the space gave a model, such as {failures[0]}")
    begin, fitted = time.perf_counter(), None
    end = next((record for record in reversed(store.journal.records) if record["step"] == "end"), None)
    _check_end(end, store.journal.path)
    if end is None or not _is_end_of(end, rows) or end.get("complete") != complete:
        facts, fitted = _examine(store, rows, baselines, is_above_floor)
        store.journal.append({
            "step": "end", **facts, "popularity": popularity_values(store), "complete": complete,
            "seconds": time.perf_counter() - begin,
        })  # fmt: skip
        end, begin = store.journal.records[-1], time.perf_counter()
    prior = _prior_comparison(end)
    leader = _leader(rows, prior)
    tie = Tie(leader, *(_numbers(end["tie"][name]) for name in ("difference", "error"))) if end.get("tie") else None
    winner = leader if tie is None else next((row for row in rows if as_json(row) == end.get("best")), None)
    if winner is None:
        raise _damaged_end(store.journal.path)
    model = _final_model(store, winner, fitted)
    seconds = store.spent + end.get("seconds", 0.0) + time.perf_counter() - begin
    numbers = {name: _numbers(end["rival"].get(name)) for name in (*_TESTED, "error")}
    # Journals of earlier versions have no popularity.
    popularity = _numbers(end["popularity"]) if "popularity" in end else popularity_values(store)
    # A search that goes on may have found better ones.
    errors = {
        name: _numbers(one["error"]) for name, one in end.get("baselines", {}).items()
        if one["parameters"] == as_json(baselines.get(name))
    }  # fmt: skip
    baselines = {"popularity": popularity_row(popularity)} | baselines
    return Tuning(
        model=model, table=_frame(rows, store.metrics), metric=store.metrics[0], best=winner,
        curve=BCurve(**_numbers(end["curve"])), rival=BaselineComparison(**end["rival"] | numbers), space=space,
        looks=_frame(_screened(store), store.metrics[:1]), judged=end["judged"], how=data.how, complete=complete,
        ridges=space.ridges(trainer.mean_diagonal(winner["user_power"])), points=points,
        inverses=sum(trial.failure is None for trial in store.trials.values()),
        left_out=store.left_out, failures=failures, seconds=seconds, journal=store.journal.path,
        tie=tie, prior=prior, baselines=baselines, baseline_errors=errors,
        baseline_inverses=sum(trial.failure is None for trial in store.baselines.values()),
    )  # fmt: skip


def _check_end(end: dict[str, Any] | None, path: Path | None) -> None:
    """Raise JournalError if the end of a search that a journal has is not as one is written."""
    try:
        if end is not None:
            BCurve(**_numbers(end["curve"]))
            BaselineComparison(**end["rival"] | {"value": _numbers(end["rival"]["value"])})
            for number in (end["judged"], end.get("seconds", 0.0), *(end["rival"][name] for name in _TESTED)):
                _numbers(number) + 0.0
            dict(_numbers(end.get("popularity", {})))
            for one in end.get("baselines", {}).values():
                _numbers(one["error"]) + len(one["parameters"])
            if end.get("tie"):
                tie = Tie(**end["tie"])
                _numbers(tie.difference) + _numbers(tie.error)
            _prior_comparison(end)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise _damaged_end(path) from None


def _is_end_of(end: dict[str, Any], rows: list[Row]) -> bool:
    """Whether the end that a journal has was found from the same leaders."""
    prior, with_prior = _prior_comparison(end), _best(rows, with_prior=True)
    if prior is None and with_prior is not None:
        return False
    if prior is not None:
        leaders = [as_json(with_prior), as_json(_best(rows, with_prior=False))]
        if leaders != [prior.parameters, prior.without]:
            return False
    # Journals of earlier versions have no tie: there the first was the winner.
    return bool((end.get("tie") or {"parameters": end.get("best")})["parameters"] == as_json(_leader(rows, prior)))


def _prior_comparison(end: dict[str, Any]) -> PriorComparison | None:
    """What a prior was worth, where one was tried; journals of earlier versions have none."""
    told = end.get("prior")
    if not told:
        return None
    size, error = _numbers(told["difference"]) + 0.0, _numbers(told["error"]) + 0.0
    if len(told["parameters"]) != len(told["without"]):
        raise ValueError("these are no two rows of one table")
    return PriorComparison(told["parameters"], told["without"], size, error, bool(told["taken"]))


def _leader(rows: list[Row], prior: PriorComparison | None) -> Row:
    """The best model, of those with a prior only where that was taken."""
    found: Row = _best(rows, with_prior=prior is not None and prior.taken)
    return found


def _final_model(store: TrialStore, winner: Row, fitted: DEQL | None) -> Any:
    """The winner, fitted on all that it may learn from; ``fitted`` is a model with its P, if there is one."""
    trainer, data, point, rule = store.full, store.full.data, Point.of(winner), _rule(winner)
    final, variant = data.final, _variant(winner)
    if variant is None:
        if final is not data.train:
            fitted = None
            trainer.release()
            fitted = trainer.model(point).fit(final)
        return (fitted or trainer.fit(point)).with_rule(**rule)
    assert store.prior is not None
    factors = store.prior.factors
    whole = factors.unfitted(trainer.model(point), variant, rule)
    if final is data.train and whole._catalogue(final) is final:
        return factors.model(fitted or trainer.fit(point), variant, rule)
    fitted = None
    trainer.release()
    factors.release()
    free = {name: value for name, value in rule.items() if name != "prior_power_out"}
    return whole.fit(final).with_rule(**free)


def _damaged_end(path: Path | None) -> JournalError:
    return JournalError(f"the last step of {path} is damaged: delete that line, and the same command measures it again")


def _numbers(plain: Any) -> Any:
    """Numbers as they were before they went to JSON, which has no infinity and no NaN."""
    if isinstance(plain, dict):
        return {name: _numbers(value) for name, value in plain.items()}
    if isinstance(plain, list):
        return [_numbers(value) for value in plain]
    return float("nan") if plain is None else float(plain)


def _examine(
    store: TrialStore, rows: list[Row], baselines: dict[str, Row], allowed: Callable[[Row], bool]
) -> tuple[dict[str, Any], DEQL]:
    """The winner, its curve over b, what it is compared with and how many users did that; and a model on its P."""
    metric, trainer = store.metrics[0], store.full
    prior = _compare_prior(store, rows)
    leader = _leader(rows, prior)
    # Like is compared with like: with a prior, b = 0 has it, too.
    searched = next((row for row in rows if _variant(row) == _variant(leader) and row["b"] == 0), None)
    compared = baselines | ({} if searched is None else {_ZERO: searched})
    # What has another P first, so that two inverses are never there at once. What an earlier run measured is not kept.
    theirs = {
        name: store.kept(name, Point.of(row), _rule(row)) or _values(store, [row])[0]
        for name, row in compared.items() if Point.of(row) != Point.of(leader)
    }  # fmt: skip
    mine = [row for row in rows if (Point.of(row), _variant(row)) == (Point.of(leader), _variant(leader))]
    found = _values(store, mine)
    if store.journal.path is not None and not math.isclose(
        found[0].means[metric], leader[metric], rel_tol=_ROUNDING, abs_tol=_ROUNDING
    ):
        raise JournalError(
            f"{store.journal.path} has {metric} {leader[metric]:.4f} for the best model, but it is "
            f"{found[0].means[metric]:.4f}: delete the file to begin again"
        )
    place = _simplest_tied(mine, [one.per_user[metric] for one in found], allowed)
    winner, best = mine[place], found[place]
    compared.setdefault(_ZERO, winner | {"b": 0.0, "xi": None})
    here = [name for name in compared if name not in theirs]
    bs = sorted({*CURVE, *([] if winner["b"] is None else [winner["b"]])})
    over = [winner | {"b": b, "xi": None} for b in bs]
    beside = _values(store, [*(compared[name] for name in here), *over])
    theirs |= dict(zip(here, beside, strict=False))
    curve = beside[len(here) :]
    over_b = BCurve(
        bs,
        {name: [one.means[name] for one in curve] for name in store.metrics},
        {name: [one.standard_errors[name] for one in curve] for name in store.metrics},
        [standard_error(one.per_user[metric] - best.per_user[metric]) for one in curve],
    )
    tie = None
    if place:
        lead = found[0].per_user[metric] - best.per_user[metric]
        tie = vars(Tie(leader, float(np.abs(lead.mean())), standard_error(lead)))
    rival = _compare(metric, best, theirs[_ZERO], compared[_ZERO], searched is not None)
    errors = {name: standard_error(best.per_user[metric] - theirs[name].per_user[metric]) for name in baselines}
    fitted = trainer.fit(Point.of(winner))
    facts = {
        "best": winner, "tie": tie, "prior": None if prior is None else vars(prior), "curve": vars(over_b),
        "rival": vars(rival), "judged": len(best.users),
        "baselines": {name: {"parameters": row, "error": errors[name]} for name, row in baselines.items()},
    }  # fmt: skip
    return facts, fitted


def _compare_prior(store: TrialStore, rows: list[Row]) -> PriorComparison | None:
    """The best model with a prior against the best without, on the same users; None where none was tried."""
    trials, row, alone = store.prior, _best(rows, with_prior=True), _best(rows, with_prior=False)
    if trials is None or row is None:
        return None
    metric = store.metrics[0]
    without = store.kept(_ALONE, Point.of(alone), _rule(alone)) or _values(store, [alone])[0]
    lead = _values(store, [row])[0].per_user[metric] - without.per_user[metric]
    difference, error = float(lead.mean()), standard_error(lead)
    gain = -difference if lower_is_better(metric) else difference
    # Validation users have nothing of items that nobody has, so that what these are worth cannot be seen here.
    is_clear = is_beyond_choosing(gain, error)
    taken = gain > 0 or not is_clear if trials.adds_items else gain > 0 and is_clear
    return PriorComparison(row, alone, difference, error, taken)


def _simplest_tied(rows: list[Row], values: list[NDArray[np.float64]], allowed: Callable[[Row], bool]) -> int:
    """The place of the simplest model that is tied with the first, which is the best, on the same users.

    Simpler is what has fewer of b (or ξ) and popularity_power that are not 0; of equally simple ones the better.
    """

    def is_candidate(place: int) -> bool:
        lead = values[0] - values[place]
        return place == 0 or (allowed(rows[place]) and is_tied(float(lead.mean()), standard_error(lead)))

    def simplicity(place: int) -> tuple[int, int]:
        return sum(bool(rows[place][name]) for name in ("b", "xi", "popularity_power")), place

    return min(filter(is_candidate, range(len(rows))), key=simplicity)


def _leaderboard(store: TrialStore) -> list[Row]:
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


def _in_space(row: Row, space: Space, between: bool) -> bool:
    """Whether a search of the space, which may go ``between`` its values or not, could have come to a baseline."""

    def has(name: str) -> bool:
        values = getattr(space, name)
        return row[name] in values or (between and min(values) <= row[name] <= max(values))

    return PLAIN in space.rules() and has("dropout") and has("user_power")


def _screened(store: TrialStore) -> list[Row]:
    """A row for each point that was screened and gave a model, best first."""
    found = [(trial, store.best_rule(trial)) for trial in store.screened.values() if trial.failure is None]
    rows = [_row(trial, store.rules[place], place, WITHOUT_PRIOR) for trial, place in found]
    return sorted(rows, key=lambda row: row[store.metrics[0]], reverse=not lower_is_better(store.metrics[0]))


def _row(trial: Trial, rule: RuleParameters, place: int, without: Row) -> Row:
    values = {metric: values[place] for metric, values in trial.values.items()}
    return trial.point._asdict() | {"b": None, "xi": None} | rule | without | values


def _variant(row: Row) -> Variant | None:
    """The factors of a row's prior; None if it has none."""
    return Variant(row["prior_rank"], row["prior_power_in"]) if row["prior_weight"] else None


def _best(rows: list[Row], with_prior: bool) -> Any:
    """The first row with a prior, or without; None if there is none, but where any has a model, one without has."""
    return next((row for row in rows if (_variant(row) is not None) == with_prior), None)


def _values(store: TrialStore, rows: list[Row]) -> list[Evaluation]:
    """Evaluations of models, in their order: those with the same point and prior in one pass, point by point."""
    found: dict[int, Evaluation] = {}
    for point in dict.fromkeys(Point.of(row) for row in rows):
        for variant in dict.fromkeys(_variant(row) for row in rows if Point.of(row) == point):
            some = [
                place for place, row in enumerate(rows) if Point.of(row) == point and _variant(row) == variant
            ]  # fmt: skip
            rules = [_rule(rows[place]) for place in some]
            if variant is None:
                fitted = store.full.fit(point)
                models = [fitted.with_rule(**rule) for rule in rules]
                values = evaluate(models, store.full.data.validation, store.metrics)
            else:
                assert store.prior is not None
                values = store.prior.evaluate(point, variant, rules)
            found |= dict(zip(some, values, strict=True))
    return [found[place] for place in range(len(rows))]


def _frame(rows: list[Row], metrics: list[str]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=dict.fromkeys([*PARAMETERS, *metrics], pl.Float64))


def _rule(row: Row) -> RuleParameters:
    names = [name for name in PARAMETERS if name not in (*Point._fields, "prior_rank", "prior_power_in")]
    if not row["prior_weight"]:
        names = [name for name in names if name not in PRIOR_PARAMETERS]
    return {name: row[name] for name in names if row[name] is not None}


def _compare(metric: str, winner: Evaluation, zero: Evaluation, row: Row, searched: bool) -> BaselineComparison:
    mine, theirs = winner.per_user[metric], zero.per_user[metric]
    p_value = paired_t(theirs, mine) if lower_is_better(metric) else paired_t(mine, theirs)
    parameters = {name: value for name, value in row.items() if name in (*Point._fields, "b", "popularity_power")}
    difference = winner.means[metric] - zero.means[metric]
    error = standard_error(mine - theirs)
    return BaselineComparison(parameters, searched, zero.means[metric], difference, p_value, error)
