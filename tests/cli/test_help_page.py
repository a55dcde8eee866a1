"""What ``--help`` shows: whole names, whatever the width of the terminal, and enough room for the words."""

import re
from importlib import import_module

import pytest
import typer
from typer.main import get_command

from deql.cli import run
from deql.cli.app import COMMANDS, DATA_COMMANDS

TYPED = [*([name] for name in COMMANDS), *(["data", name] for name in DATA_COMMANDS)]


def page(capsys, monkeypatch, typed, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert run([*typed, "--help"]) == 0
    return capsys.readouterr().out


def parameters(typed):
    alone = typer.Typer(add_completion=False)
    path = [word.replace("-", "_") for word in typed]
    alone.command()(getattr(import_module(".".join(["deql.cli", *path])), path[-1]))
    return [one for one in get_command(alone).params if not one.hidden]


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("typed", [[], ["data"], *TYPED], ids=" ".join)
def test_nothing_is_cut(capsys, monkeypatch, typed, width):
    shown = page(capsys, monkeypatch, typed, width)
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= min(width, 110)
    assert "bool" not in shown
    assert "\x1b" not in shown
    assert "\\" not in shown
    assert "<" not in re.sub("<=", "", shown)
    assert " ".join(["Usage: deql", *typed]) in shown


@pytest.mark.parametrize("typed", TYPED, ids=" ".join)
def test_every_option_is_named_once_with_room_for_its_help(capsys, monkeypatch, typed):
    shown = page(capsys, monkeypatch, typed, 80)
    options = [one for one in parameters(typed) if one.param_type_name == "option"]
    assert len(options) >= 2
    for name in (name for one in options for name in (*one.opts, *one.secondary_opts)):
        found = re.findall(rf"^  (?:\S+ ?[,/] )*{re.escape(name)}(?=[ ,\n])", shown, re.MULTILINE)
        assert len(found) == 1, name
    for one in (one for one in options if one.help):
        assert " ".join(one.help.split()) in " ".join(shown.split())
    begins = {len(line) - len(line.lstrip()) for line in shown.splitlines() if line.startswith("   ")}
    assert len(begins) <= 1
    assert all(80 - begin >= 45 for begin in begins)


def test_options_stand_under_what_they_are_about(capsys, monkeypatch):
    shown = page(capsys, monkeypatch, ["tune"], 80)
    titles = re.findall(r"^(?!Usage)([A-Z][a-z ]+)$", shown, re.MULTILINE)
    assert titles[:2] == ["Arguments", "Options"]
    assert shown.index("\nSplitting a table\n") < shown.index("--held-out") < shown.index("\nReading and cleaning")


def test_choices_and_what_must_be_given_are_shown(capsys, monkeypatch):
    shown = page(capsys, monkeypatch, ["tune"], 80)
    assert shown.startswith("Usage: deql tune DATA [OPTIONS]\n")
    assert "--search walk|grid|optuna" in shown
    assert "[default: walk]" in " ".join(shown.split())
    split = page(capsys, monkeypatch, ["data", "split"], 80)
    assert split.startswith("Usage: deql data split FILE --out FILE [OPTIONS]\n")
    assert "Split file to write. [required]" in split
    assert "--exclude TEXT" in page(capsys, monkeypatch, ["recommend"], 80)
    assert "--port N" in page(capsys, monkeypatch, ["serve"], 80)
