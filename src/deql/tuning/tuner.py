"""``deql.tune``: the best of a space, chosen on validation users only."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Any, overload

import numpy as np

from deql._system.checks import check_whole
from deql.data.interactions import InteractionsLike
from deql.data.recency import latest_time
from deql.errors import DataError, JournalError, ParameterError
from deql.evaluation.model_groups import LogCallback
from deql.io.container import digest
from deql.io.journal import Journal
from deql.models import DEQL, Recommender
from deql.priors.prior import Prior
from deql.split.parts import SplitOrInteractions
from deql.tuning.baselines import measure_baselines
from deql.tuning.budget import Budget
from deql.tuning.forecast import Forecast, forecast
from deql.tuning.measured_metrics import metrics_for
from deql.tuning.model_tuning import ModelTuning, tune_model
from deql.tuning.prior_factors import PriorFactors
from deql.tuning.prior_search import search_prior
from deql.tuning.prior_space import PriorLike, VariantGrid
from deql.tuning.prior_trials import PriorTrials
from deql.tuning.search import SEARCHES, need_optuna, search_grid, search_optuna, search_walk
from deql.tuning.space import Point, Space, SpaceLike, as_space, with_axes
from deql.tuning.trainer import Trainer
from deql.tuning.trials import TrialStore
from deql.tuning.tuning_data import TuningData, hold_out_validation, refit_data, sample_items
from deql.tuning.tuning_result import Tuning
from deql.tuning.walk import PointGrid
from deql.tuning.winner import select_winner

__all__ = ["forecast_tuning", "tune"]

_SAMPLE = 0.25
"""Share of the items that points are screened on: the inverse takes a 64th of the time."""

_SCREENING_USERS = 2_000
"""At most so many users are evaluated for that."""

_LEAST_ITEMS, _LEAST_POINTS = 2_000, 12
"""Below, an inverse is as quick as screening, or there is nothing to sort out."""

_SMALL_GRAMS = 8
"""Gram matrices kept for screening: each is a sixteenth of a whole one."""

_WALK_INVERSES, _OPTUNA_INVERSES = 11, 30
"""What a search may cost if nothing is said: with its evaluations, a walk is done within the time of twelve fits."""

_PRIOR_INVERSES, _PRIOR_SHARE = 2, 0.3
"""What is kept of a budget for the prior: of inverses at most so many, of either at most this share."""


@overload
def tune(
    data: SplitOrInteractions, space: SpaceLike = ..., metric: str | Sequence[str] = ...,
    budget: int | str | None = ..., *, model: None = None, search: str = ..., patience: int = ..., prune: bool = ...,
    seed: int = ..., journal: str | os.PathLike[str] | None = ..., dtype: str = ..., progress: bool = ...,
    tell: LogCallback | None = ..., refit: str | InteractionsLike = ..., baselines: bool = ..., validation: str = ...,
    prior: PriorLike = ...,
) -> Tuning: ...  # fmt: skip


@overload
def tune(
    data: SplitOrInteractions, space: SpaceLike = ..., metric: str | Sequence[str] = ...,
    budget: int | str | None = ..., *, model: Recommender, search: str = ..., seed: int = ...,
    journal: str | os.PathLike[str] | None = ..., progress: bool = ..., tell: LogCallback | None = ...,
    refit: str | InteractionsLike = ..., validation: str = ...,
) -> ModelTuning: ...  # fmt: skip


def tune(
    data: SplitOrInteractions,
    space: SpaceLike = "default",
    metric: str | Sequence[str] = "ndcg@20",
    budget: int | str | None = None,
    *,
    model: Recommender | None = None,
    search: str = "walk",
    patience: int = 3,
    prune: bool = True,
    seed: int = 0,
    journal: str | os.PathLike[str] | None = None,
    dtype: str = "float32",
    progress: bool = False,
    tell: LogCallback | None = None,
    refit: str | InteractionsLike = "train",
    baselines: bool = True,
    validation: str = "auto",
    prior: PriorLike = None,
) -> Tuning | ModelTuning:
    """Find the best hyper-parameters on validation users, and fit the model that has them.

    One inverse for each (l2, dropout, user_power, half_life) that is tried; every b, ξ and popularity_power on it is
    scored in the same pass. At the best point a prior is tried, and around it if it helps. The test part of a split is
    not read (but for ``refit="all"``). Ctrl-C ends the search and returns the best so far.

    Another ``model``, such as ``deql.SLIM()`` or ``deql.neural.LightGCN()``, is searched by itself: each setting is a
    fit. The walk begins at the model's own values, and goes on as long as a neighbour is better; what the space does
    not name stays as the model has it.

    Parameters
    ----------
    data : Split, Interactions, sparse matrix or frame
        A split's validation part decides. Where it has none, a tenth of each user's training interactions is held
        out for that; of data that are not split, a tenth of the users.
    space : str, dict or Space
        ``"default"``, ``"quick"``, ``"paper"``; or values by name (l2, dropout, user_power, b, xi, popularity_power,
        prior, prior_rank, prior_power_in, prior_power_out, prior_weight, half_life) in place of those of the default
        space. Half-lives need times: ``[None, "30d"]``, where None does not fade. Of a ``model``: values of any of its
        parameters, in place of those of its own small space.
    metric : str or sequence of str, default "ndcg@20"
        What decides: any metric that has a value for each user. Of several the first; the others are shown beside it.
    budget : int or str, optional
        At most so many inverses (of a ``model``: fits), or a time such as ``"20min"``. Everything counts: screening
        by its share of the work of an inverse, and the fit of the winner in the end. One point is measured whatever the
        budget. Without it Optuna stops at 30 inverses, a walk that screens at 11 at the latest, a grid with its last
        point.
    model : Recommender, optional
        What is searched in place of the family on P, not fitted. Its search has no prior, screening (``prune``),
        ``patience``, ``dtype`` or baselines.
    search : {"walk", "grid", "optuna"}, default "walk"
        The walk goes from point to better neighbour until there is none, mostly within 6 to 10 inverses; a space of
        fewer than 12 points is measured whole. The grid measures all points. Optuna (extra ``tune``) searches between
        the values of the space.
    patience : int, default 3
        A walk that screened ends after so many inverses in a row that bring nothing; 0 lets it go on until no
        neighbour is better.
    prune : bool, default True
        Screen points on a quarter of the items first, where there are 2,000 items or more: the walk finds its start
        so, a grid measures only the best quarter of its points.
    seed : int, default 0
        For what is held out here, the sample of items, and Optuna.
    journal : path, optional
        File to which each finished point is added. The same call with the same file resumes where it was killed.
    dtype : {"float32", "float64"}, default "float32"
    progress : bool, default False
        Show progress bars on standard error.
    tell : callable, optional
        The log callback: called with how long it will take before it begins, then with a line for each point.
    refit : {"train", "all"} or Interactions, default "train"
        What the winner is fitted on in the end, with the parameters that were found. ``"all"`` is everything that a
        split has, test part included: for a model that is to be deployed, which nothing is left to evaluate on. Data
        that are not split are fitted whole in any case.
    baselines : bool, default True
        Measure EASE and EDLAE to compare with where the search does not come by them: about 4 inverses.
    validation : {"auto", "last", "random"}, default "auto"
        What is held out to choose on. ``"random"``: as said of ``data``. ``"last"``: the end of each user's history,
        by time, or by the order of the file where the reader kept it (LightGCN's text): of a split's validation
        users, or the last tenth of what each user has to train on. ``"auto"``: the last tenth where the split's test
        is what came last (leave-last, time) and it has no validation part, else as random.
    prior : {"lowpass", "none"} or Prior, optional
        What is tried as a prior in place of what the space has (the default one a low pass): its weight is searched,
        and the axes of a low pass. It is taken if its gain over the best model without one is clear (two standard
        errors), or, where it has items that nobody has, unless its loss is.

    Returns
    -------
    Tuning or ModelTuning
        ``.model``, ``.table`` and what they mean in words.

    Examples
    --------
    >>> import deql
    >>> split = deql.split_strong(deql.datasets.debian().take_users(slice(0, 800)).without_empty())
    >>> best = deql.tune(split, {"l2": [3, 30], "dropout": 0.3, "user_power": 0, "popularity_power": 0}, prior="none")
    >>> best.inverses, best.table.height, best.best["l2"]
    (2, 22, 3.0)
    """
    if not isinstance(baselines, bool):
        raise ParameterError(f"baselines must be True or False, got {baselines!r}", parameter="baselines")
    if tell is not None and not callable(tell):
        raise ParameterError(f"tell must be a function that takes a line, got {tell!r}", parameter="tell")
    if journal is not None and not isinstance(journal, str | os.PathLike):
        raise ParameterError(f"journal must be a path, got {journal!r}", parameter="journal")
    path = None if journal is None else Path(journal)
    if model is not None:
        family = {"patience": patience, "prune": prune, "dtype": dtype, "prior": prior, "baselines": baselines}
        for name, value in family.items():
            usual = signature(tune).parameters[name].default
            if value is not usual and not (isinstance(value, type(usual)) and value == usual):
                raise ParameterError(f"{name} is of the family on P: leave it out, or leave out model", parameter=name)
        return tune_model(model, data, space, metric, budget, search, seed, path, progress, tell, refit, validation)
    prepared = _prepare(
        data, space, metric, budget, search, patience, prune, seed, dtype, progress, refit, validation,
        prior,
    )  # fmt: skip
    with Journal(path, prepared.identity) as log:
        store, kind, points, chosen = prepared.store(log, tell), prepared.kind, prepared.points, prepared.space
        if search != "optuna" and not store.trials.keys() | store.screened.keys() <= set(points):
            raise JournalError(f"{path} has points that are not in the space: delete it to begin again")
        complete = True
        try:
            if tell is not None and (ahead := forecast(store, kind, len(points), chosen, baselines)) is not None:
                tell(str(ahead))
            if kind == "optuna":
                search_optuna(store, chosen, seed)
            elif kind == "grid":
                search_grid(store, points)
            else:
                search_walk(store, PointGrid(points, store.full.mean_diagonal), patience)
            grid = None if kind == "optuna" else PointGrid(points, store.full.mean_diagonal)
            search_prior(store, grid, patience)
            if baselines:
                measure_baselines(store, chosen)
        except KeyboardInterrupt:
            complete = False
            best = store.best_so_far()
            if best is None:
                raise
            if tell is not None:
                tell("interrupted: fitting the best so far; Ctrl-C again leaves without it")
            if store.measure(best, journaled=False) == -math.inf:
                raise
        return select_winner(store, chosen, None if search == "optuna" else len(points), complete)


def forecast_tuning(
    data: SplitOrInteractions,
    space: SpaceLike = "default",
    metric: str | Sequence[str] = "ndcg@20",
    budget: int | str | None = None,
    *,
    search: str = "walk",
    prune: bool = True,
    seed: int = 0,
    dtype: str = "float32",
    refit: str | InteractionsLike = "train",
    baselines: bool = True,
    validation: str = "auto",
    prior: PriorLike = None,
) -> Forecast:
    """What :func:`deql.tune` would do with the same arguments, and how long that takes on this machine.

    Nothing is fitted; finding out how fast the machine is takes about a second where there are many items.

    Examples
    --------
    >>> import deql
    >>> data = deql.datasets.debian().take_users(slice(0, 800)).without_empty()
    >>> ahead = deql.tuning.forecast_tuning(data, {"l2": [3, 30], "dropout": 0.3, "user_power": 0}, search="grid")
    >>> ahead.points, ahead.inverses, ahead.baselines, ahead.fits
    (2, 2, 3, 2)
    """
    prepared = _prepare(data, space, metric, budget, search, 0, prune, seed, dtype, False, refit, validation, prior)
    with Journal(None, prepared.identity) as log:
        ahead = forecast(prepared.store(log, None), prepared.kind, len(prepared.points), prepared.space, baselines)
    assert ahead is not None  # as nothing is measured yet
    return ahead


@dataclass(frozen=True, eq=False)
class _Prepared:
    """What a search needs, checked; nothing is measured yet."""

    space: Space
    kind: str
    points: list[Point]
    full: Trainer
    small: Trainer | None
    metrics: list[str]
    limit: Budget
    whole_limit: Budget
    identity: dict[str, Any]
    variants: VariantGrid | None
    factors: PriorFactors | None

    def store(self, journal: Journal, tell: LogCallback | None) -> TrialStore:
        store = TrialStore(
            self.full, self.small, self.space.rules(), self.metrics, journal, self.limit, tell, self.whole_limit
        )
        if self.variants is not None and self.factors is not None:
            store.prior = PriorTrials(store, self.space, self.variants, self.factors)
        return store


def _prepare(
    data: SplitOrInteractions, space: SpaceLike, metric: str | Sequence[str], budget: int | str | None, search: str,
    patience: int, prune: bool, seed: int, dtype: str, progress: bool, refit: str | InteractionsLike, validation: str,
    prior: PriorLike,
) -> _Prepared:  # fmt: skip
    """Whatever is wrong with the arguments is said before any work."""
    chosen = as_space(space) if prior is None else with_axes(as_space(space), {"prior": prior})
    asked = limit = Budget.parse(budget)
    seed = check_whole("seed", seed, least=0)
    check_whole("patience", patience, least=0)
    if search not in SEARCHES:
        raise ParameterError(f"search must be one of {', '.join(SEARCHES)}, got {search!r}", parameter="search")
    metrics = metrics_for(metric)
    DEQL(dtype=dtype)._check_parameters()
    how = search
    if search == "optuna":
        how = f"optuna {need_optuna().__version__}"  # another version may suggest other points
        limit = limit if limit.limited else Budget(inverses=_OPTUNA_INVERSES)
    if not isinstance(prune, bool):
        raise ParameterError(f"prune must be True or False, got {prune!r}", parameter="prune")
    fades = chosen.half_life != (None,)
    final = refit_data(data, refit, time=fades)
    held = hold_out_validation(data, seed, validation, time=fades)
    if final is not None:
        held = replace(held, final=final)
    if fades:
        for part in (held.train, held.final):
            latest_time(part)  # which says what is wrong with their times
    full = Trainer(held, dtype, progress)
    points = chosen.points(full.mean_diagonal)
    if chosen.prior is not None:
        chosen.variants(held.train.n_items, min(held.train.matrix.shape))  # before a journal is begun
    small = _screening(held, dtype, seed) if prune and (search == "optuna" or len(points) >= _LEAST_POINTS) else None
    kind = "grid" if search == "walk" and len(points) < _LEAST_POINTS else search
    if chosen.prior is not None and asked.limited:
        limit = limit.without_share(_PRIOR_INVERSES, _PRIOR_SHARE)
    if kind == "walk" and small is not None and not limit.limited:
        limit = Budget(inverses=_WALK_INVERSES)
    identity = {
        "data": held.fingerprint(), "space": chosen.to_dict(), "search": how,
        "metric": list(metric) if not isinstance(metric, str) and len(metric) > 1 else metrics[0],
        "prune": prune, "seed": seed, "dtype": dtype,
    }  # fmt: skip
    if fades:
        assert held.train.times is not None
        identity["times"] = digest({}, {"train": held.train.times})
    variants = factors = None
    if chosen.prior is not None:
        variants = chosen.variants(held.train.n_items, min(held.train.shape))
        factors = PriorFactors(chosen.prior, held.train, variants.ranks[-1])
        if isinstance(chosen.prior, Prior):
            identity["prior"] = chosen.prior.fingerprint()
    return _Prepared(chosen, kind, points, full, small, metrics, limit, asked, identity, variants, factors)


def _screening(data: TuningData, dtype: str, seed: int) -> Trainer | None:
    """A trainer on a sample of the items, if the data are so large that it pays and leave enough to evaluate on."""
    if data.train.n_items < _LEAST_ITEMS or not np.array_equal(data.train.items, data.validation.seen.items):
        return None
    try:
        sample = sample_items(data, _SAMPLE, _SCREENING_USERS, seed)
    except DataError:
        return None
    return Trainer(sample, dtype, progress=False, weights_from=data.train.matrix, grams=_SMALL_GRAMS)
