"""A packed symmetric matrix whose store is a tensor on a device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deql.errors import DeviceError, Setting, TooLargeError
from deql.linalg.packed import PackedSymmetric, Store

__all__ = ["DevicePacked", "free_bytes", "memory_watched", "open_device", "pinned", "threads_limited"]

_SLAB_NUMBERS = 2**24
_PART = 2**26
_COLUMNS = 4096


def open_device(name: str | None = None) -> torch.device:
    """The device of this name, ``"cuda"`` if none is given.

    Raises
    ------
    DeviceError
        If there is no such device.

    Examples
    --------
    >>> open_device("cpu")
    device(type='cpu')
    """
    try:
        device = torch.device(name or "cuda")
        if device.type not in ("cpu", "cuda"):
            raise DeviceError(f"the device {name} cannot be used: it must be 'cuda', 'cuda:1' or 'cpu'")
        torch.empty(0, device=device)
    except DeviceError:
        raise
    except (RuntimeError, AssertionError, ValueError, AttributeError, NotImplementedError, TypeError) as error:
        reason = str(error).splitlines()[0].split(". ")[0][:100]
        raise DeviceError(f"the device {name or 'cuda'} cannot be used: {reason}") from None
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def free_bytes(device: torch.device | str) -> int:
    """Memory of a CUDA device that is free, or that torch has kept for itself and would use again."""
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0] + kept)


@contextmanager
def threads_limited(count: int) -> Iterator[None]:
    """Let torch use so many of the processor's threads meanwhile."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def memory_watched(what: str, device: torch.device, advice: str = "") -> Iterator[None]:
    """Turn running out of memory into one clear sentence: on a device, and with advice for that on the processor.

    Parameters
    ----------
    what : str
        What the memory is for.
    device : torch.device
    advice : str, optional
        What takes less, where another engine is no help.
    """
    try:
        yield
    except torch.OutOfMemoryError:
        if advice:
            said = f"{device} has too little memory for {what}: {advice}, or use "
            raise DeviceError(said, Setting("device", "cpu")) from None
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info(device)
        raise DeviceError(
            f"{device} has too little memory for {what}: {free / 2**30:.1f} of {total / 2**30:.1f} GiB are free; "
            "free some, or use ",
            Setting("engine", "memory"),
            " or ",
            Setting("engine", "disk"),
        ) from None
    except (MemoryError, RuntimeError) as error:
        # torch has no class of its own for the processor's memory.
        if advice and (isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error)):
            raise TooLargeError(f"there is too little memory for {what}: {advice}") from None
        raise


@contextmanager
def pinned(array: NDArray[Any], device: torch.device) -> Iterator[None]:
    """Keep an array's pages in place, so that the device copies to and from them by itself, many times as fast."""
    if device.type != "cuda":
        yield
        return
    runtime: Any = torch.cuda.cudart()
    registered = int(runtime.cudaHostRegister(array.ctypes.data, array.nbytes, 0)) == 0
    if not registered:  # copies go through a buffer of the driver's, slower
        with suppress(RuntimeError):  # the refusal is still pending, and would end whatever is launched next
            torch.zeros(1, device=device)
            torch.cuda.synchronize(device)
    try:
        yield
    finally:
        torch.cuda.synchronize(device)
        if registered:
            runtime.cudaHostUnregister(array.ctypes.data)


