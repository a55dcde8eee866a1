"""The page "Priors" does what it says: every block is run, and what it shows is compared."""

from pathlib import Path

import pytest

from tests.pages import deql_shell, missing, run_page

PAGE = Path(__file__).parents[1] / "docs" / "priors.md"


def test_every_block_runs_and_prints_what_it_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    run_page(PAGE, PAGE.read_text("utf-8"), deql_shell(capsys), capsys)


@pytest.mark.parametrize(
    ("shown", "printed", "lacking"),
    [
        ("a 1,000\n…\nc 0.500", "x\na  1,001\nb\nc 0.505\n", None),
        ("took 1.5 s", "took 900 s", None),
        ('{"a": 1, …{"b": 2, …', '{"a": 1, "x": 3, [{"b": 2, "y": 4}]}', None),
        ('{"a": 1, …{"b": 2, …', '{"a": 1, "x": 3, [{"b": 3, "y": 4}]}', '{"a": 1, …{"b": 2, …'),
        ("a 1\nb 2", "b 2\na 1", "b 2"),
        ("l2=3", "l2=30", "l2=3"),
        ("EASE 0.75", "EASE 0.70", "EASE 0.75"),
        ("EASE 0.75", "DEQL 0.75", "EASE 0.75"),
    ],
)
def test_output_is_compared(shown, printed, lacking):
    assert missing(shown, printed) == lacking
