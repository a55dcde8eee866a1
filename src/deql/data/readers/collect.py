"""Rows of a table, part after part, into Interactions; what is left out on the way is told."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql.data.interactions import Interactions, Step
from deql.data.matrices import masked, shortest_float
from deql.data.readers.coo_to_csr import coo_to_csr
from deql.data.readers.ids import IdEncoder
from deql.data.readers.parsed_rows import ParsedRows
from deql.errors import DataError, Setting

__all__ = ["Collector"]


class Collector:
    """Collects rows in as few bytes as they need: 4 for each id, 4 or 8 for a weight, 8 for a time.

    Parameters
    ----------
    text_ids : bool
        Ids are text even if all of them are whole numbers.
    signed : bool
        Negative weights are fine.
    ordered : bool, default False
        Keep the order of the rows, which have no times.
    """

    def __init__(self, text_ids: bool, signed: bool, ordered: bool = False) -> None:
        self._users, self._items = IdEncoder(text_ids), IdEncoder(text_ids)
        self._signed = signed
        self._ordered = ordered
        self._weights: list[NDArray[Any]] = []
        self._times: list[NDArray[np.float64]] = []
        self._skipped = 0
        self._executor = ThreadPoolExecutor(1)

    def add(self, rows: ParsedRows) -> None:
        """Take some rows."""
        self._skipped += rows.skipped
        if rows.weights is not None:
            if not self._signed and len(rows) and rows.weights.min() < 0:
                row = int((rows.weights < 0).argmax())
                raise rows.row_error(
                    row,
                    f"the weight {rows.weights[row]:g} is negative: leave such rows out with ",
                    Setting("min_weight"),
                    ", or build Interactions.from_csr from signed values",
                )
            self._weights.append(shortest_float(rows.weights))
        if rows.times is not None:
            self._times.append(rows.times)
        row_error = rows.row_error if rows.untyped else None
        items_done = self._executor.submit(self._items.add, rows.items, row_error)
        self._users.add(rows.users, row_error)
        items_done.result()

    def finish(self, source: str, min_weight: float | None, label: str, likes: bool) -> Interactions:
        """All rows as Interactions.

        Parameters
        ----------
        source : str
            Where they come from.
        min_weight : float or None
            Leave out rows with a smaller weight.
        label : str
            What that step is called.
        likes : bool
            Forget the weights once they have decided what stays.
        """
        self._executor.shutdown()
        user_ids, users = self._users.finish()
        item_ids, items = self._items.finish()
        if not len(users) + self._skipped:
            raise DataError(f"{source} has no rows: is it the right file, and read in the right format?")
        shape = len(user_ids), len(item_ids)
        steps = [Step(f"read from {Path(source).name or source}", *shape, len(users) + self._skipped)]
        if self._skipped:
            rows_are = "1 row" if self._skipped == 1 else f"{self._skipped:,} rows"
            steps.append(Step(f"skipped {rows_are} without a user or item", *shape, len(users)))
        read = len(steps)
        times = np.arange(len(users), dtype=np.float64) if self._ordered else _joined(self._times)
        rows = {"users": users, "items": items, "weights": _joined(self._weights), "times": times}
        del users, items, times
        if rows["weights"] is not None:
            if min_weight is not None:
                _keep(rows, rows["weights"] >= np.float64(min_weight), label, steps)
            if likes:
                rows["weights"] = None
            else:
                _keep(rows, rows["weights"] != 0, "weight 0 left out", steps)
        if not steps[-1].interactions:
            raise DataError(f"nothing is left of {source} after the step “{steps[-1].what}”")
        weighted, whole = rows["weights"] is not None, len(steps) == read
        matrix, times = coo_to_csr(rows, len(user_ids), len(item_ids))
        if matrix.nnz < steps[-1].interactions:
            steps.append(Step("repeated pairs merged", steps[-1].users, steps[-1].items, matrix.nnz))
        if weighted and not np.isfinite(matrix.data).all():
            raise DataError(f"{source}: the weights of a repeated pair add up to more than a number can hold")
        zeros = weighted and not matrix.data.all()
        if zeros:  # weights below 0 are there only if a lower bound let them in
            nonzero = matrix.data != 0
            matrix, times = masked(matrix, nonzero), None if times is None else times[nonzero]
        data = Interactions(matrix, user_ids, item_ids, None if self._ordered else times)
        if self._ordered and times is not None and not _is_sorted(matrix, times):
            data = replace(data, order=times.astype(np.int64))
        if zeros or not whole:
            data = data.without_empty()
        if zeros:
            steps.append(Step("weights that add up to 0 left out", data.n_users, data.n_items, data.n_interactions))
        return replace(data, steps=tuple(steps))


def _keep(rows: dict[str, Any], mask: NDArray[np.bool_], what: str, steps: list[Step]) -> None:
    """Leave out the rows that are not marked, and say so."""
    if mask.all():
        return
    for name, column in rows.items():
        rows[name] = None if column is None else column[mask]
    users, items = rows["users"], rows["items"]
    left = [int(np.count_nonzero(np.bincount(codes))) for codes in (users, items)]
    steps.append(Step(what, left[0], left[1], len(users)))


def _is_sorted(matrix: csr_array, places: NDArray[np.float64]) -> bool:
    """Whether every user's items stand in the file in the order of their ids, or in the opposite one: no order then."""
    later = np.diff(places) > 0
    within = np.ones(len(later), bool)
    starts = matrix.indptr[1:-1]
    within[starts[(starts > 0) & (starts < len(places))] - 1] = False  # where a user's items end and another's begin
    return bool(later[within].all() or not later[within].any())


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any] | None:
    """One array of all parts, which are freed as they are copied."""
    if not parts:
        return None
    whole = np.empty(sum(map(len, parts)), np.result_type(*parts))
    end = len(whole)
    while parts:
        part = parts.pop()
        whole[end - len(part) : end] = part
        end -= len(part)
    return whole
