"""Runs a function of a benchmark in a fresh process and weighs it: its seconds and its memory."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

__all__ = ["Sample", "Task", "measure", "measure_all", "serve", "show"]

_MIB = 2.0**20


@dataclass(frozen=True)
class Task:
    """Work that is ready to be timed, and what to do with its result once the gauges are read."""

    work: Callable[[], Any]
    finish: Callable[[Any], dict[str, Any]] = lambda result: {}


@dataclass(frozen=True)
class Sample:
    """Seconds of the work on the clock and of all cores, peak RSS, and RSS right before the work began."""

    seconds: float
    cpu_seconds: float
    peak_mib: float
    before_mib: float
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def cores(self) -> float:
        """Cores that the work had on average: on a busy machine fewer than it could use."""
        return self.cpu_seconds / self.seconds

    @property
    def beyond_mib(self) -> float:
        """Peak RSS beyond imports and data."""
        return self.peak_mib - self.before_mib


def serve(tasks: Mapping[str, Callable[..., Task]]) -> None:
    """In a child process do the task it was started for and exit; otherwise return at once."""
    if sys.argv[1:2] != ["--child"]:
        return
    name, *arguments = sys.argv[2:]
    task = tasks[name](*arguments)
    before = _rss_mib()
    start, cpu_start = perf_counter(), process_time()
    result = task.work()
    seconds, cpu_seconds = perf_counter() - start, process_time() - cpu_start
    peak = _peak_mib()
    print(json.dumps(asdict(Sample(seconds, cpu_seconds, peak, before, task.finish(result)))))
    sys.exit()


def measure(script: str, name: str, *arguments: object) -> Sample:
    """One run of task ``name`` of ``script`` in a process of its own.

    A child's peak starts from the parent's RSS when it was started, so a parent imports no more than
    its children do and leaves data to them.
    """
    command = [sys.executable, script, "--child", name, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Sample(**json.loads(done.stdout.splitlines()[-1]))


def measure_all(script: str, runs: Mapping[Any, Sequence[object]], repeats: int) -> dict[Any, Sample]:
    """The best of ``repeats`` of each run, which is a task's name and arguments.

    The repeats of different runs take turns, so that a slow spell of the machine hits all of them.
    Time and memory are each the smallest seen: noise only adds.
    """
    samples: dict[Any, list[Sample]] = {key: [] for key in runs}
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


def _best(samples: Sequence[Sample]) -> Sample:
    fastest = min(samples, key=lambda sample: sample.seconds)
    leanest = min(samples, key=lambda sample: sample.beyond_mib)
    return Sample(fastest.seconds, fastest.cpu_seconds, leanest.peak_mib, leanest.before_mib, fastest.facts)


def _peak_mib() -> float:
    # Linux counts in KiB, macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / _MIB


def _rss_mib() -> float:
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize() / _MIB
    return _peak_mib()  # elsewhere the peak so far is the nearest the standard library has
