"""``cost``: the paper's table of minutes and gigabytes on Yelp2018, and what each fit takes on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from deql._system.formatting import show_duration, three_digits
from deql._system.measure import Measurement
from deql._system.tables import Cell, Grid
from deql._system.threads import thread_count
from deql.errors import DeqlError
from deql.paper.document import Figure, Section
from deql.paper.hyperparameters import Choice
from deql.paper.measurement_log import MeasurementLog, Record, describe_threads
from deql.paper.paper_datasets import PaperDataset
from deql.paper.published import LINEAR, WEIGHTED, WITH_PRIOR, reported
from deql.paper.subprocess_fit import fit_in_subprocess
from deql.paper.table_request import TableRequest
from deql.plotting import plots
from deql.plotting.plots import Labels
from deql.report import page

__all__ = ["cost"]

_GIB_OF_GB = 1e9 / 2**30
_TELLING = 0.01
"""An inverse of fewer GiB says nothing of what a fit takes."""
_SERVER = "96 cores (Intel Xeon Platinum 8268) and 500 GB"

Paper = Mapping[str, Sequence[float]]
"""Minutes and gigabytes of each row."""


@dataclass(frozen=True)
class _FitCost:
    """A row, what its fit took, in numbers of which type, and on which machine."""

    choice: Choice
    took: Measurement
    dtype: str
    threads: str
    machine: str

    @property
    def gib(self) -> float:
        """Peak of the process."""
        return self.took.peak_mib / 1024

    @property
    def device_gib(self) -> float | None:
        """Peak on a CUDA device, if one was used."""
        there = self.took.facts.get("device_mib")
        return None if there is None else there / 1024

    @property
    def all_gib(self) -> float:
        """Both peaks."""
        return self.gib + (self.device_gib or 0.0)

    def saved(self, paper: Paper) -> float | None:
        """How many times the memory of this fit, on the device too, the paper's takes, if it has one."""
        return paper[self.choice.row][1] * _GIB_OF_GB / self.all_gib if self.choice.row in paper else None


_Failed = tuple[Choice, DeqlError]


def cost(request: TableRequest) -> tuple[str, list[Section]]:
    """The table of time and memory."""
    return request.by_dataset(lambda dataset: _of_dataset(request, dataset))


def _of_dataset(request: TableRequest, dataset: PaperDataset) -> tuple[str, Section]:
    choices = [choice for row in LINEAR if (choice := request.found(dataset, row)) is not None]
    if not choices:
        return request.no_choices(dataset, "any row")
    costs, failed = _measure(request.log, dataset, choices)
    paper = reported("cost", dataset.name)
    grids = [_grid(costs, failed, paper)]
    others = [[row, *(f"{value:g}" for value in values)] for row, values in paper.items() if row not in LINEAR]
    if others:
        title = "Reported by the paper, on a GPU and with its memory; not fitted here"
        grids.append(page.plain_grid(title, ["model", "minutes", "GB"], others))
    train = dataset.first.train
    words = [
        f"{train.n_users:,} users × {train.n_items:,} items, {train.n_interactions:,} interactions to learn from. Each "
        "row is fitted once, in a process of its own; imports, reading the data and loading the kernels are not timed. "
        "GiB here are the peak of the process, GiB of the fit what that is beyond imports and data."
        + (" Paper ÷ here: its memory divided by the peak here, on a device too." if paper else ""),
        "Here: " + "; ".join(dict.fromkeys(one.machine for one in costs)) + ".",
    ]
    remarks = [*_remarks(dataset, costs, paper), *(f"{error}." for _, error in failed)]
    if left_out := [row for row in LINEAR if row not in {choice.row for choice in choices}]:
        remarks.append(f"Not fitted, as no hyper-parameters were chosen for them: {', '.join(left_out)}.")
    figures = [_figure(dataset, costs, paper)]
    return _summary(dataset, costs, paper), Section(dataset.label, words, grids, figures=figures, remarks=remarks)


