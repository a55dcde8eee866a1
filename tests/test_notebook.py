"""What a notebook shows: every result has a short repr, and HTML that is whole, small and only text and bars."""

import re

import numpy as np
import pytest
from scipy.sparse import csr_array

import deql
from deql.data import Interactions, Step
from tests.report.test_pages import NASTY, Outline

SCRIPT = "<script>alert('x')</script>\n\u202e"
N = 30


@pytest.fixture(scope="module")
def shown():
    """One of each thing that people get back, with the worst names."""
    values = np.random.default_rng(0).random((200, N)) < np.linspace(0.05, 0.4, N)
    values[:, 0] = True
    items = np.array([f"{NASTY} {SCRIPT} {place}" for place in range(N)], dtype=object)
    titles = np.array([f"Title {place} {NASTY}" for place in range(N)], dtype=object)
    matrix = csr_array(values.astype(np.float32))
    data = Interactions(matrix, np.arange(200), items, titles=titles, steps=(Step(NASTY, 1, 2, 3),))
    split = deql.split_strong(data, test_users=0.2, validation_users=0.2)
    space = {"l2": [1, 10], "dropout": [0.1, 0.5], "user_power": 0, "b": [0, 1], "popularity_power": 0, "prior": None}
    best = deql.tune(split, space)
    model = best.model
    metrics = [f"{name}@{k}" for name in ("recall", "ndcg") for k in range(1, 21)]
    found = deql.compare({NASTY: deql.EASE(5.0), "popular": deql.Popularity()}, data, splits=2, metrics=["recall@5"])
    return {
        "Interactions": data,
        "nothing": data.take_users(slice(0, 0)),
        "plain matrix": Interactions.from_csr(matrix),
        "HeldOut": split.test,
        "Split": split,
        "model": deql.EDLAE(l2=3.0),
        "fitted": model,
        "Popularity": deql.Popularity().fit(data),
        "SLIM": deql.SLIM().fit(data),
        "CustomLinear": deql.CustomLinear(np.zeros((N, N), np.float32)).fit(data),
        "Recommendations": model.recommend([items[:2], [], *([[items[1]]] * 20)], k=25),
        "SimilarItems": model.similar_items(list(items[:2])),
        "reasons": model.recommend([items[:2], []], k=3, reasons=2),
        "ScoredPairs": model.score_pairs([items[:2], [], items[:1]], [items[5:25], items[3:7], [items[2]]]),
        "exhausted": model.recommend([items], k=3),
        "numbers": deql.EASE(5.0).fit(matrix).recommend([[1]], k=3),
        "Explanation": model.explain(items[:28], items[29]),
        "cold": model.explain([], items[29]),
        "Neighbourhood": model.neighbours(items[3], k=29),
        "alone": deql.Popularity().fit(data).neighbours(items[3]),
        "Tuning": best,
        "BCurve": best.curve,
        "Evaluation": deql.evaluate(model, split.test, metrics),
        "Comparison": found,
        "Plan": deql.plan(N, calibrate=False),
        "LinearImputer": deql.LinearImputer(),
    }  # fmt: skip


NAMES = """Interactions,nothing,plain matrix,HeldOut,Split,model,fitted,Popularity,SLIM,CustomLinear,Recommendations,
SimilarItems,reasons,ScoredPairs,exhausted,numbers,Explanation,cold,Neighbourhood,alone,Tuning,BCurve,Evaluation,Comparison,Plan,LinearImputer"""


@pytest.mark.parametrize("name", NAMES.replace("\n", "").split(","))
def test_a_repr_is_short(shown, name):
    text = repr(shown[name])
    assert len(text) <= 600
    assert text.count("\n") <= 5
    assert "array(" not in text


@pytest.mark.parametrize("name", NAMES.replace("\n", "").split(",")[:-1])
def test_html_is_whole_small_and_fetches_nothing(shown, name):
    text = shown[name]._repr_html_()
    outline = Outline(text)
    assert outline.open == []
    assert len(text) < 20_000
    tags = {tag for tag, _ in outline.seen}
    assert tags <= {"div", "style", "p", "b", "span", "table", "thead", "tbody", "tr", "th", "td", "strong", "dl", "dt",
                    "dd", "details", "summary", "i"}  # fmt: skip
    assert "http" not in text
    assert not re.search(r"@import|url\(", text.replace("url(#y)", ""))
    assert not any(attribute.startswith("on") for _, attributes in outline.seen for attribute in attributes)
    assert "\u202e" not in text


