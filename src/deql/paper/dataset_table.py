"""``datasets``: the paper's table of data sets beside what is here, what cleaning left, and how uneven it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deql import datasets
from deql._system.tables import Cell, Grid
from deql.data.clean import describe_steps
from deql.data.interactions import Step
from deql.datasets.public import PRESETS, Shape, compare_with_paper, locate
from deql.paper.document import Figure, Section, capitalised
from deql.paper.paper_datasets import MissingDataset, PaperDataset
from deql.paper.table_request import TableRequest
from deql.plotting import plots
from deql.plotting.plots import Labels
from deql.report import page

__all__ = ["dataset_table", "share_of_top"]

_SHARES = np.unique(np.concatenate([np.linspace(0, 10, 41), np.linspace(10, 100, 91)]))
"""Percentages of the items at which the curve of popularity is drawn: it is steep at first."""

_FORMS = {
    "items": "{:,}", "users": "{:,}", "interactions": "{:,}", "density": "{:.2%}", "item_user_ratio": "{:.2f}",
}  # fmt: skip
"""The paper's quantities, and how they are written."""


@dataclass(frozen=True, eq=False)
class _DatasetCounts:
    """A data set that is there; the paper's counts, or None of the bundled one; ours; and what differs."""

    dataset: PaperDataset
    paper: Shape | None
    shape: Shape
    different: Sequence[str] = ()

    @cached_property
    def popularity(self) -> NDArray[np.int64]:
        """How many users to learn from have each item."""
        train = self.dataset.first.train
        return np.bincount(train.matrix.indices, minlength=train.n_items)


def dataset_table(request: TableRequest) -> tuple[str, list[Section]]:
    """The table of data sets."""
    # The bundled one has two protocols, and is shown once.
    once = {dataset.name: dataset for dataset in reversed(request.datasets)}
    counted = [_count(dataset) for dataset in reversed(once.values())]
    return _summary(counted), [_overview(counted, request.missing), *map(_section, counted)]


def _count(dataset: PaperDataset) -> _DatasetCounts:
    if dataset.name not in PRESETS:
        data = datasets.debian()
        return _DatasetCounts(dataset, None, Shape(data.n_items, data.n_users, data.n_interactions))
    compared = compare_with_paper(dataset.name, dataset.first)
    found = {row["quantity"]: row["found"] for row in compared}
    shape = Shape(found["items"], found["users"], found["interactions"])
    different = [row["quantity"] for row in compared if not row["same"]]
    return _DatasetCounts(dataset, PRESETS[dataset.name].paper, shape, different)


def _summary(counted: Sequence[_DatasetCounts]) -> str:
    """Whose counts are the paper's."""
    same = [one.dataset.label for one in counted if one.paper and not one.different]
    other = [one.dataset.label for one in counted if one.different]
    parts = [f"The paper's counts are met on {' and '.join(same)}."] if same else []
    they = "They are not" if same else "The paper's counts are not met"
    parts += [f"{they} on {' and '.join(other)}, for a reason given below."] if other else []
    return " ".join(parts) or "Of the paper's data sets none is here, and the bundled one is always there."


def _overview(counted: Sequence[_DatasetCounts], missing: Sequence[MissingDataset]) -> Section:
    rows = []
    for one in counted:
        told = "–" if one.paper is None else "differs" if one.different else "same"
        for whose, shape, verdict, marked in (("paper", one.paper, "", ()), ("here", one.shape, told, one.different)):
            if shape is not None:
                cells = [Cell(form.format(getattr(shape, quantity)), marked=quantity in marked)
                         for quantity, form in _FORMS.items()]  # fmt: skip
                rows.append(([one.dataset.label, whose], [*cells, Cell(verdict)]))
    quantities = [quantity.replace("item_user_", "item-user ") for quantity in _FORMS]
    grid = Grid("", ["data set", "", *quantities, "against the paper"], rows)
    words = [
        "Density is interactions ÷ (users × items), and the item-user ratio is items ÷ users. Users and interactions "
        "are those that cleaning left, items those of the part to learn from."
        + (" * is not what the paper counts." if any(one.different for one in counted) else "")
    ]
    remarks = [
        "The paper takes a large item-user ratio for a reason why the best b is near a on Amazon-Book and above it on "
        "Yelp2018: where items outnumber users, most items have few interactions, and what one says of another is "
        "mostly noise."
    ]
    if any(one.dataset.name == "gowalla" for one in counted):
        gowalla, yelp = (PRESETS[name].paper.item_user_ratio for name in ("gowalla", "yelp2018"))
        remarks[0] += (
            f" By that the best b on Gowalla, with {gowalla:.2f} items per user to Yelp2018's {yelp:.2f}, should be "
            "there, too: b-sensitivity shows where it is."
        )
    figures = [_popularity_figure(counted), _ratio_figure(counted, missing)]
    return Section("Side by side", words, [grid], [one.dataset.label for one in counted], figures, remarks)


