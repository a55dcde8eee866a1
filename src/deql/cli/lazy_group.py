"""Commands that are imported when they are invoked, so that the list of them is shown at once."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

__all__ = ["lazy_group"]


def lazy_group(package: str, commands: Mapping[str, str], **options: Any) -> typer.Typer:
    """A group of commands, each a function in the module of its name.

    Parameters
    ----------
    package : str
        Where the modules are.
    commands : dict of str
        What the list of commands says of each: the first paragraph of the function's docstring, which is not
        imported for it.
    **options
        Of ``typer.Typer``.
    """

    class LazyGroup(TyperGroup):
        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
            name, command, rest = super().resolve_command(ctx, args)
            if name is not None and name in commands:
                alone = typer.Typer(add_completion=False)
                alone.command(name)(getattr(import_module(f"{package}.{name}"), name))
                command = get_command(alone)
            return name, command, rest

    group = typer.Typer(cls=LazyGroup, add_completion=False, no_args_is_help=False, **options)
    for name, text in commands.items():
        group.command(name, help=text)(_placeholder)
    return group


def _placeholder() -> None:
    """Stands in the list of commands for what is imported when it is invoked."""
