"""Compile what a server runs, by answering once from a small model."""

import tempfile
from pathlib import Path

import deql
from deql.serve.serving_model import ServingModel

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "small.deql")
    data = deql.Interactions.from_pairs(["ann", "ann", "bob", "bob", "cid"], ["tea", "jam", "tea", "egg", "jam"])
    deql.EASE(l2=1.0).fit(data).save(path)
    serving = ServingModel.open(path)
    serving.warm()  # without quantised rows, for a machine that has no memory for them
    serving.model.quantize_rows()
    serving.warm()
print("compiled")
