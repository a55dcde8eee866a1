"""``strong`` and ``weak``: the paper's two tables of Recall@20 and NDCG@20, and how far each number is met."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deql._system.tables import Cell, Grid, number
from deql.paper.document import Figure, Section, capitalised
from deql.paper.hyperparameters import ORIGINS, Choice, Origin
from deql.paper.measurement_log import Record
from deql.paper.paper_datasets import PaperDataset
from deql.paper.published import HEADS, LINEAR, METRICS, NAMES, NETWORKS, ROWS, WEIGHTED, WITH_PRIOR, reported
from deql.paper.table_request import MetricRow, TableRequest, metric_grid
from deql.plotting import plots
from deql.plotting.plots import Labels
from deql.report import page

__all__ = ["accuracy", "rows_passed"]

MET = 0.0002
"""How near a number must come to be met: two units of the last digit that the paper prints."""

NEAR = 0.02
"""How near a network must come: it is another one with every seed, by up to a hundredth of its numbers."""

_WORDS: dict[Origin, str] = {
    "found": "with hyper-parameters chosen on validation data",
    "ends": "with hyper-parameters chosen on the ends of lines",
    "published": "with the published hyper-parameters",
    "test": "only with hyper-parameters chosen on the test part",
}

_VALIDATED: tuple[Origin, ...] = ("found", "ends")
"""Origins that have values on validation data."""

Paper = dict[str, list[float]]

_OURS, _THEIRS = 0, 7
"""Numbers of colours."""

_ENDS = " (line ends)"


@dataclass(frozen=True)
class _Result:
    """A row as measured here: values of the metrics and standard errors over users, NaN where that is not known."""

    choice: Choice
    values: list[float]
    errors: list[float]

    @classmethod
    def of(cls, choice: Choice, found: Record) -> _Result:
        known = [found["errors"].get(metric) for metric in METRICS]
        errors = [math.nan if error is None else float(error) for error in known]
        return cls(choice, [float(found[metric]) for metric in METRICS], errors)

    def lack(self, paper: Paper) -> list[float]:
        """What the paper's numbers have more, in the order of the metrics; as it prints them, to four digits."""
        return [
            round(there - round(here, 4), 4) for there, here in zip(paper[self.choice.row], self.values, strict=True)
        ]


def accuracy(request: TableRequest) -> tuple[str, list[Section]]:
    """The tables of strong and of weak generalisation."""
    return request.by_dataset(lambda dataset: _of_dataset(request, dataset))


def _of_dataset(request: TableRequest, dataset: PaperDataset) -> tuple[str, Section]:
    """One data set of a table, every row fitted with each of its choices beside what the paper reports."""
    known = request.choices(dataset)
    if not known:
        return request.no_choices(dataset)
    choices = [choice for choice in known if choice.row not in NETWORKS or request.log.can_evaluate(dataset, choice)]
    found = [(choice, record["found"])
             for choice, record in zip(choices, request.log.evaluate(dataset, choices), strict=True)]  # fmt: skip
    results = [_Result.of(choice, one) for choice, one in found if "failure" not in one]
    failed = [f"{choice.row} ({choice.words}) has no solution here: {one['failure']}."
              for choice, one in found if "failure" in one]  # fmt: skip
    left_out = _without_torch([choice.row for choice in known if choice not in choices])
    if not results:
        told = f"{dataset.label}: no row has a solution." if failed else ""
        return told, Section(dataset.label, [*failed, *left_out])
    paper = reported(dataset.protocol, dataset.name)
    grids = [_grid(origin, several, paper) for origin in ORIGINS
             if (several := [one for one in results if one.choice.origin == origin])]  # fmt: skip
    if paper:
        fitted = {one.choice.row for one in results}
        others = [([row], [Cell(number(value)) for value in values])
                  for row, values in paper.items() if row not in {*LINEAR, *fitted}]  # fmt: skip
        if others:
            grids.append(Grid("Reported by the paper, not fitted here", ["model", *HEADS.values()], others))
    users = next(one["users"] for _, one in found if "failure" not in one)
    words = [f"{capitalised(dataset.first.describe())}. {users:,} user{' is' if users == 1 else 's are'} evaluated."]
    comparable = {} if dataset.caveat else paper
    remarks = [
        *dataset.caveat, *failed, *_met(results, comparable), *_networks(results, comparable),
        *left_out, *_identities(results), *_sources(choices),
    ]  # fmt: skip
    figures = _figures(dataset, results, comparable)
    summary = _summary(dataset, results, comparable)
    return summary, Section(dataset.label, words, grids, figures=figures, remarks=remarks)


