"""Pages: one file, well formed, nothing fetched, names as text, the same bytes for the same input."""

import builtins
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from scipy.sparse import csr_array

import deql
from deql import EASE, DeqlError, Interactions, Popularity
from deql.evaluation.comparison import compare
from deql.evaluation.model_groups import fit_and_evaluate, parameters
from deql.evaluation.panels import group_lengths
from deql.plotting import plots
from deql.plotting.plots import Labels
from deql.report import page
from deql.report.comparison_page import comparison_page
from deql.report.evaluation_page import curve_metrics, evaluation_page

pytest.importorskip("matplotlib", reason="reports need matplotlib")

NASTY = '<img src=x onerror="alert(1)"> $a_b$ & \'é漢\' id="x" url(#y)'
VOID = {"meta", "br", "img", "link", "input", "hr", "wbr"}


class Outline(HTMLParser):
    """Tags opened and closed in order, their ids, links and texts."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.ids, self.targets, self.texts = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        for name, value in attrs:
            self.targets += re.findall(r"url\(#([^)]*)\)", value or "")
            if name in ("href", "xlink:href", "aria-labelledby"):
                self.targets.append(value.removeprefix("#"))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> without a beginning"
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(0)
    values = generator.random((200, 30)) < np.linspace(0.05, 0.4, 30)
    values[:, 0] = True
    return Interactions.from_csr(csr_array(values.astype(float)))


@pytest.fixture(scope="module")
def evaluated(data):
    split = deql.split_strong(data, test_users=0.3)
    models = {NASTY: EASE(5.0), "popular": Popularity()}
    results = fit_and_evaluate(models, split.train, split.test, ["recall@5", "ndcg@5", *curve_metrics(["recall@5"])])

    def write():
        hyper = {name: parameters(model) for name, model in models.items()}
        about = {"Data": NASTY, "Split": split.describe()}
        return evaluation_page("Evaluation of " + NASTY, about, hyper, results, split.test, ["recall@5", "ndcg@5"])

    return write


@pytest.fixture(scope="module")
def compared(data):
    models = {NASTY: EASE(5.0), "popular": Popularity(), "stiff": EASE(500.0)}
    found = compare(models, data, splits=3, metrics=["recall@5"], baseline="popular")
    return lambda: comparison_page("Comparison", {"Data": NASTY}, found)


@pytest.fixture(scope="module")
def compared_over_users(data):
    found = compare({NASTY: EASE(5.0), "popular": Popularity()}, deql.split_strong(data), metrics=["recall@5"])
    return lambda: comparison_page("Comparison", {"Data": NASTY}, found)


@pytest.fixture(scope="module", params=["evaluated", "compared", "compared_over_users"])
def write(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def text(write):
    return write()


def test_well_formed_and_self_contained(text):
    outline = Outline(text)
    assert outline.open == []
    assert text.startswith("<!DOCTYPE html>")
    tags = {tag for tag, _ in outline.seen}
    assert tags >= {"svg", "table", "title", "style"}
    assert not tags & {"script", "img", "link", "iframe", "object"}
    assert "http" not in text
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert not any(name.startswith("on") for _, attributes in outline.seen for name in attributes)


def test_ids_are_unique_and_links_lead_somewhere(text):
    outline = Outline(text)
    assert len(outline.ids) == len(set(outline.ids)) > 20
    assert set(outline.targets) <= set(outline.ids)


def test_names_are_text(text):
    assert "<img" not in text
    texts = [" ".join(part.split()) for part in Outline(text).texts]
    assert any(NASTY in part for part in texts)


def test_for_every_reader(text):
    seen = Outline(text).seen
    assert ("html", {"lang": "en"}) in seen
    assert any(tag == "meta" and "width=device-width" in attributes.get("content", "") for tag, attributes in seen)
    assert all(attributes.get("scope") in ("row", "col") for tag, attributes in seen if tag == "th")
    drawings = [attributes for tag, attributes in seen if tag == "svg"]
    assert drawings
    assert all(one["role"] == "img" and one["aria-labelledby"] for one in drawings)
    assert all("width" not in one and "height" not in one for one in drawings)


def test_colours_are_the_pages_own(text):
    assert "prefers-color-scheme: dark" in text
    for drawing in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL):
        assert not re.findall(r"(?:fill|stroke): #[0-9a-f]+", drawing)
        assert "var(--ink)" in drawing


def test_the_same_input_gives_the_same_bytes(write, text):
    assert write() == text


def test_numbers_and_figures_of_an_evaluation(evaluated):
    text = evaluated()
    assert text.count("<figure>") == 8  # intervals, shares and history for two metrics, two curves over k
    for words in ("95 % interval", "by length of history", "recall@k by k", "Mean ± standard error over"):
        assert words in text


def test_numbers_and_figures_of_a_comparison(compared):
    text = compared()
    assert text.count("<figure>") == 2
    for words in ("3 splits (strong, seeds 0 to 2", "better than the baseline popular", "row is better than column"):
        assert words in text


def test_lengths_of_curves():
    assert curve_metrics(["mse"]) == []
    assert curve_metrics(["ndcg@20"])[-1] == "ndcg@20"
    long = curve_metrics(["recall@500", "ndcg@10"])
    assert long[-1] == "ndcg@500"
    assert len(long) <= 80


def test_groups_hold_everybody():
    lengths = np.random.default_rng(0).geometric(0.1, 500)
    labels, groups = group_lengths(lengths)
    assert len(labels) == 6
    assert np.bincount(groups, minlength=6).min() > 30
    assert groups[lengths.argmax()] == 5
    labels, groups = group_lengths(np.full(9, 4))
    assert labels == ["4"]
    assert set(groups.tolist()) == {0}


def test_a_difference_far_off_is_written_at_the_edge():
    near, far = np.array([0.01, 0.02]), np.array([0.9, 0.91])
    rows = {
        "a − b": (0, near, (0.015, 0.01, 0.02)),
        "a − c": (0, near, (0.015, 0.0, 0.03)),
        "a − d": (1, far, (0.905, 0.9, 0.91)),
    }
    drawn = plots.differences(Labels("d", "Differences", "x"), rows)
    assert "+0.9050 →" in drawn
    assert "+0.0150" not in drawn


def test_a_one_is_not_a_yes():
    (_, cells), *_ = page.parameter_grid({"a model": {"rank": 1, "zero_diagonal": True, "l2": 0.5, "xi": None}}).rows
    assert [cell.text for cell in cells] == ["1", "yes", "0.5", "–"]


def test_short_names_tell_models_apart():
    ease, deql_2 = {"l2": 9.0}, {"l2": 10.0, "b": 2.0, "zero_diagonal": True}
    named = {"EASE l2=9": ease, "EASE l2=9 (2)": ease, "DEQL l2=10 b=2 zero_diagonal": deql_2, "my EASE l2=9": ease}
    assert list(page.short_names(named).values()) == ["EASE", "EASE (2)", "DEQL", "my EASE l2=9"]
    twice = {"EASE l2=9": ease, "EASE": ease, "DEQL b=2": deql_2, "DEQL b=3": deql_2}
    assert list(page.short_names(twice).values()) == ["EASE l2=9", "EASE", "DEQL b=2", "DEQL b=3"]
    given = {"EASE": {}, "EASE l2=9": ease, "EASE l2=9 other": ease}
    assert list(page.short_names(given)) == list(page.short_names(given).values())


def test_a_comparison_has_short_names_and_no_equal_columns(data):
    models = [EASE(5.0), deql.DLAE(l2=3.0, dropout=0.5), Popularity()]
    found = compare(models, data, splits=2, metrics=["recall@5"], baseline="EASE l2=5")
    text = comparison_page("Comparison", {}, found)
    words = Outline(text).texts
    assert "EASE l2=5" not in " ".join(words)
    assert "better than the baseline EASE" in text
    header = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', text)
    assert "dtype" not in header
    assert "l2" in header
    told = " ".join(words)
    assert "The same for all that have it: user_power 0, popularity_power 0, engine auto, dtype float32" in told
    assert "dropped" not in header


@pytest.mark.parametrize("package", ["matplotlib", "jinja2"])
def test_without_a_package_of_the_extra(monkeypatch, package):
    real = builtins.__import__

    def without(name, *rest, **named):
        if name.startswith(package):
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DeqlError, match=r"pip install \"deql\[report\]\""):
        page.need_report_extra()
