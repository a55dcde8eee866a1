"""The program around its commands: what starts it, what it lists, and what it imports for that."""

import inspect
import subprocess
import sys
from importlib import import_module

import pytest

import deql
from deql.cli.app import COMMANDS, DATA_COMMANDS


@pytest.mark.parametrize(
    ("package", "name", "listed"),
    [("deql.cli", *one) for one in COMMANDS.items()] + [("deql.cli.data", *one) for one in DATA_COMMANDS.items()],
)
def test_the_list_says_what_the_command_says_of_itself(package, name, listed):
    command = getattr(import_module(f"{package}.{name}"), name)
    first = inspect.cleandoc(command.__doc__).partition("\n\n")[0]
    assert " ".join(first.split()) == listed


def test_python_m_deql_is_the_command():
    done = subprocess.run([sys.executable, "-m", "deql", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, f"deql {deql.__version__}")
    done = subprocess.run([sys.executable, "-m", "deql", "frobnicate"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("deql: error: No such command 'frobnicate'")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["data", "--help"], ["frobnicate"]])
def test_the_list_of_commands_imports_none_of_them(arguments):
    code = f"import sys; from deql.cli import run; run({arguments!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "polars", "numba", "torch"} & set(done.stdout.splitlines()[-1].split())
