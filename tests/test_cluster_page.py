"""The page "On a cluster" does what it says: its blocks for a cluster on one machine are run."""

from pathlib import Path

import pytest

from tests.pages import deql_shell, run_page

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[1] / "docs" / "cluster.md"


@pytest.mark.cluster
def test_every_block_runs_and_prints_what_it_shows(tmp_path, monkeypatch, capsys):
    pytest.importorskip("distributed", reason="the extra cluster is not installed")
    monkeypatch.chdir(tmp_path)
    run_page(PAGE, PAGE.read_text("utf-8"), deql_shell(capsys), capsys)
