"""``deql serve``: models behind HTTP, and a page on which b is a slider."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from deql._system.compiling import announce_compiling
from deql._system.formatting import parse_bytes
from deql.cli.output import say
from deql.errors import DeqlError, ParameterError
from deql.serve.settings import Limits, Settings, read_curve

__all__ = ["need_serve", "serve", "serve_with"]

_MODELS = "Model files written by deql fit; requests name one by its file's name without .deql, or as NAME."


def serve(
    model_files: Annotated[list[str], typer.Argument(help=_MODELS, metavar="[NAME=]MODEL...")],
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 for all of this machine's.")] = Settings.host,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0 for a free one.")] = Settings.port,
    workers: Annotated[
        int, typer.Option(min=1, max=64, help="Processes; P is in memory once for all.")
    ] = Settings.workers,
    threads: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Threads of each; else the processors divided among them.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="DEQL_TOKEN",
            help="Requests must show it, as Authorization: Bearer TOKEN; allows POST /v1/admin/reload.",
        ),
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(help="Journal of deql tune, for the first model's curve over b.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for a request.")] = Settings.timeout,
    max_k: Annotated[int, typer.Option(min=1, help="Most items in a list.")] = Limits.k,
    max_histories: Annotated[int, typer.Option(min=1, help="Most histories in a request.")] = Limits.histories,
    max_history: Annotated[int, typer.Option(min=1, help="Most items in a history.")] = Limits.history,
    max_body: Annotated[str, typer.Option(help="Largest body of a request.")] = f"{Limits.body // 2**20}MiB",
    quiet: Annotated[bool, typer.Option("--quiet", help="Log errors and changes, not every request.")] = False,
) -> None:
    """Serve models over HTTP, with a page to look at them. Ctrl-C ends it, SIGHUP reads the files again."""
    need_serve()
    if token is None:  # an option's empty variable counts as none; here it is a secret that was not filled in
        token = os.environ.get("DEQL_TOKEN")
    token = None if token is None else token.strip()
    if token == "":
        raise ParameterError("the token is empty: give one that cannot be guessed, or none")
    if not host:
        raise ParameterError("the host is empty: give an address to listen at, such as 127.0.0.1")
    limits = Limits(k=max_k, histories=max_histories, history=max_history, body=parse_bytes(max_body, "--max-body"))
    settings = Settings(
        _named(model_files), host, port, workers, threads, token=token, timeout=timeout, limits=limits, quiet=quiet,
        curve=None if journal is None else read_curve(journal),
    )  # fmt: skip
    serve_with(settings)


def _named(given: Sequence[str]) -> dict[str, str]:
    """Model files by name: the one given, else the file's own, with a number where another has that already.

    Examples
    --------
    >>> _named(["new/shop.deql", "old/shop.deql", "small=old/shop.deql"])
    {'shop': 'new/shop.deql', 'shop-2': 'old/shop.deql', 'small': 'old/shop.deql'}
    """
    pairs = [("", one) if "=" not in one or Path(one).exists() else one.partition("=")[::2] for one in given]
    chosen = [name for name, _ in pairs if name]
    twice = next((name for name in chosen if chosen.count(name) > 1), None)
    if twice is not None:
        raise ParameterError(f"two models cannot both be called {twice}: give them different names")
    named: dict[str, str] = {}
    for name, path in pairs:
        stem, number = Path(path).stem, 2
        if not name:
            name = stem
            while name in named or name in chosen:
                name, number = f"{stem}-{number}", number + 1
        named[name] = path
    return named


def serve_with(settings: Settings, ready: Callable[[str], Any] | None = None) -> None:
    """Serve until told to end, and leave with the server's exit code."""
    from deql.serve.server import is_local, run

    if sys.stderr.isatty():
        announce_compiling(say)

    def tell(address: str) -> None:
        if sys.stderr.isatty():  # elsewhere the log says so
            files = ", ".join(Path(path).name for path in settings.models.values())
            say(f"serving {files} at {address} (Ctrl-C ends it)")
        if settings.token is None and not is_local(settings.host):
            _warn(f"everybody who can reach {settings.host} can ask; --token lets only those in who have it")
        if ready is not None:
            ready(address)

    raise typer.Exit(run(settings, tell))


def _warn(text: str) -> None:
    """A note to a person, or to who reads the log: each of its lines is JSON."""
    from deql.serve.monitoring import log

    if sys.stderr.isatty():
        say(f"note: {text}")
    else:
        log("warning", logging.WARNING, reason=text)


def need_serve() -> None:
    """Raise DeqlError unless what the server is made of is installed."""
    if not all(find_spec(name) for name in ("fastapi", "uvicorn", "prometheus_client")):
        raise DeqlError('deql serve needs FastAPI and uvicorn: pip install "deql[serve]"')
