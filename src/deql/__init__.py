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
    from deql import datasets, objective, rules
    from deql.errors import DeqlError, ModelFileError
    from deql.evaluation import evaluate
    from deql.evaluation.contest import compare
    from deql.imputation import LinearImputer
    from deql.interactions import Interactions
    from deql.interactions.clean import clean
    from deql.interactions.read import read_interactions
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
    from deql.parallel import set_threads
    from deql.planning import plan
    from deql.split import load_split, split_leave_last, split_strong, split_weak
    from deql.store import load
    from deql.tuning import tune


# Where each public name lives: imported at first use, so that `import deql` costs nothing.
_HOMES = {
    "deql.interactions": ("Interactions",),
    "deql.interactions.read": ("read_interactions",),
    "deql.interactions.clean": ("clean",),
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
    "deql.imputation": ("LinearImputer",),
    "deql.evaluation": ("evaluate",),
    "deql.evaluation.contest": ("compare",),
    "deql.parallel": ("set_threads",),
    "deql.planning": ("plan",),
    "deql.store": ("load",),
    "deql.tuning": ("tune",),
    "deql.errors": ("DeqlError", "ModelFileError"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ("datasets", "objective", "rules")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"deql.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'deql' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
