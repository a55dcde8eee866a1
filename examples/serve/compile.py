"""Compile what a server runs, by answering once from a small model."""

import tempfile
from pathlib import Path

import deql
from deql.serve.rows import attach, share
from deql.serve.served import Served

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "small.deql")
    data = deql.Interactions.from_pairs(["ann", "ann", "bob", "bob", "cid"], ["tea", "jam", "tea", "egg", "jam"])
    deql.EASE(l2=1.0).fit(data).save(path)
    served = Served.open(path)
    served.warm()  # without rows, for a machine that has no memory for them
    attach(served.model, share(served.model))
    served.warm()
print("compiled")
