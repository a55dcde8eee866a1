"""Which model each row of the tables is, and what is chosen of it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from deql.models import DEQL, DLAE, EASE, EDLAE, RDLAE, RLAE, Recommender
from deql.neural import SGL, SSM, LightGCN
from deql.paper.published import WEIGHTED, WITH_PRIOR

__all__ = ["KINDS", "is_whole"]

_TRAINING = ["epochs", "batch_size", "learning_rate", "weight_decay"]

KINDS: dict[str, tuple[type[Recommender], dict[str, Any], list[str]]] = {
    "LightGCN": (LightGCN, {}, ["layers", *_TRAINING]),
    "SGL-ED": (SGL, {}, ["temperature", "contrast_weight", "edge_dropout", "layers", *_TRAINING]),
    "SSM (MF)": (SSM, {"backbone": "mf"}, ["temperature", "negatives", *_TRAINING]),
    "SSM (GNN)": (SSM, {"backbone": "lightgcn"}, ["temperature", "negatives", "layers", *_TRAINING]),
    "EASE": (EASE, {}, ["l2"]),
    "DLAE": (DLAE, {}, ["l2", "dropout"]),
    "EDLAE": (EDLAE, {}, ["l2", "dropout"]),
    "RLAE": (RLAE, {}, ["l2", "xi"]),
    "RDLAE": (RDLAE, {}, ["l2", "dropout", "xi"]),
    "DEQL(plain)": (DEQL, {"l2": 0.0}, ["dropout", "b"]),
    "DEQL(L2+zero-diag)": (DEQL, {"zero_diagonal": True}, ["l2", "dropout"]),
    "DEQL(L2)": (DEQL, {}, ["l2", "dropout", "b"]),
    WEIGHTED: (DEQL, {}, ["l2", "dropout", "b", "user_power", "popularity_power"]),
    WITH_PRIOR: (DEQL, {}, ["l2", "dropout", "b", "user_power", "popularity_power", "prior", "prior_weight"]),
}
"""Of each row the model, what is fixed of it, and what is chosen; the first of those must be there."""


def is_whole(kind: type[Recommender], name: str) -> bool:
    """Whether a parameter of a model counts something.

    Examples
    --------
    >>> is_whole(LightGCN, "layers"), is_whole(LightGCN, "weight_decay"), is_whole(EASE, "l2")
    (True, False, False)
    """
    return any(field.name == name and field.type == "int" for field in fields(kind))
