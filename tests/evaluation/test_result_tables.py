"""A comparison tells the same in every format."""

import re

from tests.evaluation.test_comparison import made


def test_all_formats_tell_the_same():
    found = made([[0.30, 0.20, 0.29], [0.31, 0.22, 0.30], [0.33, 0.21, 0.31]])
    text, markdown, latex = str(found), found.to_markdown(), found.to_latex()
    for written in (text, markdown, latex):
        assert "0.3133" in written
        assert "Mean" in written
        assert "3 splits (strong, seeds 0 to 2, 7 users evaluated in each)" in written
        assert "paired over 3 splits" in written
        assert "the best model is better than this one" in written
    assert "0.3133 ± 0.0153 ←" in text
    assert "**0.3133** ± 0.0153" in markdown
    assert r"\textbf{0.3133} {\scriptsize$\pm$ 0.0153}" in latex
    test = found.tests("ndcg@20")[0]
    assert test.significant
    assert "0.2100 ± 0.0100 *" in re.sub(" +", " ", text)
    assert f"{test.t_holm:.4f} *" in text


def test_a_baseline_is_named():
    found = made([[0.30, 0.20], [0.31, 0.22], [0.33, 0.21]], baseline="m1")
    assert "better than the baseline m1" in str(found)
    assert "0.3133 ± 0.0153 ←*" in str(found)
