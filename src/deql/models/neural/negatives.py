"""Items that users do not have, drawn on the device, with torch alone."""

from __future__ import annotations

import torch

from deql.models.neural.graph import BipartiteGraph

__all__ = ["NegativeSampler"]

_ROUNDS = 4
"""How often an item that the user has is drawn anew."""


class NegativeSampler:
    """Draws for each of many users an item at random that they do not have, all at once.

    After a few rounds an item is taken as it is: of a user with half of all items, every thirtieth or so.

    Parameters
    ----------
    graph : BipartiteGraph

    Examples
    --------
    >>> import numpy as np
    >>> graph = BipartiteGraph.from_arrays(np.array([0, 1]), np.array([0]), np.ones(1), 2, torch.device("cpu"))
    >>> NegativeSampler(graph).draw(torch.tensor([0, 0]), torch.Generator().manual_seed(0)).tolist()
    [1, 1]
    """

    def __init__(self, graph: BipartiteGraph) -> None:
        self._n = graph.n_items
        # Users come in order; items within a user do not have to.
        self._taken = torch.sort(graph.users.long() * self._n + graph.items).values

    def draw(self, users: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """An item for each user."""
        items = self._any(len(users), generator)
        again = torch.arange(len(users), device=users.device)
        for _ in range(_ROUNDS):
            pairs = users[again].long() * self._n + items[again]
            places = torch.searchsorted(self._taken, pairs).clamp_(max=len(self._taken) - 1)
            again = again[self._taken[places] == pairs]
            items[again] = self._any(len(again), generator)
        return items

    def _any(self, count: int, generator: torch.Generator) -> torch.Tensor:
        return torch.randint(self._n, (count,), generator=generator, device=generator.device, dtype=torch.int32)
