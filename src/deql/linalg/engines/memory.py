"""The memory engine: the packed store swept where it lies, by all threads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deql._system.formatting import parse_bytes, show_bytes
from deql._system.progress import ProgressCallback, Stage
from deql._system.threads import thread_count
from deql.linalg.blas import BUFFER, MOST_CALLERS
from deql.linalg.engines.engine import Engine, Problem, Solved
from deql.linalg.engines.resources import INTERPRETER, ProblemSize, Requirement, Resources, lacking
from deql.linalg.invert import invert
from deql.linalg.packed import PackedSymmetric
from deql.linalg.parallel_sweep import parallel_sweep

__all__ = ["Memory", "invert_in_memory"]

_BUFFERS = 56 * 2**20
"""What the threads and the inverse of a pivot take beside the panels and the buffers of BLAS."""


@dataclass(frozen=True, repr=False)
class Memory(Engine):
    """Compute P in memory, in n²/2 numbers and two panels: the least trouble where it fits.

    Parameters
    ----------
    memory : int or str, optional
        Refuse fits that would take more than this, such as ``"4GiB"``; all that is free may be taken if not given.

    Examples
    --------
    >>> import deql
    >>> data = deql.Interactions.from_pairs(list("aabb"), list("xyyz"))
    >>> deql.EASE(l2=1.0, engine=deql.engines.Memory()).fit(data).engine_
    'memory'
    """

    memory: int | str | None = None

    name = "memory"

    def __post_init__(self) -> None:
        if self.memory is not None:
            parse_bytes(self.memory)

    def requirement(self, size: ProblemSize, resources: Resources) -> Requirement:
        # The Gram matrix's work arrays are gone before the sweep's panels come.
        buffers = _BUFFERS + BUFFER * min(thread_count(), MOST_CALLERS)
        more = size.matrices * size.packed + max(2 * size.n * size.tile * size.itemsize, size.work) + buffers
        more += size.beside
        why = lacking("memory", more, resources.memory)
        if self.memory is not None and more > (allowed := parse_bytes(self.memory)):
            why = why or f"it needs {show_bytes(more)} of memory, and was given {show_bytes(allowed)}"
        return Requirement(self.name, more + size.stored + INTERPRETER, why_not=why)

    def solve(self, problem: Problem, stage: Stage) -> Solved:
        return self.invert(self.gram(problem, stage), problem.added, stage)

    def invert(self, store: PackedSymmetric, added: NDArray[np.float64], stage: Stage) -> Solved:
        """Replace a Gram matrix by P."""
        store.add_to_diagonal(added)
        return Solved(store, invert_in_memory(store, stage("Inverse")), self.name)


def invert_in_memory(matrix: PackedSymmetric, report: ProgressCallback | None = None) -> float:
    """Replace a packed matrix by its inverse, and return how far it is from it; see :func:`deql.linalg.invert.invert`.

    Examples
    --------
    >>> a = PackedSymmetric.from_dense(np.diag([2.0, 4.0]), tile=1)
    >>> residual = invert_in_memory(a)
    >>> a.diagonal()
    array([0.5 , 0.25])
    """
    return invert(matrix, lambda store, told: parallel_sweep([block for _, block in store.blocks()], told), report)
