"""Published numbers from the command line, on the public splits in $DEQL_DATA.

Gowalla and Yelp2018 take an hour on two cores and run where DEQL_PUBLISHED is set; their command
lines are those of docs/comparing.md. The small Amazon-Beauty split always runs, against a calculation
with NumPy and SciPy that shares no code with the library.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.sparse import csr_array

from deql.cli import run

DATA = os.environ.get("DEQL_DATA", "")

# Recall@20 and NDCG@20 as published for LightGCN's splits; recall divides by all held-out items.
PUBLISHED = {
    ("gowalla", "ease:l2=80"): (0.1765, 0.1467),
    ("gowalla", "dlae:l2=60,dropout=0.9"): (0.1839, 0.1533),
    ("gowalla", "edlae:l2=60,dropout=0.8"): (0.1844, 0.1539),
    ("yelp2018", "ease:l2=300"): (0.0657, 0.0552),
    ("yelp2018", "dlae:l2=200,dropout=0.7"): (0.0678, 0.0570),
    ("yelp2018", "edlae:l2=200,dropout=0.6"): (0.0673, 0.0565),
    ("yelp2018", "deql:l2=300,dropout=0.7,b=2"): (0.0685, 0.0576),
}


def folder(name):
    path = Path(DATA, name)
    if not DATA or not path.is_dir():
        pytest.skip(f"needs the data set {name} in $DEQL_DATA")
    return path


def judged(capsys, *arguments):
    assert run(["evaluate", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.skipif("DEQL_PUBLISHED" not in os.environ, reason="takes an hour: set DEQL_PUBLISHED=1")
@pytest.mark.parametrize(("name", "model"), PUBLISHED, ids=lambda one: one)
def test_published_numbers(capsys, name, model):
    facts = judged(capsys, folder(name), model)
    means = facts["models"][0]["means"]
    with capsys.disabled():
        print(f"\n{name} {model}: recall@20 {means['recall@20']:.5f}, ndcg@20 {means['ndcg@20']:.5f}")
    recall, ndcg = PUBLISHED[name, model]
    assert means["recall@20"] == pytest.approx(recall, abs=2e-4)
    assert means["ndcg@20"] == pytest.approx(ndcg, abs=2e-4)


def dense_numbers(train, test, l2, dropout):
    """Recall@20 and NDCG@20 of EDLAE (EASE without dropout) by its formula, with P and W dense in float64."""
    gram = (train.T @ train).toarray()
    regular = gram + np.diag(dropout / (1 - dropout) * np.diag(gram)) + l2 * np.eye(len(gram))
    lower = np.tril(dpotri(dpotrf(regular, lower=1)[0], lower=1)[0])  # less than half the work of np.linalg.inv
    inverse = lower + np.tril(lower, -1).T
    weights = -inverse / np.diag(inverse) / (1 - dropout)
    np.fill_diagonal(weights, 0)
    scores = train @ weights
    scores[train.nonzero()] = -np.inf
    discount = 1 / np.log2(np.arange(2, 22))
    recalls, gains = [], []
    for user in np.flatnonzero(np.diff(test.indptr)):
        wanted = test.indices[test.indptr[user] : test.indptr[user + 1]]
        # Those as good as the twentieth, sorted.
        best = np.flatnonzero(scores[user] >= np.partition(scores[user], -20)[-20])
        hits = np.isin(best[np.argsort(-scores[user, best], kind="stable")[:20]], wanted)
        recalls.append(hits.sum() / len(wanted))
        gains.append(hits @ discount / discount[: len(wanted)].sum())
    return np.mean(recalls), np.mean(gains)


@pytest.mark.data
def test_amazon_beauty_equals_a_dense_calculation(capsys):
    path = folder("amazon-beauty")
    lines = {part: [list(map(int, line.split())) for line in (path / f"{part}.txt").read_text().splitlines()]
             for part in ("train", "test")}  # fmt: skip
    users = 1 + max(line[0] for part in lines.values() for line in part if line)
    items = 1 + max(item for part in lines.values() for line in part for item in line[1:])
    tables = {}
    for part, rows in lines.items():
        places = {(user, item) for user, *wanted in filter(None, rows) for item in wanted}
        tables[part] = csr_array((np.ones(len(places)), tuple(zip(*places, strict=True))), shape=(users, items))
    facts = judged(capsys, path, "ease:l2=80", "edlae:l2=60,dropout=0.5")
    assert facts["split"]["protocol"] == "published"
    for found, (l2, dropout) in zip(facts["models"], [(80, 0.0), (60, 0.5)], strict=True):
        recall, ndcg = dense_numbers(tables["train"], tables["test"], l2, dropout)
        assert found["means"]["recall@20"] == pytest.approx(recall, abs=2e-5)
        assert found["means"]["ndcg@20"] == pytest.approx(ndcg, abs=2e-5)
