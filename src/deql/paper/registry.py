"""The paper's tables and figures that can be reproduced, by the names that people type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deql._system.tables import Cell, Grid
from deql.paper.accuracy import accuracy
from deql.paper.cost import cost
from deql.paper.dataset_table import dataset_table
from deql.paper.diagonal import diagonal
from deql.paper.document import Document, Section
from deql.paper.measurement_log import MeasurementLog, this_machine
from deql.paper.paper_datasets import PROTOCOLS, MissingDataset, Protocol
from deql.paper.sensitivity import b_sensitivity
from deql.paper.significance_table import significance
from deql.paper.table_request import TableRequest
from deql.paper.training_curves import training

__all__ = ["TABLES", "PaperTable", "make"]


@dataclass(frozen=True)
class PaperTable:
    """One of the paper's tables or figures.

    Attributes
    ----------
    title : str
    label : str
        What the paper calls it.
    make : callable
        Makes it: what was found in one or two sentences, and a section for each data set.
    protocols : tuple
        Which groups of data sets it is about.
    """

    title: str
    label: str
    make: Callable[[TableRequest], tuple[str, list[Section]]]
    protocols: tuple[Protocol, ...] = PROTOCOLS


TABLES = {
    "datasets": PaperTable("Details of the data sets", "tb:0", dataset_table),
    "strong": PaperTable("LAE-based models, strong generalisation", "tb:1", accuracy, ("strong",)),
    "weak": PaperTable("Linear and deep models, weak generalisation", "tb:2", accuracy, ("weak",)),
    "b-sensitivity": PaperTable("Sensitivity to b/a", "fig:b_sensitivity", b_sensitivity),
    "significance": PaperTable("Five splits and paired t-tests", "tb:3, tb:4", significance, ("strong",)),
    "diagonal": PaperTable("Learned diagonal values of DEQL(L2)", "fig:diag_visualization", diagonal),
    "cost": PaperTable("Time and memory", "tab:time_mem_yelp", cost, ("weak",)),
    "training": PaperTable("Networks beside the closed form", "tab:time_mem_yelp", training, ("weak",)),
}


def make(name: str, request: TableRequest, command: str) -> Document:
    """Make one of :data:`TABLES`: measure what is not in the journal yet, and write the document.

    ``command`` is what was typed, for the document.
    """
    table = TABLES[name]
    summary, sections = table.make(request)
    facts = {
        "Paper": f"{table.label}, “{table.title}”",
        "Command": command,
        "Data sets": ", ".join(dict.fromkeys(dataset.label for dataset in request.datasets)),
        "Written on": this_machine(),
    }
    ending = [_missing_section(request.missing)] if request.missing else []
    ending += [_log_section(request.log)] if request.log.used else []
    nothing = "No hyper-parameters are known for these data sets, so there is nothing to show yet."
    return Document(f"{name}: {table.title}", summary or nothing, facts, [*sections, *ending])


def _missing_section(missing: Sequence[MissingDataset]) -> Section:
    words = ["These data sets are not there. The files are not downloaded: each data set has terms of its own."]
    return Section("Not there", words, [Grid("", ["data set", ""], [([one.label, one.where], []) for one in missing])])


def _log_section(log: MeasurementLog) -> Section:
    """What was measured for this document, in that order: when, where and in which time."""
    rows = []
    for record in (one for one in log.journal.records if any(one is used for used in log.used)):
        what = [str(record["key"].get("data", ""))]
        what += [f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
                 for name, value in record["key"].items() if not _is_default(name, value)]  # fmt: skip
        when = record["when"].replace("T", " ").removesuffix("+00:00")
        names = [when, record["step"], " ".join(what).strip(), record["machine"]]
        rows.append((names, [Cell(f"{record['seconds']:.1f}")]))
    together = "Models that share an inverse are fitted and evaluated together: each then has the seconds of all."
    told = [together] if any(record["step"] == "judged" for record in log.used) else []
    return Section("Log", told, [Grid("", ["when (UTC)", "step", "what", "where", "seconds"], rows)])


def _is_default(name: str, value: object) -> bool:
    """Whether the log leaves a part of a key out."""
    usual = value is None or value is False or value == "float32" or (value == 0 and name.endswith("_power"))
    return usual or name in ("data", "split")
