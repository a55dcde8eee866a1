"""Rows of a table, part after part, into Interactions; what is left out on the way is told."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql.data.interactions import Interactions, Step, masked, shortest_float
from deql.data.readers.assemble import assemble
from deql.data.readers.ids import IdColumn
from deql.data.readers.values import Mixture, Rows
from deql.errors import DataError

__all__ = ["Collector"]


class Collector:
    """Collects rows in as few bytes as they need: 4 for each id, 4 or 8 for a weight, 8 for a time."""

    def __init__(self) -> None:
        self._users, self._items = IdColumn(), IdColumn()
        self._weights: list[NDArray[Any]] = []
        self._times: list[NDArray[np.float64]] = []
        self._beside = ThreadPoolExecutor(1)
        self._whole = [0, 0]
        self._words: list[tuple[Mixture, Rows] | None] = [None, None]

    def add(self, rows: Rows, signed: bool) -> None:
        """Take some rows; negative weights only if ``signed``."""
        if rows.weights is not None:
            if not signed and len(rows) and rows.weights.min() < 0:
                row = int((rows.weights < 0).argmax())
                raise rows.where(
                    row,
                    f"the weight {rows.weights[row]:g} is negative: leave such rows out with min_weight=…, or build "
                    "Interactions.from_csr from signed values",
                )
            self._weights.append(shortest_float(rows.weights))
        if rows.times is not None:
            self._times.append(rows.times)
        for side, (ids, mixture) in enumerate(zip((rows.users, rows.items), rows.mixtures, strict=True)):
            self._whole[side] += len(ids) if isinstance(ids, np.ndarray) else mixture.whole if mixture else 0
            if mixture is not None and mixture.row >= 0 and self._words[side] is None:
                self._words[side] = mixture, rows
        items_done = self._beside.submit(self._items.add, rows.items)
        self._users.add(rows.users)
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
        self._beside.shutdown()
        user_ids, users = self._users.finish()
        item_ids, items = self._items.finish()
        if not len(users):
            raise DataError(f"{source} has no rows: is it the right file, and read in the right format?")
        self._refuse_words(len(users))
        steps = [Step(f"read from {Path(source).name or source}", len(user_ids), len(item_ids), len(users))]
        rows = {"users": users, "items": items, "weights": _joined(self._weights), "times": _joined(self._times)}
        del users, items
        if rows["weights"] is not None:
            if min_weight is not None:
                _keep(rows, rows["weights"] >= np.float64(min_weight), label, steps)
            if likes:
                rows["weights"] = None
            else:
                _keep(rows, rows["weights"] != 0, "weight 0 left out", steps)
        if not steps[-1].interactions:
            raise DataError(f"nothing is left of {source} after the step “{steps[-1].what}”")
        weighted, whole = rows["weights"] is not None, len(steps) == 1
        matrix, moments = assemble(rows, len(user_ids), len(item_ids))
        if matrix.nnz < steps[-1].interactions:
            steps.append(Step("repeated pairs merged", steps[-1].users, steps[-1].items, matrix.nnz))
        if weighted and not np.isfinite(matrix.data).all():
            raise DataError(f"{source}: the weights of a repeated pair add up to more than a number can hold")
        zeros = weighted and not matrix.data.all()
        if zeros:  # weights below 0 are there only if a lower bound let them in
            nonzero = matrix.data != 0
            matrix, moments = masked(matrix, nonzero), None if moments is None else moments[nonzero]
        data = Interactions(matrix, user_ids, item_ids, moments)
        if zeros or not whole:
            data = data.without_empty()
        if zeros:
            steps.append(Step("weights that add up to 0 left out", data.n_users, data.n_items, data.n_interactions))
        return replace(data, steps=tuple(steps))

    def _refuse_words(self, rows: int) -> None:
        for whole, found in zip(self._whole, self._words, strict=True):
            if found is not None and 2 * whole > rows:
                word, part = found
                raise part.where(
                    word.row,
                    f"{word.word!r} in column {word.name}, where most ids are whole numbers: "
                    "correct or remove the row, or say ids='text' if it is right",
                )


def _keep(rows: dict[str, Any], mask: NDArray[np.bool_], what: str, steps: list[Step]) -> None:
    """Leave out the rows that are not marked, and say so."""
    if mask.all():
        return
    for name, column in rows.items():
        rows[name] = None if column is None else column[mask]
    users, items = rows["users"], rows["items"]
    left = [int(np.count_nonzero(np.bincount(codes))) for codes in (users, items)]
    steps.append(Step(what, left[0], left[1], len(users)))


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
