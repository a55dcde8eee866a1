"""The training of ELSA: mini-batches of users on one device, with NumPy and torch alone.

With unit rows of A and y = A·Aᵀx − x, the loss of a user is ‖x/‖x‖ − y/‖y‖‖² = 2 − 2·xᵀy/(‖x‖·‖y‖). It takes no
vector of n numbers: with z = Aᵀx,

    xᵀy = ‖z‖² − ‖x‖²    and    ‖y‖² = ‖Az‖² − 2·‖z‖² + ‖x‖².

So an epoch costs O(interactions·rank + batches·min(batch, rank)·n·rank), and nothing of users × items is held.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from deql._system.progress import ProgressCallback
from deql.errors import DataError
from deql.models.training import Epoch
from deql.models.training.sparse_rows import SparseRows

__all__ = [
    "Trained",
    "TrainingConfig",
    "loss_and_gradient",
    "scale_rows",
    "train",
]


@dataclass(frozen=True)
class TrainingConfig:
    """How A is trained; see :class:`deql.ELSA`."""

    rank: int
    epochs: int
    batch_size: int
    learning_rate: float
    patience: int | None
    seed: int


class Trained(NamedTuple):
    """The unit rows A, the number of epochs they took, and all epochs that were run."""

    factors: NDArray[np.float32]
    epochs: int
    history: list[Epoch]


def scale_rows(indptr: NDArray[Any], values: NDArray[Any]) -> NDArray[np.float32]:
    """Values of a matrix in compressed rows, each row divided by a power of two that brings it below 1.

    Neither the loss nor the order of a user's scores depends on that, not even by rounding; and squares are neither
    too large nor too small for float32.

    Examples
    --------
    >>> scale_rows(np.array([0, 2, 2, 3]), np.array([3.0, 1.0, 1e-200])).round(3)
    array([0.75 , 0.25 , 0.765], dtype=float32)
    """
    lengths = np.diff(indptr)
    filled = lengths > 0
    exponents = np.zeros(len(lengths), np.int32)
    if filled.any():
        exponents[filled] = np.frexp(np.maximum.reduceat(np.abs(values), indptr[:-1][filled]))[1]
    return np.ldexp(values.astype(np.float64), -np.repeat(exponents, lengths)).astype(np.float32)


def loss_and_gradient(A: torch.Tensor, histories: SparseRows) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean of ‖x/‖x‖ − y/‖y‖‖², y = A·Aᵀx − x, over some users, and its gradient by A.

    Parameters
    ----------
    A : Tensor, n × rank
    histories : SparseRows
        The users' rows x, none of them zero.

    Examples
    --------
    >>> import torch
    >>> A = torch.eye(2)[[0, 0, 1]]
    >>> parts = np.array([0, 2, 4]), np.array([0, 1, 1, 2]), np.ones(4)
    >>> loss, gradient = loss_and_gradient(A, SparseRows.from_arrays(*parts, 3, torch.device("cpu")))
    >>> loss.item()  # the first user has items alike, x = y; the second's differ, so xᵀy = 0
    1.0
    """
    users = len(histories)
    Z = histories.times(A)
    # Both chains of three products are taken in the cheaper order: by way of batch × n or of rank × rank.
    ZG = torch.linalg.multi_dot([Z, A.T, A])
    own, reach = histories.squares().to(A.dtype), Z.square().sum(1)
    agreement = reach - own
    size = torch.maximum((Z * ZG).sum(1) - 2 * reach + own, torch.finfo(A.dtype).eps * own)
    scale = (own * size).rsqrt()
    cosine = agreement * scale
    by_agreement, by_size = scale.mul(-2 / users)[:, None], (cosine / size).div(users)[:, None]
    gradient = histories.transposed_times(2 * ((by_agreement - 2 * by_size) * Z + by_size * ZG))
    gradient += torch.linalg.multi_dot([A, Z.T, (2 * by_size) * Z])
    return (2 - 2 * cosine).mean(), gradient