def _grid(origin: Origin, results: Sequence[_Result], paper: Paper) -> Grid:
    """Rows with choices of one origin: paper, here, difference, and the hyper-parameters."""
    ordered = sorted(results, key=lambda one: ROWS.index(one.choice.row))
    rows = [MetricRow(one.choice.row, one.choice.words, one.values) for one in ordered]
    # What was chosen on the test part is no result, so none of it is the best.
    grid = metric_grid(f"Hyper-parameters: {ORIGINS[origin]}", rows, paper, mark_best=origin != "test")
    if origin in _VALIDATED:
        grid.header.extend(f"{short} validation" for short in HEADS.values())
        for (_, cells), one in zip(grid.rows, ordered, strict=True):
            cells.extend(Cell(number(one.choice.validation.get(metric, math.nan))) for metric in METRICS)
    return grid


def _summary(dataset: PaperDataset, results: Sequence[_Result], paper: Paper) -> str:
    """What the row is worth that validation data would take, in one sentence."""
    # The row is chosen as its hyper-parameters are: by what it was worth on validation data. Those of different kinds
    # cannot be compared, and where the ends of lines were looked at, it is because the test part goes on with them.
    known = [one for one in results if METRICS[1] in one.choice.validation]
    found = next((several for origin in reversed(_VALIDATED)
                  if (several := [one for one in known if one.choice.origin == origin])), [])  # fmt: skip
    if not found:
        return f"{dataset.label}: no row was chosen on validation data."
    top = max(found, key=lambda one: one.choice.validation[METRICS[1]])
    told = " and ".join(
        f"{NAMES[metric]} {number(value)}" + ("" if math.isnan(error) else f" ± {error:.4f}")
        for metric, value, error in zip(METRICS, top.values, top.errors, strict=True)
    )
    passed = f", {rows_passed(top.values, paper)}" if paper else ""
    return f"{dataset.label}: {top.choice.row}, {ORIGINS[top.choice.origin]}, has {told} on the test part{passed}."


def rows_passed(values: Sequence[float], paper: Paper) -> str:
    """Which rows of the paper a pair of numbers is above, at the four digits that are printed, in words.

    Examples
    --------
    >>> rows_passed([0.19, 0.14], {"A": [0.18, 0.13], "B": [0.18, 0.15]})
    'above 1 of 2 rows of the paper in both metrics; not above B in NDCG@20'
    """
    below = {
        row: [name for name, here, there in zip(NAMES.values(), values, theirs, strict=True)
              if round(here, 4) <= there]
        for row, theirs in paper.items()
    }  # fmt: skip
    left = {row: names for row, names in below.items() if names}
    if not left:
        return "above every row of the paper in both metrics"
    named = ", ".join(f"{row} in {' and '.join(names)}" for row, names in left.items())
    return f"above {len(paper) - len(left)} of {len(paper)} rows of the paper in both metrics; not above {named}"


def _met(results: Sequence[_Result], paper: Paper) -> list[str]:
    """Which of the paper's numbers are met, and with which hyper-parameters."""
    lacks = [(one.choice.row, one.choice.origin, one.lack(paper)) for one in results
             if one.choice.row in paper and one.choice.row in LINEAR]  # fmt: skip
    met: dict[str, Origin] = {}
    for origin in ORIGINS:  # the first that meets a row counts
        for row, of, lack in lacks:
            if of == origin and max(map(abs, lack)) <= MET:
                met.setdefault(row, origin)

    def named(rows: set[str]) -> str:
        return ", ".join(row for row in LINEAR if row in rows)

    remarks = []
    if met:
        parts = [f"{named({row for row, of in met.items() if of == origin})} {_WORDS[origin]}"
                 for origin in ORIGINS if origin in met.values()]  # fmt: skip
        remarks.append(f"The paper's numbers are met to ±{MET:.4f}: {'; '.join(parts)}.")
    missed = {row for row, _, _ in lacks} - met.keys()
    above = {row for row, _, lack in lacks if row in missed and max(lack) < -MET}
    if above:
        remarks.append(f"Above the paper's numbers rather than near them: {named(above)}.")
    if missed - above:
        remarks.append(f"Not met with any hyper-parameters tried: {named(missed - above)}.")
    short = {row: max(lack) for row, origin, lack in lacks if origin == "found" and max(lack) > MET}
    if short:
        remarks.append(
            f"Chosen on validation data and below the paper's numbers, by up to {max(short.values()):.4f}: "
            f"{', '.join(short)}. Those numbers take hyper-parameters that this validation data did not choose."
        )
    return remarks


