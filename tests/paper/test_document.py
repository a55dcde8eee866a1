"""Documents: the same words in Markdown and HTML, names as text, plots as files of their own."""

import re
from html import unescape
from xml.etree import ElementTree

import numpy as np
import pytest

from deql._system.tables import Cell, Grid
from deql.paper.document import Document, Figure, Section, write_document
from deql.plotting import plots
from tests.report.test_pages import Outline

pytest.importorskip("matplotlib", reason="documents need matplotlib")

NASTY = 'a|b <i> & "c" `d` *e* _f_ [g](h)'


@pytest.fixture(scope="module")
def document():
    def drawn(name):
        labels = plots.Labels(name, f"Title of {name} {NASTY}", "x")
        svg = plots.splits(labels, {NASTY: np.array([0.1, 0.3]), "EASE": np.array([0.2])})
        return Figure(svg, f"Caption of {name} {NASTY}")

    grid = Grid(f"Grid {NASTY}", ["model", "words", "ndcg@20"], [
        ([NASTY, "first"], [Cell("0.2500", "0.0100", best=True)]), (["EASE", "second"], [Cell("0.2000", marked=True)])
    ])  # fmt: skip
    bare = Grid("", ["seed", "value"], [(["0"], [Cell("–")])])
    return Document(f"Title {NASTY}", f"Lead {NASTY}", {"Command": f"deql {NASTY}", "Machine": "two threads"}, [
        Section(f"Heading {NASTY}", ["First words.", f"Second words {NASTY}."], [grid, bare], [NASTY, "EASE"],
                [drawn("one"), drawn("two")], [f"A remark {NASTY}."]),
        Section("Only words", ["Nothing else."]),
        Section("Later", figures=[drawn("three")]),
    ])  # fmt: skip


TEXTS = [
    f"Title {NASTY}", f"Lead {NASTY}", "Command", f"deql {NASTY}", "two threads", f"Heading {NASTY}", "First words.",
    f"Second words {NASTY}.", f"Grid {NASTY}", "model", "ndcg@20", "first", "0.2500", "± 0.0100", "seed", "–",
    f"Caption of one {NASTY}", f"Caption of two {NASTY}", f"Caption of three {NASTY}",
    f"A remark {NASTY}.", "Only words", "Nothing else.", "Later",
]  # fmt: skip


def shown(markdown):
    """Markdown as a reader sees it."""
    return unescape(re.sub(r"\\([\\`*_|\[\]])", r"\1", markdown.replace("**", "")))


def test_markdown_has_all_words_and_names_are_text(document):
    text = document.markdown(["a-1.svg", "a-2.svg", "a-3.svg"])
    for words in TEXTS:
        assert words in shown(text), words
    assert "<i>" not in text
    assert not re.search(r"(?<!\\)`", text)
    assert text.startswith("# Title a\\|b &lt;i> &amp; ")
    places = [
        text.index(words) for words in ("First words", "0.2500", "a-1.svg", "a-2.svg", "remark", "Only", "a-3.svg")
    ]
    assert places == sorted(places)
    # Every line of a table has as many cells as its header.
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert len(tables) == 2
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
    assert "● a|b" in shown(text)
    assert "| **0.2500** ± 0.0100 |" in text


def test_html_has_all_words_and_names_are_text(document):
    text = document.html()
    outline = Outline(text)
    assert outline.open == []
    read = " ".join(" ".join(outline.texts).split())
    for words in TEXTS:
        assert words in read, words
    assert "<i>" not in text
    assert not {tag for tag, _ in outline.seen} & {"i", "img", "script", "link"}
    assert len(outline.ids) == len(set(outline.ids))
    assert set(outline.targets) <= set(outline.ids)
    assert sum(tag == "svg" for tag, _ in outline.seen) == 3
    assert "http" not in text


def test_files(document, tmp_path):
    paths = write_document(document, tmp_path, "made")
    names = ["made.md", "made.html", "made-1.svg", "made-2.svg", "made-3.svg"]
    assert [path.name for path in paths] == names
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    text = paths[0].read_text(encoding="utf-8")
    assert text == document.markdown(names[2:])
    assert re.findall(r"\]\((made-\d\.svg)\)", text) == names[2:]
    assert paths[1].read_text(encoding="utf-8") == document.html()
    before = {path: path.read_bytes() for path in paths}
    write_document(document, tmp_path, "made")
    assert {path: path.read_bytes() for path in paths} == before


def test_plots_stand_alone(document, tmp_path):
    for path in write_document(document, tmp_path, "made")[2:]:
        root = ElementTree.parse(path).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert root.get("viewBox")
        text = path.read_text(encoding="utf-8")
        defined = set(re.findall(r"(--[a-z0-9]+):", text))
        assert set(re.findall(r"var\((--[a-z0-9]+)\)", text)) <= defined
        assert "<i>" not in text
        ids = [one.get("id") for one in root.iter() if one.get("id")]
        assert len(ids) == len(set(ids))
        used = set(re.findall(r"(?:url\(#|href=\"#)([^)\"]+)", text)) | {root.get("aria-labelledby")}
        assert used <= set(ids)
        title = root.find("{http://www.w3.org/2000/svg}title")
        assert title.text.endswith(NASTY)


def test_a_document_without_anything(tmp_path):
    paths = write_document(Document("Title", "Lead", {}), tmp_path, "made")
    assert [path.name for path in paths] == ["made.md", "made.html"]
    assert paths[0].read_text(encoding="utf-8").startswith("# Title\n\n**Lead**\n")
    assert Outline(paths[1].read_text(encoding="utf-8")).open == []


def test_without_a_lead():
    document = Document("Title", "", {"Machine": "two threads"})
    assert document.markdown([]) == "# Title\n\n- Machine: two threads\n"
    assert 'class="lead"' not in document.html()
