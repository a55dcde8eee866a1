"""Our metrics against two independent implementations, ranx and trec_eval (pytrec_eval).

Ties are ours to resolve: score descending, then the lower column. So the resolved ranking is handed over with
strictly falling scores. pytrec_eval's own rule for equal scores (the later name first, as in trec_eval)
is reproduced too, by naming the items so that it and ours agree.
"""

import warnings

import numba.typed  # whole, before anything is left uncompiled
import numpy as np
import pytest
from scipy.sparse import csr_array

from deql import Interactions, evaluate
from deql.linalg.packed import PackedSymmetric
from deql.metrics import METRICS
from deql.ranking.rank import rank
from deql.split import HeldOut

USERS, ITEMS, DEPTH = 80, 60, 25
KS = (1, 3, 10, 25)


class Case:
    """Scores with many ties, and between 1 and 40 held-out items a user."""

    def __init__(self, seed):
        generator = np.random.default_rng(seed)
        self.scores = generator.integers(0, 12, (USERS, ITEMS)).astype(float)
        self.truth = generator.random((USERS, ITEMS)) < generator.uniform(0.01, 0.6, (USERS, 1))
        self.truth[np.arange(USERS), generator.integers(0, ITEMS, USERS)] = True
        self.ranked = np.argsort(-self.scores, axis=1, kind="stable")[:, :DEPTH]
        self.held_out = self.truth.sum(axis=1)
        self.hits = np.take_along_axis(self.truth, self.ranked, axis=1)

    def ours(self, name, k):
        return METRICS[name].function(self.hits, self.held_out, k)

    def qrels(self):
        return {f"u{u:03}": {f"i{ITEMS - i:03}": 1 for i in np.flatnonzero(self.truth[u])} for u in range(USERS)}

    def run(self, resolved):
        """Lists by user; items are named backwards, so that the later name is the lower column."""
        return {
            f"u{u:03}": {
                f"i{ITEMS - i:03}": float(DEPTH - place if resolved else self.scores[u, i])
                for place, i in enumerate(self.ranked[u])
            }
            for u in range(USERS)
        }


@pytest.fixture(scope="module", params=[0, 1, 2])
def case(request):
    return Case(request.param)


def test_the_cases_have_ties_within_the_lists_and_across_their_ends(case):
    assert (np.diff(np.take_along_axis(case.scores, case.ranked, axis=1), axis=1) == 0).any(axis=1).all()
    ordered = np.sort(case.scores, axis=1)[:, ::-1]
    assert (ordered[:, DEPTH - 1] == ordered[:, DEPTH]).any()
    assert case.held_out.min() == 1
    assert case.held_out.max() > DEPTH


@pytest.mark.parametrize("k", KS)
def test_ranx(case, k, ranx):
    names = {
        "recall": "recall", "ndcg": "ndcg", "precision": "precision", "hit_rate": "hit_rate",
        "mrr": "mrr", "map": "map",
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        qrels, run = ranx.Qrels(case.qrels()), ranx.Run(case.run(resolved=True))
        ranx.evaluate(qrels, run, [f"{theirs}@{k}" for theirs in names.values()])
    for name, theirs in names.items():
        scores = run.scores[f"{theirs}@{k}"]
        found = np.array([scores[f"u{u:03}"] for u in range(USERS)])
        # ranx's average precision divides by all held-out items, ours by at most k of them.
        relation = np.minimum(case.held_out, k) / case.held_out if name == "map" else 1.0
        np.testing.assert_allclose(case.ours(name, k) * relation, found, rtol=0, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("resolved", [True, False], ids=["resolved", "tied"])
def test_trec_eval(case, k, resolved):
    pytrec_eval = pytest.importorskip("pytrec_eval", reason="needs pytrec_eval-terrier")
    measures = {"recall": "recall", "ndcg": "ndcg_cut", "precision": "P", "hit_rate": "success", "map": "map_cut"}
    evaluator = pytrec_eval.RelevanceEvaluator(case.qrels(), {f"{theirs}.{k}" for theirs in measures.values()})
    found = evaluator.evaluate(case.run(resolved))
    for name, theirs in measures.items():
        values = np.array([found[f"u{u:03}"][f"{theirs}_{k}"] for u in range(USERS)])
        relation = np.minimum(case.held_out, k) / case.held_out if name == "map" else 1.0
        np.testing.assert_allclose(case.ours(name, k) * relation, values, rtol=0, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("resolved", [True, False], ids=["resolved", "tied"])
def test_trec_eval_s_reciprocal_rank_of_the_whole_list(case, resolved):
    pytrec_eval = pytest.importorskip("pytrec_eval", reason="needs pytrec_eval-terrier")
    found = pytrec_eval.RelevanceEvaluator(case.qrels(), {"recip_rank"}).evaluate(case.run(resolved))
    values = np.array([found[f"u{u:03}"]["recip_rank"] for u in range(USERS)])
    np.testing.assert_allclose(case.ours("mrr", DEPTH), values, rtol=0, atol=1e-9)


def test_the_ranking_itself_resolves_ties_that_way(case):
    """One item for each user, so that a row of P is the user's scores."""
    n = USERS + ITEMS
    P = np.zeros((n, n))
    P[ITEMS:, :ITEMS] = case.scores
    P += P.T
    histories = csr_array(np.eye(USERS, n, ITEMS))
    allowed = np.arange(n) < ITEMS
    columns, _ = rank(PackedSymmetric.from_dense(P, n), np.ones(n), np.zeros(n), histories, k=DEPTH, allowed=allowed)
    np.testing.assert_array_equal(columns, case.ranked)


def test_a_whole_evaluation_agrees_with_trec_eval(random_matrix):
    pytrec_eval = pytest.importorskip("pytrec_eval", reason="needs pytrec_eval-terrier")
    from deql import EASE

    seen, held_out = random_matrix(50, 70, seed=1), random_matrix(50, 70, seed=2)
    held_out = csr_array(held_out.toarray() * (seen.toarray() == 0))
    model = EASE(l2=3.0).fit(random_matrix(200, 70))
    target = HeldOut(Interactions.from_csr(seen), Interactions.from_csr(held_out))
    ours = evaluate(model, target, ["recall@10", "ndcg@10"])
    ids, _ = model.recommend(seen, k=10)
    run = {str(u): {str(i): float(-place) for place, i in enumerate(ids[u])} for u in ours.users}
    qrels = {str(u): {str(i): 1 for i in held_out[[u]].indices} for u in ours.users}
    found = pytrec_eval.RelevanceEvaluator(qrels, {"recall.10", "ndcg_cut.10"}).evaluate(run)
    for name, theirs in (("recall@10", "recall_10"), ("ndcg@10", "ndcg_cut_10")):
        expected = [found[str(u)][theirs] for u in ours.users]
        np.testing.assert_allclose(ours.per_user[name], expected, rtol=0, atol=1e-9)


@pytest.fixture
def ranx(monkeypatch):
    """Run by Python as it is written: its kernels take 40 seconds to compile, and these cases a few milliseconds."""
    monkeypatch.setattr(numba.config, "DISABLE_JIT", True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it imports warns of its own future
        return pytest.importorskip("ranx", reason="needs ranx")
