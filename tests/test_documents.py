"""Links in the documents lead somewhere."""

import re
from pathlib import Path

import pytest

from tests.pages import deql_shell, run_page

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(path.relative_to(ROOT) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(\s*([^)\s]+)")


def links(text):
    """Where the links and images of a document lead, but for other sites."""
    found = _LINK.findall(_CODE.sub("", text))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def anchor(heading):
    """What a heading is called in links, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(text):
    return {anchor(line.lstrip("#")) for line in text.splitlines() if re.match("#+ ", line)}


def missing(path):
    """The links of a document that lead nowhere."""
    text = path.read_text("utf-8")
    for link in links(text):
        name, _, place = link.partition("#")
        target = path.parent / name if name else path
        if not target.exists() or (place and place not in anchors(target.read_text("utf-8"))):
            yield link


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_relative_links_exist(document):
    assert list(missing(ROOT / document)) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    path = tmp_path / "a.md"
    path.write_text(
        "# Why λ, and b\n[a](a.md) [b](a.md#why-λ-and-b) [c](#why) ![d](d.png) [e](https://e.example/f)\n"
        "[two\nlines](g.md) `[h](h.md)`\n```\n[i](i.md)\n```\n",
        "utf-8",
    )
    assert list(missing(path)) == ["#why", "d.png", "g.md"]
    assert Path("README.md") in DOCUMENTS
    assert Path("docs/architecture.md") in DOCUMENTS


def test_the_examples_of_recommending_run(tmp_path, monkeypatch):
    import pandas as pd

    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / "docs/recommending.md").read_text("utf-8"), re.M | re.S)
    known = {}
    for kind, block in blocks:
        if kind == "python":
            exec(block, known)
    shown = next(block for kind, block in blocks if "from_popularity reason" in block)
    with pd.option_context("display.width", 200):
        table = str(known["model"].recommend(known["events"], k=2, reasons=1))
    assert shown.partition("\n")[2].strip("\n") == table


def test_the_example_of_pruning_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/models.md").read_text("utf-8")
    run_page(Path("models.md"), page.split("## Pruning")[1].split("\n## ")[0], deql_shell(capsys), capsys)
