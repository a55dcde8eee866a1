"""What an engine is: whatever turns interactions and a diagonal into P = A⁻¹, and says beforehand what that takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from deql._system.describe import short_repr
from deql._system.progress import Stage
from deql.errors import ParameterError
from deql.linalg.engines.stored_rows import StoredRows
from deql.linalg.packed import PackedSymmetric

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from deql.linalg.engines.resources import ProblemSize, Requirement, Resources
    from deql.linalg.engines.torch_packed import DevicePacked
    from deql.linalg.sparse_precision import SparsePrecision

__all__ = ["Engine", "PriorFactors", "Problem", "RowPart", "RowSlice", "Solved"]


class RowPart(Protocol):
    """Some whole rows of R, read when they are asked for; it can be pickled and sent to another process."""

    @property
    def n_users(self) -> int:
        """Number of rows."""

    @property
    def n_interactions(self) -> int:
        """Number of entries."""

    def load(self) -> tuple[csr_array, NDArray[np.float64] | None]:
        """The rows, all items wide, and the weights of their users, or None for 1 each."""


class PriorFactors(Protocol):
    """A prior W₀ = left·rightᵀ·diag(scale) + diag(diagonal), as :class:`deql.priors.prior.PriorWeights` has it."""

    @property
    def left(self) -> NDArray[np.float32]:
        """n × rank."""

    @property
    def right(self) -> NDArray[np.float32] | None:
        """n × rank; None for the identity."""

    @property
    def scale(self) -> NDArray[np.float64]:
        """n numbers."""

    @property
    def diagonal(self) -> NDArray[np.float64]:
        """n numbers."""


@dataclass(frozen=True, eq=False)
class RowSlice:
    """Rows of a matrix that is in memory."""

    matrix: csr_array
    weights: NDArray[np.float64] | None = None

    @property
    def n_users(self) -> int:
        """Number of rows."""
        return int(self.matrix.shape[0])

    @property
    def n_interactions(self) -> int:
        """Number of entries."""
        return int(self.matrix.nnz)

    def load(self) -> tuple[csr_array, NDArray[np.float64] | None]:
        """The rows and the weights of their users."""
        return self.matrix, self.weights


@dataclass(frozen=True, eq=False)
class Problem:
    """What is to be inverted: A = RᵀΛR + diag(added).

    Attributes
    ----------
    rows : csr_array or StoredRows
        Users × items R, its column indices sorted within each row; or R in parts that are read when they are needed.
    added : ndarray
        What is added to the diagonal of the Gram matrix.
    weights : ndarray or None
        Of the users, Λ; None for 1 each.
    dtype : {"float32", "float64"}
        Type of the Gram matrix and its inverse.
    beside : int, default 0
        Bytes that are to stay free beside P, for what it is multiplied with.
    prior : PriorFactors or None
        W₀, for engines that leave no P to multiply it with.
    """

    rows: csr_array | StoredRows
    added: NDArray[np.float64]
    weights: NDArray[np.float64] | None = None
    dtype: str = "float32"
    beside: int = 0
    prior: PriorFactors | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of users and of items."""
        m, n = self.rows.shape
        return int(m), int(n)

    @property
    def n(self) -> int:
        """Number of items."""
        return self.shape[1]

    @cached_property
    def matrix(self) -> csr_array:
        """All of R in memory: for engines that do not work by its parts.

        Raises
        ------
        TooLargeError
            If R is stored in parts and there is too little memory to join them.
        """
        return self.rows.joined() if isinstance(self.rows, StoredRows) else self.rows

    def parts(self, count: int = 1) -> Sequence[RowPart]:
        """R as about so many parts of about equally many entries, each with whole rows; or as it is stored in parts.

        Examples
        --------
        >>> from scipy.sparse import csr_array
        >>> problem = Problem(csr_array([[1.0, 1.0], [0.0, 2.0], [1.0, 0.0]]), np.ones(2))
        >>> [(part.n_users, part.n_interactions) for part in problem.parts(2)]
        [(1, 2), (2, 2)]
        """
        if isinstance(self.rows, StoredRows):
            return self.rows.parts
        if count == 1:
            return [RowSlice(self.matrix, self.weights)]
        ends = np.searchsorted(self.matrix.indptr, np.linspace(0, self.matrix.nnz, count + 1))
        bounds = np.unique([0, *ends[1:-1], self.matrix.shape[0]])
        return [
            RowSlice(self.matrix[first:last], None if self.weights is None else self.weights[first:last])
            for first, last in pairwise(bounds.tolist())
        ]


@dataclass(frozen=True, eq=False)
class Solved:
    """P and how it was come by.

    Attributes
    ----------
    precision : PackedSymmetric or SparsePrecision
        P in memory, or mapped from a file; or some of its entries.
    residual : float
        How far P·A was from the identity on random vectors.
    engine : str
        Name of the engine that ran.
    on_device : DevicePacked or None
        P once more, on the device where it was computed.
    """

    precision: PackedSymmetric | SparsePrecision
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
    exact : bool
        Whether it leaves all of P, as a PackedSymmetric. Else it leaves a SparsePrecision, with the images of
        ``Problem.prior`` if there is one, and no Gram matrix to share.
    """

    name: ClassVar[str]
    exact: ClassVar[bool] = True
    __repr__ = short_repr

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not hasattr(cls, "name"):
            cls.name = cls.__name__.lower()

    def check(self, dtype: str) -> None:
        """Raise ParameterError unless it can compute in this type."""
        if dtype not in ("float32", "float64"):
            raise ParameterError(f"dtype must be 'float32' or 'float64', got {dtype!r}", parameter="dtype")

    def check_reachable(self, n: int, dtype: str) -> None:
        """Raise what can be told before data are read: that a cluster does not answer, or has too little memory."""
        return  # an engine of this machine is always reached

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