def train(
    histories: SparseRows, config: TrainingConfig, validate: Callable[[torch.Tensor], float] | None = None,
    report: ProgressCallback | None = None,
) -> Trained:  # fmt: skip
    """Train A from random rows by Nesterov's Adam.

    Parameters
    ----------
    histories : SparseRows
        Users without items are left out.
    config : TrainingConfig
    validate : callable, optional
        Says how good A is after each epoch; the best A is kept, and ``config.patience`` epochs without a better one end
        the training (early stopping). Without it the last A is kept.
    report : callable, optional
        Called as ``report(done, total)``.

    Raises
    ------
    DataError
        If no user has an item, or the loss is no longer a number.

    Examples
    --------
    >>> import torch
    >>> parts = np.array([0, 2, 4]), np.array([0, 1, 2, 3]), np.ones(4)
    >>> histories = SparseRows.from_arrays(*parts, 4, torch.device("cpu"))
    >>> A = train(histories, TrainingConfig(2, 60, 2, 0.1, None, 0)).factors
    >>> abs(A @ A.T).round(1).tolist()[0]
    [1.0, 1.0, 0.0, 0.0]
    """
    with torch.no_grad():
        return _train(histories, config, validate, report)


def _train(
    histories: SparseRows,
    config: TrainingConfig,
    validate: Callable[[torch.Tensor], float] | None,
    report: ProgressCallback | None,
) -> Trained:
    device, n = histories.columns.device, histories.n
    generator = torch.Generator().manual_seed(config.seed % 2**63)
    users = histories.squares().nonzero()[:, 0].cpu()
    if not len(users):
        raise DataError("no user has an item, so there is nothing to learn from")
    steps = -(-len(users) // config.batch_size)
    V = torch.empty(n, config.rank)
    V = torch.nn.init.xavier_uniform_(V, generator=generator).to(device)
    # As for ε = 1e-8 and the mean over all entries, the original's loss, which is n times smaller than that over users.
    # With batches of 1,024 and more it is better than 1e-8 here.
    optimizer = torch.optim.NAdam([V], config.learning_rate, eps=1e-8 * n, foreach=False)
    A = torch.empty_like(V)
    lengths = _unit_rows(V, A)
    best, kept, found = -np.inf, 0, A
    history: list[Epoch] = []
    for epoch in range(config.epochs):
        begin = perf_counter()
        shuffled = histories.take(users[torch.randperm(len(users), generator=generator)])
        losses = torch.zeros((), dtype=torch.float64, device=device)
        for step in range(steps):
            first = step * config.batch_size
            last = min(first + config.batch_size, len(users))
            loss, slope = loss_and_gradient(A, shuffled.part(first, last))
            losses += loss * (last - first)
            # By V, whose rows divided by their lengths are A's: what is along a row changes nothing.
            slope -= A * (A * slope).sum(1, keepdim=True)
            V.grad = slope.div_(lengths)
            optimizer.step()
            lengths = _unit_rows(V, A)
            if report is not None:
                report(epoch * steps + step + 1, config.epochs * steps)
        mean, seconds = float(losses) / len(users), perf_counter() - begin
        if not (np.isfinite(mean) and bool(lengths.isfinite().all())):
            raise DataError(
                f"the loss is no longer a number in epoch {epoch + 1}: "
                f"lower learning_rate from {config.learning_rate:g}"
            )
        del shuffled  # before the next order of the users is made
        history.append(Epoch(mean, None if validate is None else validate(A), seconds))
        worth = float(epoch) if validate is None else history[-1].ndcg
        if worth is not None and worth > best:
            best, kept = worth, epoch + 1
            found = A if validate is None else A.clone()
        elif config.patience is not None and epoch + 1 - kept >= config.patience:
            break  # early stopping
    return Trained(found.cpu().numpy(), kept, history)


def _unit_rows(V: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Write V's rows, divided by their lengths, and give those."""
    lengths: torch.Tensor = torch.linalg.vector_norm(V, dim=1, keepdim=True).clamp_min_(torch.finfo(V.dtype).tiny)
    torch.div(V, lengths, out=out)
    return lengths
