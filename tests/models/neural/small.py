"""Small data, and networks that are trained on them in a moment."""

import itertools
from contextlib import contextmanager
from functools import partial

import numpy as np
from scipy.sparse import csr_array

import deql
from tests.models.contract import interactions

KINDS = {
    "LightGCN": deql.neural.LightGCN,
    "SSM, mf": partial(deql.neural.SSM, backbone="mf"),
    "SSM, lightgcn": partial(deql.neural.SSM, layers=2, negatives=30),
    "SGL": partial(deql.neural.SGL, layers=2, edge_dropout=0.3),
}

DATA = interactions()


def small(kind="LightGCN", **changed):
    usual = {"rank": 4, "epochs": 6, "batch_size": 64, "learning_rate": 0.05, "validate_every": 2, "device": "cpu"}
    return KINDS[kind](**(usual | changed))


def four_tastes():
    """Thirty users who have most of one quarter of twenty items, and now and then another."""
    generator = np.random.default_rng(3)
    of_taste = np.arange(20) % 4 == np.arange(30)[:, None] % 4
    R = (generator.random((30, 20)) < np.where(of_taste, 0.8, 0.05)).astype(float)
    R[np.arange(30), generator.integers(0, 20, 30)] = 1
    return deql.Interactions.from_csr(csr_array(R), users=[f"user {u}" for u in range(30)])


def facts_of(model):
    """All that a training leaves but its seconds."""
    history = [(epoch.loss, epoch.ndcg) for epoch in model.history_]
    return *(part.tobytes() for part in (model.left_, model.right_, model.own_)), model.epochs_, history


class Killed(BaseException):
    """As a signal ends a process: nothing catches it."""


def killing(step=None):
    """Progress displays that count steps, and raise at one of them."""
    counts = itertools.count(1)
    told = []

    @contextmanager
    def stages(show):
        def report(done, total):
            told.append((done, total))
            if next(counts) == step:
                raise Killed

        yield lambda label: report

    return stages, told
