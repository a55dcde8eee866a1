"""The page "Networks" does what it says: its blocks are run."""

from pathlib import Path

import pytest

from tests.pages import deql_shell, run_page

pytest.importorskip("torch", reason="networks need torch")

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[1] / "docs" / "networks.md"


def test_every_block_runs_and_prints_what_it_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    run_page(PAGE, PAGE.read_text("utf-8"), deql_shell(capsys), capsys)
