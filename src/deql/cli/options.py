"""Options that commands share: how a table of interactions is read and cleaned."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args, get_type_hints

import typer

from deql.cli.output import console, progress_wanted, rich_table, say
from deql.data import Interactions, Step
from deql.data.clean import clean, describe_steps
from deql.data.partitions import TrainingData
from deql.data.read import read_interactions
from deql.data.readers.columns import find_known
from deql.data.readers.files import open_table
from deql.errors import DataError, name_some

__all__ = [
    "AsJson", "Encoding", "Format", "HashUsers", "Header", "HowMany", "Ids", "ItemColumn", "KeepData", "MaxUnpacked",
    "MinWeight", "ModelFile", "OnMissing", "Seed", "TableFile", "TableOptions", "UserColumn", "WeightColumn",
    "as_column", "check_several", "note_weights", "show_steps", "with_options",
]  # fmt: skip

TableFile = Annotated[Path, typer.Argument(help="File or folder with a row for each interaction.", metavar="FILE")]
ModelFile = Annotated[Path, typer.Argument(help="Model file written by deql fit.", metavar="MODEL")]
HowMany = Annotated[int, typer.Option("--k", "-k", help="How many.")]
AsJson = Annotated[bool, typer.Option("--json", help="Answer as JSON.")]
MaxUnpacked = Annotated[
    str | None, typer.Option(help="What a packed file may unpack to (1GiB or 100 times its size).", metavar="20GiB")
]
Encoding = Annotated[str, typer.Option(help="What text files are written in, such as latin-1.")]
KeepData = Annotated[
    bool,
    typer.Option("--keep-data", help="Keep the data in the model file: to recommend by user id, to update it."),
]
HashUsers = Annotated[
    bool, typer.Option("--hash-users", help="Keep the data, with salted hashes in place of the ids of users.")
]
OnMissing = Annotated[
    Literal["error", "skip"], typer.Option(help="Rows without a user or item: an error, or skipped and counted.")
]
UserColumn = Annotated[str | None, typer.Option(help="Column of users, by name or number; else guessed.")]
ItemColumn = Annotated[str | None, typer.Option(help="Column of items, by name or number; else guessed.")]
WeightColumn = Annotated[str | None, typer.Option(help="Column of weights; without it every row counts 1.")]
Format = Annotated[str | None, typer.Option(help="Format of the file; found out if not given.")]
Header = Annotated[
    bool | None, typer.Option("--header/--no-header", help="Whether the first line names the columns; else seen.")
]
Ids = Annotated[str, typer.Option(help="auto: whole numbers if all ids are, else text; text: always text.")]
MinWeight = Annotated[float | None, typer.Option(help="Keep rows of at least this weight.")]
Seed = Annotated[int | None, typer.Option(help="The same seed gives the same split; 0 if not given.")]


@dataclass(frozen=True)
class TableOptions:
    """Reading and cleaning, as asked for on the command line."""

    section: ClassVar[str] = "Reading and cleaning a table"

    user: UserColumn = None
    item: ItemColumn = None
    weight: WeightColumn = None
    time: Annotated[str | None, typer.Option(help="Column of times.")] = None
    format: Format = None
    header: Header = None
    encoding: Encoding = "utf-8"
    ids: Ids = "auto"
    on_missing: OnMissing = "error"
    items: Annotated[Path | None, typer.Option(help="Table with the items' titles.")] = None
    max_unpacked: MaxUnpacked = None
    min_weight: MinWeight = None
    binary: Annotated[bool, typer.Option("--binary", help="Every interaction counts 1, whatever its weight.")] = False
    min_users_per_item: Annotated[int | None, typer.Option(help="Keep items with so many users. One pass.")] = None
    min_items_per_user: Annotated[int | None, typer.Option(help="Then users with so many items. One pass.")] = None
    k_core: Annotated[int | None, typer.Option(help="Both, repeated until all users and items have so many.")] = None

    def typed(self) -> dict[str, Any]:
        """Those that are not as they are by default."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}

    def reading(self, find_time: bool = False) -> dict[str, Any]:
        """What ``read_interactions`` is to be called with."""
        return {
            "user": as_column(self.user),
            "item": as_column(self.item),
            "weight": as_column(self.weight),
            "time": as_column(self.time) or find_time or None,
            "items": self.items,
            "min_weight": self.min_weight,
            "format": self.format,
            "header": self.header,
            "ids": self.ids,
            "on_missing": self.on_missing,
            "max_unpacked": self.max_unpacked,
            "encoding": self.encoding,
        }

    def read(self, path: Path, *, quiet: bool = False, find_time: bool = False) -> Interactions:
        """Read and clean a table; unless quiet, what each step left is shown on standard error.

        With ``find_time`` the column of times is found by common names if it was not given.
        """
        data = read_interactions(path, **self.reading(find_time), progress=progress_wanted() and not quiet)
        data = clean(
            data,
            binary=self.binary,
            min_users_per_item=self.min_users_per_item,
            min_items_per_user=self.min_items_per_user,
            k_core=self.k_core,
        )
        if not quiet:
            show_steps(data.steps)
        check_several(path, data)
        return data


