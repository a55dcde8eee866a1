"""What can be made again: the paper's tables and figures by the names that people type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from deql._system.tables import Cell, Grid, number
from deql.paper.document import Document, Section
from deql.paper.hyperparameters import Choice, stored_choices
from deql.paper.paper_datasets import Absent, Bench, Protocol
from deql.paper.published import HEADS
from deql.paper.runs import Run, this_machine

__all__ = ["TABLES", "Order", "PaperTable", "beside_paper", "compared_heads", "make"]


@dataclass(frozen=True)
class Order:
    """What a table is made of.

    Attributes
    ----------
    run : Run
    benches : list of Bench
        The data sets that are there.
    absent : list of Absent
        Those that are not.
    own : Path or None
        File with choices that come before those of the library.
    """

    run: Run
    benches: Sequence[Bench]
    absent: Sequence[Absent] = ()
    own: Path | None = None

    def choices(self, bench: Bench) -> list[Choice]:
        """The hyper-parameters that are known for a data set."""
        return stored_choices(bench.key, self.own)

    def found(self, bench: Bench, row: str) -> Choice | None:
        """The choice for a row that was made on validation data, if there is one."""
        return next((one for one in self.choices(bench) if one.row == row and one.origin == "found"), None)

    def heading(self, bench: Bench) -> str:
        """The label of a data set, with its protocol where it is there with both."""
        twice = sum(one.name == bench.name for one in self.benches) > 1
        return f"{bench.label}, {bench.protocol}" if twice else bench.label

    def unchosen(self, bench: Bench, row: str = "") -> Section:
        """What stands in the place of a data set for which no hyper-parameters, or none of a row, are known."""
        search = f"deql reproduce choices --only {bench.key}"
        of = f" of {row} chosen on validation data" if row else ""
        words = f"No hyper-parameters{of} are known for {bench.key}: {search} searches for them."
        return Section(self.heading(bench), [words])


def compared_heads(compared: bool) -> list[str]:
    """Heads of the columns of each metric: one, or three where the paper's values stand beside ours."""
    return [head for short in HEADS.values()
            for head in ([f"{short} paper", f"{short} here", "difference"] if compared else [short])]  # fmt: skip


def beside_paper(shown: Cell, here: float, there: Sequence[float] | None) -> list[Cell]:
    """The paper's value, with its spread if it has one, ours as it is shown, and the difference.

    Examples
    --------
    >>> [str(cell) for cell in beside_paper(Cell("0.2500"), 0.25, [0.2, 0.01])]
    ['0.2000 ± 0.0100', '0.2500', '+0.0500']
    >>> [str(cell) for cell in beside_paper(Cell("0.2500"), 0.25, None)]
    ['–', '0.2500', '']
    """
    if there is None:
        return [Cell("–"), shown, Cell("")]
    value, spread = there[0], "".join(map(number, there[1:]))
    return [Cell(number(value), spread), shown, Cell(f"{here - value:+.4f}")]


Maker = Callable[[Order], tuple[str, list[Section]]]
"""Makes a table: what was found in one or two sentences, and a section for each data set."""


@dataclass(frozen=True)
class PaperTable:
    """One of the paper's tables or figures.

    Attributes
    ----------
    title : str
    label : str
        What the paper calls it.
    module, maker : str
        Where the function of type ``Maker`` is, imported when it is needed.
    protocols : tuple
        Which groups of data sets it is about.
    """

    title: str
    label: str
    module: str
    maker: str
    protocols: tuple[Protocol, ...] = field(default=("strong", "weak"))


TABLES = {
    "datasets": PaperTable("Details of the data sets", "tb:0", "dataset_table", "datasets"),
    "strong": PaperTable("LAE-based models, strong generalisation", "tb:1", "accuracy", "accuracy", ("strong",)),
    "weak": PaperTable("Linear and deep models, weak generalisation", "tb:2", "accuracy", "accuracy", ("weak",)),
    "b-sensitivity": PaperTable("Sensitivity to b/a", "fig:b_sensitivity", "sensitivity", "b_sensitivity"),
    "significance": PaperTable(
        "Five splits and paired t-tests", "tb:3, tb:4", "significance_table", "significance", ("strong",)
    ),
    "diagonal": PaperTable("Learned diagonal values of DEQL(L2)", "fig:diag_visualization", "diagonal", "diagonal"),
    "cost": PaperTable("Time and memory", "tab:time_mem_yelp", "cost", "cost", ("weak",)),
}


def make(name: str, order: Order, command: str) -> Document:
    """Make one table: measure what is not in the journal yet, and write the document.

    Parameters
    ----------
    name : str
        One of :data:`TABLES`.
    order : Order
    command : str
        What was typed, for the document.
    """
    table = TABLES[name]
    maker: Maker = getattr(import_module(f"deql.paper.{table.module}"), table.maker)
    lead, sections = maker(order)
    facts = {
        "Paper": f"{table.label}, “{table.title}”",
        "Command": command,
        "Data sets": ", ".join(dict.fromkeys(bench.label for bench in order.benches)),
        "Written on": this_machine(),
    }
    ending = [_absent_section(order.absent)] if order.absent else []
    ending += [_log_section(order.run)] if order.run.used else []
    nothing = "No hyper-parameters are known for these data sets, so there is nothing to show yet."
    return Document(f"{name}: {table.title}", lead or nothing, facts, [*sections, *ending])


def _absent_section(absent: Sequence[Absent]) -> Section:
    words = ["These data sets are not there. The files are not downloaded: each data set has terms of its own."]
    return Section("Not there", words, [Grid("", ["data set", ""], [([one.label, one.where], []) for one in absent])])


def _log_section(run: Run) -> Section:
    """What was measured for this document, in that order: when, where and in which time."""
    rows = []
    for record in (one for one in run.journal.records if any(one is used for used in run.used)):
        key = {name: value for name, value in record["key"].items() if name not in ("data", "split")}
        words = " ".join(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
                         for name, value in key.items() if not _is_usual(name, value))  # fmt: skip
        rows.append((
            [record["when"].replace("T", " ").removesuffix("+00:00"), record["step"],
             f"{record['key'].get('data', '')} {words}".strip(), record["machine"]],
            [Cell(f"{record['seconds']:.1f}")],
        ))  # fmt: skip
    together = "Models that share an inverse are fitted and judged together: each then has the seconds of all."
    told = [together] if any(record["step"] == "judged" for record in run.used) else []
    return Section("Log", told, [Grid("", ["when (UTC)", "step", "what", "where", "seconds"], rows)])


def _is_usual(name: str, value: object) -> bool:
    """Whether a parameter goes without saying in the log."""
    return value is None or value is False or value == "float32" or (value == 0 and name.endswith("_power"))
