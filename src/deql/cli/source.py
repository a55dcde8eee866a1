"""What models are tuned, judged and compared on: a split file, a published split, or a table to split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deql.cli.options import Seed, TableOptions
from deql.errors import DataError, ParameterError

if TYPE_CHECKING:
    from deql.data import Interactions
    from deql.split import Split

__all__ = [
    "Data", "Metrics", "Models", "Protocol", "Report", "SplitOptions", "as_split", "metric_list", "open_source",
    "words",
]  # fmt: skip


class Protocol(StrEnum):
    """Names of protocols on the command line."""

    strong = "strong"
    weak = "weak"
    leave_last = "leave-last"


_BELONGS = {
    Protocol.strong: ("held_out", "test_users", "validation_users", "seed", "splits"),
    Protocol.weak: ("held_out", "validation", "seed", "splits"),
    Protocol.leave_last: ("test", "validation"),
}

Data = Annotated[
    Path,
    typer.Argument(help="Split file, folder with train.txt and test.txt, or table to be split.", metavar="DATA"),
]  # fmt: skip
Models = Annotated[
    list[str],
    typer.Argument(help="Such as ease:l2=80, deql:l2=60,dropout=0.3,b=0.5 or popularity.", metavar="MODEL..."),
]
Metrics = Annotated[str, typer.Option(help="Metrics, with commas between.")]
Report = Annotated[Path | None, typer.Option(help="HTML page to write, complete in one file.", metavar="FILE.html")]


def metric_list(text: str) -> list[str]:
    """Metrics as typed.

    Examples
    --------
    >>> metric_list("recall@20, ndcg@20")
    ['recall@20', 'ndcg@20']
    """
    from deql.metrics import parse_metrics

    typed = [part.strip() for part in text.split(",") if part.strip()]
    if not typed:
        raise ParameterError("--metrics needs at least one, such as ndcg@20")
    return list(parse_metrics(typed))


@dataclass(frozen=True)
class SplitOptions:
    """How a table is split, as asked for on the command line."""

    held_out: Annotated[float | None, typer.Option(help="Share of a judged user's items to find (0.2).")] = None
    test_users: Annotated[float | None, typer.Option(help="Share of users to test on (strong, 0.1).")] = None
    validation_users: Annotated[float | None, typer.Option(help="Share of users to validate on (strong, 0.1).")] = None
    test: Annotated[int | None, typer.Option(help="How many of each user's last are the test (leave-last, 1).")] = None
    validation: Annotated[
        float | None, typer.Option(help="weak: share of what the test leaves (0.1); leave-last: how many (1); 0: none.")
    ] = None
    seed: Seed = None

    def chosen(self, protocol: Protocol | None) -> dict[str, Any]:
        """Those that were typed, if they belong to the protocol; leave-last counts with whole numbers."""
        how = protocol or Protocol.strong
        typed = {name: value for name, value in vars(self).items() if value is not None}
        for name in typed:
            if name not in _BELONGS[how]:
                raise ParameterError(f"--{name.replace('_', '-')} does not belong to the protocol {how.value}")
        if how is Protocol.leave_last and float(typed.get("validation", 0.5)).is_integer():
            typed["validation"] = int(typed["validation"])
        return typed


def open_source(
    path: Path, table: TableOptions, protocol: Protocol | None, chosen: dict[str, Any], quiet: bool
) -> Split | Interactions:
    """Read a split, or a table that is still to be split.

    Options for reading and splitting belong to tables only; with a split they are an error rather than
    without effect.
    """
    from deql.data.readers.files import is_published_split
    from deql.datasets.public import read_lightgcn_split
    from deql.split import load_split

    published = is_published_split(path)
    if not published and not _is_container(path):
        return table.read(path, quiet=quiet, find_time=protocol is Protocol.leave_last)
    typed = [f"--{name.replace('_', '-')}" for name in chosen] + ["--protocol"] * (protocol is not None)
    typed += [f"--{name.replace('_', '-')}" for name in table.typed()]
    if typed:
        raise ParameterError(f"{path} is split already, so {', '.join(typed)} cannot be chosen")
    return read_lightgcn_split(path) if published else load_split(path)


def as_split(found: Split | Interactions, protocol: Protocol | None, chosen: Mapping[str, Any]) -> Split:
    """A split as it is; of a table the one that was asked for."""
    from deql.split import Split, make_splits

    if isinstance(found, Split):
        return found
    options = dict(chosen)
    seed = options.pop("seed", 0)
    return next(make_splits(found, 1, (protocol or Protocol.strong).value, seed, options))


def words(options: Mapping[str, Any]) -> list[str]:
    """Options by name as they are typed.

    Examples
    --------
    >>> words({"held_out": 0.3, "binary": True, "header": False})
    ['--held-out', '0.3', '--binary', '--no-header']
    """
    typed = []
    for name, value in options.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            typed.append(f"--{option}" if value else f"--no-{option}")
        else:
            typed += [f"--{option}", str(value)]
    return typed


def _is_container(path: Path) -> bool:
    """Whether a file begins as safetensors do: the length of its header in eight bytes, then the header."""
    if path.is_dir():
        return False
    try:
        with open(path, "rb") as file:
            start = file.read(9)
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    return len(start) == 9 and start[7] == 0 and start[8:] == b"{"
