"""Ranks the judged users slice by slice, for all models that share P at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.progress import Report
from deql.models.base import Recommender
from deql.models.linear import LinearAutoencoder
from deql.models.stored import StoredWeights
from deql.ranking.rank import rank

__all__ = ["Ranked", "group_models", "ranked_slices", "squared_errors"]

_LIST_ENTRIES = 2**24
_LEAST_USERS, _MOST_USERS = 2**10, 2**16
"""Users of a slice: as many as their lists, of all models, take entries; each slice reads all of P."""


@dataclass(frozen=True)
class Ranked:
    """The lists of users ``first`` … ``last − 1``: models × users × k columns, and squared scores if asked for."""

    first: int
    last: int
    columns: NDArray[np.int32]
    squares: NDArray[np.float64] | None


def group_models(models: Sequence[Recommender]) -> list[list[int]]:
    """Positions of the models that share P, together; every other model alone.

    Examples
    --------
    >>> import deql
    >>> first = deql.EASE(l2=1.0).fit(deql.Interactions.from_pairs(list("aab"), list("xyx")))
    >>> group_models([first, deql.Popularity(), first.with_rule(b=2.0)])
    [[0, 2], [1]]
    """
    groups: dict[tuple[str, int], list[int]] = {}
    for position, model in enumerate(models):
        key = ("alone", position)
        if isinstance(model, LinearAutoencoder) and hasattr(model, "precision_"):
            key = ("shared", id(model.precision_))
        groups.setdefault(key, []).append(position)
    return list(groups.values())


def ranked_slices(
    models: Sequence[Recommender], matrix: csr_array, k: int, squares: bool, report: Report | None
) -> Iterator[Ranked]:
    """Best unseen columns of every user under every model of a group, in slices of users.

    Parameters
    ----------
    models : sequence of fitted models
        A group of :func:`group_models`.
    matrix : csr_array
        Histories in the models' columns. A user without any gets the popularity order.
    k : int
        Length of the lists.
    squares : bool
        Whether Σ score² over the items a user does not have is wanted too; it is 0 for users without
        a history.
    report : callable, optional
        Called as ``report(done, total)``.
    """
    first_model = models[0]
    k = min(k, len(first_model.items_))
    allowed = np.ones(len(first_model.items_), bool)
    # Models that share P share its copy on a device, whichever of them was sent there.
    on_device = next((there for model in models if (there := getattr(model, "on_device_", None)) is not None), None)
    users = matrix.shape[0]
    per_slice = max(_LEAST_USERS, min(_MOST_USERS, _LIST_ENTRIES // (k * len(models))))
    slices = -(-users // per_slice)
    bounds = np.linspace(0, users, slices + 1).astype(int).tolist()
    for number, (first, last) in enumerate(pairwise(bounds)):
        part = matrix if slices == 1 else matrix[first:last]

        def tell(done: int, total: int, before: int = number) -> None:
            if report is not None:
                report(before * total + done, slices * total)

        told = None if report is None else tell
        sums = np.zeros((len(models), last - first)) if squares else None
        if isinstance(first_model, LinearAutoencoder):
            gains, shifts = (np.stack([getattr(model, name) for model in models]) for name in ("gain_", "shift_"))
            columns, _ = rank(
                first_model.precision_, gains, shifts, part,
                k=k, squares=sums, exact=False, on_device=on_device, report=told,
            )  # fmt: skip
        elif isinstance(first_model, StoredWeights):
            columns = first_model._rank(part, k, True, allowed, told, None if sums is None else sums[0])[0][None]
        else:
            columns = first_model._rank(part, k, True, allowed, told)[0][None]
        cold = np.diff(part.indptr) == 0
        if cold.any():
            columns[:, cold] = first_model._popular(k, allowed)[0]
        yield Ranked(first, last, columns, sums)


def squared_errors(
    model: LinearAutoencoder | StoredWeights, squares: NDArray[np.float64], matrix: csr_array, truth: csr_array
) -> NDArray[np.float64]:
    """Each user's Σ (r_i − s_i)² over the columns i they do not have, where r is what is held out.

    With s² summed over all of those columns already, what is held out adds r² − 2·r·s.

    Parameters
    ----------
    model : fitted model
    squares : ndarray
        Σ s_i² over the columns each user does not have.
    matrix, truth : csr_array
        Histories and held-out values in the model's columns, without a common entry.
    """
    scores = model._pair_scores(matrix, truth)
    values = truth.data.astype(np.float64)
    rows = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr))
    return np.asarray(squares + np.bincount(rows, values * (values - 2 * scores), minlength=truth.shape[0]))
