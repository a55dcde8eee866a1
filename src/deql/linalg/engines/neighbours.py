"""The engine of neighbourhoods: each column of P from a small system of its own, and nothing of size n × n ever."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deql._system.checks import check_whole
from deql._system.machine import free_memory
from deql._system.progress import Stage
from deql._system.threads import thread_count
from deql.errors import InaccurateInverseError, NotPositiveDefiniteError, ParameterError, TooLargeError
from deql.linalg.engines.dask_cluster import CLIENT, Cluster
from deql.linalg.engines.dask_connection import check_connection, connect, missing_dask, own_address
from deql.linalg.engines.engine import Engine, PriorFactors, Problem, Solved
from deql.linalg.engines.pair_sums import item_counts, least_room, sum_parts
from deql.linalg.engines.resources import INTERPRETER, ProblemSize, Requirement, Resources, lacking
from deql.linalg.invert import LARGEST_RESIDUAL
from deql.linalg.neighbourhoods import NeighbourColumns, bytes_of_thread, solve_columns
from deql.linalg.sparse_columns import columns_by_rows
from deql.linalg.sparse_triangle import popularity_order
from deql.linalg.strongest_pairs import MOST_LISTED, strongest_pairs

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["WHOLE_PRIOR", "Neighbours"]

WHOLE_PRIOR = (
    "the neighbours engine takes thin priors, and this one is n × n weights: take a low pass, items' features, a model "
    "that keeps thin factors (elsa, lowrank) or, in Python, a pair (U, V); or fit with an exact engine"
)
"""What is said of a prior of which a neighbourhood's columns are not to be had from two thin factors."""

_Factors = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True, repr=False)
class Neighbours(Engine):
    """Solve for each column of P on the k items that tell most about it: for catalogues beyond n × n numbers.

    For every item the system of its neighbourhood is solved exactly, by the same rules as ever. The model's weights are
    sparse, k of them for an item, and an approximation: docs/scale.md says how good. Memory grows with the number of
    items and of pairs of items that share users, time with the number of items.

    Parameters
    ----------
    k : int, default 400
        Items in a neighbourhood, beside the one that it is of.
    client : distributed.Client, optional
        Of a Dask cluster, whose workers do it; each of them holds what pairs of items have in common once.
    scheduler : str or path, optional
        Address of its scheduler instead, or the scheduler's file.

    Examples
    --------
    >>> import deql
    >>> data = deql.Interactions.from_pairs(list("aabbc"), list("xyxzz"))
    >>> model = deql.EASE(l2=1.0, engine=deql.engines.Neighbours(k=1)).fit(data)
    >>> model.engine_, model.recommend([["y"]], k=1).ids.tolist()
    ('neighbours', [['x']])
    """

    k: int = 400
    client: Client | None = None
    scheduler: str | os.PathLike[str] | None = None

    name = "neighbours"
    exact = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", check_whole("k", self.k))
        check_connection(self.client, self.scheduler)

    def __deepcopy__(self, memo: dict[int, Any]) -> Neighbours:
        return self  # a connection is not copied

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.k, None, own_address(self.client, self.scheduler))

    @property
    def on_cluster(self) -> bool:
        """Whether workers of a cluster do it."""
        return self.client is not None or self.scheduler is not None

    @property
    def config(self) -> dict[str, Any]:
        return {"engine": self.name, "k": self.k}

    def requirement(self, size: ProblemSize, resources: Resources) -> Requirement:
        rows, with_prior = size.stored_rows, size.beside > 0
        if self.on_cluster:  # the columns as they come, and by rows
            more = 2 * _bytes_of_columns(size.n, self.k, size.itemsize, with_prior) + CLIENT
        else:
            columns = _bytes_of_columns(size.n, self.k, size.itemsize, with_prior)
            # When the lists are gone, the same by rows is beside the columns.
            solving = _bytes_to_solve(size.n, self.k, size.itemsize, with_prior, size.n**2)
            more = max(2 * columns, solving) + (least_room(rows.parts) if rows else size.work)
        if self.on_cluster and (missing := missing_dask()):
            return Requirement(self.name, more + INTERPRETER, why_not=missing, too_large=False)
        why = lacking("memory", more, resources.memory)
        held = 0 if rows else size.stored  # parts are read one by one
        return Requirement(self.name, more + held + INTERPRETER, why_not=why)

    def check_reachable(self, n: int, dtype: str) -> None:
        if self.on_cluster:
            with connect(self.client, self.scheduler) as client, Cluster(client) as cluster:
                cluster.look()

    def solve(self, problem: Problem, stage: Stage) -> Solved:
        k = min(self.k, problem.n - 1)
        items, places = popularity_order(item_counts(problem))
        prior = None if problem.prior is None else _ordered_factors(problem.prior, items)
        if self.on_cluster:
            from deql.linalg.engines.dask_neighbours import columns_on_cluster

            with connect(self.client, self.scheduler) as client, Cluster(client) as cluster:
                cluster.look()
                columns = columns_on_cluster(problem, k, items, places, prior, cluster, stage)
        else:
            columns = _columns_here(problem, k, items, places, prior, stage)
        failed = np.flatnonzero(np.isinf(columns.residuals))
        if failed.size:
            raise NotPositiveDefiniteError(
                f"the system of {failed.size:,} neighbourhoods is not positive definite", items[failed].tolist()
            )
        residual = float(columns.residuals.max())
        if not residual <= LARGEST_RESIDUAL:
            raise InaccurateInverseError(
                f"a column is off by {residual:.1g} (at most {LARGEST_RESIDUAL} is accepted): "
                f"its neighbourhood is too ill-conditioned for {problem.dtype}"
            )
        precision = columns_by_rows(columns.counts, columns.rows, columns.values, columns.images, items)
        return Solved(precision, residual, self.name)


