"""The torch engine: P on a CUDA device, in whichever arithmetic its tensor cores are fast at."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deql._system.progress import Stage
from deql._system.threads import blas_limited, thread_count
from deql.errors import InaccurateInverseError, NotPositiveDefiniteError, ParameterError
from deql.linalg.engines.engine import Engine, Problem, Solved
from deql.linalg.engines.resources import INTERPRETER, ProblemSize, Requirement, Resources, lacking
from deql.linalg.packed import PackedSymmetric
from deql.linalg.tiling import ARITHMETICS, DEVICE_SLICE, WIDEST_PIVOT, device_memory, device_panels, device_tile

if TYPE_CHECKING:
    from scipy.sparse import csr_array


__all__ = ["Torch"]

_AS_FLOAT32 = 1e-5
"""Residual up to which a faster arithmetic is taken for as good as float32."""

_TORCH = 2**30
"""Host memory of torch with a CUDA device open."""


@dataclass(frozen=True, repr=False)
class Torch(Engine):
    """Compute P on a CUDA device, or tile by tile through one that cannot hold it.

    Parameters
    ----------
    device : str, optional
        Such as ``"cuda:1"``; ``"cuda"`` if not given. ``"cpu"`` works too, and gains nothing.
    arithmetic : {"float32", "fp16x3", "bf16x3", "tf32x3", "tf32", "float64"}, optional
        Of matrix products: plain, or on tensor cores with each number as the sum of two shorter ones (x3), or as one of
        11 bits (tf32); the fastest that is as accurate as ``dtype`` if not given. See docs/engines.md.

    Examples
    --------
    >>> import deql
    >>> data = deql.Interactions.from_pairs(list("aabb"), list("xyyz"))
    >>> deql.EASE(l2=1.0, engine=deql.engines.Torch(device="cpu", arithmetic="tf32x3")).fit(data).engine_
    'torch'
    """

    device: str | None = None
    arithmetic: str | None = None

    name = "torch"

    def __post_init__(self) -> None:
        if self.device is not None and not re.fullmatch(r"cpu|cuda(:[0-9]{1,3})?", str(self.device)):
            raise ParameterError(f"device must be 'cuda', 'cuda:1' or 'cpu', got {self.device!r}", parameter="device")
        if self.arithmetic is not None and self.arithmetic not in ARITHMETICS:
            known = ", ".join(ARITHMETICS)
            raise ParameterError(f"arithmetic must be one of {known}, got {self.arithmetic!r}", parameter="arithmetic")

    @property
    def config(self) -> dict[str, Any]:
        return {"engine": self.name} | ({"arithmetic": self.arithmetic} if self.arithmetic else {})

    def check(self, dtype: str) -> None:
        super().check(dtype)
        if self.arithmetic is not None and (self.arithmetic == "float64") != (dtype == "float64"):
            raise ParameterError(
                f"arithmetic={self.arithmetic!r} does not go with dtype={dtype!r}", parameter="arithmetic"
            )

    def requirement(self, size: ProblemSize, resources: Resources) -> Requirement:
        if not resources.torch:
            return Requirement(self.name, 0, why_not='torch is not installed: pip install "deql[gpu]"', too_large=False)
        held = size.stored + INTERPRETER
        whole = device_memory(size.n, size.dtype, size.matrices)
        if self.device == "cpu":
            whole += size.beside
            return Requirement(self.name, whole + held, why_not=lacking("memory", whole, resources.memory))
        more = size.packed + size.beside + _TORCH  # P is kept in memory in the end
        chosen = next(iter(resources.devices), None)
        if chosen is None:
            missing = "there is no CUDA device" if self.device is None else f"there is no device {self.device}"
            return Requirement(self.name, more + held, device_memory=whole, why_not=missing, too_large=False)
        on_device = f"memory on {chosen.name}"
        if whole <= chosen.free or size.matrices > 1:  # a Gram matrix that is kept does not stream
            why = lacking(on_device, whole, chosen.free) or lacking("memory", more, resources.memory)
            return Requirement(self.name, more + held, device_memory=whole, why_not=why)
        more += size.work  # what streams is summed in memory
        least = device_panels(size.n, size.tile)
        wide = max(1, min(WIDEST_PIVOT // size.tile, (chosen.free - DEVICE_SLICE) // least))
        needed = DEVICE_SLICE + wide * least
        why = lacking(on_device, needed, chosen.free) or lacking("memory", more, resources.memory)
        return Requirement(
            self.name, more + held, device_memory=needed, passes=-(-size.n // (wide * size.tile)), why_not=why
        )

    def solve(self, problem: Problem, stage: Stage) -> Solved:
        """P; in plain float32 if what is faster turns out to be less accurate than that would be."""
        requested = self.arithmetic is not None or problem.dtype == "float64"
        try:
            solved: Solved | None = self.invert(self.gram(problem, stage), problem.added, stage)
            if solved is not None and (requested or solved.residual <= _AS_FLOAT32):
                return solved
        except (NotPositiveDefiniteError, InaccurateInverseError):
            if requested:
                raise
        solved = None  # P is there twice, and would be four times
        plain = replace(self, arithmetic="float32")
        return plain.invert(plain.gram(problem, stage), problem.added, stage)

    def gram(self, problem: Problem, stage: Stage) -> PackedSymmetric:
        """S = RᵀΛR on the device if that can hold it, else in memory."""
        import torch

        from deql.linalg.engines.torch_gram import gram_on_device
        from deql.linalg.engines.torch_invert import fits_on_device
        from deql.linalg.engines.torch_packed import DevicePacked, open_device
        from deql.linalg.gram import gram

        matrix, n, device = problem.matrix, problem.matrix.shape[1], open_device(self.device)
        if not fits_on_device(n, problem.dtype, device):
            return super().gram(problem, stage)
        report = stage("Gram matrix")
        if device.type == "cuda" and _dense_pays(matrix):
            parts, kind = (matrix.indptr, matrix.indices, matrix.data), getattr(torch, problem.dtype)
            return gram_on_device(parts, n, device, weights=problem.weights, dtype=kind, report=report)
        packed = gram(matrix, weights=problem.weights, dtype=problem.dtype, tile=device_tile(n), report=report)
        if device.type == "cpu":
            return DevicePacked(n, packed.tile, torch.from_numpy(packed.data))
        return DevicePacked.from_host(packed, device)

    def invert(self, store: PackedSymmetric, added: NDArray[np.float64], stage: Stage) -> Solved:
        """Replace a Gram matrix by P where it lies, or from memory through a device that cannot hold it."""
        from deql.linalg.engines.torch_invert import invert_on_device, invert_through_device
        from deql.linalg.engines.torch_packed import DevicePacked, open_device, threads_limited

        store.add_to_diagonal(added)
        report = stage("Inverse")
        with blas_limited(), threads_limited(thread_count()):
            if not isinstance(store, DevicePacked):
                residual = invert_through_device(store, open_device(self.device), self.arithmetic, report)
                return Solved(store, residual, self.name)
            residual = invert_on_device(store, self.arithmetic, report)
        # On a CPU the kernels rank faster than torch does.
        return Solved(store.to_host(), residual, self.name, None if store.device.type == "cpu" else store)


def _dense_pays(matrix: csr_array) -> bool:
    """Whether users · items² multiplications on a device take less time than Σ_u |u|² additions here, and a copy.

    Rates are those of a card for data centres and of one core; they need be right only in their order of magnitude.
    """
    users, n = matrix.shape
    pairs = float((np.diff(matrix.indptr).astype(np.float64) ** 2).sum())
    return users * n**2 / 3e14 < (pairs + n**2 / 2) * 1e-9 / thread_count() + 2 * n**2 / 1e10
