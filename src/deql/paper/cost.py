"""``cost``: the paper's table of minutes and gigabytes on Yelp2018, and what each fit takes on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from deql._system.measure import Sample
from deql._system.tables import Cell, Grid
from deql._system.threads import thread_count
from deql.errors import DeqlError
from deql.paper.document import Figure, Section
from deql.paper.hyperparameters import Choice
from deql.paper.paper_datasets import Bench
from deql.paper.published import LINEAR, WEIGHTED, reported
from deql.paper.registry import Order
from deql.paper.runs import Record, Run, threads_in_words
from deql.paper.subprocess_fit import fit_apart
from deql.report import plots
from deql.report.plots import Labels

__all__ = ["cost"]

_GIB_OF_GB = 1e9 / 2**30
_TELLING = 0.01
"""An inverse of fewer GiB says nothing of what a fit takes."""
_SERVER = "96 cores (Intel Xeon Platinum 8268) and 500 GB"


@dataclass(frozen=True)
class _Weighed:
    """A row, what its fit took, in numbers of which type, and on which machine."""

    choice: Choice
    sample: Sample
    dtype: str
    threads: str
    machine: str

    @property
    def gib(self) -> float:
        """Peak of the process."""
        return self.sample.peak_mib / 1024

    @property
    def device_gib(self) -> float | None:
        """Peak on a CUDA device, if one was used."""
        there = self.sample.facts.get("device_mib")
        return None if there is None else there / 1024

    @property
    def all_gib(self) -> float:
        """Both peaks."""
        return self.gib + (self.device_gib or 0.0)


_Failed = tuple[Choice, DeqlError]


def cost(order: Order) -> tuple[str, list[Section]]:
    """The table of time and memory."""
    sections, leads = [], []
    for bench in order.benches:
        choices = [choice for row in LINEAR if (choice := order.found(bench, row)) is not None]
        if not choices:
            sections.append(order.unchosen(bench, "any row"))
            continue
        weighed, failed = _weigh(order.run, bench, choices)
        sections.append(_section(bench, weighed, failed))
        leads.append(_lead(bench, weighed))
    return " ".join(leads), sections


def _weigh(run: Run, bench: Bench, choices: Sequence[Choice]) -> tuple[list[_Weighed], list[_Failed]]:
    """Fit each row in a process of its own, unless the journal has it; and those that cannot be fitted, with why.

    Where none can, the reason is not in the rows, and is raised.
    """
    typed = {name: value for name, value in run.machine.items() if name not in ("progress", "folder")}
    weighed: list[_Weighed] = []
    failed: list[_Failed] = []
    with TemporaryDirectory(prefix="deql-") as folder:
        file = Path(folder, "data.split")

        def work(choice: Choice) -> Record:
            if not file.exists():
                bench.first.save(file)
            run.say(f"{bench.label}: fitting {choice.row} {choice.words} in a process of its own")
            with _fresh_tiles(run.machine) as machine:
                return asdict(fit_apart(choice, file, machine))

        for choice in choices:
            model = choice.model(**run.machine)
            key = run.key(bench, model) | typed | {"threads": thread_count()}
            try:
                record = run.remember("weighed", key, partial(work, choice))
            except DeqlError as error:
                failed.append((choice, error))
                continue
            weighed.append(
                _Weighed(choice, Sample(**record["found"]), model.dtype, threads_in_words(), record["machine"])
            )
    if not weighed:
        raise failed[0][1]
    return weighed, failed


@contextmanager
def _fresh_tiles(machine: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """An empty folder for the disk engine inside the one that was named: a fit that goes on is no whole fit."""
    if machine.get("folder") is None:
        yield machine
        return
    Path(machine["folder"]).mkdir(exist_ok=True)
    with TemporaryDirectory(prefix="deql-", dir=machine["folder"]) as own:
        yield {**machine, "folder": own}


def _section(bench: Bench, weighed: Sequence[_Weighed], failed: Sequence[_Failed]) -> Section:
    paper = reported("cost", bench.name)
    others = {row: values for row, values in paper.items() if row not in LINEAR}
    grids = [_grid(weighed, paper, [choice for choice, _ in failed])]
    if others:
        rows = [([row], [Cell(f"{minutes:g}"), Cell(f"{gigabytes:g}")]) for row, (minutes, gigabytes) in others.items()]
        grids.append(Grid("Reported by the paper, on a GPU and with its memory; not fitted here",
                          ["model", "minutes", "GB"], rows))  # fmt: skip
    train = bench.first.train
    words = [
        f"{train.n_users:,} users × {train.n_items:,} items, {train.n_interactions:,} interactions to learn from. Each "
        "row is fitted once, in a process of its own; imports, reading the data and loading the kernels are not timed. "
        "GiB here are the peak of the process, GiB of the fit what that is beyond imports and data."
        + (" Paper ÷ here: its memory divided by the peak here, on a device too." if paper else ""),
        "Here: " + "; ".join(dict.fromkeys(one.machine for one in weighed)) + ".",
    ]
    remarks = _remarks(bench, weighed, paper)
    remarks += [f"{error}." for _, error in failed]
    known = {choice.row for choice in (*(one.choice for one in weighed), *(choice for choice, _ in failed))}
    left_out = [row for row in LINEAR if row not in known]
    if left_out:
        remarks.append(f"Not fitted, as no hyper-parameters were chosen for them: {', '.join(left_out)}.")
    return Section(bench.label, words, grids, figures=[_figure(bench, weighed, paper)], remarks=remarks)


def _grid(weighed: Sequence[_Weighed], paper: Mapping[str, Sequence[float]], failed: Sequence[Choice]) -> Grid:
    """Paper, here, and the one's memory divided by the other's; of rows that failed only what the paper has."""
    on_device = any(one.device_gib is not None for one in weighed)
    header = ["model", "hyper-parameters"]
    header += ["minutes paper", "GB paper"] if paper else []
    header += ["seconds here", "cores", "GiB here", "GiB of the fit"]
    header += ["GiB on the device"] if on_device else []
    header += ["memory, paper ÷ here"] if paper else []
    rows = []
    for one in weighed:
        gigabytes, sample = paper.get(one.choice.row, (None, None))[1], one.sample
        cells = _reported(paper, one.choice.row)
        cells += map(_number, (sample.seconds, sample.cores, one.gib, sample.beyond_mib / 1024))
        cells += [_number(one.device_gib)] if on_device else []
        if paper:
            cells.append(_number(None if gigabytes is None else _saved(one, paper)))
        rows.append(([one.choice.row, one.choice.words], cells))
    for choice in failed:
        cells = _reported(paper, choice.row)
        cells += [Cell("–")] * (len(header) - 2 - len(cells))
        rows.append(([choice.row, choice.words], cells))
    rows.sort(key=lambda row: LINEAR.index(row[0][0]))
    return Grid("Time and peak memory of a fit", header, rows)


def _reported(paper: Mapping[str, Sequence[float]], row: str) -> list[Cell]:
    """Minutes and gigabytes of the paper, if it has any of these data."""
    if not paper:
        return []
    return [Cell("–" if value is None else f"{value:g}") for value in paper.get(row, (None, None))]


def _number(value: float | None) -> Cell:
    return Cell("–" if value is None else _digits(value))


def _digits(value: float) -> str:
    """Three digits, which is more than repeats of a measurement agree in.

    Examples
    --------
    >>> _digits(6100.4), _digits(37.25), _digits(0.5)
    ('6,100', '37.2', '0.500')
    """
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3}f}"


def _lead(bench: Bench, weighed: Sequence[_Weighed]) -> str:
    """The last row that the paper has too, which is DEQL(L2) where that is known; else all rows."""
    paper = reported("cost", bench.name)
    both = [one for one in weighed if one.choice.row in paper]
    if not both:
        seconds = [one.sample.seconds for one in weighed]
        return (
            f"{bench.label}: a fit takes {_duration(min(seconds))} to {_duration(max(seconds))} and at most "
            f"{_digits(max(one.gib for one in weighed))} GiB with {weighed[-1].threads}."
        )
    one = both[-1]
    minutes, gigabytes = paper[one.choice.row]
    on_device = "" if one.device_gib is None else f" and {_digits(one.device_gib)} GiB on the device"
    return (
        f"{bench.label}: in the paper {one.choice.row} takes {minutes:g} minutes and {gigabytes:g} GB, without a GPU; "
        f"here it takes {_duration(one.sample.seconds)} with {one.threads}, and {_digits(one.gib)} GiB{on_device}: "
        f"{_less(_saved(one, paper))} memory."
    )


def _less(times: float) -> str:
    """How much less memory than in the paper.

    Examples
    --------
    >>> _less(37.25), _less(0.5)
    ('37.2 × less', '2.00 × more')
    """
    return f"{_digits(times)} × less" if times >= 1 else f"{_digits(1 / times)} × more"


def _duration(seconds: float) -> str:
    """Seconds, minutes or hours.

    Examples
    --------
    >>> _duration(99.7), _duration(6100), _duration(30_000)
    ('99.7 s', '102 minutes', '8.33 hours')
    """
    for unit, size in (("s", 1), ("minutes", 60)):
        if seconds < 120 * size:
            return f"{_digits(seconds / size)} {unit}"
    return f"{_digits(seconds / 3600)} hours"


def _saved(one: _Weighed, paper: Mapping[str, Sequence[float]]) -> float:
    """How many times the memory of this row, on the device too, the paper's takes."""
    return paper[one.choice.row][1] * _GIB_OF_GB / one.all_gib