def _measure(
    log: MeasurementLog, dataset: PaperDataset, choices: Sequence[Choice]
) -> tuple[list[_FitCost], list[_Failed]]:
    """Fit each row in a process of its own, unless the journal has it; and those that cannot be fitted, with why.

    Where none can, the reason is not in the rows, and is raised.
    """
    costs: list[_FitCost] = []
    failed: list[_Failed] = []
    with TemporaryDirectory(prefix="deql-") as folder:
        file = Path(folder, "data.split")

        def fit(choice: Choice) -> Record:
            if not file.exists():
                dataset.first.save(file)
            log.tell(f"{dataset.label}: fitting {choice.row} {choice.words} in a process of its own")
            with _fresh_tiles(log.machine) as machine:
                return asdict(fit_in_subprocess(choice, file, machine))

        for choice in choices:
            model = choice.linear(**log.machine)
            key = log.key(dataset, model) | log.place | {"threads": thread_count()}
            try:
                record = log.get_or_measure("weighed", key, partial(fit, choice))
            except DeqlError as error:
                failed.append((choice, error))
                continue
            took = Measurement(**record["found"])
            costs.append(_FitCost(choice, took, model.dtype, describe_threads(), record["machine"]))
    if not costs:
        raise failed[0][1]
    return costs, failed