def _bytes_of_columns(n: int, k: int, itemsize: int, with_prior: bool) -> int:
    """Of the columns of all neighbourhoods: which rows, the entries there, and those of the prior's product."""
    return n * (min(k, n - 1) + 1) * (4 + itemsize * (1 + with_prior))


def _bytes_to_solve(n: int, k: int, itemsize: int, with_prior: bool, listed: int) -> int:
    """What solving takes here beside the pairs of items: columns, lists of the strongest pairs, and of each thread.

    ``listed`` is what all lists together cannot pass.
    """
    width = min(k, n - 1) + 1
    lists = min(4 * n * width, listed, max(MOST_LISTED, n * width)) * (4 + itemsize)
    of_threads = thread_count() * bytes_of_thread(n, width - 1, itemsize)
    return _bytes_of_columns(n, k, itemsize, with_prior) + lists + of_threads


def _columns_here(
    problem: Problem,
    k: int,
    items: NDArray[np.int32],
    places: NDArray[np.int32],
    prior: _Factors | None,
    stage: Stage,
) -> NeighbourColumns:
    S = sum_parts(problem.parts(), places, np.dtype(problem.dtype), stage("Pairs of items"))
    # How many pairs there are is not known before; each may be in the lists of both of its items.
    needed = _bytes_to_solve(S.n, k, S.values.itemsize, prior is not None, 2 * len(S.columns))
    if why := lacking("memory", needed, free_memory()):
        raise TooLargeError(
            f"neighbourhoods of {k:,} for each of {S.n:,} items are too large beside the {len(S.columns):,} pairs of "
            f"items that share users: {why}; take a smaller k, or keep fewer items"
        )
    added = problem.added[items]
    lists = strongest_pairs(S, S.diagonal + added, k, stage("Strongest pairs"))
    return solve_columns(S, added, k, lists, prior=prior, report=stage("Neighbourhoods"))


def _ordered_factors(prior: PriorFactors, items: NDArray[np.int32]) -> _Factors:
    if prior.right is None:
        raise ParameterError(WHOLE_PRIOR, parameter="prior")
    return (
        np.ascontiguousarray(prior.left[items], np.float32),
        np.ascontiguousarray(prior.right[items], np.float32),
        prior.scale[items],
        prior.diagonal[items],
    )
