import re

import pytest

from deql._system.tables import Cell, Grid, latex_escape, latex_table, markdown_escape, markdown_table, text_table

NASTY = r"a_b & 50% #1 $x$ {y} ~^ \z <img onerror=alert(1)> [q](r) *i* `c` | d"

GRID = Grid(
    "Results",
    ["model", "ndcg@20", "gini@20"],
    [
        (["EASE l2=80"], [Cell("0.2500", "0.0100", best=True), Cell("0.9000")]),
        ([NASTY], [Cell("0.2400", "0.0200", marked=True), Cell("–")]),
    ],
)


def test_text_is_in_line():
    lines = text_table(GRID).splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("model ")
    assert set(lines[1]) == {"─"}
    assert lines[2].index("0.2500 ± 0.0100 ←") == lines[3].index("0.2400 ± 0.0200 *")


def test_text_of_one_column_without_marks():
    assert text_table(Grid("", ["a", "b"], [(["x"], [Cell("1")])])).splitlines()[-1] == "x  1"


def test_control_characters_do_not_break_a_line():
    rows = [(["two\nlines\t\x1b[31mred"], [Cell("1")])]
    for written in (text_table, markdown_table):
        assert len(written(Grid("", ["a", "b"], rows)).splitlines()) == 3
    assert "\x1b" not in text_table(Grid("", ["a", "b"], rows))


def test_markdown_cells_are_cells():
    lines = markdown_table(GRID).splitlines()
    assert lines[:3] == [
        "| model | ndcg@20 | gini@20 |",
        "|---|---:|---:|",
        "| EASE l2=80 | **0.2500** ± 0.0100 | 0.9000 |",
    ]
    assert len(re.findall(r"(?<!\\)\|", lines[3])) == 4
    assert "<img" not in lines[3]
    assert lines[3].endswith(r"0.2400 ± 0.0200 \* | – |")
    assert markdown_escape("*a*_b_") == r"\*a\*\_b\_"


def unescaped(text, signs):
    return re.findall(rf"(?<!\\)[{re.escape(signs)}]", text)


def test_latex_is_well_formed():
    written = latex_table(GRID, "Caption.")
    assert written.count(r"\begin{table}") == written.count(r"\end{table}") == 1
    depth = 0
    for brace in unescaped(written, "{}"):
        depth += 1 if brace == "{" else -1
        assert depth >= 0
    assert depth == 0
    assert len(unescaped(written, "$")) % 2 == 0
    rows = [line for line in written.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 3
    assert all(len(unescaped(row, "&")) == 2 for row in rows)
    assert not unescaped(written.replace("$^{*}$", ""), "#%_^~")
    assert r"\textbf{0.2500} {\scriptsize$\pm$ 0.0100}" in written
    assert "0.2400 {\\scriptsize$\\pm$ 0.0200}$^{*}$" in written
    for command in ("toprule", "midrule", "bottomrule"):
        assert f"\\{command}" in written


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a_b", r"a\_b"),
        ("5% & #", r"5\% \& \#"),
        ("\\", r"\textbackslash{}"),
        ("{}$", r"\{\}\$"),
        ("~^", r"\textasciitilde{}\textasciicircum{}"),
        ("<>", "$<$$>$"),
        ("two\nlines", "two lines"),
    ],
)
def test_latex_escapes(text, expected):
    assert latex_escape(text) == expected
