"""Closed-form recommenders: EASE, EDLAE, DEQL and their kin, exact, fast, memory-lean and explainable.

>>> import deql
>>> data = deql.datasets.debian()
>>> data
Interactions(17,432 users × 5,834 items, 173,855 interactions)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "DEQL",
    "DLAE",
    "EASE",
    "EDLAE",
    "ELSA",
    "LAE",
    "RDLAE",
    "RLAE",
    "SLIM",
    "CustomLinear",
    "DeqlError",
    "Interactions",
    "LinearImputer",
    "LowRankDEQL",
    "ModelFileError",
    "Popularity",
    "__version__",
    "clean",
    "compare",
    "datasets",
    "engines",
    "evaluate",
    "load",
    "load_split",
    "objective",
    "plan",
    "read_interactions",
    "rules",
    "set_threads",
    "split_leave_last",
    "split_strong",
    "split_weak",
    "tune",
]

if TYPE_CHECKING:
    from deql import datasets, engines, objective, rules
    from deql._system.threads import set_threads
    from deql.data import Interactions
    from deql.data.clean import clean
    from deql.data.read import read_interactions
    from deql.errors import DeqlError, ModelFileError
    from deql.evaluation import evaluate
    from deql.evaluation.compare import compare
    from deql.impute import LinearImputer
    from deql.io.model_file import load
    from deql.linalg.planner import plan
    from deql.models import (
        DEQL,
        DLAE,
        EASE,
        EDLAE,
        ELSA,
        LAE,
        RDLAE,
        RLAE,
        SLIM,
        CustomLinear,
        LowRankDEQL,
        Popularity,
    )
    from deql.split import load_split, split_leave_last, split_strong, split_weak
    from deql.tuning import tune


# Where each public name lives: imported at first use, so that `import deql` costs nothing.
_HOMES = {
    "deql.data": ("Interactions",),
    "deql.data.read": ("read_interactions",),
    "deql.data.clean": ("clean",),
    "deql.split": ("load_split", "split_leave_last", "split_strong", "split_weak"),
    "deql.models": (
        "DEQL",
        "DLAE",
        "EASE",
        "EDLAE",
        "LAE",
        "RDLAE",
        "RLAE",
        "Popularity",
        "CustomLinear",
        "ELSA",
        "LowRankDEQL",
        "SLIM",
    ),
    "deql.impute": ("LinearImputer",),
    "deql.evaluation": ("evaluate",),
    "deql.evaluation.compare": ("compare",),
    "deql._system.threads": ("set_threads",),
    "deql.linalg.planner": ("plan",),
    "deql.io.model_file": ("load",),
    "deql.tuning": ("tune",),
    "deql.errors": ("DeqlError", "ModelFileError"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ("datasets", "engines", "objective", "rules")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"deql.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'deql' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
