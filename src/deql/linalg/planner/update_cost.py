"""What changing P by few columns takes, beside what computing it anew does: seconds, memory and disk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from deql._system.threads import thread_count
from deql.linalg.engines.engine import Engine
from deql.linalg.engines.resources import PlannedData, ProblemSize, Requirement, find_resources, problem_size
from deql.linalg.planner.calibration import Rates, predict, quick_rates
from deql.linalg.planner.choose import choose_engine

__all__ = [
    "NOMINAL_RATES",
    "UpdateSize",
    "refit_cost",
    "small_update",
    "update_disk",
    "update_memory",
    "update_seconds",
]

_SMALL = 1e9
"""n³ up to which both ways take no time, and nothing is measured."""

NOMINAL_RATES: Rates = {"products": 5e10, "memory": 5e9}
"""What a modest machine does, for problems that are too small to measure anything for."""

_FIXED, _FIXED_REFIT = 2e-3, 4e-3
"""Seconds that an update takes, and a fit, however little there is to do."""

_EFFICIENCY = 0.8
"""Of thin products over large ones."""

_PER_INTERACTION = 2e-8
"""Seconds of one thread to multiply one interaction with the vectors that find the residual."""


@dataclass(frozen=True)
class UpdateSize:
    """How large an update of P is.

    Attributes
    ----------
    n : int
        Items afterwards.
    dtype : str
    rank : int
        Columns of the change of A, without those of retired items.
    touched : int
        |T|, the items whose columns of A change.
    retired, new_items : int
    prior_columns : int, default 0
        Of a prior's factor P·U, which changes with P.
    prior_flops : float, default 0
        Of that change.
    interactions : int, default 0
        Of the data, from which the residual is found; 0 if they are not known.
    """

    n: int
    dtype: str
    rank: int
    touched: int
    retired: int = 0
    new_items: int = 0
    prior_columns: int = 0
    prior_flops: float = 0.0
    interactions: int = 0

    @property
    def stores(self) -> list[int]:
        """Bytes of the stores that P goes through, one after the other."""
        whole, last = (ProblemSize(n, self.dtype).packed for n in (self.n + self.retired, self.n))
        return [
            *([whole] if self.new_items else []),
            *([whole, last] if self.retired else []),
            *([last] if self.rank else []),
        ]


def small_update(n: int) -> bool:
    """Whether so few items take no time either way.

    Examples
    --------
    >>> small_update(900), small_update(5000)
    (True, False)
    """
    return float(n) ** 3 < _SMALL


def update_seconds(size: UpdateSize, engine: str, rates: Rates) -> float:
    """Seconds that a low-rank update takes.

    P·F takes |T| columns of P, and few flops, as F is sparse; P − G·C·Gᵀ takes n²·k. G·C and C itself are made in
    float64, at half the rate of float32, the factors of C by one thread, so that bits do not depend on the number of
    threads. Beside that P is read and written as often as there are stores, and read once more for the residual.

    Parameters
    ----------
    size : UpdateSize
    engine : {"memory", "disk", "torch"}
        Where P is.
    rates : dict
        Flops in a second of ``products``, bytes of ``memory``; of ``read`` and ``write`` for a disk, of a ``device``
        and of ``copy`` to it for torch.

    Examples
    --------
    >>> one = update_seconds(UpdateSize(12_000, "float32", 60, 60), "memory", NOMINAL_RATES)
    >>> several = update_seconds(UpdateSize(12_000, "float32", 1200, 1200), "memory", NOMINAL_RATES)
    >>> one < 1 < several
    True
    """
    n, doubled = float(size.n), 2 if size.dtype == "float32" else 1
    flops, double, alone, gathered = size.prior_flops, 0.0, 0.0, 0.0
    for k, touched in ((size.retired, size.retired), (size.rank, size.touched)):
        flops += n * n * k
        gathered += n * max(k, touched)
        double += 2 * n * k * k + 4 * float(k) ** 3
        alone += 2 * float(k) ** 3
    numbers = rates["device" if engine == "torch" else "products"]
    seconds = _FIXED + flops / (_EFFICIENCY * numbers)
    seconds += doubled * (double + alone * thread_count()) / (_EFFICIENCY * rates["products"])
    stored = sum(size.stores)
    panels = 2 * (8 / doubled) * gathered
    seconds += (stored + panels) / rates["memory"] + size.interactions * _PER_INTERACTION
    last = ProblemSize(size.n, size.dtype).packed
    if engine == "disk":
        return seconds + (stored + last) / rates["read"] + stored / rates["write"]
    if engine == "torch":
        return seconds + last / rates["copy"]
    return seconds + last / (2 * rates["memory"])  # which is read, and not written


def refit_cost(
    data: PlannedData,
    engine: str | Engine,
    dtype: str,
    prior_columns: int = 0,
    prior_flops: float = 0.0,
    calibrate: bool = True,
) -> tuple[float, Requirement]:
    """Seconds that a fit takes, and what the engine needs that would do it.

    Parameters
    ----------
    data : Interactions, sparse matrix or int
        As :func:`deql.plan` takes them.
    engine : str or Engine
        Requested.
    dtype : str
    prior_columns : int, default 0
        Of the factor of a prior that P is multiplied with.
    prior_flops : float, default 0
        Of that product.
    calibrate : bool, default True
        Measure this machine, if it was not before; else nominal rates count.

    Raises
    ------
    TooLargeError
        If there is too little memory or disk.

    Examples
    --------
    >>> seconds, needed = refit_cost(500, "memory", "float32", calibrate=False)
    >>> seconds < 0.1, needed.engine
    (True, 'memory')
    """
    size = problem_size(data, dtype)
    size = replace(size, beside=4 * size.n * prior_columns)
    chosen = choose_engine(data, engine=engine, dtype=dtype, beside=size.beside)
    resources = find_resources(getattr(chosen, "folder", None), devices=chosen.name == "torch")
    needed = chosen.requirement(size, resources)
    if calibrate:
        rates = quick_rates(
            needed.engine, dtype, size.tile, resources.folder, getattr(chosen, "device", None) or "cuda"
        )
        seconds = predict(needed, size, rates)
    else:
        rates = NOMINAL_RATES
        seconds = predict(replace(needed, engine="memory", passes=0), size, rates)
    assert seconds is not None
    return _FIXED_REFIT + seconds + prior_flops / rates["products"], needed


def update_memory(size: UpdateSize, engine: str) -> int:
    """Bytes of memory that a low-rank update takes beside the model: two stores at most, panels, and the core.

    The core is there six times as it is made: M, K, K made symmetric, the factors, C, and C turned.

    Examples
    --------
    >>> update_memory(UpdateSize(12_000, "float32", 700, 700), "memory") // 2**20
    337
    """
    itemsize = 4 if size.dtype == "float32" else 8
    panels = size.n * (size.rank + size.retired) * itemsize
    widest = max(size.rank, size.retired)
    thin = panels + 6 * 8 * widest**2 + 8 * size.n * size.prior_columns + 16 * size.interactions
    return thin if engine == "disk" else thin + _at_once(size.stores)


def update_disk(size: UpdateSize, engine: str) -> int:
    """Bytes of disk that it takes where P is on one.

    Examples
    --------
    >>> update_disk(UpdateSize(12_000, "float32", 700, 700), "memory")
    0
    """
    return _at_once(size.stores) if engine == "disk" else 0


def _at_once(stores: list[int]) -> int:
    """Each store is made from the one before; the model's own is not counted."""
    return max(map(sum, pairwise(stores)), default=stores[0] if stores else 0)
