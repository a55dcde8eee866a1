"""What a network is to its trainer: vectors of all vertices from those that are trained, and the loss of some pairs."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from deql.models.neural.graph import BipartiteGraph, propagate

__all__ = ["Network", "rows_of"]


class Network(ABC):
    """The vectors E of all vertices are trained; those that rank are E, propagated over the graph.

    Parameters
    ----------
    graph : BipartiteGraph
    layers : int
        Steps of the propagation; with none, the vectors are those that are trained.

    Attributes
    ----------
    initial_deviation : float
        Standard deviation of the numbers that E begins with.
    """

    initial_deviation = 0.1

    def __init__(self, graph: BipartiteGraph, layers: int) -> None:
        self.graph, self.layers = graph, layers

    def begin_epoch(self, generator: torch.Generator) -> None:
        """Draw what is random, for a whole epoch; into the same memory each time, as steps may be replayed."""
        return

    @abstractmethod
    def loss(self, E: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
        """The mean loss of some edges of the graph, by their places; sizes must not depend on what is drawn."""

    def vectors(self, E: torch.Tensor) -> torch.Tensor:
        """The vectors that rank: the score of an item for a user is the product of theirs."""
        return propagate(E, self.graph, self.layers)

    def passed_on(self, E: torch.Tensor) -> torch.Tensor:
        """What items hand on to the users that have them, over all steps: Σ_k<L Â^k·E of items."""
        return self.graph.sum_of_powers(E, max(0, self.layers - 1))[self.graph.n_users :]


def rows_of(vectors: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Rows of a table, several × batch × rank: one look-up for all, and so one gradient of the table's size."""
    # Not an embedding, whose gradient takes twice as long on a processor.
    return vectors.index_select(0, rows.flatten()).view(*rows.shape, -1)
