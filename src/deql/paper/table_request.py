"""What the makers of tables share: the data sets and choices that were asked for, and columns beside the paper's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deql._system.tables import Cell, Grid, number
from deql.paper.document import Section
from deql.paper.hyperparameters import Choice, stored_choices
from deql.paper.measurement_log import MeasurementLog
from deql.paper.paper_datasets import MissingDataset, PaperDataset
from deql.paper.published import HEADS, METRICS

__all__ = ["MetricRow", "TableRequest", "metric_grid"]


@dataclass(frozen=True)
class TableRequest:
    """What a table is made of.

    Attributes
    ----------
    log : MeasurementLog
    datasets : list of PaperDataset
        The data sets that are there.
    missing : list of MissingDataset
        Those that are not.
    own : Path or None
        File with choices that come before those of the library.
    """

    log: MeasurementLog
    datasets: Sequence[PaperDataset]
    missing: Sequence[MissingDataset] = ()
    own: Path | None = None

    def by_dataset(self, make: Callable[[PaperDataset], tuple[str, Section]]) -> tuple[str, list[Section]]:
        """What ``make`` has to say of each data set in a sentence, if anything, and a section for each."""
        made = [make(dataset) for dataset in self.datasets]
        return " ".join(summary for summary, _ in made if summary), [section for _, section in made]

    def choices(self, dataset: PaperDataset) -> list[Choice]:
        """The hyper-parameters that are known for a data set."""
        return stored_choices(dataset.key, self.own)

    def found(self, dataset: PaperDataset, row: str) -> Choice | None:
        """The choice for a row that was made on validation data, if there is one."""
        return next((one for one in self.choices(dataset) if one.row == row and one.origin == "found"), None)

    def heading(self, dataset: PaperDataset) -> str:
        """The label of a data set, with its protocol where it is there with both."""
        twice = sum(one.name == dataset.name for one in self.datasets) > 1
        return f"{dataset.label}, {dataset.protocol}" if twice else dataset.label

    def no_choices(self, dataset: PaperDataset, row: str = "") -> tuple[str, Section]:
        """What stands in the place of a data set for which no hyper-parameters, or none of a row, are known."""
        search = f"deql reproduce choices --only {dataset.key}"
        of = f" of {row} chosen on validation data" if row else ""
        words = f"No hyper-parameters{of} are known for {dataset.key}: {search} searches for them."
        return "", Section(self.heading(dataset), [words])


@dataclass(frozen=True)
class MetricRow:
    """A row of a table of metrics: a model, its hyper-parameters in words, and the values of the metrics.

    ``spreads`` follow the values after ±, if there are any.
    """

    model: str
    words: str
    values: Sequence[float]
    spreads: Sequence[str] = ("", "")


def metric_grid(
    title: str, rows: Sequence[MetricRow], paper: Mapping[str, Sequence[float]], mark_best: bool = True
) -> Grid:
    """Each metric of each row: where the paper has these data, its value, which may have a spread, and the difference.

    Examples
    --------
    >>> grid = metric_grid("", [MetricRow("EASE", "l2=8", [0.25, 0.5])], {"EASE": [0.2, 0.01, 0.5, 0.02]})
    >>> grid.header[2:5], [str(cell) for cell in grid.rows[0][1][:3]]
    (['R@20 paper', 'R@20 here', 'difference'], ['0.2000 ± 0.0100', '0.2500', '+0.0500'])
    """
    columns = ["{} paper", "{} here", "difference"] if paper else ["{}"]
    header = ["model", "hyper-parameters", *(column.format(head) for head in HEADS.values() for column in columns)]
    best = [max(row.values[place] for row in rows) if mark_best else None for place in range(len(METRICS))]
    lines = []
    for row in rows:
        cells = []
        for place, (here, spread) in enumerate(zip(row.values, row.spreads, strict=True)):
            shown = Cell(number(here), spread, best=here == best[place])
            if not paper:
                cells.append(shown)
            elif row.model not in paper:
                cells += [Cell("–"), shown, Cell("")]
            else:
                width = len(paper[row.model]) // len(METRICS)
                there, *deviation = paper[row.model][place * width : (place + 1) * width]
                cells += [Cell(number(there), "".join(map(number, deviation))), shown, Cell(f"{here - there:+.4f}")]
        lines.append(([row.model, row.words], cells))
    return Grid(title, header, lines)
