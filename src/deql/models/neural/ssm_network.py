"""SSM as its trainer sees it (Wu et al., 2024), with torch alone."""

from __future__ import annotations

import torch

from deql.models.neural.graph import BipartiteGraph
from deql.models.neural.losses import sampled_softmax, squared_lengths
from deql.models.neural.network import Network, rows_of

__all__ = ["SSMNetwork"]


class SSMNetwork(Network):
    """A sampled softmax of cosines, on propagated vectors or on the trained ones themselves.

    Parameters
    ----------
    graph : BipartiteGraph
    layers : int
        None for matrix factorisation.
    temperature : float
    negatives : int
    weight_decay : float
    """

    # Only directions are trained, and those of small vectors move further at the same rate.
    initial_deviation = 0.01

    def __init__(
        self, graph: BipartiteGraph, layers: int, temperature: float, negatives: int, weight_decay: float
    ) -> None:
        super().__init__(graph, layers)
        self._temperature, self._negatives, self._weight_decay = temperature, negatives, weight_decay

    def loss(self, E: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
        """The softmax against items of the same pairs."""
        graph = self.graph
        weights = graph.weights[pairs]
        rows = torch.stack([graph.users[pairs], graph.items[pairs] + graph.n_users])
        users, items = rows_of(self.vectors(E), rows)
        ranked = sampled_softmax(users, items, weights, self._temperature, self._negatives)
        return ranked + self._weight_decay * squared_lengths(rows_of(E, rows), weights)
