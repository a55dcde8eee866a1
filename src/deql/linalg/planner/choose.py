"""Engines by name, the one that a fit uses after a look at what is free, and what would fit where none does."""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deql._system.formatting import show_bytes
from deql._system.progress import Stage
from deql.errors import DeqlError, DeviceError, ParameterError, Setting, TooLargeError
from deql.linalg.engines.dask_connection import has_cluster
from deql.linalg.engines.dask_engine import Dask
from deql.linalg.engines.disk import Disk
from deql.linalg.engines.engine import Engine, Problem, Solved
from deql.linalg.engines.memory import Memory
from deql.linalg.engines.neighbours import Neighbours
from deql.linalg.engines.resources import (
    Device,
    PlannedData,
    ProblemSize,
    Requirement,
    Resources,
    find_resources,
    problem_size,
)
from deql.linalg.engines.torch_engine import Torch
from deql.linalg.packed import PackedSymmetric

__all__ = [
    "ENGINES",
    "ENGINE_KEYS",
    "Auto",
    "as_engine",
    "candidate_engines",
    "choose",
    "choose_engine",
    "engine_error",
    "engine_from_config",
    "engine_here",
    "solve",
    "worth_a_device",
]

_SMALL = 2048
"""Up to so many items, the matrix is a few MiB: nobody needs to look whether that is there."""

_FOR_DEVICES, _FOR_LOADING_TORCH = 4000, 12_000
"""Items from which on a device pays: where torch is loaded already, and where that takes some seconds first."""

_WORTH_NAMING = 100
"""Fewer items than these are no advice."""


@dataclass(frozen=True, repr=False)
class Auto(Engine):
    """Compute P where it fits: on a CUDA device if there is one and it pays, else in memory, else on disk.

    Parameters
    ----------
    memory : int or str, optional
        What may be taken, such as ``"4GiB"``: above it the disk is used, within it.
    folder : path, optional
        Where the disk engine would keep its files.
    device : str, optional
        The CUDA device to look at; torch's current one if not given.

    Examples
    --------
    >>> import deql
    >>> data = deql.Interactions.from_pairs(list("aabb"), list("xyyz"))
    >>> deql.EASE(l2=1.0, engine=deql.engines.Auto(memory="4GiB")).fit(data).engine_
    'memory'
    """

    memory: int | str | None = None
    folder: str | os.PathLike[str] | None = None
    device: str | None = None

    name = "auto"

    def __post_init__(self) -> None:
        candidate_engines(self)  # which check what they are given

    def requirement(self, size: ProblemSize, resources: Resources) -> Requirement:
        engine = choose(self, candidate_engines(self), size, resources)
        return engine.requirement(size, resources)

    def solve(self, problem: Problem, stage: Stage) -> Solved:
        engine = choose_engine(problem.rows, engine=self, dtype=problem.dtype, beside=problem.beside)
        if isinstance(engine, Torch):
            try:
                return engine.solve(problem, stage)
            except DeviceError as error:  # somebody else was faster
                warnings.warn(f"{error}; fitted in memory instead", stacklevel=2)
                engine = choose_engine(
                    problem.rows, engine=Memory(self.memory), dtype=problem.dtype, beside=problem.beside
                )
        return engine.solve(problem, stage)

    def without_folder(self) -> Auto:
        return replace(self, folder=None)


ENGINES: dict[str, type[Engine]] = {kind.name: kind for kind in (Auto, Memory, Disk, Torch, Dask, Neighbours)}


ENGINE_KEYS = frozenset({"engine", "memory", "folder", "device", "arithmetic", "scheduler", "k"})
"""Keys of a serialised engine, in options and journals: its name, and its parameters beside it."""


def as_engine(engine: str | Engine) -> Engine:
    """The engine of this name, or that is given.

    Examples
    --------
    >>> as_engine("disk")
    Disk()
    """
    if isinstance(engine, Engine):
        return engine
    if not isinstance(engine, str) or engine not in ENGINES:
        *most, last = map(repr, ENGINES)
        got = f"the class {engine.__name__}" if isinstance(engine, type) else repr(engine)
        raise ParameterError(
            f"engine must be {', '.join(most)} or {last}, got {got}: "
            "say one of these, or an object of deql.engines, such as deql.engines.Disk(memory='4GiB')",
            parameter="engine",
        )
    return ENGINES[engine]()


