"""Hosts with a GPU often have torch and NumPy, and nothing else that this library uses."""

import json
import subprocess
import sys

import numpy as np
import pytest

from deql import DEQL

pytest.importorskip("torch")

ALONE = """
import importlib, json, pkgutil, sys
for name in ("scipy", "numba", "polars", "narwhals", "threadpoolctl", "safetensors", "xxhash", "rich", "typer"):
    sys.modules[name] = None
import numpy as np
import torch
import deql.linalg.engines, deql.ranking
for package in (deql.linalg.engines, deql.ranking):
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.startswith("torch_"):
            importlib.import_module(package.__name__ + "." + module.name)
import deql.models.elsa.training
from deql import rules
from deql.linalg.engines.torch_gram import gram_on_device
from deql.linalg.engines.torch_invert import invert_on_device
from deql.ranking.torch_rank import Scan, scan

table = [np.array(part) for part in json.load(sys.stdin)]
n = int(table[1].max()) + 1
P = gram_on_device(table, n, torch.device("cpu"), dtype=torch.float64)
counts = P.diagonal()
P.add_to_diagonal(2.0 + counts)
invert_on_device(P)
gain, shift = rules.decoupled(P.diagonal(), counts, l2=2.0, dropout=0.5, b=2.0)
sums, _, items, found = scan(Scan(P, gain[None], shift[None], table, n, True, np.ones(n, bool)))
print(json.dumps([
    {int(item): float(sums[u, c] * gain[item]) for c, item in enumerate(items[u, : found[u]])}
    for u in range(len(found))
]))
"""


def test_a_model_is_fitted_and_ranks_with_torch_and_numpy_alone(toy):
    matrix = toy.matrix
    given = json.dumps([part.tolist() for part in (matrix.indptr, matrix.indices, matrix.data)])
    done = subprocess.run([sys.executable, "-c", ALONE], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    model = DEQL(l2=2.0, dropout=0.5, b=2.0, dtype="float64").fit(toy)
    scores = matrix.toarray() @ model.weights()
    for user, found in enumerate(json.loads(done.stdout)):
        unseen = np.flatnonzero(matrix.toarray()[user] == 0)
        assert sorted(map(int, found)) == unseen.tolist()
        assert [found[str(item)] for item in unseen] == pytest.approx(scores[user, unseen], rel=1e-9)
