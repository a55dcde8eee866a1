"""The estimators people use."""

from deql.models.base import Recommender
from deql.models.family import DEQL, DLAE, EASE, EDLAE, LAE, RDLAE, RLAE
from deql.models.linear import LinearAutoencoder
from deql.models.popularity import Popularity

__all__ = ["DEQL", "DLAE", "EASE", "EDLAE", "LAE", "RDLAE", "RLAE", "LinearAutoencoder", "Popularity", "Recommender"]
