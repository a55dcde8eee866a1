"""P = A⁻¹ on a device: the sweep where the matrix lies, or with tiles that stream from the host's memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch

from deql._system.progress import ProgressCallback
from deql.linalg.engines.torch_packed import DevicePacked, free_bytes, memory_watched, pinned
from deql.linalg.engines.torch_products import Products, arithmetic_set
from deql.linalg.invert import invert
from deql.linalg.packed import PackedSymmetric
from deql.linalg.sweep import InPlace, Piece, sweep
from deql.linalg.tiling import DEVICE_SLICE, WIDEST_PIVOT, device_memory, device_panels

__all__ = ["Streamed", "default_arithmetic", "fits_on_device", "invert_on_device", "invert_through_device"]

_BUFFERS = 4
"""One is filled, one computed on and one emptied at a time; the fourth evens out delays."""

_LARGE_RANGE = 2.0**16
"""Between diagonal entries: float16 has full precision over 18 powers of two."""


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


def default_arithmetic(dtype: str, device: torch.device) -> str:
    """The fastest arithmetic that keeps a type's accuracy on most matrices.

    Split products need tensor cores that add in float32 at full rate, which only those of data centres do: on others
    three of them take longer than a plain one.

    Examples
    --------
    >>> default_arithmetic("float32", torch.device("cpu")), default_arithmetic("float64", torch.device("cpu"))
    ('float32', 'float64')
    """
    if dtype == "float64" or device.type != "cuda" or torch.version.hip is not None:
        return dtype
    return "fp16x3" if torch.cuda.get_device_capability(device) in ((8, 0), (9, 0), (10, 0), (10, 3)) else "float32"


def fits_on_device(n: int, dtype: str, device: torch.device) -> bool:
    """Whether a device has room for the Gram matrix of n items and its inverse.

    Examples
    --------
    >>> fits_on_device(100, "float32", torch.device("cpu"))
    True
    """
    return device.type != "cuda" or device_memory(n, dtype) <= free_bytes(device)


def invert_on_device(
    matrix: DevicePacked, arithmetic: str | None = None, report: ProgressCallback | None = None
) -> float:
    """Replace a matrix on a device by its inverse, and return how far it is from it.

    As :func:`deql.linalg.invert`, in one of the arithmetics of :mod:`deql.linalg.engines.torch_products`.

    Examples
    --------
    >>> import numpy as np, torch
    >>> a = DevicePacked.from_host(PackedSymmetric.from_dense(np.diag([2.0, 4.0]), tile=1), torch.device("cpu"))
    >>> residual = invert_on_device(a)
    >>> a.diagonal()
    array([0.5 , 0.25])
    """
    chosen = arithmetic or default_arithmetic(matrix.dtype.name, matrix.device)

    def by(_: PackedSymmetric, told: ProgressCallback | None) -> None:
        with (
            memory_watched(f"the inverse of {matrix.n:,} columns", matrix.device),
            arithmetic_set(chosen),
            _in_range(matrix, chosen),
        ):
            sweep(InPlace(matrix), Products(chosen, matrix.data.dtype, matrix.device), told)

    return invert(matrix, by, report)


def invert_through_device(
    matrix: PackedSymmetric,
    device: torch.device,
    arithmetic: str | None = None,
    report: ProgressCallback | None = None,
    blocks_per_pivot: int | None = None,
) -> float:
    """Replace a matrix in the host's memory by its inverse, on a device that cannot hold it.

    Parameters
    ----------
    matrix : PackedSymmetric
    device : torch.device
    arithmetic : str, optional
    report : callable, optional
    blocks_per_pivot : int, optional
        As many as the device's memory allows and are of use, if not given.

    Examples
    --------
    >>> import numpy as np, torch
    >>> a = PackedSymmetric.from_dense(np.diag([2.0, 4.0, 5.0]), tile=1)
    >>> residual = invert_through_device(a, torch.device("cpu"), blocks_per_pivot=2)
    >>> a.diagonal()
    array([0.5 , 0.25, 0.2 ])
    """
    chosen = arithmetic or default_arithmetic(matrix.dtype.name, device)
    count = blocks_per_pivot or _widest_pivot(matrix, device)

    def by(_: PackedSymmetric, told: ProgressCallback | None) -> None:
        kind = getattr(torch, matrix.dtype.name)
        with (
            memory_watched(f"panels of {matrix.n:,} × {count * matrix.tile:,} numbers", device),
            arithmetic_set(chosen),
            _in_range(matrix, chosen),
            Streamed(matrix, device, count) as tiles,
        ):
            sweep(tiles, Products(chosen, kind, device), told)

    return invert(matrix, by, report)


@contextmanager
def _in_range(matrix: PackedSymmetric, arithmetic: str) -> Iterator[None]:
    """Bring a diagonal of very different entries near 1 meanwhile, by powers of two: (sAs)⁻¹ = s⁻¹A⁻¹s⁻¹ exactly."""
    diagonal = matrix.diagonal()
    if arithmetic != "fp16x3" or diagonal.max() < _LARGE_RANGE * diagonal.min():
        yield
        return
    powers = np.exp2(-np.round(np.log2(diagonal) / 2)).astype(matrix.dtype)
    factors = torch.from_numpy(powers).to(matrix.device) if isinstance(matrix, DevicePacked) else powers
    matrix.scale(factors)
    yield
    matrix.scale(factors)


def _widest_pivot(matrix: PackedSymmetric, device: torch.device) -> int:
    """Block columns of a pivot that fit the device beside the slabs under way."""
    useful = max(1, WIDEST_PIVOT // matrix.tile)
    if device.type != "cuda":
        return useful
    room = free_bytes(device) - DEVICE_SLICE
    return int(max(1, min(useful, room // device_panels(matrix.n, matrix.tile))))
