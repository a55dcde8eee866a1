"""The search behind the tables' hyper-parameters: on validation data only, the same for every data set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from deql.evaluation.model_groups import LogCallback
from deql.linalg.gram import user_weights, weighted_diagonal
from deql.paper.hyperparameters import Choice, best_of_each
from deql.paper.paper_datasets import PaperDataset
from deql.paper.published import WEIGHTED
from deql.tuning.space import Space
from deql.tuning.tuner import tune
from deql.tuning.tuning_data import TuningData, hold_out_validation

__all__ = ["FAMILY", "chosen_from", "search", "weighted_spaces"]

Rows = list[dict[str, Any]]

FAMILY = Space(
    l2=(0.0, 3.0, 10.0, 30.0, 60.0, 100.0, 200.0, 300.0, 500.0, 1000.0),
    dropout=(0.0, 0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9),
    b=(0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 3.0, 4.0),
    xi=(0.02, 0.05, 0.1, 0.2, 0.3, 0.4),
)
"""What the paper's rows are chosen from: its ranges, without gaps, and widened where an optimum may lie."""

USER_POWERS = (0.0, 0.25, 0.5, 0.75)
POPULARITY_POWERS = (0.0, 0.1, 0.2, 0.3, 0.4)
_RIDGES = (0.5, 1.0, 2.0, 4.0)
_LESS, _MORE = 1, 2
"""Steps of dropout below and above the best without weights."""


def weighted_spaces(held: TuningData, best: Mapping[str, float]) -> Iterator[Space]:
    """What is searched for the row with weights: a space for each user_power, around the best point without weights.

    A ridge is measured against the diagonal of the Gram matrix, which weights of users move by orders of magnitude; so
    l2 keeps its ratio to the mean diagonal, up to small factors.

    Examples
    --------
    >>> import deql
    >>> held = hold_out_validation(deql.datasets.debian(), seed=0)
    >>> spaces = list(weighted_spaces(held, {"l2": 10.0, "dropout": 0.3}))
    >>> spaces[0].l2, spaces[0].dropout, [space.user_power for space in spaces[1:]]
    ((5.0, 10.0, 20.0, 40.0), (0.1, 0.3, 0.5, 0.6), [(0.25,), (0.5,), (0.75,)])
    """
    matrix = held.train.matrix
    dropouts = [dropout for dropout in FAMILY.dropout if dropout > 0]
    place = dropouts.index(best["dropout"])
    near = tuple(dropouts[max(0, place - _LESS) : place + _MORE + 1])
    means = {power: float(weighted_diagonal(matrix, user_weights(matrix, power)).mean()) for power in USER_POWERS}
    for power, mean in means.items():
        ridges = tuple(float(f"{best['l2'] * ridge * mean / means[0.0]:.2g}") for ridge in _RIDGES)
        yield replace(
            FAMILY, l2=ridges, dropout=near, user_power=(power,), b=(0.0, 0.25, 0.5, 1.0, 2.0), xi=(),
            popularity_power=POPULARITY_POWERS,
        )  # fmt: skip


def search(
    dataset: PaperDataset, folder: Path, tell: LogCallback | None = None, progress: bool = False
) -> list[Choice]:
    """Choose the hyper-parameters of each row on validation data; the test part is not read.

    Parameters
    ----------
    dataset : PaperDataset
    folder : Path
        For the journals: the same call resumes where it was ended.
    tell : callable, optional
        The log callback.
    progress : bool, default False

    Returns
    -------
    list of Choice

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C: half a grid chooses nothing. What was measured is in the journals.
    """
    split = dataset.first
    held = hold_out_validation(split, seed=0)

    def look(name: str, space: Space) -> list[dict[str, Any]]:
        journal = folder / f"{dataset.key}-{name}.tuning.jsonl"
        found = tune(
            split, space, search="grid", prune=False, journal=journal, progress=progress, tell=tell, baselines=False
        )
        if not found.complete:
            raise KeyboardInterrupt
        return found.table.to_dicts()

    family = look("family", FAMILY)
    best = next(choice for choice in best_of_each(family, "") if choice.row == WEIGHTED).parameters
    weighted = [
        row for space in weighted_spaces(held, best)
        for row in look(f"weights-{space.user_power[0]:g}-around-{best['l2']:g}-{best['dropout']:g}", space)
    ]  # fmt: skip
    return chosen_from(family, weighted, held)


def chosen_from(family: Rows, weighted: Rows, held: TuningData) -> list[Choice]:
    """The choice for each row: those of the paper from the one grid, that with weights from all that was tried."""
    count, users = held.validation.held_out.n_interactions, held.validation.seen.n_users

    def how(rows: Rows) -> str:
        return f"best ndcg@20 on {count:,} held-out interactions of {users:,} users, among {len(rows):,} models"

    everything = [*family, *weighted]
    return [
        *(one for one in best_of_each(family, how(family)) if one.row != WEIGHTED),
        *(one for one in best_of_each(everything, how(everything)) if one.row == WEIGHTED),
    ]
