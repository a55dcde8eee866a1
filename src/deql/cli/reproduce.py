"""``deql reproduce``: the paper's tables and figures again, with the paper's numbers beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from deql.cli.engines import EngineOptions
from deql.cli.evaluate import print_grid
from deql.cli.options import AsJson, with_options
from deql.cli.show import console, print_json, print_words, progress_wanted, say, table
from deql.cli.specs import near
from deql.errors import DataError, ParameterError, reason

if TYPE_CHECKING:
    from deql.paper.document import Document
    from deql.paper.paper_datasets import Absent, Bench, Protocol
    from deql.paper.runs import Run

__all__ = ["reproduce"]

Place = TypeVar("Place", "Bench", "Absent")

JOURNAL = "measured.jsonl"
CHOICES = "choices.toml"
PROTOCOLS: tuple[Protocol, ...] = ("strong", "weak")


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
    from deql.paper.paper_datasets import find_benches, readable
    from deql.paper.registry import TABLES

    known = [*TABLES, "all", "choices"]
    if name is not None and name not in known:
        raise ParameterError(f"there is no table {name!r}{near(name, known)}: say {', '.join(known)}")
    wanted = [one.strip() for one in (only or "").split(",") if one.strip()]
    benches, absent = find_benches(data, PROTOCOLS, wanted)
    if name is None:
        _list(benches, absent, json)
        return
    engines.use()
    if name == "choices":
        engines.refuse_with("choices", ": a search takes a CUDA device where there is one")
    names = _can_be_made(name, benches, absent, wanted)
    if name != "choices":
        from deql.report.page import need_report_extra

        need_report_extra()
    folder = _make_folder(out)
    run = _open(folder, engines)
    with run.journal:
        if name == "choices":
            _search(run, benches, absent, folder, json)
            return
        benches, absent = readable(benches, absent)  # before any long work, and once for all tables
        made = {}
        for one in names:
            made[one] = _make(one, run, benches, absent, folder, _command(one, data, wanted, engines))
            if not json:
                _show(made[one])
    if json:
        print_json({one: _facts(document) for one, document in made.items()})


def _about(name: str, several: Sequence[Place]) -> list[Place]:
    """Those data sets, there or not, that a table is about."""
    from deql.paper.registry import TABLES

    protocols = TABLES[name].protocols if name in TABLES else PROTOCOLS
    return [one for one in several if one.protocol in protocols]


def _can_be_made(name: str, benches: Sequence[Bench], absent: Sequence[Absent], wanted: Sequence[str]) -> list[str]:
    """The tables of a name that there are data for; refused, before anything is written, if there are none."""
    from deql.paper.registry import TABLES

    asked = list(TABLES) if name == "all" else [name]
    if names := [one for one in asked if _about(one, benches)]:
        return names
    where = dict.fromkeys(gone.where for one in asked for gone in _about(one, absent))
    raise DataError(f"{name} has no data: " + ("; ".join(where) or f"it is not about {', '.join(wanted)}"))


def _make(
    name: str, run: Run, benches: Sequence[Bench], absent: Sequence[Absent], folder: Path, command: str
) -> Document:
    from deql.paper.document import write_document
    from deql.paper.registry import Order, make

    run.used = []
    document = make(name, Order(run, _about(name, benches), _about(name, absent), folder / CHOICES), command)
    for path in write_document(document, folder, name):
        if path.suffix != ".svg":
            say(f"wrote {path}")
    return document


def _command(name: str, data: Path | None, wanted: Sequence[str], engines: EngineOptions) -> str:
    """What was typed, but for names of folders."""
    words = ["deql reproduce", name, *(["--data DIR"] if data else []),
             *([f"--only {','.join(wanted)}"] if wanted else [])]  # fmt: skip
    return " ".join([*words, *(f"--{option} {value}" for option, value in engines.parameters().items()
                               if option != "folder")])  # fmt: skip


def _search(run: Run, benches: Sequence[Bench], absent: Sequence[Absent], folder: Path, as_json: bool) -> None:
    """Search for hyper-parameters anew, on validation data, and keep them beside the tables, which then use them."""
    from deql.io.atomic import write_text
    from deql.paper.hyperparameter_search import search
    from deql.paper.hyperparameters import Choice, merged, own_choices, write_choices

    own = folder / CHOICES
    known = own_choices(own)
    for one in absent:
        say(f"not there: {one.where}")
    chosen: dict[str, list[Choice]] = {}
    for bench in benches:
        say(f"searching on {bench.key}")
        chosen[bench.key] = search(bench, folder, tell=run.tell, progress=progress_wanted())
        known[bench.key] = merged(known.get(bench.key, []), chosen[bench.key])
        write_text(own, write_choices(known))
    if as_json:
        print_json({key: {one.row: one.parameters for one in several} for key, several in chosen.items()})
    else:
        for key, several in chosen.items():
            rows = [(one.row, one.words, *(f"{value:.4f}" for value in one.validation.values())) for one in several]
            console().print(table(key, ["model", "", "recall@20", "ndcg@20"], rows))
    say(f"wrote {own}")


def _list(benches: Sequence[Bench], absent: Sequence[Absent], as_json: bool) -> None:
    """What there is to make, and of which data sets."""
    from deql.paper.registry import TABLES

    rows, facts = [], []
    for name, one in TABLES.items():
        there = list(dict.fromkeys(bench.name for bench in _about(name, benches)))
        rows.append((name, one.label, one.title, ", ".join(there)))
        facts.append({"name": name, "label": one.label, "title": one.title, "data": there})
    if as_json:
        print_json({"tables": facts, "absent": [vars(gone) for gone in absent]})
        return
    console().print(table("", ["table", "", "", ""], rows))
    for gone in absent:
        print_words(f"Not there: {gone.where}.")


def _show(document: Document) -> None:
    """The tables in the terminal, without the log."""
    print_words(document.lead)
    for section in document.sections:
        if section.heading == "Log":
            continue
        print_words(section.heading)
        for text in section.words:
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


def _make_folder(out: Path) -> Path:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ParameterError(f"{out} is a file: name a folder to write into") from None
    except OSError as error:
        raise ParameterError(f"the folder {out} cannot be made: {reason(error)}") from None
    return out


def _open(folder: Path, engines: EngineOptions) -> Run:
    from deql.io.journal import Journal
    from deql.paper.runs import Run

    machine: dict[str, Any] = engines.parameters() | {"progress": progress_wanted()}
    return Run(Journal(folder / JOURNAL, {}, "reproduction"), machine, say)
