"""The page that ``--help`` prints: whole option names at any width, and room for what is said of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from deql.cli.output import console

__all__ = ["CommandWithPage", "GroupWithPage", "help_page"]

_WIDEST = 110
"""Longer lines are hard to read, however wide the terminal is."""

_NAMES = 28
"""Columns for an option's names and value; where they take more, the help begins below them."""

_VALUES = {"path": "FILE", "str": "TEXT", "float": "NUMBER", "integer": "N", "int": "N"}
"""What stands for an option's value, by the names that versions of typer have for its type."""


class CommandWithPage(TyperCommand):
    """A command whose help is :func:`help_page`."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page, in colour where it goes to a terminal."""
        formatter.write(help_page(self, ctx))


class GroupWithPage(TyperGroup):
    """A group of commands whose help is :func:`help_page`."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page, in colour where it goes to a terminal."""
        formatter.write(help_page(self, ctx))


def help_page(command: Any, ctx: Any) -> str:
    """How a command is typed, what it does, and its arguments, options by section, and commands.

    Parameters
    ----------
    command : typer command or group
        The section of an option is its ``rich_help_panel``.
    ctx : typer context

    Examples
    --------
    >>> from deql.cli import run
    >>> run(["data", "--help"])  # doctest: +ELLIPSIS
    Usage: deql data COMMAND
    <BLANKLINE>
    Look at tables, convert, clean and split them.
    ...
    """
    screen = console()
    screen.width = min(screen.width, _WIDEST)
    sections = dict(_sections(command, ctx))
    lefts = [len(left) for rows in sections.values() for left, _ in rows]
    width = max((length for length in lefts if length <= _NAMES), default=0)
    with screen.capture() as page:
        screen.print(Text.assemble(("Usage: ", "bold"), _usage(command, ctx)))
        for paragraph in (command.help or "").split("\n\n"):
            screen.print("", Text(" ".join(paragraph.split())), sep="\n")
        for title, rows in sections.items():
            screen.print("", Text(title, "bold"), sep="\n")
            for part in _laid_out(rows, width):
                screen.print(Padding(part, (0, 0, 0, 2)))
    return re.sub(r" +$", "", page.get(), flags=re.MULTILINE)


def _usage(command: Any, ctx: Any) -> str:
    words = [ctx.command_path, *map(_argument, _arguments(command, ctx))]
    for option in command.get_params(ctx):
        if option.param_type_name == "option" and option.required:
            words.append(_option(option, ctx)[0].split(", ")[-1])
    if hasattr(command, "list_commands"):
        return " ".join([*words, "COMMAND"])
    return " ".join([*words, "[OPTIONS]"])


def _sections(command: Any, ctx: Any) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Titles, and rows of what is typed and what it does."""
    if arguments := _arguments(command, ctx):
        yield "Arguments", [(_argument(one), one.help or "") for one in arguments]
    if hasattr(command, "list_commands"):
        listed = [(name, command.get_command(ctx, name)) for name in command.list_commands(ctx)]
        yield "Commands", [(name, one.help or "") for name, one in listed]
    panels: dict[str, list[tuple[str, str]]] = {}
    for option in command.get_params(ctx):
        if option.param_type_name == "option" and not option.hidden:
            panels.setdefault(getattr(option, "rich_help_panel", None) or "Options", []).append(_option(option, ctx))
    if "Options" in panels:
        yield "Options", panels.pop("Options")
    yield from panels.items()


def _arguments(command: Any, ctx: Any) -> list[Any]:
    return [one for one in command.get_params(ctx) if one.param_type_name == "argument"]


def _argument(argument: Any) -> str:
    return argument.metavar or (argument.name.upper() if argument.required else f"[{argument.name.upper()}]")


def _option(option: Any, ctx: Any) -> tuple[str, str]:
    """Its names and what stands for its value, and its help with the default."""
    names, text = option.get_help_record(ctx)
    if option.metavar is None and not option.is_flag:
        names, _, kind = names.replace(" range", "").replace(" RANGE", "").rpartition(" ")
        kind = re.sub(r"^(?:list\[(.*)\]|\[(.*)\])$", r"\1\2", kind.strip("<>"))
        names = f"{names} {_VALUES.get(kind.lower(), kind)}"
    return names, re.sub(r" {2,}", " ", text.replace("\\[", "["))  # early versions of typer escape the bracket


def _laid_out(rows: Iterable[tuple[str, str]], width: int) -> Iterator[RenderableType]:
    """Two columns; a row whose left side is too long for its column has the right one below it."""
    for left, right in rows:
        names = Text(left, "yellow", overflow="fold")
        names.highlight_regex(r"(?<![\w-])--?[\w-]+", "bold cyan")
        if not left.startswith("-"):
            names.stylize("bold cyan")
        if len(left) > width:
            yield Group(names, Padding(Text(right), (0, 0, 0, width + 2)))
            continue
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(width=width, no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(names, Text(right))
        yield grid