def _remarks(bench: Bench, weighed: Sequence[_Weighed], paper: Mapping[str, Sequence[float]]) -> list[str]:
    """What the numbers say, in words."""
    remarks = []
    saved = [_saved(one, paper) for one in weighed if one.choice.row in paper]
    if saved:
        remarks.append(
            f"The paper reports {_span(saved)} times the memory that a fit takes here. Its numbers are rounded, and of "
            f"a server with {_SERVER}, of which it does not say how many cores a fit had: memory can be compared with "
            "it, times cannot."
        )
    engines = sorted({one.sample.facts["engine"] for one in weighed})
    if engines == ["memory"]:
        n, inverse = bench.first.train.n_items, _inverse_gib(bench, weighed)
        beyond = [one.sample.beyond_mib / 1024 / inverse for one in weighed]
        remarks.append(
            f"Each row takes one inverse of {n:,} × {n:,} numbers, of which one half is kept, in {weighed[0].dtype}: "
            + (
                f"{_digits(inverse)} GiB. Beyond imports and data a fit takes {_span(beyond)} times as much."
                if inverse >= _TELLING
                else f"less than {_TELLING:g} GiB, so that memory is of the process rather than of the fit."
            )
        )
    else:
        remarks.append(f"Computed by the engine {' and '.join(engines)}.")
    cores = _span([one.sample.cores for one in weighed])
    apart = f"; {WEIGHTED} weighs users, too, and may take longer" * any(one.choice.row == WEIGHTED for one in weighed)
    remarks.append(
        f"Once there is an inverse, rows differ in two vectors only, so that they should take equally long{apart}. How "
        "far times differ from fit to fit was not measured. On average rows had "
        f"{cores} cores for {weighed[0].threads}: where other work leaves them fewer, they take longer."
    )
    return remarks


