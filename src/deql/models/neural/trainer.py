"""The training of all networks: Adam over mini-batches of interactions, on one device, with NumPy and torch alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from deql._system.progress import ProgressCallback
from deql.errors import CheckpointError, DataError
from deql.models.neural.checkpoint import Checkpoint, TrainingState
from deql.models.neural.fold_in import FoldIn, fold_in
from deql.models.neural.network import Network
from deql.models.neural.steps import Steps, make_optimizer
from deql.models.training import Epoch

__all__ = ["Trained", "TrainingConfig", "train"]

_SECONDS_BETWEEN_CHECKPOINTS = 30.0
_SHARE_OF_CHECKPOINTS = 0.05
"""How much of the time writing them may take, at most: where they are large, they come less often."""

_ARRAYS = ("vectors", "mean_gradients", "mean_squares")
"""In a checkpoint: E and Adam's two moments."""


@dataclass(frozen=True)
class TrainingConfig:
    """How a network is trained; see :class:`deql.neural.LightGCN`.

    The learning rate falls over ``epochs``, whether or not the training ends before, after ``last_epoch``.
    """

    rank: int
    epochs: int
    last_epoch: int
    batch_size: int
    learning_rate: float
    patience: int | None
    validate_every: int
    seed: int


class Trained(NamedTuple):
    """The factors (see :class:`~deql.models.neural.fold_in.FoldIn`), the epochs they took, and all that were run."""

    left: NDArray[np.float32]
    right: NDArray[np.float32]
    own: NDArray[np.float32]
    epochs: int
    history: list[Epoch]


@dataclass
class _Progress:
    """What training knows beside E and the optimiser, from one epoch to the next."""

    history: list[Epoch]
    best: float
    kept: int
    found: torch.Tensor | None
    """The best E so far, where validation tells."""


