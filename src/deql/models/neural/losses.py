"""The networks' losses, each a function of scores or vectors, with torch alone."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import normalize, softplus

__all__ = ["bpr", "info_nce", "sampled_softmax", "squared_lengths"]


class _SumsOfExponentials(torch.autograd.Function):
    """Σ_j w_j·exp((aᵀb_j − 1)/temperature) for each row a; products of unit rows are at most 1, so nothing overflows.

    The logarithm of such a sum by PyTorch takes half a dozen matrices of batch × negatives, which are most of what a
    step costs. This takes one, and its gradient takes that again.
    """

    @staticmethod
    def forward(
        ctx: Any, one: torch.Tensor, other: torch.Tensor, weights: torch.Tensor, temperature: float
    ) -> torch.Tensor:
        least = one.new_full((1, 1), -1 / temperature)
        powers = torch.addmm(least, one, other.T, alpha=1 / temperature).exp_()
        ctx.save_for_backward(one, other, weights, powers)
        ctx.temperature = temperature
        return powers @ weights

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None, None]:
        one, other, weights, powers = ctx.saved_tensors
        slopes, weights = (gradients[0] / ctx.temperature)[:, None], weights[:, None]
        return slopes * (powers @ (weights * other)), weights * (powers.T @ (slopes * one)), None, None


def bpr(positive: torch.Tensor, negative: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """−log σ(s⁺ − s⁻), the mean over pairs by their weights: Bayesian personalised ranking (Rendle et al., 2009).

    Parameters
    ----------
    positive, negative : Tensor
        Scores of an item that a user has, and of one that they have not.
    weights : Tensor
        Of the pairs.

    Examples
    --------
    >>> round(bpr(torch.zeros(2), torch.zeros(2), torch.ones(2)).item(), 4)  # log 2
    0.6931
    """
    return (weights * softplus(negative - positive)).sum() / weights.sum()


def sampled_softmax(
    users: torch.Tensor, items: torch.Tensor, weights: torch.Tensor, temperature: float, negatives: int
) -> torch.Tensor:
    """−log of each pair's share in a softmax over its own item and others of the batch, by cosines over a temperature.

    The items of the batch's first pairs are everybody's negatives, so popular items are negatives often: they are
    drawn as interactions are (Wu et al., 2024).

    Parameters
    ----------
    users, items : Tensor, batch × rank
        Vectors of pairs.
    weights : Tensor
        Of the pairs.
    temperature : float
        Of the softmax: the lower, the more the hardest negatives count.
    negatives : int
        The items of so many pairs, the batch's first, stand against each; one's own is among its own once.

    Examples
    --------
    >>> vectors = torch.tensor([[1.0, 0.0], [0.0, 5.0]])
    >>> round(sampled_softmax(vectors, vectors, torch.ones(2), 1.0, 2).item(), 4)  # log(1 + 1/e)
    0.3133
    """
    users, items = normalize(users), normalize(items)
    own = ((users * items).sum(1) - 1) / temperature
    negatives = min(negatives, len(items))
    others = items[:negatives]
    sums = _SumsOfExponentials.apply(users, others, others.new_ones(len(others)), temperature)
    # The first pairs' own items are among those.
    sums = sums + own.exp() * (torch.arange(len(users), device=users.device) >= negatives)
    loss: torch.Tensor = (weights * (sums.log() - own)).sum() / weights.sum()
    return loss


def info_nce(one: torch.Tensor, other: torch.Tensor, weights: torch.Tensor, temperature: float) -> torch.Tensor:
    """−log of how much a vertex's two views agree, against one view with those of all others; the weighted mean.

    Parameters
    ----------
    one, other : Tensor, vertices × rank
        Vectors of the same vertices in two views.
    weights : Tensor
        Of the vertices, where they are compared and where they are what others are compared with.
    temperature : float

    Examples
    --------
    >>> round(info_nce(torch.eye(2), torch.eye(2), torch.ones(2), 1.0).item(), 4)  # log(1 + 1/e)
    0.3133
    """
    one, other = normalize(one), normalize(other)
    against = _SumsOfExponentials.apply(one, other, weights, temperature).log()
    agreed = ((one * other).sum(1) - 1) / temperature
    loss: torch.Tensor = (weights * (against - agreed)).sum() / weights.sum()
    return loss


def squared_lengths(vectors: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """½·Σ ‖e‖² of the vectors that a pair takes, the mean over pairs by their weights: what weight decay multiplies.

    Parameters
    ----------
    vectors : Tensor, several × batch × rank
        Those of the pairs' users, of their items and of their negatives.
    weights : Tensor
        Of the pairs.

    Examples
    --------
    >>> squared_lengths(torch.tensor([[[3.0, 4.0]], [[1.0, 0.0]]]), torch.ones(1)).item()
    13.0
    """
    return (weights * vectors.square().sum((0, 2))).sum() / (2 * weights.sum())
