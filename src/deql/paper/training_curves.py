"""``training``: how good networks are after how many seconds, beside the closed form on the same machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from deql._system.formatting import show_duration, three_digits
from deql._system.measure import Measurement
from deql._system.tables import Cell, Grid, number
from deql._system.threads import thread_count
from deql.errors import DeqlError
from deql.paper.document import Figure, Section
from deql.paper.hyperparameters import ORIGINS, Choice, Origin
from deql.paper.measurement_log import Record
from deql.paper.paper_datasets import PaperDataset, fingerprint
from deql.paper.published import METRICS, NAMES, NETWORKS, ROWS, WITH_PRIOR, reported
from deql.paper.subprocess_fit import fit_in_subprocess
from deql.paper.table_request import TableRequest
from deql.plotting import plots
from deql.plotting.plots import Labels
from deql.split import Split
from deql.tuning.tuning_data import TuningData, hold_out_validation

__all__ = ["training"]

_CLOSED_FORMS = ("EASE", WITH_PRIOR)
"""Rows that networks are shown beside: the plainest closed form, and the best."""


@dataclass(frozen=True)
class _Trained:
    """A row, what its fit took, and on which machine."""

    choice: Choice
    took: Measurement
    machine: str

    @property
    def ndcg(self) -> float:
        return float(self.took.facts["ndcg@20"])

    @property
    def curve(self) -> list[tuple[float, float]]:
        """NDCG@20 after seconds: of a closed form one point."""
        return [(seconds, ndcg) for seconds, ndcg in self.took.facts.get("curve", [(self.took.seconds, self.ndcg)])]


def training(request: TableRequest) -> tuple[str, list[Section]]:
    """The table and plots of accuracy by seconds."""
    return request.by_dataset(lambda dataset: _of_dataset(request, dataset))


def _of_dataset(request: TableRequest, dataset: PaperDataset) -> tuple[str, Section]:
    choices = _choices(request.choices(dataset))
    networks = [choice.row for choice in choices if choice.row in NETWORKS]
    if not networks:
        words = f"Of no network hyper-parameters were chosen on validation data of {dataset.key}."
        return "", Section(request.heading(dataset), [words])
    last = choices[0].origin == "ends"
    held = hold_out_validation(dataset.first, seed=0, validation="last" if last else "auto")
    measured, failed = _measure(request, dataset, choices, held)
    paper = reported("cost", dataset.name)
    count = held.validation.held_out.n_interactions
    told = [
        f"Trained on {held.train.n_interactions:,} interactions of {held.train.n_users:,} users and "
        f"{held.train.n_items:,} items, evaluated on {count:,} others of these users, "
        + ("the last tenth of each line" if last else "a tenth of each user's drawn at random")
        + ", on which the hyper-parameters of networks were chosen, too; the test part is not read. Each row is fitted "
        "once, in a process of its own, and imports and reading are not timed. A network is looked at a dozen times at "
        "most, and the best of these is kept, as early stopping does: its seconds are those of the epochs until then, "
        "looks not counted; those of a closed form are of the whole fit. GiB are the peak of the process, with looks.",
        "Here: " + "; ".join(dict.fromkeys(one.machine for one in measured)) + ".",
    ]
    title, unit = f"NDCG@20 by seconds of training, {dataset.label}", "NDCG@20 on what was held out"
    curves = {one.choice.row: one.curve for one in measured}
    svg = plots.learning(Labels(f"{dataset.key}-training", title, "seconds", unit), curves)
    caption = f"NDCG@20 after seconds of training on {dataset.label}; a closed form is there at once, and stays."
    return _summary(dataset, measured), Section(
        dataset.label, told, [_grid(measured, paper)], key=list(curves), figures=[Figure(svg, caption)],
        remarks=[f"{error}." for error in failed],
    )  # fmt: skip


def _choices(known: Sequence[Choice]) -> list[Choice]:
    """Networks as they were chosen on validation data, and closed forms, on the same where that was done."""
    origins: tuple[Origin, ...] = ("ends", "found")
    used = next((one for one in origins if any(c.origin == one and c.row in NETWORKS for c in known)), None)
    if used is None:
        return []
    chosen = {choice.row: choice for origin in ("found", used) for choice in known if choice.origin == origin}
    networks = [choice for choice in known if choice.row in NETWORKS and choice.origin == used]
    return [*networks, *(chosen[row] for row in _CLOSED_FORMS if row in chosen)]


def _measure(
    request: TableRequest, dataset: PaperDataset, choices: Sequence[Choice], held: TuningData
) -> tuple[list[_Trained], list[DeqlError]]:
    """Fit each row in a process of its own, unless the journal has it; and why some could not be."""
    log = request.log
    split = Split(held.train, test=held.validation)
    shared = log.place | {"split": fingerprint(split), "threads": thread_count()}
    measured: list[_Trained] = []
    failed: list[DeqlError] = []
    with TemporaryDirectory(prefix="deql-") as folder:
        file = Path(folder, "data.split")

        def fit(choice: Choice) -> Record:
            if not file.exists():
                split.save(file)
            log.tell(f"{dataset.label}: training {choice.row} {choice.words} in a process of its own")
            return asdict(fit_in_subprocess(choice, file, log.machine, evaluated=True))

        for choice in choices:
            key: dict[str, Any] = log.key(dataset, choice.model(**log.machine)) | shared
            try:
                record = log.get_or_measure("trained", key, partial(fit, choice))
            except DeqlError as error:
                failed.append(error)
                continue
            measured.append(_Trained(choice, Measurement(**record["found"]), record["machine"]))
    if not measured:
        raise failed[0]
    return sorted(measured, key=lambda one: ROWS.index(one.choice.row)), failed


def _grid(measured: Sequence[_Trained], paper: dict[str, list[float]]) -> Grid:
    """Seconds, memory and accuracy, beside the paper's minutes and gigabytes where it has them."""
    device = any("device_mib" in one.took.facts for one in measured)
    best = {metric: max(one.took.facts[metric] for one in measured) for metric in METRICS}
    rows = []
    for one in measured:
        there = [f"{value:g}" for value in paper.get(one.choice.row, ())] or ["–", "–"]
        told = [*(there if paper else []), three_digits(one.took.seconds), three_digits(one.took.peak_mib / 1024)]
        if device:
            told.append(three_digits(one.took.facts["device_mib"] / 1024 if "device_mib" in one.took.facts else None))
        values = [
            Cell(
                number(one.took.facts[metric]),
                f"{one.took.facts['errors'][metric]:.4f}",
                best=one.took.facts[metric] == best[metric],
            )
            for metric in METRICS
        ]
        cells = [*map(Cell, told), *values]
        rows.append(([one.choice.row, one.choice.words, ORIGINS[one.choice.origin]], cells))
    header = ["model", "hyper-parameters", "origin", *(["minutes paper", "GB paper"] if paper else []), "seconds here",
              "GiB here", *(["GiB on the device"] if device else []), *NAMES.values()]  # fmt: skip
    return Grid("Time, memory and accuracy", header, rows)


def _summary(dataset: PaperDataset, measured: Sequence[_Trained]) -> str:
    """The best network against the first closed form that is as good, or the best of those."""
    networks = [one for one in measured if one.choice.row in NETWORKS]
    if not networks:
        return ""
    top = max(networks, key=lambda one: one.ndcg)
    told = (
        f"{dataset.label}: the best network there, {top.choice.row}, has NDCG@20 {number(top.ndcg)} after "
        f"{show_duration(top.took.seconds)} of training"
    )
    solved = [one for one in measured if one.choice.row not in NETWORKS]
    if not solved:
        return f"{told}."
    good = [one for one in solved if one.ndcg >= top.ndcg]
    one = min(good, key=lambda one: one.took.seconds) if good else max(solved, key=lambda one: one.ndcg)
    return f"{told}; {one.choice.row} has {number(one.ndcg)} after {show_duration(one.took.seconds)}."
