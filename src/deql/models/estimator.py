"""Models as scikit-learn's estimators: hyper-parameters by name, and a score to search by."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql.data import Interactions
from deql.data.interactions import InteractionsLike
from deql.errors import ParameterError
from deql.metrics import ndcg
from deql.split.new_users import hold_out_items

__all__ = ["EXECUTION_PARAMETERS", "NOT_SERIALISED", "Estimator"]

EXECUTION_PARAMETERS = frozenset({"progress", "device"})
"""Parameters that say how a model is computed here, and nothing of the model."""

NOT_SERIALISED = EXECUTION_PARAMETERS | {"W"}
"""Those, and what only Python can hand over: neither is part of a model's description."""

_K = 20


class Estimator(ABC):
    """What scikit-learn asks of an estimator, without importing it: ``clone``, pipelines and searches work.

    A subclass is a dataclass whose fields are its hyper-parameters.
    """

    items_: NDArray[Any]
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    @abstractmethod
    def _with_ids(self, data: InteractionsLike) -> Interactions:
        """Interactions; the columns of a plain matrix are the model's."""

    @abstractmethod
    def _encode(self, data: Interactions, where: str) -> csr_array:
        """Interactions in the model's columns; ``where`` is what a warning of unknown items calls them."""

    @abstractmethod
    def _best(
        self, matrix: csr_array, k: int, exclude_seen: bool, allowed: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.bool_]]:
        """Best columns among those allowed, their scores, and which rows are the popularity order."""

    @abstractmethod
    def _check_fitted(self) -> None:
        """Raise NotFittedError before ``fit``."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Hyper-parameters by name, as scikit-learn expects."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Change hyper-parameters; takes effect at the next ``fit``."""
        for name, value in params.items():
            if name not in self.get_params():
                raise ParameterError(f"{type(self).__name__} has no parameter {name!r}", parameter=name)
            setattr(self, name, value)
        return self

    def _to_config(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Serialise the hyper-parameters that describe the model, as plain values; None stands for a default."""
        return {name: value for name, value in params.items() if name not in NOT_SERIALISED and value is not None}

    @classmethod
    def _from_config(cls, config: dict[str, Any]) -> dict[str, Any]:
        """Hyper-parameters from what :meth:`_to_config` serialised, in this version or an earlier one."""
        return config

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn, from 1.6 on, wants to know before it uses an estimator: rows are users, sparse."""
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(None, TargetTags(required=False), input_tags=InputTags(sparse=True))

    def score(self, X: InteractionsLike, y: None = None) -> float:
        """Mean NDCG@20 on users whom the model has not met, which scikit-learn's searches maximise.

        A fifth of each user's items is held out, the same ones in every call, and the model is to find them from the
        others. Users with fewer than two items are left out. For other metrics and shares see :func:`deql.evaluate`;
        for the scores of user–item pairs :meth:`~deql.Recommender.score_pairs`: this name is scikit-learn's.

        Parameters
        ----------
        X : Interactions, sparse matrix or frame
            The users' items.
        y : ignored
            Present for scikit-learn's conventions.

        Returns
        -------
        float
            Higher is better.

        Examples
        --------
        >>> import deql
        >>> data = deql.datasets.debian()[:600].without_empty()
        >>> known, others = data[:500], data[500:]
        >>> [round(model.fit(known).score(others), 2) for model in (deql.EASE(l2=10.0), deql.Popularity())]
        [0.52, 0.31]
        """
        self._check_fitted()
        part = hold_out_items(self._with_ids(X))
        seen = self._encode(part.seen, "what is seen")
        truth = self._encode(part.held_out, "what is held out, and counted as missed")
        columns = self._best(seen, _K, True, np.ones(len(self.items_), bool))[0]
        rows, n = np.arange(len(columns)), len(self.items_)
        held_out = np.repeat(rows, np.diff(truth.indptr)) * n + truth.indices
        hits = np.isin(rows[:, None] * n + columns, held_out) & (columns >= 0)
        return float(ndcg(hits, np.diff(part.held_out.matrix.indptr).astype(np.int64), _K).mean())