def engine_from_config(config: Mapping[str, Any]) -> str | Engine:
    """An engine that was serialised, by options, a model file or a journal: its name and its parameters beside it.

    Who names a device, an arithmetic or a scheduler, and no engine, wants the one that has them.

    Examples
    --------
    >>> engine_from_config({"engine": "disk", "memory": "4GiB"}), engine_from_config({"device": "cuda:1"})
    (Disk(memory='4GiB'), Torch(device='cuda:1'))
    >>> engine_from_config({})
    'auto'
    """
    given = {name: value for name, value in config.items() if value is not None}
    name = given.pop("engine", "auto")
    if not given:
        return str(name)
    if name == "auto" and given.keys() & {"device", "arithmetic"}:
        name = "torch"
    if name == "auto" and "k" in given:
        name = "neighbours"
    if name == "auto" and "scheduler" in given:
        name = "dask"
    kind = type(as_engine(name))
    for option in given:
        if option not in inspect.signature(kind).parameters:
            owners = {"memory": "disk", "folder": "disk", "scheduler": "dask or neighbours", "k": "neighbours"}
            owner = owners.get(option, "torch")
            raise ParameterError(
                f"{option} is the {owner} engine's: leave it out with ", Setting("engine", name), parameter=option
            )
    return kind(**given)


def candidate_engines(engine: Engine) -> dict[str, Engine]:
    """The engine itself and all that could be taken instead, as ``engine="auto"`` prefers them."""
    memory, folder, device = (getattr(engine, name, None) for name in ("memory", "folder", "device"))
    several: tuple[Engine, ...] = (Torch(device), Memory(memory), Disk(memory, folder))
    return {one.name: one for one in several} | ({} if isinstance(engine, Auto) else {engine.name: engine})


def choose_engine(
    data: PlannedData, *, engine: str | Engine = "auto", dtype: str = "float32", matrices: int = 1, beside: int = 0
) -> Engine:
    """The engine that a fit uses, after a look at what is free: nothing is measured, and little is read.

    Parameters
    ----------
    data, engine, dtype
        As in :func:`deql.plan`.
    matrices : int, default 1
        2 for a Gram matrix that is kept while copies of it are inverted, as tuning does.
    beside : int, default 0
        Bytes that are needed beside them.

    Returns
    -------
    Engine
        ``engine`` itself unless that is ``"auto"``.

    Raises
    ------
    TooLargeError
        If there is too little memory or disk.

    Examples
    --------
    >>> choose_engine(1000)
    Memory()
    """
    requested = as_engine(engine)
    requested.check(dtype)
    size = replace(problem_size(data, dtype), matrices=matrices, beside=beside)
    if size.n <= _SMALL and isinstance(requested, Auto | Memory) and requested.memory is None:
        return Memory()
    wants_device = isinstance(requested, Torch) or (
        isinstance(requested, Auto) and worth_a_device(size.n, requested.device)
    )
    folder, device = getattr(requested, "folder", None), getattr(requested, "device", None)
    resources = find_resources(folder, devices=wants_device, device=device)
    return choose(requested, candidate_engines(requested), size, resources)


def engine_here(engine: str | Engine) -> str | Engine:
    """The engine, or "auto" if it is torch's or dask's and here is no device or no cluster: models outlive machines.

    Examples
    --------
    >>> engine_here("disk")
    'disk'
    """
    requested = as_engine(engine)
    if isinstance(requested, Dask):
        return engine if has_cluster(requested.client, requested.scheduler) else "auto"
    if not isinstance(requested, Torch):
        return engine
    resources = find_resources(None, devices=True, device=requested.device)
    needed = requested.requirement(problem_size(1, "float32"), resources)
    return "auto" if needed.why_not is not None and not needed.too_large else engine


def choose(requested: Engine, candidates: Mapping[str, Engine], size: ProblemSize, resources: Resources) -> Engine:
    """The engine requested, or the first that fits; else an error that says what would do."""
    for engine in candidates.values():
        worth = not isinstance(engine, Torch) or worth_a_device(size.n, engine.device)
        eligible = engine.name == requested.name or (isinstance(requested, Auto) and worth)
        if eligible and engine.requirement(size, resources).why_not is None:
            return engine
    raise engine_error(requested.name, candidates, size, resources)


def worth_a_device(n: int, device: str | None) -> bool:
    """Whether so many items take longer than it takes to load torch and open a device."""
    return device != "cpu" and n >= (_FOR_DEVICES if "torch" in sys.modules else _FOR_LOADING_TORCH)