def _span(values: Sequence[float]) -> str:
    """The least and the greatest, or one of them where they are written alike."""
    return " to ".join(dict.fromkeys(_digits(value) for value in (min(values), max(values))))


def _inverse_gib(bench: Bench, weighed: Sequence[_Weighed]) -> float:
    """P itself: half of n² numbers."""
    return float(bench.first.train.n_items) ** 2 / 2 * np.dtype(weighed[0].dtype).itemsize / 2**30


def _figure(bench: Bench, weighed: Sequence[_Weighed], paper: Mapping[str, Sequence[float]]) -> Figure:
    groups = {"here": [(one.sample.seconds / 60, one.all_gib) for one in weighed]}
    for name, linear in (("paper, without a GPU", True), ("paper, on a GPU", False)):
        points = [(minutes, gigabytes * _GIB_OF_GB)
                  for row, (minutes, gigabytes) in paper.items() if (row in LINEAR) == linear]  # fmt: skip
        groups |= {name: points} if points else {}
    unit = "minutes"
    if max(minutes for points in groups.values() for minutes, _ in points) < 2:
        unit, groups = "seconds", {name: [(60 * x, y) for x, y in points] for name, points in groups.items()}
    labels = Labels(
        f"{bench.key}-cost", f"Time and memory on {bench.label}", f"{unit} of a fit", "GiB at its peak"
    )  # fmt: skip
    svg = plots.costs(labels, groups, ("the inverse itself", _inverse_gib(bench, weighed)))
    told = "; with that of the device" if any(one.device_gib is not None for one in weighed) else ""
    return Figure(svg, f"Time against peak memory{told} of each model on {bench.label}; to the left and below is less.")
