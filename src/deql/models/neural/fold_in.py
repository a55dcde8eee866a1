"""Vectors of users from their histories alone: what makes an autoencoder of a network, with torch alone.

A network ranks a user by z_u·V. Propagation makes z_u from what the user's items pass on, F, and from the user's own
trained vector. So for anybody's history x, new or not, there is an estimate that is linear in it,

    z(x) = x·left,    left = D_items^(−1/2)·F·M,

with the rank × rank matrix M for which Σ_u ‖z_u − R̂_u·F·M‖² is smallest over the users of the training data. What it
leaves of a user of these, own_u, is theirs to keep: x_u·left + own_u is √d_u·z_u, in the very order of the network.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from deql.models.neural.graph import BipartiteGraph

__all__ = ["FoldIn", "fold_in"]

_AT_ONCE = 2**16
"""Users whose vectors are held in float64 at once."""


class FoldIn(NamedTuple):
    """What ranks: (x·left + own)·rightᵀ, with own for users of the training data."""

    left: torch.Tensor
    right: torch.Tensor
    own: torch.Tensor


def fold_in(graph: BipartiteGraph, vectors: torch.Tensor, passed_on: torch.Tensor) -> FoldIn:
    """The factors of a network.

    Parameters
    ----------
    graph : BipartiteGraph
    vectors : Tensor, vertices × rank
        Those that rank.
    passed_on : Tensor, items × rank
        F.

    Examples
    --------
    >>> import numpy as np
    >>> graph = BipartiteGraph.from_arrays(np.array([0, 1, 2]), np.array([0, 1]), np.ones(2), 2, torch.device("cpu"))
    >>> E = torch.tensor([[2.0, 0.0], [0.0, 2.0], [1.0, 0.0], [0.0, 1.0]])
    >>> found = fold_in(graph, E, E[2:])
    >>> found.left.round(decimals=2).tolist(), found.own.abs().max().item() < 1e-5
    ([[2.0, 0.0], [0.0, 2.0]], True)
    """
    users, reached = vectors[: graph.n_users], graph.to_users(passed_on)
    rank = vectors.shape[1]
    squares, products = vectors.new_zeros(2, rank, rank, dtype=torch.float64)
    for some, their in zip(reached.split(_AT_ONCE), users.split(_AT_ONCE), strict=True):
        squares += some.double().T @ some.double()
        products += some.double().T @ their.double()
    # The ridge is rounding's: columns of F may depend on each other, or be zero.
    squares.diagonal().add_(1e-6 * squares.diagonal().mean() + torch.finfo(torch.float32).tiny)
    M = torch.linalg.solve(squares, products)
    spread = passed_on.double() @ M
    scale = torch.where(graph.item_degrees > 0, graph.item_degrees.rsqrt(), 0.0)
    own = (users - graph.to_users(spread.float())) * graph.user_degrees.sqrt().float()[:, None]
    return FoldIn((spread * scale[:, None]).float(), vectors[graph.n_users :], own)
