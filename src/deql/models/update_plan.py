"""Which way an update takes: few columns of P, or P anew, whichever takes less time and fits."""

from __future__ import annotations

from typing import Any

from deql._system.formatting import show_bytes, show_seconds
from deql.data.changes import DataChange
from deql.errors import ParameterError, TooLargeError
from deql.linalg.engines.resources import Requirement, find_resources, lacking
from deql.linalg.gram_change import RowsChange
from deql.linalg.planner.calibration import quick_rates
from deql.linalg.planner.update_cost import (
    NOMINAL_RATES,
    UpdateSize,
    refit_cost,
    small_update,
    update_disk,
    update_memory,
    update_seconds,
)
from deql.linalg.tiling import choose_tile
from deql.models.updatable import Updatable, describe_updatable, prior_again
from deql.models.update_report import Changes, UpdatePlan
from deql.models.updated_prior import prior_flops

__all__ = ["choose_method"]

_CLEARLY = 8
"""How many times as long the other way must take, by nominal rates, to be left alone without measuring."""


def choose_method(
    model: Updatable,
    change: DataChange,
    gram: RowsChange,
    changes: Changes,
    method: str,
    prior: Any,
    measured: bool = True,
) -> UpdatePlan:
    """The way an update takes: the one that is predicted to be faster, of those that can be taken and fit.

    Parameters
    ----------
    model : fitted model
    change : DataChange
    gram : RowsChange
    changes : Changes
    method : {"auto", "low rank", "refit"}
    prior : Prior or None
        Given once more.
    measured : bool, default True
        Find out how fast this machine is, though a modest one's speed would leave no doubt which way is faster: that
        takes as long as many an update.

    Raises
    ------
    TooLargeError
        If neither way, or not the one that is asked for, has enough memory.
    """
    n, rank = len(change.items), gram.rank + len(change.retired)
    seconds: dict[str, float] = {}
    memory: dict[str, int] = {}

    def planned(taken: str, reason: str) -> UpdatePlan:
        return UpdatePlan(taken, reason, changes, rank, len(gram.columns), n, seconds, memory)

    no_data = change.final is None
    refits = not no_data and model._can_refit(prior)
    if method == "refit" and not refits:
        what = (
            ("the data: ", describe_updatable(model))
            if no_data
            else ("the prior once more: give it as ", prior_again(model))
        )
        raise ParameterError("a refit needs ", *what, parameter="method")
    if not rank and not change.n_new_items and method != "refit" and prior is None:
        return planned("none", "Nothing that the model learned from changes.")
    ways = _ways(model, change, gram, refits, prior, measured)
    if not measured and _in_doubt(model, ways):
        ways = _ways(model, change, gram, refits, prior, measured=True)
    (seconds["low rank"], memory["low rank"], too_large), refit = ways
    without = "the data" if no_data else "the prior once more"
    instead = f"a refit would need {without}"
    if isinstance(refit, TooLargeError):
        if method == "refit" or (too_large and method == "auto"):
            raise refit
        refits, instead = False, "a refit would not fit"
    elif refit is not None:
        seconds["refit"], memory["refit"] = refit[0], refit[1].memory
        instead = f"a refit {_brief(refit[0])}"
    columns = f"{rank:,} of {n:,} columns"
    if too_large and (method == "low rank" or not refits):
        raise TooLargeError(*_too_large(too_large, columns, memory["low rank"], model, gram))
    if too_large:
        del seconds["low rank"], memory["low rank"]
        return planned("refit", f"P is computed anew: to change {columns} of it, {too_large}.")
    low = _brief(seconds["low rank"])
    if method == "refit" or (method == "auto" and refits and seconds["refit"] < seconds["low rank"]):
        return planned("refit", f"P is computed anew: {_brief(seconds['refit'])} predicted, changing {columns} {low}.")
    return planned("low rank", f"P changes by {columns}: {low} predicted, {instead}.")


LowRankWay = tuple[float, int, str | None]
"""Seconds and bytes of memory, and why it does not fit, if so."""

RefitWay = tuple[float, Requirement] | TooLargeError | None
"""Seconds and what it needs; an error where it does not fit, None where it cannot be done."""


def _ways(
    model: Updatable, change: DataChange, gram: RowsChange, refits: bool, prior: Any, measured: bool
) -> tuple[LowRankWay, RefitWay]:
    """What either way takes."""
    low_rank = _low_rank_way(model, change, gram, prior, measured)
    try:
        return low_rank, _refit_way(model, change, measured) if refits else None
    except TooLargeError as error:
        return low_rank, error


def _in_doubt(model: Updatable, ways: tuple[LowRankWay, RefitWay]) -> bool:
    """Whether the two ways are so close, by nominal rates, that measured ones may decide otherwise."""
    (low, _, too_large), refit = ways
    if model.engine_ != "memory" or model.on_device_ is not None or too_large or isinstance(refit, TooLargeError):
        return True
    if refit is None:
        return False
    seconds, needed = refit
    return needed.engine != "memory" or not (seconds > _CLEARLY * low or low > _CLEARLY * seconds)


def _low_rank_way(model: Updatable, change: DataChange, gram: RowsChange, prior: Any, measured: bool) -> LowRankWay:
    n, dtype = len(change.items), model.fitted_params_["dtype"]
    final = change.final
    size = UpdateSize(
        n, dtype, gram.rank, len(gram.columns), len(change.retired), change.n_new_items, _prior_columns(model),
        prior_flops(model, change, gram.rank + len(change.retired), prior),
        0 if final is None else final.n_interactions,
    )  # fmt: skip
    engine, rates = "memory", NOMINAL_RATES
    resources = find_resources(getattr(model.fitted_params_["engine"], "folder", None), devices=False)
    if measured and not small_update(n):
        device = "cuda" if model.on_device_ is None else str(model.on_device_.device)
        short = update_memory(size, "memory") > resources.memory  # then the new P goes to a file
        engine = "torch" if model.on_device_ is not None else "disk" if short or model.engine_ == "disk" else "memory"
        rates = quick_rates(engine, dtype, choose_tile(n), resources.folder, device)
    needed, on_disk = update_memory(size, engine), update_disk(size, engine)
    too_large = lacking("memory", needed, resources.memory)
    too_large = too_large or lacking(f"disk in {resources.folder}", on_disk, resources.disk)
    return update_seconds(size, engine, rates), needed, too_large


def _refit_way(model: Updatable, change: DataChange, measured: bool) -> tuple[float, Requirement]:
    assert change.final is not None
    return refit_cost(
        change.final.matrix,
        model._engine_beside,
        model.fitted_params_["dtype"],
        _prior_columns(model),
        prior_flops(model, change, None),
        calibrate=measured and not small_update(len(change.items)),
    )


def _prior_columns(model: Updatable) -> int:
    return 0 if model.prior_ is None else model.prior_.left.shape[1]


def _too_large(why: str, columns: str, needed: int, model: Updatable, gram: RowsChange) -> list[str]:
    """The message where P cannot even be changed by few columns."""
    stored = model.precision_.data.nbytes
    fewer = "fewer changes at a time, or " if needed > 2 * stored and gram.rank > 1 else ""
    return [
        f"changing P by {columns} takes too much: {why}. What would fit: {fewer}a machine with "
        f"{show_bytes(needed + stored)} of memory"
    ]


def _brief(seconds: float) -> str:
    """A predicted time: fractions count here, as two are compared."""
    if seconds < 0.1:
        return "under 0.1 s"
    return f"{seconds:.1f} s" if seconds < 10 else show_seconds(seconds).removeprefix("about ")
