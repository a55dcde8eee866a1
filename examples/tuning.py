"""Choose hyper-parameters on validation users, evaluate once on test users: python examples/tuning.py (a minute)"""

import tempfile
from pathlib import Path

import deql

split = deql.split_strong(deql.datasets.debian(), seed=0)

with tempfile.TemporaryDirectory() as folder:
    # Started again with the same journal, a search that was killed goes on where it was.
    journal = Path(folder, "debian.jsonl")
    best = deql.tune(split, budget=5, journal=journal, tell=print)
    print(f"\n{best}\n")

    # A larger budget goes on from there; so does another question about the same search.
    best = deql.tune(split, budget=12, journal=journal)
    print(f"{best.inverses} inverses: {best.metric} {best.best[best.metric]:.4f} on validation users")

# The curve over b with all else as the winner has it, and the test users, who were not read before.
for b, value in zip(best.curve.b, best.curve.values["ndcg@20"], strict=True):
    print(f"b = {b:<4g} ndcg@20 {value:.4f}" + "  ← best" * (b == best.curve.best("ndcg@20")))
found = deql.compare({"tuned": best.model, "EASE": deql.EASE(10.0)}, split, baseline="EASE")
print(f"\n{found}")
