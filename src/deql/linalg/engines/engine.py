"""What an engine is: whatever turns interactions and a diagonal into P = A⁻¹, and says beforehand what that takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deql._system.describe import short_repr
from deql._system.progress import Stage
from deql.errors import ParameterError
from deql.linalg.packed import PackedSymmetric

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from deql.linalg.engines.resources import ProblemSize, Requirement, Resources
    from deql.linalg.engines.torch_packed import DevicePacked

__all__ = ["Engine", "Problem", "Solved"]


@dataclass(frozen=True, eq=False)
class Problem:
    """What is to be inverted: A = RᵀΛR + diag(added).

    Attributes
    ----------
    matrix : csr_array
        Users × items R, its column indices sorted within each row.
    added : ndarray
        What is added to the diagonal of the Gram matrix.
    weights : ndarray or None
        Of the users, Λ; None for 1 each.
    dtype : {"float32", "float64"}
        Type of the Gram matrix and its inverse.
    beside : int, default 0
        Bytes that are to stay free beside P, for what it is multiplied with.
    """

    matrix: csr_array
    added: NDArray[np.float64]
    weights: NDArray[np.float64] | None = None
    dtype: str = "float32"
    beside: int = 0


@dataclass(frozen=True, eq=False)
class Solved:
    """P and how it was come by.

    Attributes
    ----------
    precision : PackedSymmetric
        P in memory, or mapped from a file.
    residual : float
        How far P·A was from the identity on random vectors.
    engine : str
        Name of the engine that ran.
    on_device : DevicePacked or None
        P once more, on the device where it was computed.
    """

    precision: PackedSymmetric
    residual: float
    engine: str
    on_device: DevicePacked | None = None


class Engine(ABC):
    """Base of all engines.

    A subclass is a frozen dataclass: its fields are what can be chosen, checked in ``__post_init__``, and engines with
    the same fields are equal. A model takes it as ``engine=``; nothing else needs to know of it.

    Attributes
    ----------
    name : str
        What people call it, and a fitted model's ``engine_``; the class's name in lower case if it says nothing else.
    """

    name: ClassVar[str]
    __repr__ = short_repr

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not hasattr(cls, "name"):
            cls.name = cls.__name__.lower()

    def check(self, dtype: str) -> None:
        """Raise ParameterError unless it can compute in this type."""
        if dtype not in ("float32", "float64"):
            raise ParameterError(f"dtype must be 'float32' or 'float64', got {dtype!r}", parameter="dtype")

    @abstractmethod
    def requirement(self, size: ProblemSize, resources: Resources) -> Requirement:
        """What it takes to solve a problem of this size, and why that cannot be had if so."""

    @abstractmethod
    def solve(self, problem: Problem, stage: Stage) -> Solved:
        """P, with a progress bar from ``stage`` for each part of the work."""

    def gram(self, problem: Problem, stage: Stage) -> PackedSymmetric:
        """S = RᵀΛR alone, where it would be inverted, to be kept and inverted with several diagonals."""
        from deql.linalg.gram import gram  # not where there is torch alone, without numba

        return gram(problem.matrix, weights=problem.weights, dtype=problem.dtype, report=stage("Gram matrix"))

    def without_folder(self) -> Engine:
        """The same for other fits too: a folder is for one."""
        return self

    @property
    def config(self) -> dict[str, Any]:
        """Serialised for model files and journals: what describes a model, not the machine, its folders and devices."""
        return {"engine": self.name}