@pytest.mark.parametrize("name", ["Interactions", "Explanation", "Neighbourhood", "Recommendations", "Comparison"])
def test_names_are_text(shown, name):
    text = shown[name]._repr_html_()
    assert "&lt;img src=x" in text
    assert "<script" not in text


def test_an_evaluation_is_a_table(shown):
    found = shown["Evaluation"]
    words = [text.strip() for text in Outline(found._repr_html_()).texts]
    assert "recall@1" in words
    assert f"{found.means['recall@1']:.4f}" in words
    assert "… and 10 more" in words
    assert repr(found).startswith("Evaluation(recall@1 0.")
    assert repr(found).endswith("…; 40 users)")


def test_bars_add_up_to_the_score(shown):
    why = shown["Explanation"]
    drawn = [float(value) for value in re.findall(r"<td>([+-][\d.]+)</td>", why._repr_html_())]
    assert len(drawn) == 21
    assert sum(drawn) == pytest.approx(why.score, abs=0.5e-4 * len(drawn))
    assert "Title 29" in why._repr_html_()
    assert repr(why).count("Title") == 5
    assert "Title 3" in shown["Neighbourhood"]._repr_html_()
    cold = shown["cold"]._repr_html_()
    assert "the rest" in cold


def test_recommendations_still_unpack_and_tell_what_is_popularity(shown):
    found = shown["Recommendations"]
    ids, scores = found
    assert ids is found.ids
    assert scores is found.scores
    assert repr(found).startswith("Recommendations(22 users × 25 best; 1 by popularity alone)\n  0: Title")
    words = Outline(found._repr_html_()).texts
    assert words.count("popularity fallback") == 1
    assert "… and 18 more users" in words
    assert "… and 15 more" in words
    assert repr(shown["numbers"]).count("\n") == 1


def test_a_model_tells_what_it_was_fitted_on(shown):
    words = " ".join(Outline(shown["fitted"]._repr_html_()).texts)
    for part in ("fitted", "users × 30 items", "engine", "memory", "residual", "KiB", "most of it precision"):
        assert part in words
    words = Outline(shown["model"]._repr_html_()).texts
    assert "not fitted" in words
    changed = re.findall(r"<strong>(.*?)</strong>", shown["model"]._repr_html_())
    assert changed == ["3"]


def test_reprs_worked_out_by_hand():
    data = Interactions.from_pairs(list("aabbcccd"), ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"])
    model = deql.EASE(l2=1.0).fit(data)
    assert repr(model.recommend([["egg"], []], k=2)) == (
        "Recommendations(2 users × 2 best; 1 by popularity alone)\n"
        "  0: jam 0.2222, tea 0.1429\n"
        "  1: tea 1, jam 0.75 (popularity)"
    )
    assert repr(model.similar_items(["jam", "egg"], k=1)) == (
        "SimilarItems(2 items × 1 best)\n  jam: tea 0.7143\n  egg: jam 0.2222"
    )
    assert repr(model.neighbours("jam")) == "Neighbourhood('jam': tea, egg)"
    assert repr(model.explain(["egg", "tea"], "jam")).startswith("Explanation('jam': 0.7")
    assert repr(model.explain([], "jam")) == "Explanation('jam': 0.75 = 0.75)"
    assert repr(deql.HeldOut(data, data)) == "HeldOut(4 users × 3 items, 8 seen, 8 held out)"


def test_facts_in_the_words_of_the_command_line(shown):
    words = Outline(Interactions.from_pairs(["ann", "bob"], ["tea", "jam"])._repr_html_()).texts
    for part in ("2, each with 1 item", "2, each with 1 user", "2, 50.00% of all pairs"):
        assert part in words
    assert re.search(r"residual</dt><dd>\de-\d\d<", shown["fitted"]._repr_html_())
