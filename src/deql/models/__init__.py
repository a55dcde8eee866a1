"""The estimators people use, each imported at its first use: ELSA is trained where there are NumPy and torch alone."""

from typing import TYPE_CHECKING

from deql._system.lazy import lazy_exports

if TYPE_CHECKING:
    from deql.models.base import Recommender
    from deql.models.custom import CustomLinear
    from deql.models.elsa.elsa import ELSA
    from deql.models.family import DEQL, DLAE, EASE, EDLAE, LAE, RDLAE, RLAE
    from deql.models.loading import load
    from deql.models.lowrank.lowrank import LowRankDEQL
    from deql.models.popularity import Popularity
    from deql.models.slim.slim import SLIM

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
    "LowRankDEQL",
    "Popularity",
    "Recommender",
    "load",
]

MODEL_HOMES = {
    "deql.models.family": ("DEQL", "DLAE", "EASE", "EDLAE", "LAE", "RDLAE", "RLAE"),
    "deql.models.lowrank.lowrank": ("LowRankDEQL",),
    "deql.models.slim.slim": ("SLIM",),
    "deql.models.elsa.elsa": ("ELSA",),
    "deql.models.neural.lightgcn": ("LightGCN",),
    "deql.models.neural.ssm": ("SSM",),
    "deql.models.neural.sgl": ("SGL",),
    "deql.models.custom": ("CustomLinear",),
    "deql.models.popularity": ("Popularity",),
}
"""The models that can be fitted, saved and named on the command line, by the module that defines them."""

MODEL_NAMES = tuple(name for names in MODEL_HOMES.values() for name in names)

__getattr__, __dir__ = lazy_exports(
    __name__,
    MODEL_HOMES
    | {
        "deql.models.base": ("Recommender",),
        "deql.models.loading": ("load",),
    },
)
