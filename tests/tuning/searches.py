"""Searches that the tests run in processes of their own, to kill them."""

from __future__ import annotations

from unittest.mock import patch

import deql
from deql.tuning import tuner
from tests.tuning.common import market

SPACE = {
    "l2": [1, 5, 25, 125],
    "dropout": [0.0, 0.3, 0.6, 0.9],
    "user_power": [0, 0.6],
    "b": [0, 0.25, 0.5, 1, 1.5, 2, 3],
    "xi": [0.1, 0.3],
    "popularity_power": [0, 0.1, 0.2],
    "prior_rank": [4, 8],
    "prior_power_in": [0.1, 0.5],
    "prior_power_out": 0.5,
    "prior_weight": [0.2, 0.8],
}


def run(search, journal=None, prune=True):
    """A search of some seconds; with screening unless told otherwise, though these data are small for it."""
    split = deql.split_strong(market(1200, 240, seed=31), 0.05, 0.4)
    budget = None if search != "optuna" else 14 if prune else 25
    with patch.object(tuner, "_LEAST_ITEMS", 100):
        return deql.tune(split, SPACE, budget=budget, search=search, journal=journal, prune=prune)
