"""From interactions to P = A⁻¹: the engine is chosen, and the Gram matrix made and inverted where that engine works."""

from __future__ import annotations

import os
import re
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deql._system.progress import Stage
from deql._system.threads import blas_limited, thread_count
from deql.errors import DeviceError, NotPositiveDefiniteError, ParameterError, PrecisionError
from deql.linalg.gram import gram
from deql.linalg.invert import invert
from deql.linalg.packed import PackedSymmetric
from deql.linalg.tiling import PRECISIONS, check_engine, device_tile

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from deql.linalg.engines.torch_packed import DevicePacked

__all__ = ["Options", "Solved", "make_gram", "solve"]

_AS_FLOAT32 = 1e-5
"""Residual up to which a faster precision is taken for as good as float32."""


@dataclass(frozen=True)
class Options:
    """Where and how P is computed, as a model's parameters say.

    Attributes
    ----------
    engine : str
    dtype : str
    memory : int or str or None
        Budget of the disk engine.
    folder : path or None
        Where the disk engine keeps its tiles.
    precision : str or None
        Of the torch engine's products.
    device : str or None
        Of the torch engine.
    """

    engine: str = "auto"
    dtype: str = "float32"
    memory: int | str | None = None
    folder: str | os.PathLike[str] | None = None
    precision: str | None = None
    device: str | None = None

    def check(self) -> None:
        """Raise ParameterError for what cannot be."""
        check_engine(self.engine, self.dtype)
        if self.memory is not None:
            from deql.linalg.planner import parse_bytes

            parse_bytes(self.memory)
        if self.folder is not None:
            from deql.linalg.engines.tile_folder import as_path

            as_path(self.folder)
            if self.engine in ("memory", "torch"):
                raise ParameterError(f"folder is the disk engine's: leave it out with engine={self.engine!r}")
        if self.device is not None:
            if not re.fullmatch(r"cpu|cuda(:[0-9]{1,3})?", str(self.device)):
                raise ParameterError(f"device must be 'cuda', 'cuda:1' or 'cpu', got {self.device!r}")
            if self.engine in ("memory", "disk"):
                raise ParameterError(f"device is the torch engine's: leave it out with engine={self.engine!r}")
        if self.precision is None:
            return
        if self.precision not in PRECISIONS:
            raise ParameterError(f"precision must be one of {', '.join(PRECISIONS)}, got {self.precision!r}")
        if self.engine in ("memory", "disk"):
            raise ParameterError(f"precision is the torch engine's: leave it out with engine={self.engine!r}")
        if (self.precision == "float64") != (self.dtype == "float64"):
            raise ParameterError(f"precision={self.precision!r} does not go with dtype={self.dtype!r}")

    def choose(self, matrix: csr_array, matrices: int = 1) -> str:
        """The engine for these interactions, or for several matrices of their size; TooLargeError if there is none."""
        from deql.linalg.planner import choose_engine

        # Who names a device or a precision wants the engine that has them.
        engine = "torch" if self.engine == "auto" and (self.device or self.precision) else self.engine
        return choose_engine(
            matrix, dtype=self.dtype, engine=engine, memory=self.memory, folder=self.folder, device=self.device,
            matrices=matrices,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Solved:
    """P and how it was come by.

    Attributes
    ----------
    precision : PackedSymmetric
        P in memory, or mapped from a file.
    residual : float
        How far P·A was from the identity on random vectors.
    engine : str
        The engine that ran.
    on_device : DevicePacked or None
        P once more, on the device where it was computed.
    """

    precision: PackedSymmetric
    residual: float
    engine: str
    on_device: DevicePacked | None = None


def solve(
    matrix: csr_array,
    added: NDArray[np.float64],
    options: Options,
    *,
    weights: NDArray[np.float64] | None = None,
    shared: PackedSymmetric | None = None,
    stage: Stage = lambda _label: None,
) -> Solved:
    """P = (RᵀΛR + diag(added))⁻¹.

    Parameters
    ----------
    matrix : csr_array
        Users × items R.
    added : ndarray
        What is added to the diagonal of the Gram matrix.
    options : Options
    weights : ndarray, optional
        Of the users, Λ.
    shared : PackedSymmetric, optional
        The Gram matrix, if it is there already: see :func:`make_gram`. It is copied.
    stage : callable, optional
        See :func:`deql._system.progress.stages`.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> solved = solve(csr_array([[1.0, 0.0], [0.0, 2.0]]), np.ones(2), Options())
    >>> solved.precision.diagonal().round(4).tolist(), solved.engine
    ([0.5, 0.2], 'memory')
    """
    if shared is not None:
        return _solve_gram(shared.copy(), added, options, stage)
    engine = options.choose(matrix)
    if engine == "torch" and options.engine == "auto" and options.device is None:
        try:
            return _solve_on_device(matrix, added, options, weights, stage)
        except DeviceError as error:  # somebody else was faster
            options = replace(options, engine="memory", precision=None)
            warnings.warn(f"{error}; fitted in memory instead", stacklevel=2)
            engine = options.choose(matrix)
    if engine == "disk":
        from deql.linalg.engines.disk import invert_on_disk
        from deql.linalg.planner import memory_budget

        precision, residual = invert_on_disk(
            matrix, weights=weights, diagonal_plus=added, dtype=np.dtype(options.dtype),
            budget=memory_budget(options.memory, options.folder), folder=options.folder,
            fingerprint=_fingerprint(matrix, added, weights, options.dtype), stage=stage,
        )  # fmt: skip
        return Solved(precision, residual, engine)
    if engine == "torch":
        return _solve_on_device(matrix, added, options, weights, stage)
    return _solve_gram(make_gram(matrix, options, engine, weights=weights, stage=stage), added, options, stage)


def make_gram(
    matrix: csr_array,
    options: Options,
    engine: str,
    *,
    weights: NDArray[np.float64] | None = None,
    stage: Stage = lambda _label: None,
) -> PackedSymmetric:
    """S = RᵀΛR where the engine wants it: on the device if that can hold it, else in memory."""
    report = stage("Gram matrix")
    n = matrix.shape[1]
    if engine == "torch":
        import torch

        from deql.linalg.engines.torch_gram import gram_on_device
        from deql.linalg.engines.torch_invert import fits
        from deql.linalg.engines.torch_packed import DevicePacked, open_device

        device = open_device(options.device)
        if fits(n, options.dtype, device):
            if device.type == "cuda" and _dense_pays(matrix):
                parts, kind = (matrix.indptr, matrix.indices, matrix.data), getattr(torch, options.dtype)
                return gram_on_device(*parts, n, device, weights=weights, dtype=kind, report=report)
            packed = gram(matrix, weights=weights, dtype=options.dtype, tile=device_tile(n), report=report)
            if device.type == "cpu":
                return DevicePacked(n, packed.tile, torch.from_numpy(packed.data))
            return DevicePacked.from_host(packed, device)
    return gram(matrix, weights=weights, dtype=options.dtype, report=report)


def _dense_pays(matrix: csr_array) -> bool:
    """Whether users · items² multiplications on a device take less time than Σ_u |u|² additions here, and a copy.

    Rates are those of a card for data centres and of one core; they need be right only in their order of magnitude.
    """
    users, n = matrix.shape
    pairs = float((np.diff(matrix.indptr).astype(np.float64) ** 2).sum())
    return users * n**2 / 3e14 < (pairs + n**2 / 2) * 1e-9 / thread_count() + 2 * n**2 / 1e10


def _solve_on_device(
    matrix: csr_array, added: NDArray[np.float64], options: Options, weights: NDArray[np.float64] | None, stage: Stage
) -> Solved:
    """Invert on a device; in plain float32 if what is faster turns out to be less accurate than that would be."""

    def once(how: Options) -> Solved:
        store = make_gram(matrix, how, "torch", weights=weights, stage=stage)
        return _solve_gram(store, added, how, stage, "torch")

    solved: Solved | None = None
    try:
        solved = once(options)
        if options.precision or options.dtype == "float64" or solved.residual <= _AS_FLOAT32:
            return solved
    except (NotPositiveDefiniteError, PrecisionError):
        if options.precision or options.dtype == "float64":
            raise
    solved = None  # P is there twice, and would be four times
    return once(replace(options, precision="float32"))


_SMALL = 512
"""Columns up to which a second thread of BLAS gains nothing, and on a busy machine is waited for."""


def _solve_gram(
    store: Any, added: NDArray[np.float64], options: Options, stage: Stage, engine: str | None = None
) -> Solved:
    """Invert a Gram matrix where it lies, or from memory through a device that cannot hold it."""
    store.add_to_diagonal(added)
    report = stage("Inverse")
    with blas_limited(1 if store.n <= _SMALL else None):
        if isinstance(store.data, np.ndarray) and engine != "torch":
            return Solved(store, invert(store, report), "memory")
        from deql.linalg.engines.torch_invert import invert_on_device, invert_through_device
        from deql.linalg.engines.torch_packed import open_device, threads_limited

        if isinstance(store.data, np.ndarray):
            residual = invert_through_device(store, open_device(options.device), options.precision, report)
            return Solved(store, residual, "torch")
        with threads_limited(thread_count()):
            residual = invert_on_device(store, options.precision, report)
    # On a CPU the kernels rank faster than torch does.
    return Solved(store.to_host(), residual, "torch", None if store.device.type == "cpu" else store)


def _fingerprint(matrix: csr_array, added: NDArray[np.float64], weights: NDArray[np.float64] | None, dtype: str) -> str:
    """A checksum of all that P depends on."""
    from deql.io.container import digest

    arrays = {name: np.ascontiguousarray(getattr(matrix, name)) for name in ("indptr", "indices", "data")}
    arrays["added"] = added
    if weights is not None:
        arrays["weights"] = weights
    return digest({"dtype": dtype}, arrays)
