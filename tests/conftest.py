"""Data that several tests share: small, and uneven in popularity, so that W and its transpose differ."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from deql import Interactions

BASKETS = {
    "ann": ["egg", "jam", "tea"],
    "bob": ["jam", "tea"],
    "cid": ["egg", "tea"],
    "dee": ["tea"],
    "eve": ["jam", "rye"],
    "fay": ["egg", "rye", "tea"],
    "gus": ["oat", "tea"],
}


@pytest.fixture(scope="session")
def toy():
    """Seven customers and five goods: tea 6, egg 3, jam 3, rye 2, oat 1."""
    pairs = [(user, item) for user, items in BASKETS.items() for item in items]
    return Interactions.from_pairs(*zip(*pairs, strict=True))


@pytest.fixture(scope="session")
def random_matrix():
    """Makes a users × items matrix with a popularity of its own for each item and no empty row."""

    def make(users, items, seed=0, weighted=False):
        generator = np.random.default_rng(seed)
        chance = generator.permutation(np.linspace(0.02, 0.4, items))
        values = (generator.random((users, items)) < chance).astype(float)
        values[np.arange(users), generator.integers(0, items, users)] = 1
        if weighted:
            values *= generator.integers(1, 6, values.shape)
        return csr_array(values)

    return make


@pytest.fixture(scope="session")
def dask_client():
    """The client of three worker processes, which the tests of a process share: who kills one starts others."""
    pytest.importorskip("distributed", reason="the extra cluster is not installed")
    from tests.clusters import started

    with started(3) as client:
        yield client
