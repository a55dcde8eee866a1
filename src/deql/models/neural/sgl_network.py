"""SGL with edge dropout as its trainer sees it (Wu et al., 2021), with torch alone."""

from __future__ import annotations

import torch

from deql.models.neural.graph import BipartiteGraph, propagate
from deql.models.neural.lightgcn_network import LightGCNNetwork
from deql.models.neural.losses import info_nce
from deql.models.neural.network import rows_of

__all__ = ["SGLNetwork"]


class SGLNetwork(LightGCNNetwork):
    """LightGCN's loss, and beside it that two views of the graph, each without some edges, agree on a vertex.

    Parameters
    ----------
    graph : BipartiteGraph
    layers : int
    weight_decay : float
    edge_dropout : float
        Share of the edges that a view is without; views are drawn once an epoch.
    contrast_weight : float
        What multiplies the contrast of the views in the loss.
    temperature : float
        Of that contrast.
    """

    # The contrast's gradient goes with 1/‖e‖, BPR's with ‖e‖: small vectors are spread out before they are ranked by.
    initial_deviation = 0.01

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
        self._views = [graph.normalised(graph.weights.double()) for _ in range(2)]

    def begin_epoch(self, generator: torch.Generator) -> None:
        """LightGCN's, and two views, each without some edges; what is left of the edges is normalised anew."""
        super().begin_epoch(generator)
        weights = self.graph.weights.double()
        for view in self._views:
            drawn = torch.rand(len(weights), generator=generator, device=weights.device)
            view.copy_(self.graph.normalised(weights * (drawn >= self._edge_dropout)))

    def loss(self, E: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
        """LightGCN's, and the contrast of the users and items of these pairs, each once."""
        ranked = super().loss(E, pairs)
        one, other = (propagate(E, self.graph, self.layers, view) for view in self._views)
        for vertices in (self.graph.users[pairs], self.graph.items[pairs] + self.graph.n_users):
            shares = _shares_of_repeats(vertices, self.graph.n_vertices)
            agreed = info_nce(rows_of(one, vertices), rows_of(other, vertices), shares, self._temperature)
            ranked = ranked + self._contrast_weight * agreed
        return ranked


def _shares_of_repeats(vertices: torch.Tensor, count: int) -> torch.Tensor:
    """1/m for each of a vertex's m places, so that all its places count once: their number need not be known.

    Examples
    --------
    >>> _shares_of_repeats(torch.tensor([2, 0, 2]), 3).tolist()
    [0.5, 1.0, 0.5]
    """
    ones = torch.ones(len(vertices), device=vertices.device)
    return ones.new_zeros(count).index_add_(0, vertices, ones)[vertices].reciprocal()
