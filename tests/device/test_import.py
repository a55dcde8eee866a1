"""Hosts with a GPU often have torch and NumPy, and nothing else that this library uses."""

import json
import subprocess
import sys

import pytest
from scipy.sparse import csr_array

from deql import DEQL, Interactions, evaluate
from deql.split import HeldOut

pytest.importorskip("torch")

ALONE = """
import importlib, json, pkgutil, sys
for name in ("scipy", "numba", "polars", "narwhals", "threadpoolctl", "safetensors", "xxhash", "rich", "typer"):
    sys.modules[name] = None
import numpy as np
import torch
import deql.device
for module in pkgutil.iter_modules(deql.device.__path__):
    importlib.import_module("deql.device." + module.name)
from deql import rules
from deql.device.gram import gram_on_device
from deql.device.invert import invert_on_device
from deql.device.judge import judge

table, seen = ([np.array(part) for part in matrix] for matrix in json.load(sys.stdin))
n = int(table[1].max()) + 1
P = gram_on_device(*table, n, torch.device("cpu"), dtype=torch.float64)
counts = P.diagonal()
P.add_to_diagonal(2.0 + counts)
invert_on_device(P)
rule = rules.decoupled(P.diagonal(), counts, l2=2.0, dropout=0.5, b=2.0)
found = judge(P, *rule, seen, table, ["recall@2", "ndcg@3", "mse"], item_counts=counts, n_users=7)
print(json.dumps(found[0].means))
"""


def test_a_model_is_fitted_and_judged_with_torch_and_numpy_alone(toy):
    seen = csr_array(toy.matrix.toarray() * [1, 0, 1, 0, 1])
    given = json.dumps([
        [part.tolist() for part in (matrix.indptr, matrix.indices, matrix.data)] for matrix in (toy.matrix, seen)
    ])  # fmt: skip
    done = subprocess.run([sys.executable, "-c", ALONE], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    model = DEQL(l2=2.0, dropout=0.5, b=2.0, dtype="float64").fit(toy)
    expected = evaluate(
        model, HeldOut(Interactions.from_csr(seen, toy.users, toy.items), toy), ["recall@2", "ndcg@3", "mse"]
    ).means
    assert json.loads(done.stdout) == pytest.approx(expected, rel=1e-9)
    assert len(set(expected.values())) == 3
