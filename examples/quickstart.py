"""Fit, evaluate, recommend, explain and save, on the bundled data: python examples/quickstart.py"""

import tempfile
from pathlib import Path

import deql

data = deql.datasets.debian()
split = deql.split_strong(data, seed=0)

# One inverse ...
model = deql.DEQL(l2=10.0, dropout=0.2, b=0.25).fit(split.train)

# ... serves every b, the zero diagonal included.
for name, candidate in {
    "EDLAE (b = 0)": model.with_rule(b=0.0),
    "DEQL (b = 0.25)": model,
    "DLAE (b = 1)": model.with_rule(b=1.0),
    "b > a (b = 2)": model.with_rule(b=2.0),
}.items():
    means = deql.evaluate(candidate, split.validation, metrics=["recall@20", "ndcg@20"]).means
    print(f"{name:16} recall@20 {means['recall@20']:.4f}   ndcg@20 {means['ndcg@20']:.4f}")

# A new user needs no refit: a history is enough.
history = ["python3-numpy", "python3-scipy", "python3-matplotlib"]
ids, scores = model.recommend([history], k=5)
print("\nafter", ", ".join(history))
for item, score in zip(ids[0], scores[0], strict=True):
    print(f"  {item:24} {score:.3f}")

why = model.explain(history, ids[0][0])
print(f"\nwhy {why.item}?")
for part in why:
    print(f"  {part.item:24} {part.value:+.3f}")
print(f"  {'together, exactly':24} {why.score:+.3f}")

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "debian.deql"
    model.save(path)
    again = deql.load(path)
    print(
        f"\nsaved and loaded: {path.stat().st_size / 2**20:.0f} MiB,",
        "same answer:",
        (again.recommend([history], k=5).ids == ids).all(),
    )
