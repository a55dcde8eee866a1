"""Interactions as files that other programs read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.sparse import save_npz

from deql._system.lazy import pl
from deql.data.interactions import Interactions
from deql.errors import ParameterError
from deql.io.atomic import write_whole

__all__ = ["ENDINGS", "as_frame", "write_table"]

ENDINGS = (".csv", ".tsv", ".parquet", ".ndjson", ".inter", ".npz")


def as_frame(data: Interactions) -> pl.DataFrame:
    """A row for each interaction: user, item, and what else there is of weight, time and title.

    Examples
    --------
    >>> as_frame(Interactions.from_pairs(["ann", "bob"], [7, 9])).rows()
    [('ann', 7), ('bob', 9)]
    """
    rows = np.repeat(np.arange(data.n_users), np.diff(data.matrix.indptr))
    columns = {"user": pl.Series(data.users).gather(rows), "item": pl.Series(data.items).gather(data.matrix.indices)}
    if (data.matrix.data != 1).any():
        columns["weight"] = pl.Series(data.matrix.data)
    if data.times is not None:
        columns["time"] = pl.Series(data.times)
    if data.titles is not None:
        columns["title"] = pl.Series(data.titles).gather(data.matrix.indices)
    return pl.DataFrame(columns)


def write_table(data: Interactions, path: Path) -> None:
    """Write a table in the format that the file's ending names, whole or not at all.

    Parameters
    ----------
    data : Interactions
    path : Path
        Ends in .csv, .tsv, .parquet, .ndjson, .inter (RecBole) or .npz (SciPy: the matrix without ids).
    """
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ParameterError(f"{path} must end in one of {', '.join(ENDINGS)}", parameter="path")
    if ending == ".npz":
        write_whole(path, lambda place: _write_matrix(data, place))
    else:
        frame = as_frame(data)
        write_whole(path, lambda place: _write_frame(frame, place, ending))


def _write_matrix(data: Interactions, path: Path) -> None:
    with open(path, "wb") as file:  # else SciPy appends an ending of its own
        save_npz(file, data.matrix)


def _write_frame(frame: pl.DataFrame, path: Path, ending: str) -> None:
    match ending:
        case ".parquet":
            frame.write_parquet(path)
        case ".ndjson":
            frame.write_ndjson(path)
        case ".inter":
            kinds = {
                "user": "user_id:token",
                "item": "item_id:token",
                "weight": "rating:float",
                "time": "timestamp:float",
            }
            kept = [name for name in kinds if name in frame.columns]
            frame.select(kept).rename({name: kinds[name] for name in kept}).write_csv(path, separator="\t")
        case _:
            frame.write_csv(path, separator="\t" if ending == ".tsv" else ",")
