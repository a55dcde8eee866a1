"""Small data and choices for the tables, so that making one takes a moment."""

from __future__ import annotations

from itertools import product

import numpy as np

from deql.io.journal import Journal
from deql.paper.hyperparameters import Choice, own_choices, write_choices
from deql.paper.measurement_log import MeasurementLog
from deql.paper.paper_datasets import find_datasets
from deql.paper.published import WEIGHTED, WITH_PRIOR
from deql.paper.table_request import TableRequest
from tests.tuning.common import market

SMALL = {
    "EASE": {"l2": 5.0},
    "DLAE": {"l2": 5.0, "dropout": 0.4},
    "EDLAE": {"l2": 2.0, "dropout": 0.5},
    "RLAE": {"l2": 5.0, "xi": 0.2},
    "RDLAE": {"l2": 5.0, "dropout": 0.4, "xi": 0.1},
    "DEQL(plain)": {"dropout": 0.6, "b": 0.5},
    "DEQL(L2+zero-diag)": {"l2": 2.0, "dropout": 0.5},
    "DEQL(L2)": {"l2": 5.0, "dropout": 0.4, "b": 0.5},
    WEIGHTED: {"l2": 1.0, "dropout": 0.4, "b": 0.5, "user_power": 0.5, "popularity_power": 0.2},
    WITH_PRIOR: {
        "l2": 1.0, "dropout": 0.4, "b": 0.5, "user_power": 0.5, "popularity_power": 0.2,
        "prior": "lowpass:rank=8,power_in=0.2", "prior_weight": 0.5,
    },
}  # fmt: skip
"""Hyper-parameters of every row of the tables."""


def shop():
    """400 customers of 90 goods: stands for the bundled data; so many goods that twenty are not nearly all."""
    return market(users=400, items=90, seed=3)


def use_small(monkeypatch):
    """The bundled data are small, and so are the matrices: threads would only wait for each other."""
    data = shop()
    monkeypatch.setattr("deql.datasets.debian", lambda: data)
    # What the library has chosen for the real data would mix with what a test chooses.
    monkeypatch.setattr(
        "deql.paper.table_request.stored_choices", lambda key, own=None: own_choices(own).get(key, []) if own else []
    )
    monkeypatch.setenv("DEQL_THREADS", "1")
    return data


def found(rows=SMALL, **changed):
    """Choices that a search might have made, by row; ``changed`` replaces the parameters of some."""
    worth = {"recall@20": 0.5, "ndcg@20": 0.4}
    return [
        Choice(row, parameters, "found", "a search", worth | {"ndcg@20": 0.4 + 0.01 * place})
        for place, (row, parameters) in enumerate((rows | changed).items())
    ]


def write_small(folder, keys=("debian-strong", "debian-weak"), rows=SMALL, **changed):
    """The same choices for some data sets, as a file that tables read before the library's own."""
    path = folder / "choices.toml"
    path.write_text(write_choices({key: found(rows, **changed) for key in keys}), encoding="utf-8")
    return path


def table_request(folder, protocols=("strong",), data=None, own=None, journal=None, **log):
    """What a table is made of: the bundled data, and what a folder ``data`` has."""
    datasets, missing = find_datasets(data, protocols)
    return TableRequest(
        MeasurementLog(Journal(journal, {}, "reproduction"), **log), datasets, missing, own or write_small(folder)
    )


def write_checkins(folder):
    """Gowalla's check-ins as SNAP has them, of the same customers; each place is visited twice."""
    folder.mkdir(parents=True)
    data = shop()
    rows = np.repeat(np.arange(data.n_users), np.diff(data.matrix.indptr))
    lines = [f"{user}\t2010-10-19T23:55:{again:02}Z\t30.2\t-97.8\t{item}"
             for (user, item), again in product(zip(rows, data.matrix.indices, strict=True), range(2))]  # fmt: skip
    (folder / "loc-gowalla_totalCheckins.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
