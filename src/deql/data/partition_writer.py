"""Rows of a table, batch after batch, into partitions: they are spilled in runs sorted by a hash of the user, and what
the runs have of some hashes becomes a part. So memory holds a run or a part at a time, and the distinct items."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql._system.lazy import pl
from deql._system.progress import ProgressCallback
from deql.data.matrices import masked, shortest_float
from deql.data.partition_folder import ITEMS, write_frame, write_manifest
from deql.data.partition_runs import SortedRuns, hash_bounds
from deql.data.partitions import read_checked
from deql.data.readers.coo_to_csr import coo_to_csr
from deql.data.readers.id_columns import DistinctIds, IdKind, Ids, as_series, as_text
from deql.data.readers.ids import IdEncoder
from deql.data.readers.parsed_rows import ParsedRows
from deql.errors import DataError, Setting

__all__ = ["PartitionWriter"]

_RUN, _PART = 2**22, 2**21
"""Rows that are sorted at once, and interactions of a part if nobody says how many parts there are to be."""

_SPAN = 8
"""Integer items are looked up in a table if their range is at most this many times their number."""


class PartitionWriter:
    """Takes the rows of a table, and leaves a folder of partitions.

    Parameters
    ----------
    folder : Path
        Where to write; empty.
    text_ids : bool
        Ids are text even if all of them are whole numbers.
    min_weight : float or None
        Leave out rows with a smaller weight.
    likes : bool
        Forget the weights once they have decided what stays.
    """

    def __init__(self, folder: Path, text_ids: bool, min_weight: float | None, likes: bool) -> None:
        self._folder = folder
        self._min_weight, self._likes = min_weight, likes
        self._users, self._items = IdKind(text_ids), IdKind(text_ids)
        self._distinct = DistinctIds()
        self._waiting: list[tuple[Ids, Ids, NDArray[Any] | None]] = []
        self._n_waiting = self._rows = self._skipped = self._below = self._zero = self._merged = 0
        self._runs = SortedRuns(folder)

    def add(self, rows: ParsedRows) -> None:
        """Take some rows."""
        self._rows += len(rows) + rows.skipped
        self._skipped += rows.skipped
        row_error = rows.row_error if rows.untyped else None
        self._users.see(rows.users, row_error)
        self._items.see(rows.items, row_error)
        users, items, weights = rows.users, rows.items, rows.weights
        if weights is not None and len(rows):
            keep = np.ones(len(rows), np.bool_)
            if self._min_weight is not None:
                keep = weights >= self._min_weight
                self._below += int(len(keep) - keep.sum())
            elif weights.min() < 0:
                row = int((weights < 0).argmax())
                raise rows.row_error(
                    row,
                    f"the weight {weights[row]:g} is negative: leave such rows out with ",
                    Setting("min_weight"),
                )
            if not self._likes:
                nonzero = weights != 0
                self._zero += int((keep & ~nonzero).sum())
                keep &= nonzero
            if not keep.all():
                users, items, weights = _marked(users, keep), _marked(items, keep), weights[keep]
            weights = None if self._likes else shortest_float(weights)
        self._waiting.append((users, items, weights))
        self._n_waiting += len(users)
        if self._n_waiting >= _RUN:
            self._spill()

    def finish(self, source: str, label: str, partitions: int | None, report: ProgressCallback | None) -> None:
        """Make the parts of all rows, and write the manifest.

        Parameters
        ----------
        source : str
            Where the rows come from.
        label : str
            What the step is called that leaves out small weights.
        partitions : int or None
            How many parts at most; of about two million interactions each if not given.
        report : callable or None
            Called as ``report(done, total)``.
        """
        self._spill()
        self._users.check()
        self._items.check()
        steps = self._steps(label)
        total = int(self._runs.counts.sum())
        if not self._rows:
            raise DataError(f"{source} has no rows: is it the right file, and read in the right format?")
        if not total:
            raise DataError(f"nothing is left of {source} after the step “{steps[-1][0]}”")
        items = self._distinct.finish(self._items.text)
        encode = _encoder(items)
        users_of_items = np.zeros(len(items), np.int64)
        parts: list[dict[str, Any]] = []
        weighted = False
        bounds = hash_bounds(self._runs.counts, partitions or -(-total // _PART))
        for done, (first, last) in enumerate(pairwise(bounds.tolist())):
            found = self._part(first, last, encode, len(items), source)
            if found is not None:
                frame, facts, columns = found
                users_of_items += np.bincount(columns, minlength=len(items))
                facts["file"] = f"part-{len(parts):05d}.parquet"
                weighted = weighted or "weight" in frame.columns
                facts["checksum"] = write_frame(frame, self._folder / facts["file"])
                parts.append(facts)
            if report is not None:
                report(done + 1, len(bounds) - 1)
        self._runs.remove()
        stored = sum(part["interactions"] for part in parts)
        steps += [("repeated pairs merged", self._merged)] if self._merged < total else []
        steps += [("weights that add up to 0 left out", stored)] if stored < self._merged else []
        if not stored:
            raise DataError(f"nothing is left of {source} after the step “{steps[-1][0]}”")
        table = pl.DataFrame({"item": items, "users": users_of_items})
        if not (had := users_of_items > 0).all():
            self._renumber(parts, had)
            table = table.filter(pl.Series(had))
        facts = {name: sum(part[name] for part in parts) for name in ("users", "interactions", "pairs")}
        about_items = {"file": ITEMS, "count": len(table), "checksum": write_frame(table, self._folder / ITEMS)}
        facts |= {"weighted": weighted, "items": about_items, "steps": steps, "parts": parts}
        write_manifest(self._folder, facts)

    def _steps(self, label: str) -> list[tuple[str, int]]:
        left = self._rows
        steps = [("read", left)]
        for gone, what in (
            (self._skipped, "without a user or item left out"),
            (self._below, label),
            (self._zero, "weight 0 left out"),
        ):
            left -= gone
            steps += [(what, left)] if gone else []
        return steps

    def _spill(self) -> None:
        """Write what is waiting as a run."""
        waiting, self._waiting, self._n_waiting = self._waiting, [], 0
        if not any(len(users) for users, _, _ in waiting):
            return
        users, items = _joined([part[0] for part in waiting]), _joined([part[1] for part in waiting])
        self._distinct.add(items)
        columns = {"user": users, "item": items}
        if weights := [part[2] for part in waiting if part[2] is not None]:
            columns["weight"] = pl.Series(np.concatenate(weights))
        self._runs.add(pl.DataFrame(columns))

    def _part(
        self, first: int, last: int, encode: Callable[[pl.Series], NDArray[np.int32]], n_items: int, source: str
    ) -> tuple[pl.DataFrame, dict[str, Any], NDArray[Any]] | None:
        """The users of some hashes: the rows of their file, how many there are, and the rows' columns."""
        users, items, weights = IdEncoder(self._users.text), [], []
        for rows in self._runs.read(first, last):
            named = rows["user"]
            users.add(named if named.dtype == pl.String else named.to_numpy())
            items.append(encode(as_text(rows["item"]) if self._items.text else rows["item"]))
            if "weight" in rows.columns:
                weights.append(rows["weight"].to_numpy())
        if not items:
            return None
        ids, codes = users.finish()
        columns = {"users": codes, "items": np.concatenate(items), "times": None}
        matrix, _ = coo_to_csr(columns | {"weights": np.concatenate(weights) if weights else None}, len(ids), n_items)
        if weights and not np.isfinite(matrix.data).all():
            raise DataError(f"{source}: the weights of a repeated pair add up to more than a number can hold")
        self._merged += int(matrix.nnz)
        if not matrix.data.all():  # weights below 0 are there only if a lower bound let them in
            matrix = masked(matrix, matrix.data != 0)
            left = np.diff(matrix.indptr) > 0
            ids, matrix = ids[left], matrix[left]
        if not matrix.nnz:
            return None
        sizes = np.diff(matrix.indptr).astype(np.int64)
        owners = pl.Series(ids if ids.dtype != object else ids.tolist()).gather(np.repeat(np.arange(len(ids)), sizes))
        frame = pl.DataFrame({"user": owners, "item": matrix.indices.astype(np.int32, copy=False)})
        if (matrix.data != 1).any():
            frame = frame.with_columns(weight=pl.Series(matrix.data))
        facts = {"users": len(ids), "interactions": int(matrix.nnz), "pairs": int((sizes**2).sum())}
        return frame, facts, matrix.indices

    def _renumber(self, parts: list[dict[str, Any]], had: NDArray[np.bool_]) -> None:
        """Leave out items that nobody has any more: the others move up, in all parts that are written."""
        places = pl.Series((np.cumsum(had) - 1).astype(np.int32))
        for part in parts:
            path = self._folder / part["file"]
            frame = read_checked(path, part["checksum"])
            part["checksum"] = write_frame(frame.with_columns(item=places.gather(frame["item"])), path)


def _marked(ids: Ids, keep: NDArray[np.bool_]) -> Ids:
    return ids[keep] if isinstance(ids, np.ndarray) else ids.filter(pl.Series(keep))


def _joined(parts: Iterable[Ids]) -> pl.Series:
    """One series, of text if any of them is."""
    series = [as_series(part).rename("") for part in parts]
    text = any(part.dtype == pl.String for part in series)
    return pl.concat([as_text(part) if text else part for part in series], rechunk=True)


def _encoder(items: pl.Series) -> Callable[[pl.Series], NDArray[np.int32]]:
    """What turns ids into places among the sorted distinct ones."""
    if items.dtype == pl.String:
        categories = pl.Enum(items)
        return lambda ids: ids.cast(categories).to_physical().to_numpy().astype(np.int32)
    known = items.to_numpy()
    low, span = int(known[0]), int(known[-1]) - int(known[0]) + 1
    if span > max(2**22, _SPAN * len(known)):
        return lambda ids: np.searchsorted(known, ids.to_numpy()).astype(np.int32)
    places = np.zeros(span, np.int32)
    places[known - low] = np.arange(len(known), dtype=np.int32)
    return lambda ids: places[ids.to_numpy() - low]
