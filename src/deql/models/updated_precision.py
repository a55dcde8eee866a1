"""P after an update, wherever it is: in memory, in a file or on a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deql._system.progress import Stage
from deql.linalg.gram_change import GramChange
from deql.linalg.low_rank import LowRankStep, low_rank_step, retiring_step
from deql.linalg.packed import PackedSymmetric
from deql.models.updatable import Updatable

if TYPE_CHECKING:
    from deql.linalg.engines.torch_packed import DevicePacked

__all__ = ["PrecisionStep", "UpdatedPrecision", "updated_precision"]

PrecisionStep = LowRankStep | int | NDArray[np.int64]
"""What becomes of P: a low-rank step, a number of new columns, or columns that go."""


@dataclass(frozen=True, eq=False)
class UpdatedPrecision:
    """P afterwards.

    Attributes
    ----------
    precision : PackedSymmetric
    on_device : DevicePacked or None
        Once more on the device where it was computed.
    steps : tuple
        What became of P, in order.
    unchanged : PackedSymmetric
        P before the last low-rank step, in the items of afterwards.
    """

    precision: PackedSymmetric
    on_device: DevicePacked | None
    steps: tuple[PrecisionStep, ...]
    unchanged: PackedSymmetric


def updated_precision(
    model: Updatable, retired: NDArray[np.int64], extra: int, value: float, change: GramChange, stage: Stage
) -> UpdatedPrecision:
    """P without retired items, with new ones, and after a change of A in the columns of these.

    It is computed where the model has it: on a device, else in memory, else in a file.

    Parameters
    ----------
    model : fitted model
        Stays as it is.
    retired : ndarray of int64
        Columns that go.
    extra : int
        New items.
    value : float
        What these begin with on the diagonal of P.
    change : GramChange
    stage : callable
        Opens a progress bar.
    """
    low_rank: Callable[[Any, GramChange], LowRankStep] = low_rank_step
    retire: Callable[[Any, NDArray[np.int64]], LowRankStep] = retiring_step
    P: Any = model.precision_
    if (on_device := model.on_device_) is not None:
        from deql.linalg.engines.torch_low_rank import low_rank_step_on_device, retiring_step_on_device

        P, low_rank, retire = on_device, low_rank_step_on_device, retiring_step_on_device
    steps: list[PrecisionStep] = []
    if extra:  # first, as all other items may go
        P = P.grown(extra, value, model._store)
        steps.append(extra)
    if len(retired):
        step = retire(P, retired)
        P = step.precision(P, stage("Retire items"), model._store).without(retired, model._store)
        steps += [step, retired]
    unchanged = P
    if change.rank:
        step = low_rank(P, change)
        P = step.precision(P, stage("Update"), model._store)
        steps.append(step)
    if on_device is None:
        return UpdatedPrecision(P, None, tuple(steps), unchanged)
    return UpdatedPrecision(P.to_host(), P, tuple(steps), unchanged)
