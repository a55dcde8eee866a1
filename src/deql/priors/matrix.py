"""Weights of one's own as a prior: an n × n matrix, or two thin factors of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from deql._system.formatting import show_bytes
from deql._system.machine import free_memory
from deql._system.progress import ProgressCallback
from deql.data.partitions import TrainingData
from deql.errors import DataError, ParameterError, TooLargeError, name_some
from deql.priors.prior import Prior, PriorWeights

__all__ = ["Matrix", "as_prior", "check_room", "is_matrix"]


@dataclass(frozen=True, eq=False, repr=False)
class Matrix(Prior):
    """W₀ itself, in the order of the data's items; what ``prior=`` makes of an array.

    Parameters
    ----------
    W : array or sparse matrix, n × n, or a pair (U, V) of arrays, n × rank
        The weights, column i those that predict item i; a pair stands for U·Vᵀ. They are taken as they are: what of l2
        pulls towards them is up to ``prior_weight``. A sparse matrix takes as much memory as a dense one, as P·W₀ is
        dense.

    Examples
    --------
    >>> import numpy as np, deql
    >>> from deql.priors import Matrix
    >>> data = deql.Interactions.from_pairs(list("aab"), list("xyx"))
    >>> model = deql.EASE(l2=1.0, prior=Matrix(np.ones((2, 2))), prior_weight=1.0).fit(data)
    >>> model.prior
    Matrix(2 × 2 ndarray)
    """

    W: Any

    def __repr__(self) -> str:
        given = self.W if _is_pair(self.W) else (self.W,)
        words = (f"{' × '.join(map(str, np.shape(one)))} {type(one).__name__}" for one in given)
        return f"Matrix({', '.join(words)})"

    def weights(
        self, data: TrainingData, *, device: str | None = None, report: ProgressCallback | None = None
    ) -> PriorWeights:
        """W₀ for the columns of the interactions."""
        n = data.n_items
        given: tuple[Any, ...] = self.W if _is_pair(self.W) else (self.W,)
        shapes: list[tuple[int, ...]] = [np.shape(one) for one in given]
        if len(given) == 1 and shapes[0] != (n, n):
            raise ParameterError(
                f"the prior must have shape ({n}, {n}), a row and a column for each item, got {_shape(given[0])}",
                parameter="prior",
            )
        thin = len(shapes[0]) == 2 and shapes[0][0] == n and shapes[0][1] > 0 and shapes[0] == shapes[-1]
        if len(given) == 2 and not thin:
            raise ParameterError(
                f"the factors (U, V) of the prior must both have {n} rows, one for each item, and the same number of "
                f"columns, at least one, got {_shape(given[0])} and {_shape(given[1])}",
                parameter="prior",
            )
        if len(given) == 1:
            check_room(n)
        left, *right = (_real_numbers(one, data) for one in given)
        return PriorWeights(left, right[0] if right else None, np.ones(n), np.zeros(n))

    @property
    def is_whole(self) -> bool:
        return not _is_pair(self.W)

    @property
    def config(self) -> dict[str, Any]:
        """Its name: the numbers are not serialised."""
        return {"prior": "matrix"}

    def _contents(self) -> dict[str, NDArray[Any]]:
        factors = self.W if _is_pair(self.W) else (self.W,)
        found: dict[str, NDArray[Any]] = {}
        for place, factor in enumerate(factors):
            given: Any = factor
            stored = csr_array(given) if issparse(factor) else None
            parts = [np.asarray(given)] if stored is None else [stored.indptr, stored.indices, stored.data]
            found |= {f"{place} {part}": values for part, values in enumerate(parts)}
        return found


def as_prior(given: Any) -> Prior | None:
    """What a model's ``prior=`` stands for.

    Examples
    --------
    >>> as_prior(np.zeros((3, 3)))
    Matrix(3 × 3 ndarray)
    >>> as_prior(None) is None
    True
    """
    if given is None or isinstance(given, Prior):
        return given
    if is_matrix(given):
        return Matrix(given)
    hint = ""
    if isinstance(given, type) and issubclass(given, Prior):
        hint = f": say {given.__name__}()"
    elif isinstance(given, str):
        hint = ": say deql.priors.LowPass()"
    elif hasattr(given, "recommend"):
        hint = ": say deql.priors.Model(model)"
    got = f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
    raise ParameterError(
        f"prior must be an object of deql.priors, an n × n array or a pair (U, V), got {got}{hint}", parameter="prior"
    )


def is_matrix(given: Any) -> bool:
    """Whether it is an array of weights, or two factors of one.

    Examples
    --------
    >>> is_matrix(np.zeros((3, 3))), is_matrix("lowpass")
    (True, False)
    """
    return _is_pair(given) or issparse(given) or (isinstance(given, np.ndarray) and given.ndim == 2)


def check_room(n: int, beside: int = 0) -> None:
    """Raise TooLargeError unless there is memory for W₀ and P·W₀ with n² numbers each, and for some more.

    Examples
    --------
    >>> check_room(10)
    """
    needed, free = 8 * n * n + beside, free_memory()
    if needed > free:
        raise TooLargeError(
            f"a prior of {n:,} × {n:,} weights takes {show_bytes(needed)} of memory, and {show_bytes(free)} are free: "
            "use a thin one, such as deql.priors.LowPass() or a pair (U, V)"
        )


def _is_pair(given: Any) -> bool:
    return isinstance(given, tuple) and len(given) == 2


def _shape(given: Any) -> str:
    return f"({', '.join(map(str, np.shape(given)))})"


def _real_numbers(given: Any, data: TrainingData) -> NDArray[np.float32]:
    """An array as float32, a row for each item."""
    try:
        if hasattr(given, "columns") or isinstance(given, np.ma.MaskedArray):
            raise TypeError
        array: Any = given if issparse(given) else np.asarray(given)
        if array.dtype.kind not in "biuf":
            raise TypeError
        with np.errstate(over="ignore"):
            numbers: NDArray[np.float32] = (
                array.astype(np.float32).toarray() if issparse(given) else np.ascontiguousarray(array, np.float32)
            )
    except (TypeError, ValueError):
        raise ParameterError(
            f"the prior's weights must be real numbers in an array, got {_kind(given)}", parameter="prior"
        ) from None
    # A sum of finite numbers may still be infinite, so that it only says where to look.
    with np.errstate(over="ignore", invalid="ignore"):
        suspects = np.flatnonzero(~np.isfinite(numbers.sum(axis=1)))
    for row in suspects:
        if not np.isfinite(numbers[row]).all():
            raise DataError(f"the prior's weights of item {name_some(data.items[[row]])} are not all finite in float32")
    return numbers


def _kind(given: Any) -> str:
    dtype = getattr(given, "dtype", None)
    return type(given).__name__ if dtype is None else f"{type(given).__name__} of {dtype}"
