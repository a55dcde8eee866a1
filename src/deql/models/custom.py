"""Anyone's own weights, behind the same verbs as every other model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, issparse

from deql.errors import DataError, ParameterError, name_some
from deql.interactions import Interactions
from deql.models.explicit import ExplicitAutoencoder

__all__ = ["CustomLinear"]

Weights = NDArray[np.floating] | csc_array


@dataclass(eq=False)
class CustomLinear(ExplicitAutoencoder):
    """A recommender with weights of one's own: scores are X @ W, column i predicts item i.

    Parameters
    ----------
    W : array or sparse matrix, n × n, or callable
        The weights, with rows and columns in the order of the data's items; or a function that gives them for the
        training data, an :class:`~deql.Interactions`, so that the model can be fitted on many splits.
    **other
        See :class:`~deql.models.stored.StoredWeights`.

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

    W: Weights | Callable[[Interactions], Weights] | None = None

    def _learn(self, data: Interactions) -> None:
        given = self.W
        if given is None:
            raise ParameterError(
                "this CustomLinear has no weights to fit: give an n × n array or a function (a model file "
                "keeps the weights, not where they came from)"
            )
        found: Any = given(data) if callable(given) else given
        W: Any = csc_array(found) if issparse(found) else np.asarray(found)  # type: ignore[call-overload]
        if W.dtype.kind in "biu":
            W = W.astype(np.float64)
        if W.dtype not in (np.float32, np.float64):
            raise ParameterError(f"the weights must be real numbers, float32 or float64, got {W.dtype}")
        n = data.n_items
        if W.shape != (n, n):
            raise ParameterError(
                f"the weights must have shape ({n}, {n}), a row and a column for each item, got {W.shape}"
            )
        good = np.isfinite(W.data if isinstance(W, csc_array) else W)
        if not good.all():
            columns = (
                np.searchsorted(W.indptr, np.flatnonzero(~good), "right") - 1
                if isinstance(W, csc_array)
                else (np.flatnonzero(~good.all(axis=0)))
            )
            raise DataError(f"the weights of item {name_some(data.items[columns[:1]])} are not all finite")
        self._keep(W)
