"""How long a search will take, in a sentence that is said before it begins."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from deql._system.formatting import show_seconds
from deql._system.tables import counted
from deql.tuning.budget import predict_seconds
from deql.tuning.search import kept_count
from deql.tuning.trials import TrialStore

__all__ = ["forecast"]

_WALK_SCREENINGS, _WALK_TRIALS = 16, 8
"""What a walk takes, as a rule; without screening it begins farther off, and takes as many trials as screenings."""


def forecast(store: TrialStore, search: str, points: int) -> str | None:
    """What is still to be done and how long that takes on this machine; None if nothing is.

    Finding out how fast the machine is takes about a second.

    Parameters
    ----------
    store : TrialStore
    search : {"walk", "grid", "optuna"}
    points : int
        How many the grid has.
    """
    seconds = cache(partial(predict_seconds, store.full.data, len(store.rules), store.full.dtype))
    screenings, trials = _expected(store, search, points, seconds)
    screenings, trials = max(0, screenings - len(store.screened)), max(0, trials - len(store.trials))
    if not screenings + trials:
        return None
    is_only = trials == 1 and not store.trials  # the winner, then, whose model is there
    end = store.end_inverses - is_only
    about = "" if search == "grid" and store.budget.seconds is None else "about "
    words = [f"{about}{counted(screenings, 'screening', 'screenings')}"] if screenings else []
    if trials:
        each = show_seconds(seconds()).removeprefix("about ")
        words.append(f"{about}{counted(trials, 'inverse', 'inverses')} of {each}")
    total = show_seconds(seconds() * (trials + end + screenings * store.screening_cost))
    which = "Optuna" if search == "optuna" else f"the {search}"
    return f"{total}: {' and '.join(words)} for {which}{', and the fit of the winner' if end else ''}"


def _expected(store: TrialStore, search: str, points: int, seconds: Callable[[], float]) -> tuple[int, int]:
    """How many screenings and how many trials there will be, those of the journal included.

    A time is worth as many inverses as it has room for, at so many ``seconds`` each.
    """
    budget, cost = store.budget, store.screening_cost
    inverses: float | None = budget.inverses
    if budget.seconds is not None:
        inverses = store.inverses + (budget.seconds - store.spent) / seconds()
    screenings = 0
    if store.small is not None:
        screenings = {"walk": _WALK_SCREENINGS, "grid": points, "optuna": 2 * int(inverses or 0)}[search]
        if budget.inverses is not None:
            screenings = min(screenings, int((budget.inverses - 1) / 2 / cost))
        elif inverses is not None:  # of a time half, and one whatever the time
            screenings = max(1, min(screenings, int(inverses / 2 / cost)))
    if search == "walk":
        trials = min(points, _WALK_TRIALS if screenings else _WALK_SCREENINGS)
    elif search == "grid":
        trials = kept_count(points) if screenings else points
    else:
        trials = int(inverses or 0)
    if inverses is not None:
        trials = max(1, min(trials, int(inverses - screenings * cost - store.end_inverses)))
    return screenings, trials
