"""From interactions to P = A⁻¹: where the engine says, or from a Gram matrix that is there already."""

from __future__ import annotations

import numpy as np

from deql._system.progress import Stage
from deql.linalg.engines.engine import Engine, Problem, Solved
from deql.linalg.engines.memory import Memory
from deql.linalg.engines.torch_engine import Torch
from deql.linalg.packed import PackedSymmetric
from deql.linalg.planner.choose import Auto, as_engine, choose_engine

__all__ = ["solve"]


def solve(
    problem: Problem,
    engine: str | Engine = "auto",
    *,
    shared: PackedSymmetric | None = None,
    stage: Stage = lambda _label: None,
) -> Solved:
    """P = (RᵀΛR + diag(added))⁻¹.

    Parameters
    ----------
    problem : Problem
    engine : str or Engine, default "auto"
    shared : PackedSymmetric, optional
        The Gram matrix, if it is there already, in memory or on a device (see :meth:`Engine.gram`). It is copied, and
        inverted where it is, whatever the engine.
    stage : callable, optional
        See :func:`deql._system.progress.stages`.

    Raises
    ------
    TooLargeError
        Before any work, if there is too little memory or disk.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> solved = solve(Problem(csr_array([[1.0, 0.0], [0.0, 2.0]]), np.ones(2)))
    >>> solved.precision.diagonal().round(4).tolist(), solved.engine
    ([0.5, 0.2], 'memory')
    """
    if shared is not None:
        where = Memory() if isinstance(shared.data, np.ndarray) else Torch()
        return where.invert(shared.copy(), problem.added, stage)
    chosen = as_engine(engine)
    if not isinstance(chosen, Auto):  # which looks for itself, and has something to fall back on
        chosen = choose_engine(problem.matrix, engine=chosen, dtype=problem.dtype)
    return chosen.solve(problem, stage)
