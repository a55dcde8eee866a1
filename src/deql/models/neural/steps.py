"""Steps of a training, with torch alone: on a CUDA device one is recorded, and the others replay it."""

from __future__ import annotations

from functools import cache
from threading import Lock

import torch

from deql.models.neural.network import Network

__all__ = ["Steps", "make_optimizer"]

_BEFORE_RECORDING = 3
"""Steps in which libraries make themselves ready, and the optimiser its state."""

_RECORDING = Lock()
"""CUDA records one graph at a time."""


@cache
def _recording_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all recordings: libraries keep working memory for each stream that they have seen."""
    return torch.cuda.Stream(device)


def make_optimizer(E: torch.nn.Parameter) -> torch.optim.Adam:
    """Adam for what is trained, with a learning rate that is set for each epoch."""
    on_device = E.device.type == "cuda"
    # Fused: one pass over E, its gradient and both moments, where PyTorch's loops take a dozen. A replay reads the
    # learning rate and the number of steps where they were when it was recorded, so on the device.
    rate = torch.zeros((), device=E.device) if on_device else 0.0
    return torch.optim.Adam([E], rate, fused=True, capturable=on_device)


class Steps:
    """Takes the optimiser's step on batch after batch.

    A step is dozens of kernels that take microseconds each, and asking for one may take longer: replaying a CUDA graph
    asks once. What it reads and writes must stay where it is, so batches are copied into one place.

    Parameters
    ----------
    network : Network
    E : Parameter
    optimizer : Adam
    batch_size : int
    """

    def __init__(self, network: Network, E: torch.nn.Parameter, optimizer: torch.optim.Adam, batch_size: int) -> None:
        self._network, self._E, self._optimizer = network, E, optimizer
        self._batch = torch.zeros(batch_size, dtype=torch.int64, device=E.device)
        self._losses = torch.zeros((), dtype=torch.float64, device=E.device)
        self._recorded: torch.cuda.CUDAGraph | None = None
        self._taken = 0

    def begin_epoch(self, learning_rate: float) -> None:
        """Steps from here on have this learning rate, and their losses are summed anew."""
        rate = self._optimizer.param_groups[0]["lr"]
        if isinstance(rate, torch.Tensor):
            rate.fill_(learning_rate)
        else:
            self._optimizer.param_groups[0]["lr"] = learning_rate
        self._losses.zero_()

    def take(self, pairs: torch.Tensor) -> None:
        """One step on these edges of the graph, by their places."""
        if self._E.device.type != "cuda" or len(pairs) != len(self._batch):
            self._step(pairs)
            return
        self._batch.copy_(pairs)
        if self._taken < _BEFORE_RECORDING:
            self._taken += 1
            self._step(self._batch)
            return
        if self._recorded is None:
            self._recorded = torch.cuda.CUDAGraph()
            # What is recorded is what a stream of the current device does; other threads' calls need not be.
            stream = _recording_stream(self._E.device)
            with (
                _RECORDING,
                torch.cuda.device(self._E.device),
                torch.cuda.graph(self._recorded, stream=stream, capture_error_mode="thread_local"),
            ):
                self._step(self._batch)
        self._recorded.replay()

    def loss(self) -> float:
        """The sum of the losses of an epoch's pairs; waits for the device."""
        return float(self._losses)

    def _step(self, pairs: torch.Tensor) -> None:
        loss = self._network.loss(self._E, pairs)
        # Unlike backward(), this leaves no sum of gradients that a replay would have to begin anew.
        (gradient,) = torch.autograd.grad(loss, [self._E])
        # The fused optimiser takes it for contiguous, whatever it is.
        self._E.grad = gradient.contiguous()
        self._optimizer.step()
        self._losses += loss.detach() * len(pairs)
