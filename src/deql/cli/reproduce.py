"""``deql reproduce``: the paper's tables and figures again, with the paper's numbers beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from deql.cli.engine_options import EngineOptions
from deql.cli.options import AsJson, with_options
from deql.cli.output import console, did_you_mean, print_grid, print_json, print_words, progress_wanted, rich_table, say
from deql.cli.written_files import check_folder_written, check_outputs
from deql.datasets.public import files_read
from deql.errors import DataError, ParameterError, reason
from deql.io.atomic import write_text
from deql.io.journal import Journal
from deql.paper.document import Document, write_document
from deql.paper.hyperparameter_search import search
from deql.paper.hyperparameters import Choice, merged, own_choices, write_choices
from deql.paper.measurement_log import MeasurementLog
from deql.paper.paper_datasets import PROTOCOLS, FoundDatasets, find_datasets
from deql.paper.registry import TABLES, make
from deql.paper.table_request import TableRequest
from deql.report.page import need_report_extra

__all__ = ["reproduce"]

JOURNAL = "measured.jsonl"
CHOICES = "choices.toml"


@with_options
def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(help="A table or figure, all, or choices; without it they are listed.", metavar="TABLE"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(envvar="DEQL_DATA", help="Has a folder for each data set, with its public files.", metavar="DIR"),
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Data sets to take, such as gowalla,debian; else all that are there.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write into.", metavar="DIR")] = Path("reproduced"),
    json: AsJson = False,
    *,
    engines: EngineOptions,
) -> None:
    """Make the paper's tables and figures again. Markdown, HTML and plots; the same command goes on after a kill."""
    known = [*TABLES, "all", "choices"]
    if name is not None and name not in known:
        raise ParameterError(f"there is no table {name!r}{did_you_mean(name, known)}: say {', '.join(known)}")
    wanted = [one.strip() for one in (only or "").split(",") if one.strip()]
    found = find_datasets(data, PROTOCOLS, wanted)
    if name is None:
        _list(found, json)
        return
    engines.use()
    if name == "choices":
        engines.refuse_with("choices", ": a search takes a CUDA device where there is one")
    names = _with_data(name, found, wanted)
    if name != "choices":
        need_report_extra()
    inputs = [path for one in found.present if one.folder for path in files_read(one.name, one.folder)]
    check_folder_written(out, inputs)
    check_outputs(inputs=inputs, tiles=None if engines.shared(engines.chosen()) else engines.folder)
    _make_folder(out)
    machine: dict[str, Any] = engines.parameters() | {"progress": progress_wanted()}
    log = MeasurementLog(Journal(out / JOURNAL, {}, "reproduction"), machine, say)
    documents = {}
    with log.journal:
        if name == "choices":
            _search(log, found, out / CHOICES, json)
            return
        found = found.read()  # before any long work, and once for all tables
        for one in names:
            log.used = []
            request = TableRequest(log, *found.of(TABLES[one].protocols), out / CHOICES)
            documents[one] = make(one, request, _command(one, data, wanted, engines))
            for path in write_document(documents[one], out, one):
                if path.suffix != ".svg":
                    say(f"wrote {path}")
            if not json:
                _show(documents[one])
    if json:
        print_json({one: _facts(document) for one, document in documents.items()})


def _with_data(name: str, found: FoundDatasets, wanted: Sequence[str]) -> list[str]:
    """The tables of a name that there are data for; refused, before anything is written, if there are none."""
    asked = list(TABLES) if name == "all" else [name]
    about = {one: found.of(TABLES[one].protocols if one in TABLES else PROTOCOLS) for one in asked}
    if names := [one for one in asked if about[one].present]:
        return names
    where = dict.fromkeys(gone.where for one in asked for gone in about[one].missing)
    raise DataError(f"{name} has no data: " + ("; ".join(where) or f"it is not about {', '.join(wanted)}"))


def _command(name: str, data: Path | None, wanted: Sequence[str], engines: EngineOptions) -> str:
    """What was typed, but for names of folders."""
    words = ["deql reproduce", name, *(["--data DIR"] if data else []),
             *([f"--only {','.join(wanted)}"] if wanted else [])]  # fmt: skip
    return " ".join([*words, *(f"--{option} {value}" for option, value in engines.parameters().items()
                               if option != "folder")])  # fmt: skip


def _search(log: MeasurementLog, found: FoundDatasets, own: Path, as_json: bool) -> None:
    """Search for hyper-parameters anew, on validation data, and keep them beside the tables, which then use them."""
    known = own_choices(own)
    for gone in found.missing:
        say(f"not there: {gone.where}")
    chosen: dict[str, list[Choice]] = {}
    for dataset in found.present:
        say(f"searching on {dataset.key}")
        chosen[dataset.key] = search(dataset, own.parent, tell=log.tell, progress=progress_wanted())
        known[dataset.key] = merged(known.get(dataset.key, []), chosen[dataset.key])
        write_text(own, write_choices(known))
    if as_json:
        print_json({key: {one.row: one.parameters for one in several} for key, several in chosen.items()})
    else:
        for key, several in chosen.items():
            rows = [(one.row, one.words, *(f"{value:.4f}" for value in one.validation.values())) for one in several]
            console().print(rich_table(key, ["model", "", "recall@20", "ndcg@20"], rows))
    say(f"wrote {own}")


def _list(found: FoundDatasets, as_json: bool) -> None:
    """What there is to make, and of which data sets."""
    facts = [
        {"name": name, "label": one.label, "title": one.title,
         "data": list(dict.fromkeys(dataset.name for dataset in found.of(one.protocols).present))}
        for name, one in TABLES.items()
    ]  # fmt: skip
    if as_json:
        print_json({"tables": facts, "absent": [vars(gone) for gone in found.missing]})
        return
    rows = [(one["name"], one["label"], one["title"], ", ".join(one["data"])) for one in facts]
    console().print(rich_table("", ["table", "", "", ""], rows))
    for gone in found.missing:
        print_words(f"Not there: {gone.where}.")


def _show(document: Document) -> None:
    """The tables in the terminal, without the log."""
    print_words(document.lead)
    for section in (one for one in document.sections if one.heading != "Log"):
        for text in (section.heading, *section.words):
            print_words(text)
        for grid in section.grids:
            print_grid(grid)
        for text in section.remarks:
            print_words(text)


def _facts(document: Document) -> dict[str, Any]:
    return {
        "title": document.title, "lead": document.lead,
        "sections": [
            {"heading": section.heading, "remarks": list(section.remarks),
             "tables": [{"title": grid.title, "header": grid.header,
                         "rows": [[*names, *map(str, cells)] for names, cells in grid.rows]}
                        for grid in section.grids]}
            for section in document.sections
        ],
    }  # fmt: skip


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ParameterError(f"{out} is a file: name a folder to write into") from None
    except OSError as error:
        raise ParameterError(f"the folder {out} cannot be made: {reason(error)}") from None
