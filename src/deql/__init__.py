"""Closed-form recommenders: EASE, EDLAE, DEQL and their kin, exact, fast, memory-lean and explainable.

>>> import deql
>>> data = deql.datasets.debian()
>>> data
Interactions(17,432 users × 5,834 items, 173,855 interactions)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deql import models
from deql._system.compiling import keep_compiled
from deql._system.lazy import lazy_exports
from deql._version import __version__

keep_compiled()

__all__ = [
    "CheckpointError",
    "ClusterError",
    "Comparison",
    "DataError",
    "DeqlError",
    "DeviceError",
    "Evaluation",
    "HeldOut",
    "InaccurateInverseError",
    "Interactions",
    "JournalError",
    "LinearImputer",
    "ModelFileError",
    "NotFittedError",
    "NotPositiveDefiniteError",
    "ParameterError",
    "PartitionedInteractions",
    "Split",
    "SplitFileError",
    "TileFileError",
    "TooLargeError",
    "UnknownItemError",
    "__version__",
    "clean",
    "cluster",
    "compare",
    "datasets",
    "engines",
    "evaluate",
    "join",
    "k_fold",
    "load_split",
    "neural",
    "objective",
    "plan",
    "priors",
    "read_interactions",
    "read_partitions",
    "rules",
    "set_threads",
    "split_leave_last",
    "split_strong",
    "split_time",
    "split_weak",
    "tune",
]
__all__ += models.__all__

if TYPE_CHECKING:
    from deql import cluster, datasets, engines, neural, objective, priors, rules
    from deql._system.threads import set_threads
    from deql.data.clean import clean
    from deql.data.interactions import Interactions
    from deql.data.join import join
    from deql.data.partitions import PartitionedInteractions
    from deql.data.read import read_interactions
    from deql.data.read_partitions import read_partitions
    from deql.errors import (
        CheckpointError,
        ClusterError,
        DataError,
        DeqlError,
        DeviceError,
        InaccurateInverseError,
        JournalError,
        ModelFileError,
        NotFittedError,
        NotPositiveDefiniteError,
        ParameterError,
        SplitFileError,
        TileFileError,
        TooLargeError,
        UnknownItemError,
    )
    from deql.evaluation import Evaluation, evaluate
    from deql.evaluation.comparison import compare
    from deql.evaluation.comparison_result import Comparison
    from deql.impute import LinearImputer
    from deql.linalg.planner import plan
    from deql.models import *  # noqa: F403  one list of models, theirs
    from deql.split import HeldOut, Split, k_fold, load_split, split_leave_last, split_strong, split_time, split_weak
    from deql.tuning import tune

# Imported at first use, so that `import deql` costs nothing.
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "deql.data.interactions": ("Interactions",),
        "deql.data.read": ("read_interactions",),
        "deql.data.partitions": ("PartitionedInteractions",),
        "deql.data.read_partitions": ("read_partitions",),
        "deql.data.clean": ("clean",),
        "deql.data.join": ("join",),
        "deql.split": (
            "HeldOut", "Split", "k_fold", "load_split", "split_leave_last", "split_strong", "split_time", "split_weak",
        ),
        "deql.models": models.__all__,
        "deql.impute": ("LinearImputer",),
        "deql.evaluation": ("Evaluation", "evaluate"),
        "deql.evaluation.comparison": ("compare",),
        "deql.evaluation.comparison_result": ("Comparison",),
        "deql._system.threads": ("set_threads",),
        "deql.linalg.planner": ("plan",),
        "deql.tuning": ("tune",),
        "deql.errors": (
            "CheckpointError", "ClusterError", "DataError", "DeqlError", "DeviceError", "JournalError",
            "ModelFileError", "NotFittedError", "NotPositiveDefiniteError", "ParameterError",
            "InaccurateInverseError", "SplitFileError", "TileFileError", "TooLargeError", "UnknownItemError",
        ),
    },
    modules=("cluster", "datasets", "engines", "neural", "objective", "priors", "rules"),
)  # fmt: skip
