"""What is to change in a model's data, as asked for on the command line: files of interactions and of ids."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import typer

from deql.cli.items import find_item
from deql.cli.options import TableOptions, note_weights
from deql.cli.output import option_name, progress_wanted
from deql.cli.user_ids import read_ids
from deql.data import Interactions
from deql.data.changes import Batch
from deql.data.clean import clean
from deql.data.id_arrays import id_array
from deql.data.read import read_interactions
from deql.errors import ParameterError
from deql.ranking.histories import ids_of_kind

__all__ = ["BatchOptions", "read_batch", "refuse_cleaning"]

_CLEANING = ("min_users_per_item", "min_items_per_user", "k_core")
_OF_PAIRS = ("user", "item", "format", "header", "ids", "on_missing", "max_unpacked", "encoding")


@dataclass(frozen=True)
class BatchOptions:
    """What comes and goes."""

    section: ClassVar[str] = "What changes"

    add: Annotated[
        Path | None, typer.Option(help="Table of interactions that come; users and items may be new.", metavar="FILE")
    ] = None
    remove: Annotated[
        Path | None, typer.Option(help="Table of interactions that go, before any come.", metavar="FILE")
    ] = None
    forget_users: Annotated[
        Path | None, typer.Option(help="Ids of users who go with everything, one on each line.", metavar="FILE")
    ] = None
    retire_items: Annotated[
        Path | None, typer.Option(help="Items that go with everything, one on each line.", metavar="FILE")
    ] = None

    def typed(self) -> dict[str, Path]:
        """Files that were typed, by parameter."""
        return {name: path for name, path in vars(self).items() if path is not None}


def read_batch(model: Any, options: BatchOptions, table: TableOptions) -> Batch:
    """The batch that files tell, with users under the ids that the model has.

    Parameters
    ----------
    model : fitted model
    options : BatchOptions
    table : TableOptions
        How tables are read. They are not cleaned, as that would look at all data.
    """
    data: Interactions | None = model.data_
    users = np.empty(0, object) if data is None else data.users
    added = removed = None
    if options.add is not None:
        timed = model._needs_times or (data is not None and data.times is not None)
        added = read_interactions(options.add, **table.reading(find_time=timed), progress=progress_wanted())
        added = _of_kind(model, clean(added, binary=table.binary))
        if table.weight is None and not table.binary:
            note_weights(model, options.add, table.encoding)
    if options.remove is not None:
        reading = {name: value for name, value in table.reading().items() if name in _OF_PAIRS}
        removed = _of_kind(model, read_interactions(options.remove, **reading, progress=progress_wanted()))
    forget = [] if options.forget_users is None else read_ids(options.forget_users, users, table.encoding)
    retire = [] if options.retire_items is None else _items(model, options.retire_items, table.encoding)
    batch: Batch = model._batch(added, removed, forget, retire)
    return batch


def refuse_cleaning(table: TableOptions) -> None:
    """Refuse options that clean whole tables where there is none."""
    for name in _CLEANING:
        if getattr(table, name) is not None:
            raise ParameterError(f"{option_name(name)} looks at all data, and belongs to --data FILE")


def _items(model: Any, path: Path, encoding: str) -> list[Any]:
    return [find_item(model, str(item)) for item in read_ids(path, model.items_, encoding, "item")]


def _of_kind(model: Any, data: Interactions) -> Interactions:
    """Interactions with ids as text where the model's are: those of a small table may happen to be numbers."""
    items, users = data.items, data.users
    if model.items_.dtype == object:
        items = id_array(ids_of_kind(items, model.items_))
    if model.data_ is not None and model.data_.users.dtype == object:
        users = id_array(ids_of_kind(users, model.data_.users))
    return replace(data, users=users, items=items)
