"""``strong`` and ``weak``: the paper's two tables of Recall@20 and NDCG@20, and how far each number is met."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deql._system.tables import Cell, Grid, number
from deql.paper.document import Figure, Section, capitalised
from deql.paper.hyperparameters import ORIGINS, Choice, Origin
from deql.paper.paper_datasets import Bench
from deql.paper.published import HEADS, LINEAR, METRICS, NAMES, WEIGHTED, reported
from deql.paper.registry import Order, beside_paper, compared_heads
from deql.paper.runs import Record, Run
from deql.report import page, plots
from deql.report.plots import Labels

__all__ = ["accuracy", "best_passed"]

MET = 0.0002
"""How near a number must come to be met: two units of the last digit that the paper prints."""

_WORDS: dict[Origin, str] = {
    "found": "with hyper-parameters chosen on validation data",
    "published": "with the published hyper-parameters",
    "test": "only with hyper-parameters chosen on the test part",
}

Paper = dict[str, list[float]]

_OURS, _THEIRS = 0, 7
"""Numbers of colours."""


@dataclass(frozen=True)
class _Measured:
    """A row as measured here."""

    choice: Choice
    record: Record

    def value(self, metric: str) -> float:
        return float(self.record["found"][metric])

    def error(self, metric: str) -> float:
        """Standard error over users; NaN where it is not known."""
        known = self.record["found"]["errors"].get(metric)
        return float("nan") if known is None else float(known)

    def lack(self, paper: Paper) -> list[float]:
        """What the paper's numbers have more, in the order of the metrics; as it prints them, to four digits."""
        there = paper[self.choice.row]
        return [round(there[place] - round(self.value(metric), 4), 4) for place, metric in enumerate(METRICS)]


def accuracy(order: Order) -> tuple[str, list[Section]]:
    """The tables of strong and of weak generalisation."""
    sections, leads = [], []
    for bench in order.benches:
        choices = order.choices(bench)
        if not choices:
            sections.append(order.unchosen(bench))
            continue
        section, lead = _section(order.run, bench, choices)
        sections.append(section)
        leads.append(lead)
    return " ".join(leads), sections


def _section(run: Run, bench: Bench, choices: Sequence[Choice]) -> tuple[Section, str]:
    """One data set of a table, every row fitted with each of its choices beside what the paper reports; and a lead."""
    everything = [
        _Measured(choice, record) for choice, record in zip(choices, run.judge(bench, choices), strict=True)
    ]  # fmt: skip
    measured = [one for one in everything if "failure" not in one.record["found"]]
    failed = [f"{one.choice.row} ({one.choice.words}) has no solution here: {one.record['found']['failure']}."
              for one in everything if one not in measured]  # fmt: skip
    if not measured:
        return Section(bench.label, failed), f"{bench.label}: no row has a solution."
    paper = reported(bench.protocol, bench.name)
    grids = [
        grid for origin in ORIGINS
        if (grid := _grid(origin, [one for one in measured if one.choice.origin == origin], paper)) is not None
    ]  # fmt: skip
    if paper:
        grids.append(_others(paper))
    users = measured[0].record["found"]["users"]
    words = [f"{capitalised(bench.first.describe())}. {users:,} user{' is' if users == 1 else 's are'} judged."]
    comparable = {} if bench.caveat else paper
    remarks = [*bench.caveat, *failed, *_met(measured, comparable), *_identities(measured), *_sources(choices)]
    figures = _figures(bench, measured, comparable)
    return Section(bench.label, words, grids, figures=figures, remarks=remarks), _lead(bench, measured, comparable)


def _grid(origin: Origin, measured: Sequence[_Measured], paper: Paper) -> Grid | None:
    """Rows with choices of one origin: paper, here, difference, and the hyper-parameters."""
    if not measured:
        return None
    rows = []
    # What was chosen on the test part is no result, so none of it is the best.
    best = {} if origin == "test" else {metric: max(one.value(metric) for one in measured) for metric in METRICS}
    for one in sorted(measured, key=lambda one: LINEAR.index(one.choice.row)):
        cells = []
        for place, metric in enumerate(METRICS):
            here = one.value(metric)
            value = Cell(number(here), best=here == best.get(metric))
            there = paper[one.choice.row][place : place + 1] if one.choice.row in paper else None
            cells += beside_paper(value, here, there) if paper else [value]
        if origin == "found":
            cells += [Cell(number(one.choice.validation.get(metric, float("nan")))) for metric in METRICS]
        rows.append(([one.choice.row, one.choice.words], cells))
    header = ["model", "hyper-parameters", *compared_heads(bool(paper))]
    if origin == "found":
        header += [f"{short} validation" for short in HEADS.values()]
    return Grid(f"Hyper-parameters: {ORIGINS[origin]}", header, rows)


def _others(paper: Paper) -> Grid:
    """What the paper reports of models that are not fitted here."""
    rows = [([row], [Cell(number(value)) for value in values]) for row, values in paper.items() if row not in LINEAR]
    return Grid("Reported by the paper, not fitted here", ["model", *HEADS.values()], rows)


