"""R in parts that are read when they are needed, here or wherever they are sent, with the weights of their users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from deql.data.partitions import Partition, PartitionedInteractions

__all__ = ["StoredPart", "StoredRows"]


@dataclass(frozen=True)
class StoredPart:
    """Some users' rows in a file.

    Attributes
    ----------
    stored : Partition
    user_power : float
        User u weighs |u|^(−user_power).
    """

    stored: Partition
    user_power: float = 0.0

    @property
    def n_users(self) -> int:
        """Number of rows."""
        return self.stored.n_users

    @property
    def n_interactions(self) -> int:
        """Number of entries."""
        return self.stored.n_interactions

    def load(self) -> tuple[csr_array, NDArray[np.float64] | None]:
        """The rows, all items wide, and the weights of their users, or None for 1 each."""
        from deql.linalg.gram import size_weights  # not where there is torch alone, without numba

        matrix = self.stored.load()
        return matrix, size_weights(np.diff(matrix.indptr), self.user_power) if self.user_power else None


@dataclass(frozen=True, eq=False)
class StoredRows:
    """All users' rows in files.

    Attributes
    ----------
    data : PartitionedInteractions
        Of the items that somebody has; others that it may name as its last ones are no columns of R.
    user_power : float
        As in :class:`StoredPart`.
    """

    data: PartitionedInteractions
    user_power: float = 0.0

    @property
    def shape(self) -> tuple[int, int]:
        """Number of users and of items."""
        return self.data.n_users, self.data.parts[0].n_items

    @property
    def parts(self) -> list[StoredPart]:
        """The parts, none of which is read yet."""
        return [StoredPart(part, self.user_power) for part in self.data.parts]

    def joined(self) -> csr_array:
        """All of R in memory, in the order of the parts."""
        return self.data.joined_matrix()