def check_several(path: Path, data: TrainingData) -> None:
    """Refuse a single user or item, which is what a wrong column looks like."""
    for count, what in ((data.n_users, "user"), (data.n_items, "item")):
        if count < 2:
            table = data if isinstance(data, Interactions) else data.to_interactions()
            was = "is" if table is data else "was"  # when it was partitioned
            only = name_some(table.users if what == "user" else table.items)
            raise DataError(
                f"{path} has a single {what}, {only}: nothing can be learned from one; {was} --{what} the right column?"
            )


def as_column(name: str | None) -> str | int | None:
    """A column by its name, or by its number where that is what was typed."""
    return int(name) if name is not None and name.isdecimal() and len(name) < 10 else name


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, in place of each parameter that is a dataclass of options, the options of that class.

    Where the class has a ``section``, the help shows them under that title.
    """
    keyword = inspect.Parameter.KEYWORD_ONLY
    groups: dict[str, Any] = {}
    parameters = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        if not is_dataclass(parameter.annotation):
            parameters.append(parameter.replace(kind=keyword))
            continue
        groups[name] = parameter.annotation
        types = get_type_hints(parameter.annotation, include_extras=True)
        section = getattr(parameter.annotation, "section", None)
        parameters += [
            inspect.Parameter(field.name, keyword, default=field.default, annotation=_under(types[field.name], section))
            for field in fields(parameter.annotation)
        ]

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        made = {name: kind(**{field.name: given.pop(field.name) for field in fields(kind)})
                for name, kind in groups.items()}  # fmt: skip
        command(**given, **made)

    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


def _under(annotation: Any, section: str | None) -> Any:
    """The annotation of an option that the help shows under a section's title, unless it names one itself."""
    kind, option = get_args(annotation)
    option = copy.copy(option)
    option.rich_help_panel = option.rich_help_panel or section
    return Annotated[kind, option]


def show_steps(steps: Iterable[Step]) -> None:
    """What each step left, and in brackets what it removed, on standard error."""
    names = ("users", "items", "interactions")

    def cell(row: dict[str, Any], name: str) -> str:
        removed = row[f"removed_{name}"]
        return f"{row[name]:,}" + (f" ({-removed:+,})" if removed else "")

    rows = [(row["what"], *(cell(row, name) for name in names)) for row in describe_steps(steps)]
    console(stderr=True).print(rich_table("", ["step", *names], rows))


def note_weights(model: Any, path: Path, encoding: str) -> None:
    """Say how the weights of a table are used, unless the model was fitted without any."""
    if model.weighted_ is False or path.suffix == ".npz":  # a matrix's values are used
        return
    names = open_table(path, (), None, None, encoding=encoding).names
    place = find_known(names, "weight")
    if place is not None:
        why = ", as the model was fitted with weights" if model.weighted_ else ""
        say(f"note: every row of {path} counts 1: say --weight {names[place]} to use that column{why}")
