"""How long a search will take, in a sentence that is said before it begins."""

from __future__ import annotations

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
    screenings, trials = _expected(store, search, points)
    screenings, trials = max(0, screenings - len(store.screened)), max(0, trials - len(store.trials))
    if not screenings + trials:
        return None
    data = store.full.data
    one = predict_seconds(data, len(store.rules), store.full.dtype)
    seconds = one * (trials + store.end_inverses + screenings * store.screening_cost)
    limit = store.budget.seconds
    about = "" if search == "grid" else "about "
    words = [f"{about}{screenings:,} screenings"] if screenings else []
    words.append(f"{about}{counted(trials, 'inverse', 'inverses')} of {show_seconds(one).removeprefix('about ')}")
    total = show_seconds(seconds if limit is None else min(seconds, limit))
    return f"{total}: {' and '.join(words)} for the {search}, and the fit of the winner"


def _expected(store: TrialStore, search: str, points: int) -> tuple[int, int]:
    """How many screenings and how many trials there will be, those of the journal included."""
    inverses, cost = store.budget.inverses, store.screening_cost
    screenings = 0
    if store.small is not None:
        screenings = {"walk": _WALK_SCREENINGS, "grid": points, "optuna": 2 * (inverses or 0)}[search]
        if inverses is not None:
            screenings = min(screenings, int((inverses - 1) / 2 / cost))
    if search == "walk":
        trials = min(points, _WALK_TRIALS if screenings else _WALK_SCREENINGS)
    elif search == "grid":
        trials = kept_count(points) if screenings else points
    else:
        trials = points if inverses is None else inverses
    if inverses is not None:
        trials = max(1, min(trials, int(inverses - screenings * cost - store.end_inverses)))
    return screenings, trials