def _lead(bench: Bench, measured: Sequence[_Measured], paper: Paper) -> str:
    """What the row is worth that validation data would take, in one sentence."""
    # The row is chosen as its hyper-parameters are: by what it was worth on validation data.
    found = [one for one in measured if one.choice.origin == "found" and METRICS[1] in one.choice.validation]
    if not found:
        return f"{bench.label}: no row was chosen on validation data."
    top = max(found, key=lambda one: one.choice.validation[METRICS[1]])
    values = [top.value(metric) for metric in METRICS]
    told = " and ".join(
        f"{NAMES[metric]} {number(value)}" + ("" if math.isnan(top.error(metric)) else f" ± {top.error(metric):.4f}")
        for metric, value in zip(METRICS, values, strict=True)
    )
    passed = f", {best_passed(values, paper)}" if paper else ""
    return f"{bench.label}: {top.choice.row}, {ORIGINS[top.choice.origin]}, has {told} on the test part{passed}."


def best_passed(values: Sequence[float], paper: Paper) -> str:
    """Which rows of the paper a pair of numbers is above, at the four digits that are printed, in words.

    Examples
    --------
    >>> best_passed([0.19, 0.14], {"A": [0.18, 0.13], "B": [0.18, 0.15]})
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


def _met(measured: Sequence[_Measured], paper: Paper) -> list[str]:
    """Which of the paper's numbers are met, and with which hyper-parameters."""
    told = [one for one in measured if one.choice.row in paper]
    rows = [row for row in LINEAR if any(one.choice.row == row for one in told)]
    met: dict[Origin, list[str]] = {}
    for row in rows:
        for origin in ORIGINS:
            several = [one for one in told if (one.choice.row, one.choice.origin) == (row, origin)]
            if any(max(map(abs, one.lack(paper))) <= MET for one in several):
                met.setdefault(origin, []).append(row)
                break
    remarks = []
    if met:
        parts = [f"{', '.join(met[origin])} {_WORDS[origin]}" for origin in ORIGINS if origin in met]
        remarks.append(f"The paper's numbers are met to ±{MET:.4f}: {'; '.join(parts)}.")
    missed = [row for row in rows if not any(row in several for several in met.values())]
    above = [row for row in missed
             if any(one.choice.row == row and max(one.lack(paper)) < -MET for one in told)]  # fmt: skip
    if above:
        remarks.append(f"Above the paper's numbers rather than near them: {', '.join(above)}.")
    if rest := [row for row in missed if row not in above]:
        remarks.append(f"Not met with any hyper-parameters tried: {', '.join(rest)}.")
    short = {one.choice.row: max(one.lack(paper)) for one in told
             if one.choice.origin == "found" and max(one.lack(paper)) > MET}  # fmt: skip
    if short:
        remarks.append(
            f"Chosen on validation data and below the paper's numbers, by up to {max(short.values()):.4f}: "
            f"{', '.join(short)}. Those numbers take hyper-parameters that this validation data did not choose."
        )
    return remarks


def _identities(measured: Sequence[_Measured]) -> list[str]:
    """Rows that are other rows under another name."""
    found = {one.choice.row: one.choice.parameters for one in measured if one.choice.origin == "found"}
    remarks = []
    if found.get("EDLAE", {"": 0.0}) == found.get("DEQL(L2+zero-diag)"):
        remarks.append(
            "DEQL(L2+zero-diag) is EDLAE: at one l2 the two are the same matrix whatever b is (eq:11), so what the "
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
    return remarks


def _sources(choices: Sequence[Choice]) -> list[str]:
    """Where the hyper-parameters come from, each source with its rows."""
    rows: dict[tuple[str, str], list[str]] = {}
    for one in choices:
        if one.source:
            rows.setdefault((ORIGINS[one.origin], one.source), []).append(one.row)
    return [f"{capitalised(origin)}: {source} ({', '.join(several)})." for (origin, source), several in rows.items()]


def _figures(bench: Bench, measured: Sequence[_Measured], paper: Paper) -> list[Figure]:
    """A dot for each row as measured, within its standard error, and one for each row of the paper not fitted here."""
    found = [one for one in measured if one.choice.origin == "found"]
    if not found:
        return []
    drawn = []
    for place, metric in enumerate(METRICS):
        values = {f"{row} (paper)": (value[place], value[place], value[place])
                  for row, value in paper.items() if row not in LINEAR}  # fmt: skip
        for one in found:
            here, error = one.value(metric), np.nan_to_num(one.error(metric))
            values[one.choice.row] = (here, here - error, here + error)
        ordered = dict(sorted(values.items(), key=lambda entry: -entry[1][0]))
        name = f"{bench.key}-{page.anchor(metric)}"
        colours = [_OURS if row in LINEAR else _THEIRS for row in ordered]
        svg = plots.intervals(Labels(name, f"{NAMES[metric]} on {bench.label}", NAMES[metric]), ordered, colours)
        drawn.append(Figure(svg, f"{NAMES[metric]} on the test part of {bench.label}: ours with hyper-parameters "
                                 "chosen on validation data, ± one standard error over users."))  # fmt: skip
    return drawn