def _networks(results: Sequence[_Result], paper: Paper) -> list[str]:
    """How far networks are from the paper's numbers: chosen on validation data, and trained once."""
    remarks = []
    for one in results:
        if one.choice.row in NETWORKS and one.choice.row in paper:
            shares = [here / there - 1 for here, there in zip(one.values, paper[one.choice.row], strict=True)]
            apart = " and ".join(
                f"{share:+.1%} in {NAMES[metric]}" for share, metric in zip(shares, METRICS, strict=True)
            )
            said = "not below it by more" if min(shares) >= -NEAR else "below it by more"
            remarks.append(f"{one.choice.row} against the paper's: {apart}; {said} than {NEAR:.0%}.")
    return remarks


def _without_torch(rows: Sequence[str]) -> list[str]:
    """Which rows were left out, and why."""
    if not rows:
        return []
    names = ", ".join(dict.fromkeys(rows))
    return [f'{names}: not trained here, as torch is not installed: pip install "deql[neural]".']


def _identities(results: Sequence[_Result]) -> list[str]:
    """Rows that are other rows under another name."""
    found = {one.choice.row: one.choice.parameters for one in results if one.choice.origin == "found"}
    remarks = []
    if found.get("EDLAE", {"": 0.0}) == found.get("DEQL(L2+zero-diag)"):
        remarks.append(
            "DEQL(L2+zero-diag) is EDLAE: at one l2 the two are the same matrix whatever b is (eq. 17), so what the "
            "paper's two rows differ by comes from other ridges. Chosen from one grid, they are equal."
        )
    for row, b, name in ((WEIGHTED, 0.0, "EDLAE with weights"), ("DEQL(L2)", 1.0, "DLAE")):
        if found.get(row, {}).get("b") == b:
            remarks.append(f"With b = {b:g}, as chosen here, {row} is {name}.")
    if WEIGHTED in found:
        remarks.append(
            f"{WEIGHTED} is not in the paper: users count |u|^(−user_power) in the Gram matrix, and scores are divided "
            "by count^popularity_power."
        )
    if any(one.choice.row == WITH_PRIOR for one in results):
        remarks.append(
            f"Nor is {WITH_PRIOR}: there the share prior_weight of l2 pulls towards the ideal low pass of the graph of "
            "users and items instead of towards zero."
        )
    return remarks


def _sources(choices: Sequence[Choice]) -> list[str]:
    """Where the hyper-parameters come from, each source with its rows."""
    rows: dict[tuple[str, str], list[str]] = {}
    for one in choices:
        if one.source:
            rows.setdefault((ORIGINS[one.origin], one.source), []).append(one.row)
    return [f"{capitalised(origin)}: {source} ({', '.join(several)})." for (origin, source), several in rows.items()]


def _figures(dataset: PaperDataset, results: Sequence[_Result], paper: Paper) -> list[Figure]:
    """A dot for each row as measured, within its standard error, and one for each row of the paper not fitted here."""
    found = [one for one in results if one.choice.origin in _VALIDATED]
    if not found:
        return []
    fitted, drawn = {one.choice.row for one in found}, []
    for place, metric in enumerate(METRICS):
        values = {f"{row} (paper)": (value[place], value[place], value[place])
                  for row, value in paper.items() if row not in {*LINEAR, *fitted}}  # fmt: skip
        for one in found:
            here, error = one.values[place], np.nan_to_num(one.errors[place])
            name = one.choice.row + _ENDS * (one.choice.origin == "ends")
            values[name] = (here, here - error, here + error)
        ordered = dict(sorted(values.items(), key=lambda entry: -entry[1][0]))
        colours = [_OURS if row.removesuffix(_ENDS) in LINEAR else _THEIRS for row in ordered]
        name, shown = f"{dataset.key}-{page.anchor(metric)}", NAMES[metric]
        svg = plots.intervals(Labels(name, f"{shown} on {dataset.label}", shown), ordered, colours)
        drawn.append(Figure(svg, f"{shown} on the test part of {dataset.label}: ours with hyper-parameters chosen on "
                                 "validation data, ± one standard error over users."))  # fmt: skip
    return drawn
