"""The code of docs/objectives.md runs, and its numbers are those that the page states."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "objectives.md").read_text()


def test_the_worked_example_gives_what_the_page_says():
    names = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(block, names)
    stated = re.findall(r"^\| (truncated|EASE) .*\| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    assert [name for name, *_ in stated] == ["truncated", "EASE"]
    for name, recall, ndcg in stated:
        means = names["results"][name].means
        # NumPy may change what its generators draw; other draws move these by less than this.
        assert means["recall@20"] == pytest.approx(float(recall), abs=0.004)
        assert means["ndcg@20"] == pytest.approx(float(ndcg), abs=0.004)
