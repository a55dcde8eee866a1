"""The page "Following the data without a fit" does what it says: every block is run."""

from pathlib import Path

from deql.cli import run
from tests.pages import run_page

PAGE = Path(__file__).parents[1] / "docs" / "updates.md"


def test_every_block_runs_and_prints_what_it_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def shell(words, refused):
        assert words[0] == "deql", f"{words} is not run"
        code = run(words[1:])
        printed = capsys.readouterr()
        print(printed.err + printed.out)
        assert code == (2 if refused else 0), printed.err
        return printed.err + printed.out

    run_page(PAGE, PAGE.read_text("utf-8"), shell, capsys)
