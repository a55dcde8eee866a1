"""Runs a function of a benchmark in a fresh process and measures it: its seconds and its memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from deql._system.measure import Measurement
from deql._system.measure import measure as measure_here

__all__ = ["Measurement", "Task", "measure", "measure_all", "serve", "show"]


@dataclass(frozen=True)
class Task:
    """Work that is ready to be timed, and what to do with its result once it is measured."""

    work: Callable[[], Any]
    finish: Callable[[Any], dict[str, Any]] = lambda result: {}


def serve(tasks: Mapping[str, Callable[..., Task]]) -> None:
    """In a child process do the task it was started for and exit; otherwise return at once."""
    if sys.argv[1:2] != ["--child"]:
        return
    name, *arguments = sys.argv[2:]
    task = tasks[name](*arguments)
    result, sample = measure_here(task.work)
    print(json.dumps(asdict(replace(sample, facts=task.finish(result)))))
    sys.exit()


def measure(script: str, name: str, *arguments: object) -> Measurement:
    """One run of task ``name`` of ``script`` in a process of its own."""
    command = [sys.executable, script, "--child", name, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Measurement(**json.loads(done.stdout.splitlines()[-1]))


def measure_all(script: str, runs: Mapping[Any, Sequence[object]], repeats: int) -> dict[Any, Measurement]:
    """The best of ``repeats`` of each run, which is a task's name and arguments.

    The repeats of different runs take turns, so that a slow spell of the machine hits all of them.
    Time and memory are each the smallest seen: noise only adds.
    """
    samples: dict[Any, list[Measurement]] = {key: [] for key in runs}
    for _ in range(repeats):
        for key, (name, *arguments) in runs.items():
            samples[key].append(measure(script, str(name), *arguments))
    return {key: _best(several) for key, several in samples.items()}


def show(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in header:
        table.add_column(column)
    for row in rows:
        table.add_row(*map(_text, row))
    Console(width=120).print(table)


def _text(cell: object) -> str:
    return f"{cell:,.{2 if cell < 100 else 0}f}" if isinstance(cell, float) else str(cell)


def _best(samples: Sequence[Measurement]) -> Measurement:
    fastest = min(samples, key=lambda sample: sample.seconds)
    leanest = min(samples, key=lambda sample: sample.beyond_mib)
    return Measurement(fastest.seconds, fastest.cpu_seconds, leanest.peak_mib, leanest.before_mib, fastest.facts)
