import json

import numpy as np

import deql
from deql.cli import run


def test_demo_shows_every_stop_of_the_line(capsys, monkeypatch):
    some = deql.datasets.debian().take_users(np.arange(0, 17_432, 8))
    some = some.take_items(np.argsort(-some.matrix.sum(axis=0), kind="stable")[:800])
    monkeypatch.setattr(deql.datasets, "debian", lambda: some)
    assert run(["demo"]) == 0
    out = capsys.readouterr().out
    for part in ("2,179 packages", "← best", "Popularity", "EASE", "EDLAE", "DEQL", "NDCG@20", "Why ", "seconds"):
        assert part in out


def test_demo_in_numbers(capsys):
    assert run(["demo", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    test = {name.split()[0]: means for name, means in facts["test"].items()}
    assert test["Popularity"]["ndcg@20"] < 0.5 * test["EASE"]["ndcg@20"]
    assert test["EASE"]["ndcg@20"] < test["DEQL"]["ndcg@20"]
    assert facts["best_b"] == max(facts["b_sweep"], key=lambda point: point["ndcg@20"])["b"]
    assert set(facts["hidden"]) & set(facts["recommended"])
    explanation = facts["explanation"]
    assert sum(value for _, value in explanation["parts"]) + explanation["rest"] == explanation["score"]
