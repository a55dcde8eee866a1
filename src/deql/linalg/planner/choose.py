"""``engine="auto"``, engines by name, and the engine that a fit uses after a look at what is free."""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from deql._system.progress import Stage
from deql.errors import DeviceError, ParameterError, Setting
from deql.linalg.engines.disk import Disk
from deql.linalg.engines.engine import Engine, Problem, Solved
from deql.linalg.engines.memory import Memory
from deql.linalg.engines.requirements import Need, Task, task_of
from deql.linalg.engines.resources import Resources, find_resources
from deql.linalg.engines.torch_engine import Torch
from deql.linalg.planner.advice import refusal

__all__ = [
    "ENGINES",
    "ENGINE_WORDS",
    "Auto",
    "as_engine",
    "candidates",
    "choose",
    "choose_engine",
    "engine_from",
    "worth_a_device",
]

_SMALL = 2048
"""Up to so many items, the matrix is a few MiB: nobody needs to look whether that is there."""

_FOR_DEVICES, _FOR_LOADING_TORCH = 4000, 12_000
"""Items from which on a device pays: where torch is loaded already, and where that takes some seconds first."""


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
        candidates(self)  # which check what they are given

    def need(self, task: Task, there: Resources) -> Need:
        engine = choose(self, candidates(self), task, there)
        return engine.need(task, there)

    def solve(self, problem: Problem, stage: Stage) -> Solved:
        engine = choose_engine(problem.matrix, engine=self, dtype=problem.dtype)
        if isinstance(engine, Torch):
            try:
                return engine.solve(problem, stage)
            except DeviceError as error:  # somebody else was faster
                warnings.warn(f"{error}; fitted in memory instead", stacklevel=2)
                engine = choose_engine(problem.matrix, engine=Memory(self.memory), dtype=problem.dtype)
        return engine.solve(problem, stage)

    def without_folder(self) -> Auto:
        return replace(self, folder=None)


ENGINES: dict[str, type[Engine]] = {kind.name: kind for kind in (Auto, Memory, Disk, Torch)}


ENGINE_WORDS = frozenset({"engine", "memory", "folder", "device", "arithmetic"})
"""How options and journals spell an engine: its name, and its parameters beside it."""


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
        raise ParameterError(f"engine must be {', '.join(most)} or {last}, got {engine!r}", parameter="engine")
    return ENGINES[engine]()


def engine_from(words: Mapping[str, Any]) -> str | Engine:
    """An engine as options, a model file or a journal spell it: its name and, apart from that, its parameters.

    Who names a device or an arithmetic, and no engine, wants the one that has them.

    Examples
    --------
    >>> engine_from({"engine": "disk", "memory": "4GiB"}), engine_from({"device": "cuda:1"}), engine_from({})
    (Disk(memory='4GiB'), Torch(device='cuda:1'), 'auto')
    """
    given = {name: value for name, value in words.items() if value is not None}
    name = given.pop("engine", "auto")
    if not given:
        return str(name)
    if name == "auto" and given.keys() & {"device", "arithmetic"}:
        name = "torch"
    kind = type(as_engine(name))
    for option in given:
        if option not in inspect.signature(kind).parameters:
            owner = "disk" if option in ("memory", "folder") else "torch"
            raise ParameterError(
                f"{option} is the {owner} engine's: leave it out with ", Setting("engine", name), parameter=option
            )
    return kind(**given)


def candidates(engine: Engine) -> dict[str, Engine]:
    """The engine itself and all that could be taken instead, as ``engine="auto"`` prefers them."""
    memory, folder, device = (getattr(engine, name, None) for name in ("memory", "folder", "device"))
    several: tuple[Engine, ...] = (Torch(device), Memory(memory), Disk(memory, folder))
    return {one.name: one for one in several} | ({} if isinstance(engine, Auto) else {engine.name: engine})


def choose_engine(data: Any, *, engine: str | Engine = "auto", dtype: str = "float32", matrices: int = 1) -> Engine:
    """The engine that a fit uses, after a look at what is free: nothing is measured, and little is read.

    Parameters
    ----------
    data, engine, dtype
        As in :func:`deql.plan`.
    matrices : int, default 1
        2 for a Gram matrix that is kept while copies of it are inverted, as tuning does.

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
    asked = as_engine(engine)
    asked.check(dtype)
    task = replace(task_of(data, dtype), matrices=matrices)
    if task.n <= _SMALL and isinstance(asked, Auto | Memory) and asked.memory is None:
        return Memory()
    wants_device = isinstance(asked, Torch) or (isinstance(asked, Auto) and worth_a_device(task.n, asked.device))
    folder, device = getattr(asked, "folder", None), getattr(asked, "device", None)
    there = find_resources(folder, devices=wants_device, device=device)
    return choose(asked, candidates(asked), task, there)


def choose(asked: Engine, among: Mapping[str, Engine], task: Task, there: Resources) -> Engine:
    """The engine asked for, or the first that fits; else an error that says what would do."""
    for engine in among.values():
        worth = not isinstance(engine, Torch) or worth_a_device(task.n, engine.device)
        eligible = engine.name == asked.name or (isinstance(asked, Auto) and worth)
        if eligible and engine.need(task, there).why_not is None:
            return engine
    raise refusal(asked.name, among, task, there)


def worth_a_device(n: int, device: str | None) -> bool:
    """Whether so many items take longer than it takes to load torch and open a device."""
    return device != "cpu" and n >= (_FOR_DEVICES if "torch" in sys.modules else _FOR_LOADING_TORCH)