class DevicePacked(PackedSymmetric):
    """As :class:`~deql.linalg.PackedSymmetric`, on a device.

    Parameters
    ----------
    n, tile : int
        Order of the matrix and width of a block column.
    data : torch.Tensor
        The flat store.

    Examples
    --------
    >>> import numpy as np, torch
    >>> host = PackedSymmetric.from_dense(np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 5.0], [0.0, 5.0, 9.0]]), tile=2)
    >>> a = DevicePacked.from_host(host, torch.device("cpu"))
    >>> a.diagonal()
    array([2., 3., 9.])
    """

    __slots__ = ()

    @classmethod
    def zeros(cls, n: int, tile: int, dtype: torch.dtype, device: torch.device) -> DevicePacked:
        """A matrix of zeros."""
        with memory_watched(f"a matrix of {n:,} columns", device):
            return cls(n, tile, torch.zeros(cls.stored_numbers(n, tile), dtype=dtype, device=device))

    @classmethod
    def from_host(cls, matrix: PackedSymmetric, device: torch.device) -> DevicePacked:
        """Copy a packed matrix to a device."""
        with memory_watched(f"a matrix of {matrix.n:,} columns", device):
            copy = torch.empty(len(matrix.data), dtype=getattr(torch, matrix.dtype.name), device=device)
        if matrix.data.flags.writeable:
            with pinned(matrix.data, device):
                copy.copy_(torch.from_numpy(matrix.data))
        else:  # mapped from a file, which torch does not take
            for first in range(0, len(copy), _PART):
                part = np.array(matrix.data[first : first + _PART])
                copy[first : first + len(part)] = torch.from_numpy(part)
        return cls(matrix.n, matrix.tile, copy)

    def to_host(self) -> PackedSymmetric:
        """The matrix in the host's memory: a copy, unless it is there already."""
        if self.device.type == "cpu":
            return PackedSymmetric(self.n, self.tile, self.data.numpy())
        store = np.zeros(len(self.data), self.dtype)
        with pinned(store, self.device):
            torch.from_numpy(store).copy_(self.data)
        return PackedSymmetric(self.n, self.tile, store)

    @property
    def device(self) -> torch.device:
        """Where the store is."""
        return torch.device(self.data.device)

    def copy(self) -> DevicePacked:
        """The same matrix in memory of its own."""
        return DevicePacked(self.n, self.tile, self.data.clone())

    def room(self, n: int, tile: int, store: Store | None = None) -> DevicePacked:
        """Another matrix of this type on this device, yet to be filled."""
        with memory_watched(f"a matrix of {n:,} columns", self.device):
            numbers = self.stored_numbers(n, tile)
            return DevicePacked(n, tile, torch.empty(numbers, dtype=self.data.dtype, device=self.device))

    def without(self, columns: NDArray[np.int64], store: Store | None = None) -> DevicePacked:
        """A copy without some rows and columns, on this device."""
        kept = np.delete(np.arange(self.n), columns)
        smaller = self.room(len(kept), min(len(kept), self.tile))
        places = torch.from_numpy(kept).to(self.device)
        for start, block in smaller.blocks():
            stop = start + block.shape[1]
            for index in range(kept[start] // self.tile, kept[stop - 1] // self.tile + 1):
                corner = index * self.tile
                left, right = (start + np.searchsorted(kept[start:stop], [corner, corner + self.tile])).tolist()
                rows = self.block(index)[places[left:] - corner]
                block[left - start :, left - start : right - start] = rows[:, places[left:right] - corner]
        smaller.mirror_diagonal_tiles()  # rows above a source's block column lie in the tile on the diagonal alone
        return smaller

    def diagonal(self) -> NDArray[np.float64]:
        """Copy of the diagonal in float64, in the host's memory."""
        parts = [block.diagonal() for _, block in self.blocks()]
        return np.asarray(torch.cat(parts).double().cpu().numpy())

    def add_to_diagonal(self, values: NDArray[np.float64]) -> None:
        """Add ``values`` to the diagonal in place."""
        added = torch.from_numpy(np.asarray(values, np.float64)).to(self.device).to(self.data.dtype)
        for start, block in self.blocks():
            block.diagonal().add_(added[start : start + block.shape[1]])

    def mirror_diagonal_tiles(self) -> None:
        """Make the tiles on the diagonal symmetric to the last bit: their lower half counts."""
        for _, block in self.blocks():
            tile = block[: block.shape[1]]
            tile.copy_(tile.tril() + tile.tril(-1).T)

    def to_dense(self) -> NDArray[Any]:
        """The whole matrix, n × n, in the host's memory: for small n."""
        return self.to_host().to_dense()

    def matvec(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Product with a vector or a few columns, in float64."""
        vectors = torch.from_numpy(np.asarray(x, np.float64).reshape(self.n, -1)).to(self.device)
        product = torch.zeros_like(vectors)
        for start, block in self.blocks():
            width = block.shape[1]
            slab = max(1, _SLAB_NUMBERS // width)
            for top in range(0, len(block), slab):
                rows = block[top : top + slab].double()
                product[start + top : start + top + len(rows)] += rows @ vectors[start : start + width]
                # The diagonal tile is stored whole: only what lies below it acts a second time.
                first = max(0, width - top)
                product[start : start + width] += (
                    rows[first:].T @ vectors[start + top + first : start + top + len(rows)]
                )
        return np.asarray(product.cpu().numpy().reshape(x.shape))

    def thin_product(self, thin: NDArray[np.floating]) -> NDArray[np.float32]:
        """P·U in float32, in the host's memory, a few thousand columns at a time; products are of the type of P."""
        product = np.empty(thin.shape, np.float32)
        for start in range(0, thin.shape[1], _COLUMNS):
            some = slice(start, start + _COLUMNS)
            with memory_watched(f"a prior of {self.n:,} items", self.device):
                given = torch.from_numpy(np.array(thin[:, some], order="C")).to(self.device, self.data.dtype)
                into = torch.zeros_like(given)
                for top, block in self.blocks():
                    bottom = top + block.shape[1]
                    # The diagonal tile is stored whole: it acts once, and what lies below it twice.
                    into[top:bottom].addmm_(block.T, given[top:])
                    into[bottom:].addmm_(block[bottom - top :], given[top:bottom])
            product[:, some] = into.float().cpu().numpy()
        return product

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the stored numbers, as NumPy names it."""
        return np.dtype(str(self.data.dtype).removeprefix("torch."))
