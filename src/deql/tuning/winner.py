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
from deql.errors import DataError, JournalError
from deql.evaluation import Evaluation
from deql.evaluation.significance import is_tied, paired_t, standard_error
from deql.metrics import lower_is_better
from deql.models import DEQL
from deql.tuning.baselines import baseline_rows, popularity_row, popularity_values
from deql.tuning.leaderboard import (
    Row,
    as_frame,
    best_row,
    evaluate_rows,
    leaderboard,
    rule_of,
    screened_rows,
    variant_of,
)
from deql.tuning.space import PLAIN, Point, Space, format_parameters
from deql.tuning.trials import TrialStore
from deql.tuning.tuning_result import BaselineComparison, BCurve, PriorComparison, Tie, Tuning, is_beyond_choosing

__all__ = ["CURVE", "select_winner"]

CURVE = (*(step / 10 for step in range(21)), 2.5, 3.0, 4.0)
"""Values of b of the sensitivity curve: the paper's range, and some way beyond."""

_ROUNDING = 1e-3
"""How far apart a measurement and its repetition may be: other threads or processors round otherwise."""

_ZERO, _ALONE = "b = 0", "no prior"
_TESTED = ("value", "difference", "p_value")


def select_winner(store: TrialStore, space: Space, points: int | None, complete: bool) -> Tuning:
    """Rank what was measured, fit the winner and put into words what was found.

    ``points`` is how many the grid has, if it is one. What an earlier run found out about the same winner is in the
    journal and not computed again.
    """
    trainer, data = store.full, store.full.data
    rows, baselines = leaderboard(store), baseline_rows(store)
    sign = -1.0 if lower_is_better(store.metrics[0]) else 1.0
    # No winner is worse than a baseline that the space has.
    inside = [row for row in baselines.values() if _in_space(row, space, points is None)]
    floor = max(inside, key=lambda row: sign * float(row[store.metrics[0]]), default=None)

    def is_above_floor(row: Row) -> bool:
        return floor is None or sign * row[store.metrics[0]] >= sign * floor[store.metrics[0]]

    if rows and floor is not None and not is_above_floor(best_row(rows, with_prior=False)):
        rows = sorted([floor, *rows], key=lambda row: -sign * float(row[store.metrics[0]]))
    failures = [
        f"{format_parameters(trial.point.named())} ({trial.failure})"
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
    winner = leader if tie is None else next((row for row in rows if _told(row) == _told(end.get("best"))), None)
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
        if _told(one["parameters"]) == _told(baselines.get(name))
    }  # fmt: skip
    baselines = {"popularity": popularity_row(popularity)} | baselines
    return Tuning(
        model=model, table=as_frame(rows, store.metrics), metric=store.metrics[0], best=winner,
        curve=BCurve(**_numbers(end["curve"])), rival=BaselineComparison(**end["rival"] | numbers), space=space,
        looks=as_frame(screened_rows(store), store.metrics[:1]), judged=end["judged"], how=data.how, complete=complete,
        ridges=space.ridges(trainer.mean_diagonal(*Point.of(winner)[2:])), points=points,
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
    prior, with_prior = _prior_comparison(end), best_row(rows, with_prior=True)
    if prior is None and with_prior is not None:
        return False
    if prior is not None:
        leaders = [_told(with_prior), _told(best_row(rows, with_prior=False))]
        if leaders != [_told(prior.parameters), _told(prior.without)]:
            return False
    # Journals of earlier versions have no tie: there the first was the winner.
    first = (end.get("tie") or {"parameters": end.get("best")})["parameters"]
    return bool(_told(first) == _told(_leader(rows, prior)))


def _told(row: Any) -> Any:
    """A row as a journal tells it; those of earlier versions do not say that there is no half-life."""
    plain = as_json(row)
    if isinstance(plain, dict) and plain.get("half_life") is None:
        plain.pop("half_life", None)
    return plain


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
    found: Row = best_row(rows, with_prior=prior is not None and prior.taken)
    return found


def _final_model(store: TrialStore, winner: Row, fitted: DEQL | None) -> Any:
    """The winner, fitted on all that it may learn from; ``fitted`` is a model with its P, if there is one."""
    trainer, data, point, rule = store.full, store.full.data, Point.of(winner), rule_of(winner)
    final, variant = data.final, variant_of(winner)
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
    searched = next((row for row in rows if variant_of(row) == variant_of(leader) and row["b"] == 0), None)
    compared = baselines | ({} if searched is None else {_ZERO: searched})
    # What has another P first, so that two inverses are never there at once. What an earlier run measured is not kept.
    theirs = {
        name: store.kept(name, Point.of(row), rule_of(row)) or evaluate_rows(store, [row])[0]
        for name, row in compared.items() if Point.of(row) != Point.of(leader)
    }  # fmt: skip
    mine = [row for row in rows if (Point.of(row), variant_of(row)) == (Point.of(leader), variant_of(leader))]
    found = evaluate_rows(store, mine)
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
    beside = evaluate_rows(store, [*(compared[name] for name in here), *over])
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
    trials, row, alone = store.prior, best_row(rows, with_prior=True), best_row(rows, with_prior=False)
    if trials is None or row is None:
        return None
    metric = store.metrics[0]
    without = store.kept(_ALONE, Point.of(alone), rule_of(alone)) or evaluate_rows(store, [alone])[0]
    lead = evaluate_rows(store, [row])[0].per_user[metric] - without.per_user[metric]
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


def _in_space(row: Row, space: Space, between: bool) -> bool:
    """Whether a search of the space, which may go ``between`` its values or not, could have come to a baseline."""

    def has(name: str) -> bool:
        values = getattr(space, name)
        return row[name] in values or (between and min(values) <= row[name] <= max(values))

    return PLAIN in space.rules() and has("dropout") and has("user_power") and None in space.half_life


def _compare(metric: str, winner: Evaluation, zero: Evaluation, row: Row, searched: bool) -> BaselineComparison:
    mine, theirs = winner.per_user[metric], zero.per_user[metric]
    p_value = paired_t(theirs, mine) if lower_is_better(metric) else paired_t(mine, theirs)
    parameters = Point.of(row).named() | {name: row[name] for name in ("b", "popularity_power")}
    difference = winner.means[metric] - zero.means[metric]
    error = standard_error(mine - theirs)
    return BaselineComparison(parameters, searched, zero.means[metric], difference, p_value, error)
