"""What a prior is: whatever makes weights W₀ for the items of some interactions."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deql._system.describe import short_repr
from deql._system.progress import ProgressCallback
from deql.data.partitions import Data, TrainingData
from deql.io.container import digest

if TYPE_CHECKING:
    from deql.priors.feature_space import FeatureSpace

__all__ = ["Prior", "PriorWeights"]


@dataclass(frozen=True, eq=False)
class PriorWeights:
    """W₀ = left·rightᵀ·diag(scale) + diag(diagonal), n × n.

    Attributes
    ----------
    left : ndarray of float32, n × rank
    right : ndarray of float32, n × rank, or None
        None stands for the identity: ``left`` is n × n then.
    scale, diagonal : ndarray of float64
        n numbers each.
    features : FeatureSpace or None
        What it was made of, where that is features of the items: new items are placed by it.
    cold : ndarray of bool or None
        Items that nobody has and that W₀ speaks for. Their columns of W are m/l2·W₀, not m·P·W₀: the ridge alone
        decides them, since that nobody has had the chance to choose an item does not say that nobody would.
    """

    left: NDArray[np.float32]
    right: NDArray[np.float32] | None
    scale: NDArray[np.float64]
    diagonal: NDArray[np.float64]
    features: FeatureSpace | None = None
    cold: NDArray[np.bool_] | None = None

    def to_dense(self) -> NDArray[np.float64]:
        """W₀ as a dense n × n array: for small n."""
        left = self.left.astype(np.float64)
        product = left if self.right is None else left @ self.right.astype(np.float64).T
        dense: NDArray[np.float64] = product * self.scale
        dense[np.diag_indices(len(dense))] += self.diagonal
        return dense


class Prior(ABC):
    """Base of all priors: what a model's ``prior=`` takes.

    A subclass is a frozen dataclass whose fields are what can be chosen, checked in ``__post_init__``. Models with
    equal priors share a fit where they are compared, so one that holds arrays or tables says ``eq=False``.
    """

    __repr__ = short_repr

    def with_items(self, data: Data) -> Data:
        """The interactions with the items that only the prior knows as further columns, which nobody has."""
        return data

    @abstractmethod
    def weights(
        self, data: TrainingData, *, device: str | None = None, report: ProgressCallback | None = None
    ) -> PriorWeights:
        """W₀ for the columns of the interactions.

        Parameters
        ----------
        data : Interactions or PartitionedInteractions
            Of the latter there is no ``matrix``; whoever can do with rows part by part goes through its ``blocks()``.
        device : str, optional
            Such as ``"cuda"``: where a fit computes, and long work may be done; in memory if not given.
        report : callable, optional
            Called as ``report(done, total)`` during long work.
        """

    @property
    def is_whole(self) -> bool:
        """Whether W₀ is known, before it is made, to be n × n numbers and not two thin factors."""
        return False

    @property
    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Serialised for model files and journals: its name and what JSON can hold of its parameters."""

    def fingerprint(self) -> str:
        """A checksum of what it was made from, by which the journal of a search tells it from another of its name."""
        return digest({"config": json.dumps(self.config)}, self._contents())

    def _contents(self) -> dict[str, NDArray[Any]]:
        """What ``config`` does not say of it, as arrays."""
        return {}
