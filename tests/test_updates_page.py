"""The page "Following the data without a fit" does what it says: every block is run."""

from pathlib import Path

from tests.pages import deql_shell, run_page

PAGE = Path(__file__).parents[1] / "docs" / "updates.md"


def test_every_block_runs_and_prints_what_it_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    run_page(PAGE, PAGE.read_text("utf-8"), deql_shell(capsys), capsys)
