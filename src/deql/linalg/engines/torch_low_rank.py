"""Woodbury's identity where P is on a device: only the k × k core is solved for on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from deql._system.progress import ProgressCallback
from deql.linalg.blas import cholesky_inverse
from deql.linalg.engines.torch_packed import DevicePacked, memory_watched
from deql.linalg.engines.torch_products import arithmetic_set
from deql.linalg.low_rank import LowRankStep, core_of_change
from deql.linalg.packed import PackedSymmetric, Store

if TYPE_CHECKING:  # it needs SciPy, which this does without
    from deql.linalg.gram_change import GramChange

__all__ = ["DeviceStep", "low_rank_step_on_device", "retiring_step_on_device"]


class DeviceStep(LowRankStep):
    """As :class:`~deql.linalg.low_rank.LowRankStep`, with the panel on a device."""

    def precision(
        self, precision: PackedSymmetric, report: ProgressCallback | None = None, store: Store | None = None
    ) -> DevicePacked:
        """P', in a store of its own on the device of P.

        Parameters
        ----------
        precision : DevicePacked
            P.
        report : callable, optional
            Called as ``report(done, total)``.
        store : None
            There is no other place for it.
        """
        panel = self.panel
        with memory_watched(f"two matrices of {precision.n:,} columns", panel.device), arithmetic_set("float32"):
            updated = DevicePacked(precision.n, precision.tile, precision.data.clone())
            core = torch.from_numpy(self.core).to(panel.device)
            for index, (start, block) in enumerate(updated.blocks()):
                own = (panel[start : start + block.shape[1]].double() @ core).to(panel.dtype)
                block.addmm_(panel[start:], own.T, alpha=-1)
                if report is not None:
                    report(index + 1, updated.n_blocks)
            updated.mirror_diagonal_tiles()
        return updated

    def thin(self, left: NDArray[np.float32]) -> NDArray[np.float32]:
        """P'·U in the host's memory, given P·U there."""
        inner = left[self.columns].astype(np.float64)
        if self.factor is not None:
            inner = self.factor.T @ inner
        panel = self.panel
        with memory_watched(f"a prior of {len(left):,} items", panel.device), arithmetic_set("float32"):
            right = torch.from_numpy(self.core @ inner).to(panel.device, panel.dtype)
            updated = torch.from_numpy(np.array(left, order="C")).to(panel.device, panel.dtype)
            updated.addmm_(panel, right, alpha=-1)
            return np.asarray(updated.float().cpu().numpy())


def low_rank_step_on_device(precision: DevicePacked, change: GramChange) -> DeviceStep:
    """As :func:`deql.linalg.low_rank.low_rank_step`, on the device of P.

    Examples
    --------
    >>> from deql.linalg.gram_change import GramChange
    >>> P = DevicePacked.from_host(PackedSymmetric.from_dense(np.diag([0.5, 0.25]), tile=2), torch.device("cpu"))
    >>> step = low_rank_step_on_device(P, GramChange(np.array([1]), None, np.array([[4.0]])))
    >>> step.precision(P).to_dense()
    array([[0.5  , 0.   ],
           [0.   , 0.125]])
    """
    panel = _panel(precision, change.columns)
    inner = _rows(panel, change.columns)
    if change.factor is not None:
        with memory_watched(f"{change.rank:,} columns of P", panel.device), arithmetic_set("float32"):
            panel = panel @ torch.from_numpy(change.factor.toarray()).to(panel.device, panel.dtype)
        inner = change.factor.T @ _rows(panel, change.columns)
    return DeviceStep(change.columns, change.factor, panel, core_of_change(inner, change.middle))


def retiring_step_on_device(precision: DevicePacked, columns: NDArray[np.int64]) -> DeviceStep:
    """As :func:`deql.linalg.low_rank.retiring_step`, on the device of P.

    Examples
    --------
    >>> P = PackedSymmetric.from_dense(np.linalg.inv([[2.0, 1.0], [1.0, 4.0]]), tile=2)
    >>> P = DevicePacked.from_host(P, torch.device("cpu"))
    >>> retiring_step_on_device(P, np.array([1])).precision(P).without(np.array([1])).to_dense()
    array([[0.5]])
    """
    panel = _panel(precision, columns)
    return DeviceStep(columns, None, panel, cholesky_inverse(_rows(panel, columns)))


def _panel(precision: DevicePacked, columns: NDArray[np.int64]) -> torch.Tensor:
    """Some columns of P."""
    device = precision.device
    with memory_watched(f"{len(columns):,} columns of P", device):
        panel = torch.empty((precision.n, len(columns)), dtype=precision.data.dtype, device=device)
        for start, block in precision.blocks():
            stop = start + block.shape[1]
            first, last = np.searchsorted(columns, [start, stop]).tolist()
            places = torch.from_numpy(columns - start).to(device)
            panel[start:, first:last] = block[:, places[first:last]]
            panel[start:stop, last:] = block[places[last:]].T
    return panel


def _rows(panel: torch.Tensor, columns: NDArray[np.int64]) -> NDArray[Any]:
    """Some rows of a panel in the host's memory, in float64."""
    return np.asarray(panel[torch.from_numpy(columns).to(panel.device)].double().cpu().numpy())
