"""Anyone's own weights, behind the same verbs as every other model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, issparse

from deql.data import Interactions
from deql.errors import DataError, ParameterError, name_some
from deql.models.stored import ExplicitAutoencoder

__all__ = ["CustomLinear"]

Weights = NDArray[np.floating] | csc_array


@dataclass(eq=False, repr=False)
class CustomLinear(ExplicitAutoencoder):
    """A recommender with weights of one's own: scores are X @ W, column i predicts item i.

    Parameters
    ----------
    W : array or sparse matrix, n × n, or callable
        The weights, with rows and columns in the order of the data's items; or a function that gives them for the
        training data, an :class:`~deql.Interactions`, so that the model can be fitted on many splits.

    Examples
    --------
    Items that many of the same users have, after cosine:

    >>> import numpy as np, deql
    >>> def cosine(data):
    ...     S = (data.matrix.T @ data.matrix).toarray().astype(float)
    ...     size = np.sqrt(S.diagonal())
    ...     np.fill_diagonal(S, 0.0)
    ...     return S / np.outer(size, size)
    >>> data = deql.Interactions.from_pairs(list("aabbcccd"), ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"])
    >>> deql.CustomLinear(cosine).fit(data).similar_items("jam", k=1)[0].tolist()
    ['tea']
    """

    W: Weights | Callable[[Interactions], Weights] | None = field(default=None, repr=False)

    @property
    def _display_name(self) -> str:
        return f"CustomLinear {getattr(self.W, '__name__', '')}".rstrip()

    def __repr__(self) -> str:
        W: Any = self.W
        shape = " × ".join(map(str, getattr(W, "shape", ())))
        given = "" if W is None else f"W={getattr(W, '__name__', f'<{shape} {type(W).__name__}>')}"
        others = super().__repr__().removeprefix("CustomLinear(").removesuffix(")")
        return f"CustomLinear({', '.join(filter(None, [given, others]))})"

    def _learn(self, data: Interactions) -> None:
        if self.W is None:
            raise ParameterError(
                "this CustomLinear has no weights to fit: give an n × n array or a function (a model file "
                "keeps the weights, not where they came from)",
                parameter="W",
            )
        W = _own_copy(self.W(data) if callable(self.W) else self.W)
        n = data.n_items
        if W.shape != (n, n):
            raise ParameterError(
                f"the weights must have shape ({n}, {n}), a row and a column for each item, got {W.shape}",
                parameter="W",
            )
        finite = np.isfinite(W.data if isinstance(W, csc_array) else W)
        if not finite.all():
            bad = np.argwhere(~finite)[0]
            column = int(np.searchsorted(W.indptr, bad[0], "right")) - 1 if isinstance(W, csc_array) else int(bad[1])
            raise DataError(f"the weights of item {name_some(data.items[[column]])} are not all finite")
        self._keep(W)


def _own_copy(given: Any) -> Any:
    """The weights as a csc_array or an ndarray that nobody else has, in float32 or float64."""
    if hasattr(given, "columns"):
        raise ParameterError(
            "the weights must be an array in the order of the data's items, got a frame", parameter="W"
        )
    if isinstance(given, np.ma.MaskedArray):
        raise ParameterError("the weights must be an array without a mask", parameter="W")
    try:
        W: Any = csc_array(given, copy=True) if issparse(given) else np.array(given, order="C")  # type: ignore[call-overload]
        if W.dtype not in (np.float32, np.float64):
            if W.dtype.kind not in "biufO":
                raise TypeError
            W = W.astype(np.float64)
    except (TypeError, ValueError):
        raise ParameterError(
            f"the weights must be an n × n array of real numbers, got {type(given).__name__}", parameter="W"
        ) from None
    return W
