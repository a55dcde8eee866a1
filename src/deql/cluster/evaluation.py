"""An evaluation by slices of users, joined: the same as on one machine, to the last bit."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.checks import check_whole
from deql._system.progress import stages
from deql.cluster.tasks import SharedModel, cluster_with, load_shared
from deql.data import Interactions
from deql.evaluation import Evaluation
from deql.evaluation.evaluator import (
    MetricAccumulator,
    Target,
    accumulate,
    check_metrics,
    encode_target,
    users_to_evaluate,
)
from deql.linalg.engines.dask_tasks import handed_over, run_tasks
from deql.metrics import parse_metrics
from deql.split import HeldOut

__all__ = ["evaluate"]


def evaluate(
    model: str | os.PathLike[str],
    target: Target,
    metrics: str | Sequence[str],
    client: Any,
    *,
    users_per_part: int = 50_000,
    progress: bool = False,
) -> Evaluation:
    """Evaluate a model on held-out interactions by the workers of a Dask cluster.

    Parameters
    ----------
    model : path
        Of a model file or folder that all workers see; it is mapped once by each of their processes.
    target, metrics
        As :func:`deql.evaluate` takes them.
    client : distributed.Client or str
        The cluster, or the address of its scheduler.
    users_per_part : int, default 50,000
        How many users a worker evaluates at a time.
    progress : bool, default False
        Show a bar.

    Returns
    -------
    Evaluation
        What :func:`deql.evaluate` gives.

    Raises
    ------
    ClusterError
        If there is no cluster, or its workers lack this version of deql or the model.

    Examples
    --------
    >>> import deql, deql.cluster
    >>> deql.cluster.evaluate("shop.deql", split.test, "ndcg@100", "tcp://scheduler:8786")  # doctest: +SKIP
    """
    check_whole("users_per_part", users_per_part)
    wanted = parse_metrics(metrics)
    shared = SharedModel(model)
    check_metrics([shared.model], wanted)
    target, skipped = users_to_evaluate([shared.model], target)
    encode_target(shared.model, target)  # warns of what the model does not know, once
    counts = np.diff(target.held_out.matrix.indptr).astype(np.int64)
    whole = MetricAccumulator(wanted, counts, shared.model.item_counts_, shared.model.n_users_)
    bounds = [*range(0, len(counts), users_per_part), len(counts)]
    slices = [slice(first, last) for first, last in pairwise(bounds)]
    with (
        cluster_with(client, shared) as connected,
        stages(progress) as stage,
        handed_over(connected, "items", target.seen.items) as items,
    ):
        tasks = [
            (shared.key, list(wanted), target.seen.matrix[rows], target.held_out.matrix[rows], items) for rows in slices
        ]
        for number, part in run_tasks(connected, "evaluate", _evaluate_part, tasks, stage("Evaluate")):
            whole.join(slices[number], *part)
    means, per_user = whole.result(target.seen.matrix.nnz)
    return Evaluation(means, per_user, target.held_out.users, skipped)


def _evaluate_part(
    key: tuple[str, str, int], metrics: list[str], seen: csr_array, held_out: csr_array, items: NDArray[Any]
) -> tuple[dict[str, NDArray[np.float64]], dict[str, NDArray[np.int64]]]:
    users = np.arange(seen.shape[0])
    target = HeldOut(Interactions(seen, users, items), Interactions(held_out, users, items))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # told of once, where the evaluation was asked for
        return accumulate([load_shared(*key)], target, parse_metrics(metrics), None)[0].sums()
