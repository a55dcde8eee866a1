"""The ``deql`` program: its commands, and one line with exit code 2 for whatever is wrong with the input."""

from __future__ import annotations

import errno
import inspect
import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from typer.main import get_command

from deql import __version__
from deql._system.compiling import announce_compiling
from deql._system.limits import adapt_to_limits, limits_set
from deql.cli.help_page import CommandWithPage, GroupWithPage
from deql.cli.output import option_name, say
from deql.errors import DeqlError, ParameterError, Setting, reason

__all__ = ["app", "main", "run"]

COMMANDS = {
    "demo": "Fit, tune, evaluate and explain on the bundled data: Debian's package index. No network, no arguments.",
    "fit": "Fit a model on a table of who did what and save it.",
    "evaluate": "Fit models on a split's training part, or load them, and evaluate them on the users held out.",
    "tune": "Find the best hyper-parameters on validation users, and save the model that has them.",
    "compare": "Fit models on several splits: mean ± sd, one-sided paired tests, Holm's correction.",
    "recommend": "Recommend items for a history, for users by id, or for every user of a table.",
    "similar": "Items that having ITEM speaks for most.",
    "explain": "Why ITEM is recommended after HISTORY: parts that add up to its score exactly.",
    "prune": "Keep the largest weights of each item, and say what leaving out the others costs. No fit.",
    "add-items": "Put new items into a model that was fitted with item features. No fit.",
    "update": "Follow changes of the data without a fit: interactions come and go, users are forgotten, items retired.",
    "verify": "Check by a fit that a model has forgotten the users of a certificate.",
    "serve": "Serve models over HTTP, with a page to look at them. Ctrl-C ends it, SIGHUP reads the files again.",
    "reproduce": "Make the paper's tables and figures again. Markdown, HTML and plots; the same command goes on after "
    "a kill.",
}
DATA_COMMANDS = {
    "info": "Read a table and say what is in it: columns, counts, sparsity, how uneven it is; or the parts of a split.",
    "convert": "Read a table, clean it, and write it in another format.",
    "partition": "Read a table that may be larger than memory into files that each hold whole users.",
    "split": "Read a table, clean it, split it for honest evaluation, and save the split.",
    "prepare": "Prepare one of the paper's data sets as the paper did, and say how its counts compare.",
}


