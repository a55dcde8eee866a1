"""What models are tuned, evaluated and compared on: a split file, a folder that holds a split, or a table to split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer

from deql.cli.options import Seed, TableOptions, check_several
from deql.cli.output import option_name
from deql.data import Interactions
from deql.data.partition_folder import is_partition_folder
from deql.data.partitions import PartitionedInteractions
from deql.data.read_partitions import read_partitions
from deql.data.readers.split_folder import is_published_split, split_files
from deql.errors import DataError, ParameterError
from deql.metrics import parse_metrics
from deql.split import PROTOCOLS, TIMED, Split, k_fold, load_split, make_splits

__all__ = [
    "Data", "Metrics", "Models", "ProtocolName", "RepeatedProtocolName", "Report", "SplitOptions", "as_split",
    "metric_list", "open_partitions", "open_source", "typed_options",
]  # fmt: skip


ProtocolName = Literal["strong", "weak", "leave-last", "time"]
RepeatedProtocolName = Literal["strong", "weak", "leave-last", "time", "k-fold"]
Data = Annotated[
    Path,
    typer.Argument(help="Split file, folder with tables train and test, or table to be split.", metavar="DATA"),
]
Models = Annotated[
    list[str],
    typer.Argument(help="Such as ease:l2=80, popularity, shop.deql, or by name: mine=shop.deql.", metavar="MODEL..."),
]
Metrics = Annotated[str, typer.Option("--metric", "--metrics", help="Metrics, with commas between.")]
Report = Annotated[Path | None, typer.Option(help="HTML page to write, complete in one file.", metavar="FILE.html")]


def metric_list(text: str) -> list[str]:
    """Metrics as typed.

    Examples
    --------
    >>> metric_list("recall@20, ndcg@20")
    ['recall@20', 'ndcg@20']
    """
    return list(parse_metrics(filter(None, (part.strip() for part in text.split(",")))))


@dataclass(frozen=True)
class SplitOptions:
    """How a table is split, as asked for on the command line."""

    section: ClassVar[str] = "Splitting a table"

    held_out: Annotated[float | None, typer.Option(help="Share of an evaluated user's items to find (0.2).")] = None
    test_users: Annotated[float | None, typer.Option(help="Share of users to test on (strong, 0.1).")] = None
    validation_users: Annotated[float | None, typer.Option(help="Share of users to validate on (strong, 0.1).")] = None
    test: Annotated[
        float | None,
        typer.Option(help="leave-last: how many of each user's last (1); time: share of the latest (0.2)."),
    ] = None
    validation: Annotated[
        float | None,
        typer.Option(help="weak, time: share of what the test leaves (0.1); leave-last: how many (1); 0: none."),
    ] = None
    after: Annotated[str | None, typer.Option(help="When the test begins, a date or a time (time).")] = None
    seed: Seed = None

    def chosen(self, protocol: RepeatedProtocolName | None) -> dict[str, Any]:
        """Those that were typed, if they belong to the protocol; leave-last counts with whole numbers."""
        protocol = protocol or "strong"
        known = set(signature(k_fold if protocol == "k-fold" else PROTOCOLS[protocol]).parameters)
        if "seed" in known:  # what is drawn can be drawn again
            known.add("splits")
        typed = {name: value for name, value in vars(self).items() if value is not None}
        for name in typed:
            if name not in known:
                raise ParameterError(f"{option_name(name)} does not belong to the protocol {protocol}")
        if protocol == "leave-last":
            typed |= {name: int(value) for name, value in typed.items() if float(value).is_integer()}
        return typed


def open_partitions(path: Path, table: TableOptions) -> PartitionedInteractions:
    """The interactions of a folder of partitions, which were read and cleaned when it was made."""
    if typed := table.typed():
        raise ParameterError(f"{path} is partitioned already: leave out {option_name(next(iter(typed)))}")
    data = read_partitions(path)
    check_several(path, data)
    return data


_FOR_SPLIT_FOLDERS = {
    "user", "item", "weight", "time", "items", "min_weight", "format", "header", "ids", "on_missing", "max_unpacked",
    "encoding",
}  # fmt: skip
_FOR_PUBLISHED = {"ids", "on_missing", "max_unpacked", "encoding"}


def open_source(
    path: Path,
    table: TableOptions,
    protocol: RepeatedProtocolName | None,
    chosen: dict[str, Any],
    quiet: bool,
    find_time: bool = False,
) -> Split | Interactions:
    """Read a split, or a table that is still to be split; with ``find_time`` with its times, if it has any.

    Options for cleaning and splitting belong to tables only, and those for reading to tables and folders with
    tables; with other splits they are an error rather than without effect.
    """
    if is_partition_folder(path):
        raise DataError(f"{path} is a folder of partitions, which can be fitted on: name a table or a split here")
    folder = bool(split_files(path))
    if not folder and not _is_container(path):
        return table.read(path, quiet=quiet, find_time=find_time or protocol in TIMED)
    fitting = set() if not folder else _FOR_PUBLISHED if is_published_split(path) else _FOR_SPLIT_FOLDERS
    typed = [*chosen, *(["protocol"] if protocol else []), *(name for name in table.typed() if name not in fitting)]
    if typed:
        raise ParameterError(f"{path} is split already, so {', '.join(map(option_name, typed))} cannot be chosen")
    reading = {name: value for name, value in table.reading().items() if name in table.typed()}
    return load_split(path, **reading)


def as_split(found: Split | Interactions, protocol: ProtocolName | None, chosen: Mapping[str, Any]) -> Split:
    """A split as it is; of a table the one that was asked for."""
    if isinstance(found, Split):
        return found
    options = dict(chosen)
    seed = options.pop("seed", 0)
    return next(make_splits(found, 1, protocol or "strong", seed, options))


def typed_options(options: Mapping[str, Any]) -> list[str]:
    """Options by name as they are typed.

    Examples
    --------
    >>> typed_options({"held_out": 0.3, "binary": True, "header": False})
    ['--held-out', '0.3', '--binary', '--no-header']
    """
    typed = []
    for name, value in options.items():
        if isinstance(value, bool):
            typed.append(option_name(name if value else f"no_{name}"))
        else:
            typed += [option_name(name), str(value)]
    return typed


def _is_container(path: Path) -> bool:
    """Whether a file begins as safetensors do: the length of its header in eight bytes, then the header."""
    if not path.is_file():  # a pipe would be waited for; whoever reads the table says what is wrong with it
        return False
    try:
        with open(path, "rb") as file:
            start = file.read(9)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    return len(start) == 9 and start[7] == 0 and start[8:] == b"{"
