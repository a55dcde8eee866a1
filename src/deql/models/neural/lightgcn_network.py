"""LightGCN as its trainer sees it (He et al., 2020), with torch alone."""

from __future__ import annotations

import torch

from deql.models.neural.graph import BipartiteGraph
from deql.models.neural.losses import bpr, squared_lengths
from deql.models.neural.negatives import NegativeSampler
from deql.models.neural.network import Network, rows_of

__all__ = ["LightGCNNetwork"]


class LightGCNNetwork(Network):
    """BPR on propagated vectors, and a decay of the trained ones that it takes.

    Parameters
    ----------
    graph : BipartiteGraph
    layers : int
    weight_decay : float
    """

    def __init__(self, graph: BipartiteGraph, layers: int, weight_decay: float) -> None:
        super().__init__(graph, layers)
        self._weight_decay = weight_decay
        self._sampler = NegativeSampler(graph)
        self._others = torch.zeros_like(graph.items)

    def begin_epoch(self, generator: torch.Generator) -> None:
        """Draw for each pair an item that the user does not have."""
        self._others.copy_(self._sampler.draw(self.graph.users, generator))

    def loss(self, E: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
        """BPR against the other item of each pair."""
        graph, first = self.graph, self.graph.n_users
        weights = graph.weights[pairs]
        rows = torch.stack([graph.users[pairs], graph.items[pairs] + first, self._others[pairs] + first])
        users, positive, negative = rows_of(self.vectors(E), rows)
        ranked = bpr((users * positive).sum(1), (users * negative).sum(1), weights)
        return ranked + self._weight_decay * squared_lengths(rows_of(E, rows), weights)