def _lazy_group(package: str, commands: Mapping[str, str], **options: Any) -> typer.Typer:
    """A group of commands, each a function in the module of its name, which is imported when it is invoked.

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

    class LazyGroup(GroupWithPage):
        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
            name, command, rest = super().resolve_command(ctx, args)
            if name is not None and name in commands:
                adapt_to_limits()
                alone = typer.Typer(add_completion=False, rich_markup_mode=None)
                function = name.replace("-", "_")
                alone.command(name, cls=CommandWithPage)(getattr(import_module(f"{package}.{function}"), function))
                _listen_for_the_end()
                if _is_program:
                    announce_compiling(say)
                command = get_command(alone)
            return name, command, rest

    group = typer.Typer(cls=LazyGroup, add_completion=False, no_args_is_help=False, rich_markup_mode=None, **options)
    for name, text in commands.items():
        group.command(name, help=text)(_placeholder)
    return group


def _placeholder() -> None:
    """Stands in the list of commands for what is imported when it is invoked."""


app = _lazy_group(
    "deql.cli",
    COMMANDS,
    name="deql",
    help="Closed-form recommenders: exact, fast, memory-lean and explainable. Start with: deql demo",
)
data = _lazy_group("deql.cli.data", DATA_COMMANDS, help="Look at tables, convert, clean and split them.")
app.add_typer(data, name="data")


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and stop.")] = False,
) -> None:
    """Show the version or the help when no command is given."""
    if version:
        print(f"deql {__version__}")
        raise typer.Exit
    _help_without_command(context)


@data.callback(invoke_without_command=True)
def _help_without_command(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code: 0 well, 2 bad input, 130 interrupted, 143 terminated.

    Examples
    --------
    >>> run(["--version"])  # doctest: +ELLIPSIS
    deql ...
    0
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *_rest, **_named: say(f"note: {message}")
            code = app(args=list(arguments), prog_name="deql", standalone_mode=False)
        if code == 130:  # how the option parser reports Ctrl-C
            return _interrupted()
        return code if isinstance(code, int) else 0
    except DeqlError as error:
        say(f"error: {_in_options(error, arguments)}")
        return 2
    except (BrokenPipeError, SystemExit) as error:  # whoever was reading has seen enough
        # The option parser ends the program with 1 for it.
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  else Python complains on its way out
        return 0
    except (OSError, MemoryError) as error:
        if isinstance(error, MemoryError) or error.errno == errno.ENOMEM:
            say(f"error: there is not enough memory: {_memory_advice(arguments)}")
        else:
            say(f"error: {error.filename or 'a file'} cannot be used: {reason(error)}")
        return 2
    except KeyboardInterrupt:
        return _interrupted()
    except Exception as error:
        if "can't start new thread" in str(error):
            fewer = ", or say --threads 1" if _is_left(arguments, "threads") else ""
            say(f"error: no more threads can be started here: raise the limit (ulimit -u, -v){fewer}")
            return 2
        if "integer string conversion" in str(error):
            say("error: a number was typed that has too many digits: write a shorter one")
            return 2
        # Usage errors of the option parser, whichever of its classes they are.
        if not hasattr(error, "format_message"):
            raise
        context = getattr(error, "ctx", None)
        message = error.format_message().replace(": Value error, ", ": ")  # words of a library of the option parser's
        say(f"error: {message} ({context.command_path if context else 'deql'} --help shows how)")
        return 2


_is_program = False
_terminated = threading.Event()


def _listen_for_the_end() -> None:
    """Let SIGTERM do what Ctrl-C does, unless who started this wants it to be ignored.

    Not before the libraries are loaded: until then nothing is written, and a library that hangs would keep Python
    from hearing the signal.
    """
    main_thread = threading.current_thread() is threading.main_thread()
    if _is_program and main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    """Let a signal to end do what Ctrl-C does, which leaves nothing half-written; a second one ends at once."""
    if _terminated.is_set():
        os._exit(143)
    _terminated.set()
    raise KeyboardInterrupt


def _interrupted() -> int:
    say("terminated" if _terminated.is_set() else "interrupted")
    return 143 if _terminated.is_set() else 130


def _typed(arguments: Sequence[str], option: str) -> bool:
    return any(argument.partition("=")[0] == option for argument in arguments)


def _options(arguments: Sequence[str]) -> Mapping[str, Any]:
    """Options of the command that ran, by parameter; none of one that was not imported: memory may be short by now."""
    path = [name.replace("-", "_") for name in arguments[: 2 if list(arguments[:1]) == ["data"] else 1]]
    command = getattr(sys.modules.get(".".join(["deql.cli", *path])), path[-1] if path else "", None)
    return {} if command is None else inspect.signature(command).parameters


def _is_left(arguments: Sequence[str], parameter: str) -> bool:
    """Whether the command has the option, and it was not typed."""
    return parameter in _options(arguments) and not _typed(arguments, option_name(parameter))


def _memory_advice(arguments: Sequence[str]) -> str:
    """What is left to try: what the command has options for, but not what was tried.

    Examples
    --------
    >>> import deql.cli.fit, deql.cli.similar
    >>> _memory_advice(["fit", "a.csv", "--dtype", "float64", "--engine=disk"])
    'say --dtype float32, or keep fewer items (--min-users-per-item)'
    >>> _memory_advice(["similar", "shop.deql", "fit"])
    'free some'
    """
    advice = [f"raise {limit.words}" for limit in limits_set()]
    if "dtype" in _options(arguments) and not {"float64", "--dtype=float64"}.isdisjoint(arguments):
        advice.append("say --dtype float32")
    if _is_left(arguments, "engine") and "--auto" not in arguments:  # which chooses the engine itself
        advice.append("say --engine disk")
    if _is_left(arguments, "min_users_per_item"):
        advice.append("keep fewer items (--min-users-per-item)")
    return ", or ".join(advice or ["free some"])


def _in_options(error: DeqlError, arguments: Sequence[str]) -> str:
    """An error's message with options in place of Python's parameters: time=… is --time.

    Examples
    --------
    >>> _in_options(DeqlError("say ", Setting("min_weight"), " or use ", Setting("dtype", "float32")), [])
    'say --min-weight or use --dtype float32'
    >>> _in_options(ParameterError("l2 must be a number from 0 up, got -1.0", parameter="l2"), ["fit", "--l2=-1"])
    '--l2 must be a number from 0 up, got -1.0'
    >>> _in_options(ParameterError("unknown metric 'x'", parameter="metric"), ["tune", "--metric", "x"])
    "--metric: unknown metric 'x'"
    """

    def option(setting: Setting) -> str:
        if setting.name == "journal":
            file = "with --replay" if _typed(arguments, "--replay") else "with --journal"
            return "folder with --out" if list(arguments[:1]) == ["reproduce"] else file
        return option_name(setting.name) + ("" if setting.value is None else f" {setting.value}")

    message = "".join(option(part) if isinstance(part, Setting) else str(part) for part in error.args)
    if not isinstance(error, ParameterError) or error.parameter is None:
        return message
    typed = option_name(error.parameter)
    if error.parameter in ("metric", "metrics"):  # both are one option
        typed = "--metrics" if _typed(arguments, "--metrics") else "--metric"
    # --k is -k, too, and --arithmetic was called --precision.
    spellings = (typed, f"-{error.parameter}", "--precision" if error.parameter == "arithmetic" else typed)
    if typed in message or not any(argument.partition("=")[0] in spellings for argument in arguments):
        return message
    rest = message.removeprefix(f"{error.parameter} ")
    return f"{typed}: {message}" if rest == message else f"{typed} {rest}"


def main() -> None:
    """Entry point of the ``deql`` command."""
    # Where a stream was closed, Python has none; what would go there is of no interest then.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that lacks a letter shows another instead
            stream.reconfigure(errors="replace")
    global _is_program
    _is_program = True
    sys.exit(run(sys.argv[1:]))
