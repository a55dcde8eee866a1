"""A fitted model as a prior: last month's, or one that learned from more."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from deql._system.callers import levels_to_the_caller
from deql._system.progress import ProgressCallback
from deql.data.partitions import TrainingData
from deql.errors import DataError, ParameterError, name_some
from deql.io.container import pack_text
from deql.priors.matrix import check_room
from deql.priors.prior import Prior, PriorWeights

__all__ = ["Model"]


class _Weighted(Protocol):
    """A fitted model whose scores are X·W. Where it keeps thin factors of W, it has left_, right_ and shift_."""

    items_: NDArray[Any]

    def weights(self) -> NDArray[Any]:
        """W as a dense array."""


@dataclass(frozen=True, eq=False, repr=False)
class Model(Prior):
    """The weights of another fitted model, matched by item ids, taken as they are.

    Nothing is known of items that it does not have: their rows and columns of W₀ are zero, and they are counted in a
    warning. What has thin factors (:class:`~deql.LowRankDEQL`, :class:`~deql.ELSA`) stays thin; any other model takes
    n × n numbers, twice.

    Parameters
    ----------
    other : fitted model

    Examples
    --------
    >>> import deql
    >>> from deql.priors import Model
    >>> before = deql.Interactions.from_pairs(list("aabbc"), ["tea", "jam", "tea", "jam", "tea"])
    >>> now = deql.Interactions.from_pairs(list("def"), ["jam", "tea", "jam"])
    >>> model = deql.EASE(l2=1.0, prior=Model(deql.EASE(l2=1.0).fit(before)), prior_weight=1.0).fit(now)
    >>> model.similar_items("jam", k=1).ids.tolist()
    ['tea']
    """

    other: Any

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Itself: copies of hyper-parameters need no second P."""
        return self

    def weights(
        self, data: TrainingData, *, device: str | None = None, report: ProgressCallback | None = None
    ) -> PriorWeights:
        """W₀ for the columns of the interactions."""
        other: _Weighted = self.other
        if not hasattr(other, "recommend") or not hasattr(other, "weights"):
            raise ParameterError(
                f"a model as a prior must be one whose scores are X @ W, such as deql.EASE, got {type(other).__name__}",
                parameter="prior",
            )
        if not hasattr(other, "items_"):
            raise ParameterError("the model that is a prior is not fitted yet: fit it first", parameter="prior")
        n, known = data.n_items, {item: column for column, item in enumerate(other.items_.tolist())}
        theirs = np.array([known.get(item, -1) for item in data.items.tolist()], np.int64)
        mine = np.flatnonzero(theirs >= 0)
        theirs = theirs[mine]
        if not len(mine):
            raise DataError(
                "the model that is a prior has no item in common with the data: its ids are such as "
                f"{name_some(other.items_[:1])}, theirs such as {name_some(data.items[:1])}"
            )
        if len(mine) < n:
            warnings.warn(
                f"the model that is a prior does not know {n - len(mine):,} of {n:,} items: it says nothing of them",
                stacklevel=levels_to_the_caller(),
            )
        if hasattr(other, "left_"):
            left, right = (_rows(factor, mine, theirs, n) for factor in (other.left_, other.right_))  # type: ignore[attr-defined]
            diagonal = np.zeros(n)
            diagonal[mine] = other.shift_[theirs]  # type: ignore[attr-defined]
            return PriorWeights(left, right, np.ones(n), diagonal)
        check_room(n, beside=8 * len(other.items_) ** 2)
        whole = np.zeros((n, n), np.float32)
        whole[np.ix_(mine, mine)] = other.weights()[np.ix_(theirs, theirs)]
        return PriorWeights(whole, None, np.ones(n), np.zeros(n))

    @property
    def is_whole(self) -> bool:
        return not hasattr(self.other, "left_")

    @property
    def config(self) -> dict[str, Any]:
        """Its name and that of the other model, which is not serialised itself."""
        return {"prior": "model", "other": type(self.other).__name__}

    def _contents(self) -> dict[str, NDArray[Any]]:
        # What a rule made of diag(P) is another for any other P, and spares writing out n × n weights.
        names = [name for name in ("left_", "right_", "gain_", "shift_", "prior_scale_") if hasattr(self.other, name)]
        kept = {name: values for name in names if (values := getattr(self.other, name)) is not None}
        return (kept or {"weights": self.other.weights()}) | pack_text("items", self.other.items_)


def _rows(
    factor: NDArray[np.float32], mine: NDArray[np.int64], theirs: NDArray[np.int64], n: int
) -> NDArray[np.float32]:
    """The rows of a factor at other places, zero elsewhere."""
    rows = np.zeros((n, factor.shape[1]), np.float32)
    rows[mine] = factor[theirs]
    return rows
