"""How long a search will take, before it begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

from deql._system.formatting import show_seconds
from deql._system.tables import counted
from deql.tuning.budget import predict_seconds
from deql.tuning.search import kept_count
from deql.tuning.space import PLAIN, Space
from deql.tuning.trials import TrialStore

__all__ = ["Forecast", "forecast"]

_WALK_SCREENINGS, _WALK_TRIALS, _LONG_WALK_TRIALS = 16, 6, 10
"""What a walk takes, as a rule; without screening it begins farther off."""

_PRIOR_PASSES, _PRIOR_TRIALS = 6, 2
"""What the prior takes, as a rule: passes over the users, and inverses."""

_EASE_TRIALS, _EDLAE_TRIALS = 3, 1
"""What the baselines take, as a rule, where the search does not come by them."""


@dataclass(frozen=True)
class Forecast:
    """What a search has still to do, and how long that takes on this machine; ``str()`` gives it as a sentence.

    Attributes
    ----------
    points : int or None
        How many the space has; None for Optuna, which goes between them.
    screenings, inverses : int
        Points to be screened, and to be measured with an inverse of full size each.
    prior : float
        What the prior takes, in inverses: its factors, passes over the users, and a short walk if it helps.
    baselines : int
        Inverses for EASE and EDLAE, which the result is compared with.
    fits : int
        Inverses for the winner in the end.
    inverse_seconds : float
        What one inverse takes, with the evaluation of all models on it.
    seconds : float
        What everything takes.
    search : {"walk", "grid", "optuna"}
    exact : bool
        Whether the numbers of screenings and inverses are known, not guessed.
    """

    points: int | None
    screenings: int
    inverses: int
    prior: float
    baselines: int
    fits: int
    inverse_seconds: float
    seconds: float
    search: str
    exact: bool

    def __str__(self) -> str:
        about = "" if self.exact else "about "
        words = [f"{about}{counted(self.screenings, 'screening', 'screenings')}"] if self.screenings else []
        if self.inverses:
            each = show_seconds(self.inverse_seconds).removeprefix("about ")
            words.append(f"{about}{counted(self.inverses, 'inverse', 'inverses')} of {each}")
        which = "Optuna" if self.search == "optuna" else f"the {self.search}"
        prior = f", about {self.prior:.1g} for the prior" if self.prior else ""
        beside = f", about {self.baselines} for EASE and EDLAE to compare with" if self.baselines else ""
        end = ", and the fit of the winner" if self.fits else ""
        return f"{show_seconds(self.seconds)}: {' and '.join(words)} for {which}{prior}{beside}{end}"


def forecast(store: TrialStore, search: str, points: int, space: Space, baselines: bool) -> Forecast | None:
    """What is still to be done and how long that takes on this machine; None if nothing is.

    Finding out how fast the machine is takes about a second.

    Parameters
    ----------
    store : TrialStore
    search : {"walk", "grid", "optuna"}
    points : int
        How many the grid has.
    space : Space
    baselines : bool
        Whether EASE and EDLAE are measured to compare with.
    """
    seconds = cache(partial(predict_seconds, store.full.data, len(store.rules), store.full.dtype))
    screenings, trials = _expected(store, search, points, seconds)
    screenings, trials = max(0, screenings - len(store.screened)), max(0, trials - len(store.trials))
    if not screenings + trials:
        return None
    is_only = trials == 1 and not store.trials  # the winner, then, whose model is there
    end = store.end_inverses - is_only
    spent = trials + end + screenings * store.screening_cost
    # After a baseline the winner's model is no longer there, even if it was the only one.
    prior = _expected_prior(store, spent, seconds)
    spent += prior
    before = spent - end + store.end_inverses
    beside = _expected_baselines(store, search, space, before, seconds) if baselines else 0
    return Forecast(
        points=None if search == "optuna" else points, screenings=screenings, inverses=trials, prior=prior,
        baselines=beside, fits=end, inverse_seconds=seconds(), seconds=seconds() * (spent + beside), search=search,
        exact=search == "grid" and store.budget.seconds is None,
    )  # fmt: skip


def _expected_prior(store: TrialStore, spent: float, seconds: Callable[[], float]) -> float:
    """What the prior takes: its eigenvectors, its variants at the best point, and a walk of which nothing comes."""
    trials, whole = store.prior, store.whole_budget
    if trials is None:
        return 0.0
    room = trials.basis_cost + _PRIOR_PASSES * trials.pass_cost + _PRIOR_TRIALS - trials.inverses
    if whole.inverses is not None:
        room = min(room, whole.inverses - store.inverses - spent)
    if whole.seconds is not None:
        room = min(room, (whole.seconds - store.spent) / seconds() - spent)
    return max(0.0, room)


def _expected_baselines(
    store: TrialStore, search: str, space: Space, spent: float, seconds: Callable[[], float]
) -> int:
    """How many inverses the baselines take: none where the search comes by all of them, or has no room for them."""
    all_there = search == "grid" and store.small is None and not store.budget.limited
    plain_points = 0.0 in space.dropout and 0.0 in space.user_power and None in space.half_life
    if all_there and PLAIN in store.rules and plain_points:
        return 0
    ridges = len(space.ridges(store.full.mean_diagonal(0.0)))
    room, whole = float(min(_EASE_TRIALS, ridges) + _EDLAE_TRIALS - len(store.baselines)), store.whole_budget
    if whole.inverses is not None:
        room = min(room, whole.inverses - store.inverses - spent)
    if whole.seconds is not None:
        room = min(room, (whole.seconds - store.spent) / seconds() - spent)
    return max(0, int(room))


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
        trials = min(points, _WALK_TRIALS if screenings else _LONG_WALK_TRIALS)
    elif search == "grid":
        trials = kept_count(points) if screenings else points
    else:
        trials = int(inverses or 0)
    if inverses is not None:
        trials = max(1, min(trials, int(inverses - screenings * cost - store.end_inverses)))
    return screenings, trials
