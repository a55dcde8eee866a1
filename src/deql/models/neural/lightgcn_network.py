"""LightGCN as its trainer sees it (He et al., 2020), with torch alone."""

from __future__ import annotations

import torch

from deql.models.neural.graph import BipartiteGraph
from deql.models.neural.losses import bpr, squared_lengths
from deql.models.neural.negatives import NegativeSampler
from deql.models.neural.network import Batch, Network, rows_of

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
        self._negatives = NegativeSampler(graph)

    def loss(self, E: torch.Tensor, batch: Batch) -> torch.Tensor:
        """BPR against one item for each pair that the user does not have."""
        first = self.graph.n_users
        others = self._negatives.draw(batch.users, batch.generator)
        rows = torch.stack([batch.users, batch.items + first, others + first])
        users, positive, negative = rows_of(self.vectors(E), rows)
        ranked = bpr((users * positive).sum(1), (users * negative).sum(1), batch.weights)
        return ranked + self._weight_decay * squared_lengths(rows_of(E, rows), batch.weights)
