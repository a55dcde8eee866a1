"""The graph of users and items on a device, and its one propagation, with NumPy and torch alone.

A vertex is a user or an item, users first. With R the interactions, d the sums of its rows and columns, and

    R̂ = D_users^(−1/2)·R·D_items^(−1/2),    Â = [0 R̂; R̂ᵀ 0],

propagation is E ↦ (E + ÂE + … + Â^L·E)/(L+1). Â is symmetric, so the gradient by E is the propagation of the gradient.
Neither n × n numbers nor the normalisation of a step are ever made: Â is held by its rows, R̂ once by users and once by
items.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deql.models.training.sparse_rows import sum_rows

__all__ = ["BipartiteGraph", "propagate"]

_COMPRESSED_ON = {"cuda"}
"""Kinds of devices that multiply by compressed rows. There cuSPARSE takes a third of the time of embedding_bag, which
sums each row in one group of threads, however long it is; on processors such products take five times as long.
"""


class BipartiteGraph:
    """Interactions as the edges between users and items, with Â's numbers.

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
    >>> graph.spread(torch.eye(4)).numpy().round(2)
    array([[0.  , 0.  , 0.71, 0.5 ],
           [0.  , 0.  , 0.  , 0.71],
           [0.71, 0.  , 0.  , 0.  ],
           [0.5 , 0.71, 0.  , 0.  ]], dtype=float32)
    """

    def __init__(
        self, users: torch.Tensor, items: torch.Tensor, weights: torch.Tensor, n_users: int, n_items: int
    ) -> None:
        self.users, self.items = users, items
        # A batch whose weights all round to 0 would have no mean.
        self.weights = weights.float().clamp_(min=torch.finfo(torch.float32).tiny)
        self.n_users, self.n_items = n_users, n_items
        by_items, self._by_items = torch.sort(items, stable=True)
        kind = torch.int32 if 2 * len(users) <= torch.iinfo(torch.int32).max else torch.int64  # which holds all places
        self._columns = torch.cat([items + n_users, users[self._by_items]]).to(kind)
        self._begins = _begins(torch.cat([users, by_items + n_users]), self.n_vertices + 1).to(kind)
        self.user_degrees, self.item_degrees = self._degrees(weights)
        self._values = self.normalised(weights)
        if users.device.type in _COMPRESSED_ON:
            with warnings.catch_warnings():  # that compressed rows are new in PyTorch, which it says once
                warnings.simplefilter("ignore", UserWarning)
                self._compressed(self._values)

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

    def normalised(self, weights: torch.Tensor) -> torch.Tensor:
        """Â's numbers if the edges had these weights, for ``spread``; a weight of 0 leaves an edge out."""
        by_users, by_items = (torch.where(sums > 0, sums.rsqrt(), 0.0) for sums in self._degrees(weights))
        scaled = (weights * by_users[self.users] * by_items[self.items]).float()
        return torch.cat([scaled, scaled[self._by_items]])

    def spread(self, vectors: torch.Tensor, values: torch.Tensor | None = None) -> torch.Tensor:
        """Â·vectors, with Â's own numbers or such as ``normalised`` gives."""
        values = self._values if values is None else values
        if vectors.device.type in _COMPRESSED_ON:
            product: torch.Tensor = self._compressed(values.to(vectors.dtype)) @ vectors
            return product
        return sum_rows(vectors, self._columns, self._begins[:-1], values)

    def to_users(self, vectors: torch.Tensor) -> torch.Tensor:
        """R̂·vectors, of items."""
        return self.spread(torch.cat([vectors.new_zeros(self.n_users, vectors.shape[1]), vectors]))[: self.n_users]

    def sum_of_powers(self, vectors: torch.Tensor, most: int, values: torch.Tensor | None = None) -> torch.Tensor:
        """The sum of Â^k·vectors for k = 0 … most, by Horner's rule."""
        total = vectors
        for _ in range(most):
            total = self.spread(total, values).add_(vectors)
        return total

    def _compressed(self, values: torch.Tensor) -> torch.Tensor:
        shape = self.n_vertices, self.n_vertices
        return torch.sparse_csr_tensor(self._begins, self._columns, values, shape, check_invariants=False)

    def _degrees(self, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        by_users, by_items = weights.new_zeros(self.n_users), weights.new_zeros(self.n_items)
        return by_users.index_add_(0, self.users, weights), by_items.index_add_(0, self.items, weights)


def _begins(rows: torch.Tensor, count: int) -> torch.Tensor:
    """Where each row begins among sorted numbers of rows; that of the row after the last is where they end."""
    return torch.searchsorted(rows, torch.arange(count, dtype=rows.dtype, device=rows.device))


class _Propagation(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, vectors: torch.Tensor, graph: BipartiteGraph, layers: int, values: torch.Tensor | None
    ) -> torch.Tensor:
        ctx.graph, ctx.layers, ctx.values = graph, layers, values
        return graph.sum_of_powers(vectors, layers, values).div_(layers + 1)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return ctx.graph.sum_of_powers(gradients[0], ctx.layers, ctx.values).div_(ctx.layers + 1), None, None, None


def propagate(
    vectors: torch.Tensor, graph: BipartiteGraph, layers: int, values: torch.Tensor | None = None
) -> torch.Tensor:
    """(E + ÂE + … + Â^layers·E)/(layers + 1), and its gradient: the vectors themselves where there are no layers.

    Parameters
    ----------
    vectors : Tensor, vertices × rank
    graph : BipartiteGraph
    layers : int
    values : Tensor, optional
        Â's numbers if not the graph's own; see :meth:`BipartiteGraph.normalised`.

    Examples
    --------
    >>> graph = BipartiteGraph.from_arrays(np.array([0, 1]), np.array([0]), np.ones(1), 1, torch.device("cpu"))
    >>> propagate(torch.tensor([[1.0], [3.0]]), graph, layers=1).tolist()
    [[2.0], [2.0]]
    """
    if not layers:
        return vectors
    spread: torch.Tensor = _Propagation.apply(vectors, graph, layers, values)
    return spread