def _popularity_figure(counted: Sequence[_DatasetCounts]) -> Figure:
    shares = {one.dataset.label: share_of_top(one.popularity, _SHARES).tolist() for one in counted}
    labels = Labels(
        "datasets-popularity", "How uneven the items are", "% of the items, the most popular first",
        "% of the interactions",
    )  # fmt: skip
    svg = plots.lines(labels, _SHARES.tolist(), shares)
    return Figure(svg, "Which share of the interactions to learn from the most popular items have. The nearer to the "
                       "upper left corner, the more uneven the items are.")  # fmt: skip


def share_of_top(counts: NDArray[np.int64], percentages: ArrayLike) -> NDArray[np.float64]:
    """Percentage of all interactions that the most popular items have, for percentages of the items.

    Examples
    --------
    >>> share_of_top(np.array([1, 6, 3, 0, 0]), [0.0, 10.0, 20.0, 100.0]).tolist()
    [0.0, 30.0, 60.0, 100.0]
    """
    sums = np.concatenate([[0], np.cumsum(np.sort(counts)[::-1])])
    items = np.asarray(percentages) / 100 * len(counts)
    return np.asarray(100 * np.interp(items, np.arange(len(sums)), sums) / sums[-1])


def _ratio_figure(counted: Sequence[_DatasetCounts], missing: Sequence[MissingDataset]) -> Figure:
    ratios: dict[str, tuple[float | None, float | None]] = {
        one.dataset.label: (one.paper.item_user_ratio if one.paper else None, one.shape.item_user_ratio)
        for one in counted
    }
    ratios |= {one.label: (PRESETS[one.name].paper.item_user_ratio, None) for one in missing}
    ordered = dict(sorted(ratios.items(), key=lambda entry: -max(value or 0.0 for value in entry[1])))
    labels = Labels("datasets-ratio", "Items for each user", "items ÷ users")
    svg = plots.reported_and_found(labels, ordered, border=1.0)
    return Figure(svg, "Items for each user: a ring for the paper's data, a dot for those that are here. To the right "
                       "of the line there are more items than users.")  # fmt: skip


def _section(one: _DatasetCounts) -> Section:
    """What became of one data set on its way."""
    split = one.dataset.first
    words = [
        *_why(one),
        f"{capitalised(split.describe())}.",
        f"Of the interactions to learn from, {share_of_top(one.popularity, 10.0):.0f} % are with the most "
        f"popular tenth of the items. The median item has {np.median(one.popularity):g} of them, the median user "
        f"{np.median(np.diff(split.train.matrix.indptr)):g}.",
    ]
    return Section(one.dataset.label, words, [_steps_grid(split.train.steps)] if split.train.steps else [])


def _steps_grid(steps: Sequence[Step]) -> Grid:
    counted = ("users", "items", "interactions")
    rows = [
        [step["what"], *(f"{step[name]:,}" + (f" (−{gone:,})" if (gone := step[f"removed_{name}"]) else "")
                         for name in counted)]
        for step in describe_steps(steps)
    ]  # fmt: skip
    return page.plain_grid("What each step left, and in brackets what it took away", ["step", *counted], rows)


def _why(one: _DatasetCounts) -> list[str]:
    """Whether the counts are the paper's and, if not, why."""
    if one.paper is None:
        return ["This data set comes with the library, and the paper does not have it. Every user and every item has "
                "at least five interactions."]  # fmt: skip
    if not one.different:
        return ["These are the paper's counts."]
    preset = PRESETS[one.dataset.name]
    if "users" not in one.different and "interactions" not in one.different:
        return ["Users and interactions are the paper's. Items are those of the part to learn from, which depends on "
                "the seed of the split."]  # fmt: skip
    these = "These are not the paper's counts."
    if preset.certain:
        return [f"{these} The files are not those that it began with, which are published by {preset.published}."]
    words = [f"{these} The paper does not say how it filtered these data, and the steps below are the likeliest "
             "reading."]  # fmt: skip
    assert one.dataset.folder is not None  # what is not bundled has files
    if locate(one.dataset.name, one.dataset.folder)[0] == "train.txt":
        words.append(
            f"The original file ({preset.published}) is not there. LightGCN's two files, joined, stand in for it: they "
            "have only users and items with about ten interactions or more, so that the others are missing."
        )
    return words
