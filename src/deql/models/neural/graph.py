"""The graph of users and items on a device, and its one propagation, with NumPy and torch alone.

A vertex is a user or an item, users first. With R the interactions, d the sums of its rows and columns, and

    R̂ = D_users^(−1/2)·R·D_items^(−1/2),    Â = [0 R̂; R̂ᵀ 0],

propagation is E ↦ (E + ÂE + … + Â^L·E)/(L+1). Â is symmetric, so the gradient by E is the propagation of the gradient.
Neither n × n numbers nor the normalisation of a step are ever made: R̂ is held once by users and once by items.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deql.models.training.sparse_rows import sum_rows

__all__ = ["BipartiteGraph", "propagate"]


class BipartiteGraph:
    """Interactions as the edges between users and items, with Â's weights.

    Parameters
    ----------
    users, items : Tensor of int32
        The ends of each edge, sorted by users.
    weights : Tensor of float64
        Above 0.
    n_users, n_items : int

    Attributes
    ----------
    users, items, weights : Tensor
        As given; weights in float32.
    user_degrees, item_degrees : Tensor of float64
        Sums of the weights.

    Examples
    --------
    >>> graph = BipartiteGraph.from_arrays(np.array([0, 2, 3]), np.array([0, 1, 1]), np.ones(3), 2, torch.device("cpu"))
    >>> graph.to_users(torch.eye(2)).numpy().round(2)
    array([[0.71, 0.5 ],
           [0.  , 0.71]], dtype=float32)
    """

    def __init__(
        self, users: torch.Tensor, items: torch.Tensor, weights: torch.Tensor, n_users: int, n_items: int
    ) -> None:
        self.users, self.items, self.weights = users, items, weights.float()
        self.n_users, self.n_items = n_users, n_items
        self.user_degrees = weights.new_zeros(n_users).index_add_(0, users, weights)
        self.item_degrees = weights.new_zeros(n_items).index_add_(0, items, weights)
        scaled = weights * self.user_degrees.rsqrt()[users] * self.item_degrees.rsqrt()[items]
        self._by_users = items, _begins(users, n_users), scaled.float()
        by_items, order = torch.sort(items, stable=True)
        self._by_items = users[order], _begins(by_items, n_items), scaled[order].float()

    @classmethod
    def from_arrays(
        cls, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any], n_items: int, device: torch.device
    ) -> BipartiteGraph:
        """From the arrays of a matrix in compressed rows."""
        n_users = len(indptr) - 1
        users = np.repeat(np.arange(n_users, dtype=np.int32), np.diff(indptr))
        parts = users, np.array(indices, np.int32), np.array(values, np.float64)
        ends, others, weights = (torch.from_numpy(part).to(device) for part in parts)
        return cls(ends, others, weights, n_users, n_items)

    @property
    def n_vertices(self) -> int:
        """Users and items."""
        return self.n_users + self.n_items

    def keep(self, edges: torch.Tensor) -> BipartiteGraph:
        """The graph with these edges alone, a mask, and Â's weights as they are then."""
        parts = self.users[edges], self.items[edges], self.weights[edges].double()
        return BipartiteGraph(*parts, self.n_users, self.n_items)

    def to_users(self, vectors: torch.Tensor) -> torch.Tensor:
        """R̂·vectors."""
        items, begins, weights = self._by_users
        return sum_rows(vectors, items, begins, weights)

    def to_items(self, vectors: torch.Tensor) -> torch.Tensor:
        """R̂ᵀ·vectors."""
        users, begins, weights = self._by_items
        return sum_rows(vectors, users, begins, weights)

    def powers(self, vectors: torch.Tensor, most: int) -> torch.Tensor:
        """The sum of Â^k·vectors for k = 0 … most."""
        total = vectors.clone()
        users, items = vectors[: self.n_users], vectors[self.n_users :]
        for _ in range(most):
            users, items = self.to_users(items), self.to_items(users)
            total[: self.n_users] += users
            total[self.n_users :] += items
        return total


def _begins(rows: torch.Tensor, count: int) -> torch.Tensor:
    """Where each row begins among sorted numbers of rows."""
    return torch.searchsorted(rows, torch.arange(count, dtype=rows.dtype, device=rows.device))


class _Propagation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: torch.Tensor, graph: BipartiteGraph, layers: int) -> torch.Tensor:
        ctx.graph, ctx.layers = graph, layers
        return graph.powers(vectors, layers).div_(layers + 1)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return ctx.graph.powers(gradients[0], ctx.layers).div_(ctx.layers + 1), None, None


def propagate(vectors: torch.Tensor, graph: BipartiteGraph, layers: int) -> torch.Tensor:
    """(E + ÂE + … + Â^layers·E)/(layers + 1), and its gradient: the vectors themselves where there are no layers.

    Examples
    --------
    >>> graph = BipartiteGraph.from_arrays(np.array([0, 1]), np.array([0]), np.ones(1), 1, torch.device("cpu"))
    >>> propagate(torch.tensor([[1.0], [3.0]]), graph, layers=1).tolist()
    [[2.0], [2.0]]
    """
    if not layers:
        return vectors
    spread: torch.Tensor = _Propagation.apply(vectors, graph, layers)
    return spread