@contextmanager
def _fresh_tiles(machine: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """An empty folder for the disk engine inside the one that was named: a fit that goes on is no whole fit."""
    if machine.get("folder") is None:
        yield machine
        return
    Path(machine["folder"]).mkdir(exist_ok=True)
    with TemporaryDirectory(prefix="deql-", dir=machine["folder"]) as own:
        yield {**machine, "folder": own}


def _grid(costs: Sequence[_FitCost], failed: Sequence[_Failed], paper: Paper) -> Grid:
    """Paper, here, and the one's memory divided by the other's; of rows that failed only what the paper has."""
    columns: dict[str, Callable[[_FitCost], float | None]] = {
        "seconds here": lambda one: one.took.seconds, "cores": lambda one: one.took.cores,
        "GiB here": lambda one: one.gib, "GiB of the fit": lambda one: one.took.beyond_mib / 1024,
    }  # fmt: skip
    if any(one.device_gib is not None for one in costs):
        columns["GiB on the device"] = lambda one: one.device_gib
    if paper:
        columns["memory, paper ÷ here"] = lambda one: one.saved(paper)
    rows = []
    fitted: list[tuple[Choice, _FitCost | None]] = [(one.choice, one) for one in costs]
    for choice, one in sorted([*fitted, *((choice, None) for choice, _ in failed)],
                              key=lambda pair: LINEAR.index(pair[0].row)):  # fmt: skip
        texts = [f"{value:g}" for value in paper[choice.row]] if choice.row in paper else ["–", "–"] if paper else []
        texts += [three_digits(column(one)) if one is not None else "–" for column in columns.values()]
        rows.append(([choice.row, choice.words], [Cell(text) for text in texts]))
    reported_heads = ["minutes paper", "GB paper"] if paper else []
    return Grid("Time and peak memory of a fit", ["model", "hyper-parameters", *reported_heads, *columns], rows)


def _summary(dataset: PaperDataset, costs: Sequence[_FitCost], paper: Paper) -> str:
    """The last row that the paper has too, which is DEQL(L2) where that is known; else all rows."""
    both = [(one, saved) for one in costs if (saved := one.saved(paper)) is not None]
    if not both:
        seconds = [one.took.seconds for one in costs]
        return (
            f"{dataset.label}: a fit takes {show_duration(min(seconds))} to {show_duration(max(seconds))} and at most "
            f"{three_digits(max(one.gib for one in costs))} GiB with {costs[-1].threads}."
        )
    one, saved = both[-1]
    minutes, gigabytes = paper[one.choice.row]
    on_device = "" if one.device_gib is None else f" and {three_digits(one.device_gib)} GiB on the device"
    less = f"{three_digits(saved)} × less" if saved >= 1 else f"{three_digits(1 / saved)} × more"
    return (
        f"{dataset.label}: in the paper {one.choice.row} takes {minutes:g} minutes and {gigabytes:g} GB, without a "
        f"GPU; here it takes {show_duration(one.took.seconds)} with {one.threads}, and {three_digits(one.gib)} "
        f"GiB{on_device}: {less} memory."
    )


def _remarks(dataset: PaperDataset, costs: Sequence[_FitCost], paper: Paper) -> list[str]:
    """What the numbers say, in words."""
    remarks = []
    saved = [times for one in costs if (times := one.saved(paper)) is not None]
    if saved:
        remarks.append(
            f"The paper reports {_span(saved)} times the memory that a fit takes here. Its numbers are rounded, and of "
            f"a server with {_SERVER}, of which it does not say how many cores a fit had: memory can be compared with "
            "it, times cannot."
        )
    engines = sorted({one.took.facts["engine"] for one in costs})
    if engines == ["memory"]:
        n, inverse = dataset.first.train.n_items, _inverse_gib(dataset, costs)
        beyond = [one.took.beyond_mib / 1024 / inverse for one in costs]
        remarks.append(
            f"Each row takes one inverse of {n:,} × {n:,} numbers, of which one half is kept, in {costs[0].dtype}: "
            + (
                f"{three_digits(inverse)} GiB. Beyond imports and data a fit takes {_span(beyond)} times as much."
                if inverse >= _TELLING
                else f"less than {_TELLING:g} GiB, so that memory is of the process rather than of the fit."
            )
        )
    else:
        remarks.append(f"Computed by the engine {' and '.join(engines)}.")
    cores = _span([one.took.cores for one in costs])
    fitted = {one.choice.row for one in costs}
    longer = f"; {WEIGHTED} weighs users, too, and may take longer" * (WEIGHTED in fitted)
    longer += f"; {WITH_PRIOR} also has eigenvectors to find, and their product with P" * (WITH_PRIOR in fitted)
    remarks.append(
        f"Once there is an inverse, rows differ in two vectors only, so that they should take equally long{longer}. "
        "How far times differ from fit to fit was not measured. On average rows had "
        f"{cores} cores for {costs[0].threads}: where other work leaves them fewer, they take longer."
    )
    return remarks


def _span(values: Sequence[float]) -> str:
    """The least and the greatest, or one of them where they are written alike."""
    return " to ".join(dict.fromkeys(three_digits(value) for value in (min(values), max(values))))


def _inverse_gib(dataset: PaperDataset, costs: Sequence[_FitCost]) -> float:
    """P itself: half of n² numbers."""
    return float(dataset.first.train.n_items) ** 2 / 2 * np.dtype(costs[0].dtype).itemsize / 2**30


def _figure(dataset: PaperDataset, costs: Sequence[_FitCost], paper: Paper) -> Figure:
    groups = {"here": [(one.took.seconds / 60, one.all_gib) for one in costs]}
    for name, linear in (("paper, without a GPU", True), ("paper, on a GPU", False)):
        points = [(minutes, gigabytes * _GIB_OF_GB)
                  for row, (minutes, gigabytes) in paper.items() if (row in LINEAR) == linear]  # fmt: skip
        groups |= {name: points} if points else {}
    unit = "minutes"
    if max(minutes for points in groups.values() for minutes, _ in points) < 2:
        unit, groups = "seconds", {name: [(60 * x, y) for x, y in points] for name, points in groups.items()}
    title = f"Time and memory on {dataset.label}"
    labels = Labels(f"{dataset.key}-cost", title, f"{unit} of a fit", "GiB at its peak")
    svg = plots.costs(labels, groups, ("the inverse itself", _inverse_gib(dataset, costs)))
    told = "; with that of the device" if any(one.device_gib is not None for one in costs) else ""
    return Figure(
        svg, f"Time against peak memory{told} of each model on {dataset.label}; to the left and below is less."
    )
