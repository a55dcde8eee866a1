"""What the paper reports, as numbers."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["HEADS", "LINEAR", "METRICS", "NAMES", "NETWORKS", "ROWS", "WEIGHTED", "WITH_PRIOR", "reported"]

METRICS = ("recall@20", "ndcg@20")
"""What the paper measures."""

NAMES = {"recall@20": "Recall@20", "ndcg@20": "NDCG@20"}
HEADS = {"recall@20": "R@20", "ndcg@20": "N@20"}
"""How it writes that in sentences and above columns."""

WEIGHTED = "DEQL(L2) + weights"
WITH_PRIOR = "DEQL(L2) + weights + low pass"
"""Rows that the paper does not have: user_power and popularity_power searched, too, and then a low pass as prior."""

LINEAR = (
    "EASE", "DLAE", "EDLAE", "RLAE", "RDLAE", "DEQL(plain)", "DEQL(L2+zero-diag)", "DEQL(L2)", WEIGHTED, WITH_PRIOR,
)  # fmt: skip
"""Closed forms among the rows of the tables, in their order."""

NETWORKS = ("LightGCN", "SGL-ED", "SSM (MF)", "SSM (GNN)")
"""Networks among them that can be trained here, with torch."""

ROWS = (*NETWORKS, *LINEAR)
"""Rows of the tables that can be fitted here."""


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(files("deql.paper").joinpath("published.toml").read_text("utf-8"))


def reported(table: str, data: str) -> dict[str, list[float]]:
    """The numbers of each row of a table for one data set; none if the paper has none.

    Parameters
    ----------
    table : {"weak", "strong", "splits", "tests", "cost"}
    data : str
        Name of the data set, as :data:`deql.datasets.public.PRESETS` has it.

    Examples
    --------
    >>> reported("weak", "gowalla")["EASE"]
    [0.1765, 0.1467]
    >>> reported("weak", "debian")
    {}
    """
    return dict(_tables()[table].get(data, {}))
