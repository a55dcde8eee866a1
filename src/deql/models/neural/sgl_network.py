"""SGL with edge dropout as its trainer sees it (Wu et al., 2021), with torch alone."""

from __future__ import annotations

import torch

from deql.models.neural.graph import BipartiteGraph, propagate
from deql.models.neural.lightgcn_network import LightGCNNetwork
from deql.models.neural.losses import info_nce
from deql.models.neural.network import Batch

__all__ = ["SGLNetwork"]


class SGLNetwork(LightGCNNetwork):
    """LightGCN's loss, and beside it that two views of the graph, each without some edges, agree on a vertex.

    Parameters
    ----------
    graph : BipartiteGraph
    layers : int
    weight_decay : float
    edge_dropout : float
        Share of the edges that a view has not; views are drawn once an epoch.
    contrast_weight : float
        What multiplies the contrast of the views in the loss.
    temperature : float
        Of that contrast.
    """

    def __init__(
        self,
        graph: BipartiteGraph,
        layers: int,
        weight_decay: float,
        edge_dropout: float,
        contrast_weight: float,
        temperature: float,
    ) -> None:
        super().__init__(graph, layers, weight_decay)
        self._edge_dropout, self._contrast_weight, self._temperature = edge_dropout, contrast_weight, temperature
        self._views: list[BipartiteGraph] = []

    def begin_epoch(self, generator: torch.Generator) -> None:
        """Two views, each without some edges; what is left of the edges is normalised anew."""
        edges, device = len(self.graph.users), self.graph.users.device
        self._views.clear()
        for _ in range(2):
            kept = torch.rand(edges, generator=generator, device=device) >= self._edge_dropout
            self._views.append(self.graph.keep(kept))

    def loss(self, E: torch.Tensor, batch: Batch) -> torch.Tensor:
        """LightGCN's, and the contrast of the batch's users and items, each once."""
        ranked = super().loss(E, batch)
        one, other = (propagate(E, view, self.layers) for view in self._views)
        for vertices in (batch.users.unique(), batch.items.unique() + self.graph.n_users):
            agreed = info_nce(one[vertices], other[vertices], self._temperature)
            ranked = ranked + self._contrast_weight * agreed
        return ranked