def engine_error(requested: str, engines: Mapping[str, Engine], size: ProblemSize, resources: Resources) -> DeqlError:
    """The error for an engine that cannot fit so much, or for all: what is needed, what is free, and what would fit.

    Parameters
    ----------
    requested : str
        Name of the engine requested, or "auto".
    engines : dict
        All that could be taken, by name.
    size : ProblemSize
    resources : Resources

    Examples
    --------
    >>> from pathlib import Path
    >>> from deql.linalg.engines.disk import Disk
    >>> from deql.linalg.engines.memory import Memory
    >>> resources = Resources(memory=2**30, disk=2**30, folder=Path("/data"), on_disk=True)
    >>> engines = {"torch": Torch(), "memory": Memory(), "disk": Disk()}
    >>> print(engine_error("memory", engines, ProblemSize(30_000, "float32"), resources))  # doctest: +ELLIPSIS
    30,000 items in float32 are too many for the memory engine: it needs ... of memory, and 1.0 GiB are free. ...
    """
    needs = {name: engine.requirement(size, resources) for name, engine in engines.items()}
    requirement = needs["memory" if requested == "auto" else requested]
    if not requirement.too_large:
        return ParameterError(
            Setting("engine", requested), f" cannot be used: {requirement.why_not}", parameter="engine"
        )
    what = f"{size.n:,} items in {size.dtype} are too many"
    if requested == "auto":
        why = f"{what}: in memory {requirement.why_not}; on disk {needs['disk'].why_not}"
    else:
        why = f"{what} for the {requested} engine: {requirement.why_not}"

    def would_fit(other: ProblemSize) -> bool:
        usable = engines.values() if requested == "auto" else (engines[requested],)
        return any(engine.requirement(other, resources).why_not is None for engine in usable)

    parts: list[Any] = []
    for alternative in _alternatives(size, resources, needs, would_fit):
        parts += [", or " if parts else f"{why}. What would fit: ", *alternative]
    return TooLargeError(*parts)


def _alternatives(
    size: ProblemSize, resources: Resources, needs: Mapping[str, Requirement], would_fit: Callable[[ProblemSize], bool]
) -> list[tuple[Any, ...]]:
    """Each as parts of a message."""
    found: list[tuple[Any, ...]] = []
    if size.dtype == "float64" and would_fit(replace(size, dtype="float32")):
        found.append((Setting("dtype", "float32"),))
    for name, one in needs.items():
        if one.why_not is None:
            found.append((Setting("engine", name), f" with {show_bytes(one.disk)} of disk" if one.disk else ""))
    if needs["disk"].too_large and needs["disk"].disk > resources.disk:
        free = show_bytes(needs["disk"].disk)
        found.append((Setting("engine", "disk"), f" with a folder that has {free} free"))
    if needs["torch"].why_not and (least := _device_that_would_do(size, resources)):
        found.append((Setting("engine", "torch"), f" on a device with {show_bytes(least)} free"))
    found.append((f"a machine with {show_bytes(needs['memory'].memory)} of memory",))
    return [*found, *_fewer_items(size, would_fit)]


def _device_that_would_do(size: ProblemSize, resources: Resources) -> int:
    """Bytes of a device, or 0 if memory would be short even with it: P is kept there in the end."""
    vast = Device("cuda:0", "", 2**60, 2**60)
    requirement = Torch().requirement(size, replace(resources, torch=True, devices=(vast,)))
    return 0 if requirement.why_not else requirement.device_memory


def _fewer_items(size: ProblemSize, would_fit: Callable[[ProblemSize], bool]) -> list[tuple[Any, ...]]:
    """How many items would fit, and which minimum of users leaves no more than that."""
    low, high = 1, size.n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if would_fit(replace(size, n=middle)) else (low, middle)
    users = size.item_counts
    if users is None:
        return [(f"{low:,} items",)] if low >= _WORTH_NAMING else []
    # Of the items with as many users as the first that is one too many, none can stay.
    least = int(np.sort(users)[::-1][low]) + 1
    kept = int((users >= least).sum())
    if kept < _WORTH_NAMING:
        return []
    return [(f"the {kept:,} items that ", Setting("min_users_per_item", least), " leaves")]


def solve(
    problem: Problem,
    engine: str | Engine = "auto",
    *,
    shared: PackedSymmetric | None = None,
    stage: Stage = lambda _label: None,
) -> Solved:
    """P = (RᵀΛR + diag(added))⁻¹.

    Parameters
    ----------
    problem : Problem
    engine : str or Engine, default "auto"
    shared : PackedSymmetric, optional
        The Gram matrix, if it is there already, in memory or on a device (see :meth:`Engine.gram`). It is copied, and
        inverted where it is, whatever the engine.
    stage : callable, optional
        See :func:`deql._system.progress.stages`.

    Raises
    ------
    TooLargeError
        Before any work, if there is too little memory or disk.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> solved = solve(Problem(csr_array([[1.0, 0.0], [0.0, 2.0]]), np.ones(2)))
    >>> solved.precision.diagonal().round(4).tolist(), solved.engine
    ([0.5, 0.2], 'memory')
    """
    if shared is not None:
        where = Memory() if isinstance(shared.data, np.ndarray) else Torch()
        return where.invert(shared.copy(), problem.added, stage)
    chosen = as_engine(engine)
    if not isinstance(chosen, Auto):  # which looks for itself, and has something to fall back on
        chosen = choose_engine(problem.rows, engine=chosen, dtype=problem.dtype, beside=problem.beside)
    return chosen.solve(problem, stage)
