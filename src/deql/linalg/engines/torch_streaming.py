"""A matrix too large for the device: its tiles stay in the host's memory and pass through the device once a pivot."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from deql.linalg.engines.torch_packed import pinned
from deql.linalg.in_place import InPlace
from deql.linalg.packed import PackedSymmetric
from deql.linalg.sweep import Piece

__all__ = ["Streamed"]

_BUFFERS = 4
"""One is filled, one computed on and one emptied at a time; the fourth evens out delays."""


class Streamed(InPlace):
    """Tiles of a packed matrix in the host's memory, updated on a device.

    Copies in both directions and products run at the same time. As each pass over the matrix is copied twice
    and multiplied once, wide pivots make the products the slower part.

    Parameters
    ----------
    matrix : PackedSymmetric
        In the host's memory; overwritten by its inverse.
    device : torch.device
    blocks_per_pivot : int
    slab_numbers : int, default 2**25
        Numbers copied at once.
    """

    def __init__(
        self, matrix: PackedSymmetric, device: torch.device, blocks_per_pivot: int, slab_numbers: int = 2**25
    ) -> None:
        self._pin = pinned(matrix.data, device)
        self._store = torch.from_numpy(matrix.data)
        super().__init__(PackedSymmetric(matrix.n, matrix.tile, self._store), blocks_per_pivot)
        self._device = device
        self._rows = max(1, slab_numbers // self.tile)
        self._buffers = [torch.empty(self._rows * self.tile, dtype=self._store.dtype, device=device)
                         for _ in range(_BUFFERS)]  # fmt: skip
        self._streams = (_CopyStream(device), _CopyStream(device))

    def __enter__(self) -> Streamed:
        self._pin.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._pin.__exit__(None, None, None)

    def pieces(self, start: int, stop: int) -> Iterator[Piece]:
        slabs = deque(
            Piece(piece.top + first, piece.left, piece.values[first : first + self._rows])
            for piece in super().pieces(start, stop)
            for first in range(0, len(piece.values), self._rows)
        )
        coming, going = self._streams
        free = deque((buffer, None) for buffer in self._buffers)
        under_way: deque[tuple[Piece, Piece, Any, Any]] = deque()

        def fetch() -> None:
            slab, (buffer, emptied) = slabs.popleft(), free.popleft()
            here = buffer[: slab.values.numel()].view(slab.values.shape)
            under_way.append((slab, slab._replace(values=here), buffer, coming.copy(slab.values, here, after=emptied)))

        while slabs and len(free) > 1:
            fetch()
        while under_way:
            slab, here, buffer, arrived = under_way.popleft()
            coming.wait_event(arrived)
            yield here
            free.append((buffer, going.copy(here.values, slab.values, after=going.record_event())))
            if slabs:
                fetch()
        if self._device.type == "cuda":  # the host reads the matrix next
            torch.cuda.synchronize(self._device)

    def _fetch(self, stored: torch.Tensor) -> torch.Tensor:
        return stored.to(self._device, non_blocking=True)

    def _put(self, values: torch.Tensor, stored: torch.Tensor) -> None:
        stored.copy_(values.contiguous())


class _CopyStream:
    """Copies in one direction, in order, beside the products; on a CPU they are done at once."""

    def __init__(self, device: torch.device) -> None:
        self._stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None

    def copy(self, source: torch.Tensor, target: torch.Tensor, after: Any) -> Any:
        """Start a copy once ``after`` has happened; returns its end."""
        with self._entered():
            if self._stream is not None and after is not None:
                self._stream.wait_event(after)
            target.copy_(source, non_blocking=True)
            return None if self._stream is None else self._stream.record_event()

    def record_event(self) -> Any:
        """The end of the products so far."""
        return None if self._stream is None else torch.cuda.current_stream(self._stream.device).record_event()

    def wait_event(self, event: Any) -> None:
        """Let the products that follow wait for a copy."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_event(event)

    def _entered(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)