def train(
    network: Network,
    config: TrainingConfig,
    validate: Callable[[FoldIn], float] | None = None,
    checkpoint: Checkpoint | None = None,
    report: ProgressCallback | None = None,
) -> Trained:
    """Train a network from random vectors.

    Parameters
    ----------
    network : Network
        Its graph's edges are the pairs that are learned from.
    config : TrainingConfig
    validate : callable, optional
        Says how good the factors are, after every so many epochs; the best are kept, and ``config.patience`` epochs
        without better ones end the training (early stopping). Without it the last are kept.
    checkpoint : Checkpoint, optional
        Where to resume from, and to write how far the training is.
    report : callable, optional
        Called as ``report(done, total)``.

    Raises
    ------
    DataError
        If the loss is no longer a number.
    """
    graph, device = network.graph, network.graph.users.device
    E = torch.nn.Parameter(_first_vectors(network, config).to(device))
    optimizer = make_optimizer(E)
    so_far = _Progress([], -np.inf, 0, None)
    if checkpoint is not None and (state := checkpoint.read()) is not None:
        _resume(state, E, optimizer, so_far, checkpoint)
    pairs = len(graph.users)
    batch = min(config.batch_size, pairs)
    count = -(-pairs // batch)
    steps = Steps(network, E, optimizer, batch)
    written, wait = perf_counter(), _SECONDS_BETWEEN_CHECKPOINTS
    for epoch in range(len(so_far.history), config.last_epoch):
        looked = bool(so_far.history) and so_far.history[-1].ndcg is not None
        if config.patience is not None and looked and epoch - so_far.kept >= config.patience:
            break  # early stopping
        begin = perf_counter()
        steps.begin_epoch(_learning_rate(config, epoch))
        generator = torch.Generator(device).manual_seed(_seed_of(config.seed, epoch))
        network.begin_epoch(generator)
        order = torch.randperm(pairs, generator=generator, device=device)
        for step, chosen in enumerate(order.split(batch), start=1):
            steps.take(chosen)
            if report is not None:
                report(epoch * count + step, config.last_epoch * count)
        mean = steps.loss() / pairs
        seconds = perf_counter() - begin
        if not (np.isfinite(mean) and bool(E.isfinite().all())):
            raise DataError(
                f"the loss is no longer a number in epoch {epoch + 1}: "
                f"lower learning_rate from {config.learning_rate:g}, or weight_decay"
            )
        asked = validate is not None and ((epoch + 1) % config.validate_every == 0 or epoch + 1 == config.last_epoch)
        ndcg = validate(_factors(network, E.detach())) if asked and validate is not None else None
        so_far.history.append(Epoch(mean, ndcg, seconds))
        if ndcg is not None and ndcg > so_far.best:
            so_far.best, so_far.kept, so_far.found = ndcg, epoch + 1, E.detach().clone()
        if checkpoint is not None and (now := perf_counter()) - written > wait:
            checkpoint.write(_state(E, optimizer, so_far))
            written = perf_counter()
            wait = max(_SECONDS_BETWEEN_CHECKPOINTS, (written - now) / _SHARE_OF_CHECKPOINTS)
    if checkpoint is not None:  # what comes after may fail, or be another training of as many epochs as this one found
        checkpoint.write(_state(E, optimizer, so_far))
    kept = so_far.kept if so_far.found is not None else len(so_far.history)
    factors = _factors(network, E.detach() if so_far.found is None else so_far.found)
    left, right, own = (part.cpu().numpy() for part in factors)
    return Trained(left, right, own, kept, so_far.history)


def _first_vectors(network: Network, config: TrainingConfig) -> torch.Tensor:
    # Drawn on the processor, so that a seed begins alike on every device.
    generator = torch.Generator().manual_seed(_seed_of(config.seed, -1))
    return torch.randn(network.graph.n_vertices, config.rank, generator=generator) * network.initial_deviation


def _learning_rate(config: TrainingConfig, epoch: int) -> float:
    """Half a cosine, from the learning rate down to nearly nothing in the last epoch.

    Large batches take large steps, and those cannot settle at a constant rate.
    """
    return config.learning_rate * (1 + float(np.cos(np.pi * epoch / config.epochs))) / 2


def _seed_of(seed: int, epoch: int) -> int:
    """Of an epoch's random numbers: so a training that resumes needs no generator's state."""
    return int(np.random.SeedSequence((seed, epoch + 1)).generate_state(1, np.uint64)[0] >> np.uint64(1))


@torch.no_grad()
def _factors(network: Network, E: torch.Tensor) -> FoldIn:
    return fold_in(network.graph, network.vectors(E), network.passed_on(E))


def _state(E: torch.Tensor, optimizer: torch.optim.Adam, so_far: _Progress) -> TrainingState:
    moments = optimizer.state[E]
    parts = dict(zip(_ARRAYS, (E.detach(), moments["exp_avg"], moments["exp_avg_sq"]), strict=True))
    if so_far.found is not None:
        parts["best_vectors"] = so_far.found
    facts = {"steps": int(moments["step"]), "kept": so_far.kept, "history": so_far.history}
    return TrainingState({name: part.cpu().numpy() for name, part in parts.items()}, facts)


def _resume(
    state: TrainingState, E: torch.nn.Parameter, optimizer: torch.optim.Adam, so_far: _Progress, checkpoint: Checkpoint
) -> None:
    try:
        on_device = {
            name: torch.from_numpy(np.array(state.arrays[name], np.float32)).to(E.device) for name in state.arrays
        }
        if any(part.shape != E.shape for part in on_device.values()):
            raise ValueError("its vectors are of another shape")
        E.data.copy_(on_device["vectors"])
        optimizer.state[E] = {
            "step": torch.tensor(float(state.facts["steps"]), device=E.device),
            "exp_avg": on_device["mean_gradients"],
            "exp_avg_sq": on_device["mean_squares"],
        }
        so_far.history[:] = [Epoch(*epoch) for epoch in state.facts["history"]]
        so_far.kept, so_far.found = int(state.facts["kept"]), on_device.get("best_vectors")
        if so_far.found is not None:
            so_far.best = max(epoch.ndcg for epoch in so_far.history if epoch.ndcg is not None)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{checkpoint.path} is damaged: {error}; remove it to begin anew") from None
