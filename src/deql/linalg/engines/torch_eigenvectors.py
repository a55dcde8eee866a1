"""Leading eigenvectors of BᵀB on a device: the blocks of :mod:`deql.linalg.subspace_iteration` as tensors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deql._system.progress import ProgressCallback
from deql.linalg.engines.torch_packed import memory_watched, open_device
from deql.linalg.engines.torch_products import arithmetic_set
from deql.linalg.subspace_iteration import CLOSE, Subspace, leading_subspace

__all__ = ["leading_on_device"]

Vector = NDArray[np.float64]
Triple = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


def leading_on_device(
    half: Triple,
    n: int,
    rank: int,
    device: str | None = None,
    close: float = CLOSE,
    report: ProgressCallback | None = None,
) -> Subspace:
    """The leading eigenvalues and eigenvectors, these in the host's memory.

    Parameters
    ----------
    half : tuple of ndarray
        B, m × n, in compressed rows: indptr, indices, values.
    n, rank : int
        At least ``block_width(rank)`` columns.
    device : str, optional
        ``"cuda"`` if not given.
    close : float
        Distance at which the rounds end.
    report : callable, optional
        Called as ``report(done, total)``.

    Examples
    --------
    >>> B = np.arange(101), np.arange(100), np.arange(100.0)
    >>> found = leading_on_device(B, 100, 3, "cpu")
    >>> found.values[:3].round(), np.abs(found.vectors).argmax(axis=0)
    (array([9801., 9604., 9409.]), array([99, 98, 97]))
    """
    where = open_device(device)
    with memory_watched(f"rank {rank:,} of {n:,} items", where), arithmetic_set("float32"):
        found = leading_subspace(_DeviceBlocks(half, n, where), rank, close=close, report=report)
        vectors = found.vectors[:, :rank].cpu().numpy()
    return found._replace(vectors=vectors)


class _DeviceBlocks:
    """Blocks of float32 on a device."""

    def __init__(self, half: Triple, n: int, device: torch.device) -> None:
        indptr, indices, values = half
        users = len(indptr) - 1
        rows = np.repeat(np.arange(users, dtype=np.int64), np.diff(indptr))
        by_item = np.argsort(indices, kind="stable")
        ends = np.concatenate([[0], np.cumsum(np.bincount(indices, minlength=n))])
        self._n, self._device = n, device
        self._forth = self._sparse(indptr, indices, values, (users, n))
        self._back = self._sparse(ends, rows[by_item], values[by_item], (n, users))

    def _sparse(
        self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any], shape: tuple[int, int]
    ) -> Tensor:
        with warnings.catch_warnings():
            # Torch warns that it may change how these are made, and that it does not check them.
            warnings.filterwarnings("ignore", "Sparse", UserWarning)
            return torch.sparse_csr_tensor(
                torch.from_numpy(np.asarray(indptr, np.int32)),
                torch.from_numpy(np.asarray(indices, np.int32)),
                torch.from_numpy(np.asarray(values, np.float32)),
                shape,
                device=self._device,
                check_invariants=False,
            )

    def start(self, width: int, seed: int) -> Tensor:
        # The same numbers wherever the block lies.
        block = np.random.default_rng(seed).standard_normal((self._n, width), dtype=np.float32)
        return torch.from_numpy(block).to(self._device)

    def apply(self, X: Tensor) -> Tensor:
        image: Tensor = self._back @ (self._forth @ X)
        return image

    def combine(self, image: Tensor, current: Tensor, previous: Tensor, a: float, b: float) -> None:
        previous.neg_().add_(image, alpha=a).add_(current, alpha=b)

    def copy(self, X: Tensor) -> Tensor:
        return X.clone()

    def inner(self, X: Tensor, Y: Tensor) -> Vector:
        products = (X.T @ Y).double()
        symmetric: Vector = ((products + products.T) / 2).cpu().numpy()
        return symmetric

    def turn(self, X: Tensor, rotation: Vector) -> Tensor:
        return X @ torch.from_numpy(np.ascontiguousarray(rotation)).to(self._device, torch.float32)

    def residuals(self, X: Tensor, image: Tensor, values: Vector) -> Vector:
        left = torch.addcmul(image, X, torch.from_numpy(values.copy()).to(self._device, torch.float32), value=-1)
        lengths: Vector = torch.linalg.vector_norm(left, dim=0, dtype=torch.float64).cpu().numpy()
        return lengths

    def eigh(self, matrix: Vector) -> tuple[Vector, Vector]:
        values, vectors = torch.linalg.eigh(torch.from_numpy(np.ascontiguousarray(matrix)).to(self._device))
        return values.cpu().numpy(), vectors.cpu().numpy()
