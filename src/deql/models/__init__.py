"""The estimators people use."""

from deql.models.base import Recommender
from deql.models.custom import CustomLinear
from deql.models.elsa.elsa import ELSA
from deql.models.family import DEQL, DLAE, EASE, EDLAE, LAE, RDLAE, RLAE
from deql.models.linear import LinearAutoencoder
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
    "LinearAutoencoder",
    "LowRankDEQL",
    "Popularity",
    "Recommender",
]
