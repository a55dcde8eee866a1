"""``significance``: the best models on five seeded splits, and whether their differences are more than chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql._system.tables import Cell, Grid, number, p_value
from deql.evaluation.comparison import LEVEL
from deql.evaluation.model_groups import fit_and_evaluate
from deql.paper.document import Figure, Section
from deql.paper.hyperparameters import Choice
from deql.paper.paired import Pair, SplitTest, difference_sums, null, split_tests, values_on
from deql.paper.paper_datasets import Bench, fingerprint
from deql.paper.published import METRICS, NAMES, WEIGHTED, reported
from deql.paper.registry import Order, beside_paper, compared_heads
from deql.paper.runs import Run, hyper_parameters
from deql.report import page, plots
from deql.report.comparison_page import mean_interval
from deql.report.plots import Labels
from deql.split import Split

__all__ = ["SEEDS", "significance"]

SEEDS = tuple(range(5))

EDLAE, ZERO, FREE = "EDLAE", "DEQL(L2+zero-diag)", "DEQL(L2)"
ABLATED = f"{FREE}, diagonal set to 0"
ROWS = (EDLAE, ZERO, FREE, ABLATED, WEIGHTED)

PAIRS: tuple[Pair, ...] = ((FREE, ZERO), (FREE, EDLAE), (FREE, ABLATED), (WEIGHTED, FREE), (WEIGHTED, EDLAE))
"""Null hypotheses “the first is no better than the second”: the paper's two, and those of rows it does not have."""


def significance(order: Order) -> tuple[str, list[Section]]:
    """The tables of five splits and of their tests."""
    sections, leads = [], []
    for bench in order.benches:
        choices = _contestants(order, bench)
        if not choices:
            missing = [row for row in (EDLAE, ZERO, FREE) if order.found(bench, row) is None]
            sections.append(order.unchosen(bench, " and ".join(missing)))
            continue
        model_of = _model_of(choices)
        splits = _measure(order.run, bench, choices, model_of)
        tests = split_tests(splits, _pairs(choices), model_of)
        sections.append(_section(bench, choices, model_of, splits, tests))
        leads.append(_lead(bench, tests, model_of[ZERO] == EDLAE))
    if leads:
        sections.append(Section("What five splits can show", _CAVEATS))
    return " ".join(leads), sections


def _contestants(order: Order, bench: Bench) -> dict[str, Choice]:
    """The choice for each row; none if one of the paper's three is not known."""
    known = {row: one for row in ROWS if (one := order.found(bench, row)) is not None}
    if not {EDLAE, ZERO, FREE} <= known.keys():
        return {}
    parameters = {name: value for name, value in known[FREE].parameters.items() if name != "b"}
    known[ABLATED] = replace(known[FREE], row=ZERO, parameters=parameters)
    return {row: known[row] for row in ROWS if row in known}


def _model_of(choices: Mapping[str, Choice]) -> dict[str, str]:
    """For each row the first that is the same model.

    With a zero diagonal b does not matter (eq:11), and with b = 0 the diagonal is zero.
    """
    first: dict[tuple[float, ...], str] = {}
    rows = {}
    for row, choice in choices.items():
        known = hyper_parameters(choice.model())
        b = 0.0 if known.get("zero_diagonal", True) else known["b"]  # EDLAE has neither
        identity = (b, *(known[name] for name in ("l2", "dropout", "user_power", "popularity_power")))
        rows[row] = first.setdefault(identity, row)
    return rows


def _pairs(rows: Mapping[str, Choice]) -> list[Pair]:
    return [(better, other) for better, other in PAIRS if better in rows and other in rows]


def _measure(
    run: Run, bench: Bench, choices: Mapping[str, Choice], model_of: Mapping[str, str]
) -> list[dict[str, Any]]:
    """What was found on each split, in the order of the seeds; each model is measured once."""
    several = []
    measured = {row: choices[row] for row in dict.fromkeys(model_of.values())}
    met = bench.first.test.held_out.users[:0]
    precision = run.machine.get("precision")
    for seed in SEEDS:
        split = bench.first if seed == 0 else bench.split(seed)
        users = split.test.held_out.users
        new = users[~np.isin(users, met)]
        key = {"data": bench.key, "split": fingerprint(split)} | {
            row: " ".join(f"{name}={float(value)}" for name, value in choice.parameters.items())
            for row, choice in measured.items()
        }
        key |= {"precision": precision} if precision else {}
        told = f"{bench.label}, split {seed + 1} of {len(SEEDS)}"
        found = run.remember(f"split {seed}", key, partial(_judge, run, split, measured, new, told))["found"]
        several.append(found | {"means": {row: found["means"][model] for row, model in model_of.items()}})
        met = np.concatenate([met, new])
    return several


def _judge(run: Run, split: Split, choices: Mapping[str, Choice], new: NDArray[Any], told: str) -> dict[str, Any]:
    """Means of each model, and sums of each pair's differences over the users ``new``.

    A user who is judged on several splits counts on the first.
    """
    models = {row: choice.model(**run.machine) for row, choice in choices.items()}
    judged = fit_and_evaluate(
        models, split.train, split.test, METRICS, lambda names: run.say(f"{told}: fitting {names}")
    )
    users = next(iter(judged.values())).users
    counted = np.isin(users, new)
    sums = {
        null((better, other)): {
            metric: difference_sums((judged[better].per_user[metric] - judged[other].per_user[metric])[counted])
            for metric in METRICS
        }
        for better, other in permutations(choices, 2)
    }
    means = {row: result.means for row, result in judged.items()}
    return {"means": means, "sums": sums, "users": len(users), "train": split.train.n_users}


def _section(
    bench: Bench, choices: Mapping[str, Choice], model_of: Mapping[str, str], splits: Sequence[dict[str, Any]],
    tests: Sequence[SplitTest],
) -> Section:  # fmt: skip
    judged = [split["users"] for split in splits]
    users = f"{min(judged):,}" if min(judged) == max(judged) else f"{min(judged):,} to {max(judged):,}"
    are = "user is" if users == "1" else "users are"
    words = [f"Seeds {SEEDS[0]} to {SEEDS[-1]}; {users} {are} judged on each split."]
    grids = [_means_grid(bench, choices, splits), _tests_grid(bench, tests), _splits_grid(list(choices), splits)]
    colours = list(dict.fromkeys(model_of.values()))
    remarks = [*_identities(choices, model_of, tests), *bench.caveat]
    return Section(bench.label, words, grids, colours, _figures(bench, model_of, splits, tests), remarks)


def _means_grid(bench: Bench, choices: Mapping[str, Choice], splits: Sequence[dict[str, Any]]) -> Grid:
    """tb:3: mean ± standard deviation over the splits, the paper's beside ours."""
    paper = reported("splits", bench.name)
    means = {metric: {row: float(values_on(splits, row, metric).mean()) for row in choices} for metric in METRICS}
    rows = []
    for row, choice in choices.items():
        cells = []
        for place, metric in enumerate(METRICS):
            here = means[metric][row]
            shown = Cell(number(here), number(float(values_on(splits, row, metric).std(ddof=1))),
                         best=here == max(means[metric].values()))  # fmt: skip
            there = paper[row][2 * place : 2 * place + 2] if row in paper else None
            cells += beside_paper(shown, here, there) if paper else [shown]
        rows.append(([row, choice.words], cells))
    header = ["model", "hyper-parameters", *compared_heads(bool(paper))]
    return Grid(f"Mean ± standard deviation over {len(SEEDS)} splits", header, rows)


def _tests_grid(bench: Bench, tests: Sequence[SplitTest]) -> Grid:
    """tb:4, with what can be said beyond it: corrected for many tests and for splits that overlap, and over users."""
    paper = reported("tests", bench.name)
    rows = []
    for test in sorted(tests, key=lambda test: PAIRS.index((test.better, test.other))):
        cells = [Cell(f"{test.differences.mean():+.4f}")]
        if paper:
            told = paper.get(test.other) if test.better == FREE else None
            cells.append(Cell("–" if told is None else _decided(told[METRICS.index(test.metric)])))
        cells += [Cell(_decided(test.p)), *(Cell(p_value(p)) for p in (test.holm, test.overlap, test.users))]
        rows.append(([test.null, NAMES[test.metric]], cells))
    header = ["null hypothesis", "metric", "difference", *(["paper"] if paper else []), "here", "p Holm", "p overlap",
              "p users"]  # fmt: skip
    return Grid(f"One-sided paired t-tests over {len(SEEDS)} splits, rejected or accepted at {LEVEL:g}", header, rows)


def _decided(p: float) -> str:
    """A p-value after what the paper makes of it.

    Examples
    --------
    >>> _decided(0.0083), _decided(0.4), _decided(math.nan)
    ('Rej 0.0083', 'Acc 0.4000', '–')
    """
    return "–" if math.isnan(p) else f"{'Rej' if p < LEVEL else 'Acc'} {p_value(p)}"


def _splits_grid(rows: Sequence[str], splits: Sequence[dict[str, Any]]) -> Grid:
    """Every value, so that anyone can test them again."""
    lines = [([row, NAMES[metric]], [Cell(number(value)) for value in values_on(splits, row, metric)])
             for metric in METRICS for row in rows]  # fmt: skip
    return Grid("On each split", ["model", "metric", *(f"seed {seed}" for seed in SEEDS)], lines)


def _identities(choices: Mapping[str, Choice], model_of: Mapping[str, str], tests: Sequence[SplitTest]) -> list[str]:
    """Rows that are a model of another name, tests that could not be made, and what the row of our own is for."""
    remarks = []
    if model_of[ZERO] == EDLAE:
        remarks.append(
            f"{ZERO} is EDLAE here: with one l2 and one dropout the two are the same matrix whatever b is (eq:11), and "
            "the paper's differ because its λ makes another l2 of it. The same model, the same test: one serves both of"
            " the paper's null hypotheses."
        )
    remarks += [f"{row} is the same model as {model} here." for row, model in model_of.items()
                if row != model and (row, model) != (ZERO, EDLAE)]  # fmt: skip
    b = {row: hyper_parameters(choices[row].model())["b"] for row in (FREE, WEIGHTED) if row in choices}
    if b[FREE] == 1:
        remarks.append(f"{FREE} has b = 1 here, which makes it DLAE.")
    if b.get(WEIGHTED) == 0:
        remarks.append(f"{WEIGHTED} has b = 0 here, which makes it EDLAE with weights.")
    remarks.append(
        f"“{ABLATED}” has the l2 and dropout that were chosen for {FREE}, not for a zero diagonal: it shows what the "
        "diagonal alone does. The paper has no such row, and its test is none of the paper's."
    )
    untested: dict[str, list[str]] = {}
    for test in (test for test in tests if not test.made):
        untested.setdefault(test.null, []).append(NAMES[test.metric])
    for hypothesis, metrics in untested.items():
        by = f" by {metrics[0]}" if len(metrics) < len(METRICS) else ""
        remarks.append(f"{hypothesis} cannot be tested{by}: the two have the same values on every split.")
    return remarks


def _figures(
    bench: Bench, model_of: Mapping[str, str], splits: Sequence[dict[str, Any]], tests: Sequence[SplitTest]
) -> list[Figure]:
    """Values of the models and differences of the pairs, each once though it may have several names."""
    drawn = []
    models = list(dict.fromkeys(model_of.values()))
    for metric in METRICS:
        name, shown = f"{bench.key}-{page.anchor(metric)}", NAMES[metric]
        values = {row: values_on(splits, row, metric) for row in models}
        svg = plots.splits(Labels(f"{name}-values", f"{shown} on each split of {bench.label}", shown), values)
        drawn.append(Figure(svg, f"{shown} on each of {len(SEEDS)} splits of {bench.label}; the stroke is the mean."))
        made = {
            f"{model_of[test.better]} − {model_of[test.other]}":
                (models.index(model_of[test.other]), test.differences, mean_interval(test.differences))
            for test in tests if test.metric == metric and test.made
        }  # fmt: skip
        if made:
            title = f"Differences of {shown} on each split of {bench.label}"
            svg = plots.differences(Labels(f"{name}-differences", title, f"difference of {shown}"), made)
            drawn.append(Figure(svg, f"{title}, with the mean and its 95 % interval (Student's t)."))
    return drawn


def _lead(bench: Bench, tests: Sequence[SplitTest], one_model: bool) -> str:
    """How DEQL(L2) and EDLAE compare, and how often the paper's decision is met, in one or two sentences."""
    paper = {(row, metric): p for row, several in reported("tests", bench.name).items()
             for metric, p in zip(METRICS, several, strict=True)}  # fmt: skip
    parts = []
    for test in (test for test in tests if (test.better, test.other) == (FREE, EDLAE)):
        beside = f"; paper: {p_value(paper[EDLAE, test.metric])}" if paper else ""
        known = f"p = {p_value(test.p)}{beside}" if test.made else "the same values"
        difference = f"{test.differences.mean():+.4f}".replace("-", "−")
        parts.append(f"{difference} in {NAMES[test.metric]} ({known})")
    told = f"{bench.label}: over {len(SEEDS)} splits {FREE} differs from EDLAE by {' and '.join(parts)}."
    if not paper:
        return told
    made = [test for test in tests if test.better == FREE and (test.other, test.metric) in paper and test.made]
    met = sum((test.p < LEVEL) == (paper[test.other, test.metric] < LEVEL) for test in made)
    if not made:
        return f"{told} None of the paper's {len(paper)} decisions could be tested here."
    shared = f"; one test serves both null hypotheses, as {ZERO} is EDLAE here" if one_model else ""
    if len(made) < len(paper):
        told += f" {len(made)} of the paper's {len(paper)} decisions could be tested here, and {met} of them"
    else:
        told += f" {met} of the paper's {len(paper)} decisions"
    return f"{told} come out the same{shared}."


_CAVEATS = [
    "Five splits leave a t-test four degrees of freedom. A difference is told from chance only where its mean is "
    "about as large as its standard deviation over splits (0.95 of it, t > 2.13), and that deviation is itself hardly"
    " known: the true one may be 0.6 to 2.9 times as large. Acc means that the splits do not show a difference, not "
    "that there is none.",
    "The splits are drawn from the same users: two of them share most of their training users, and users who are "
    "judged on one are learned from on others. The t-test takes the differences to be independent, which they are "
    "not, so its p-values are too low. For “p overlap” the variance of the mean difference is not s²/n but s²·(1/n + "
    "judged users ÷ training users), Nadeau and Bengio's correction for such splits. “p Holm” is the plain p-value, "
    "corrected for all tests by the same metric on the same data.",
    "“p users” is a t-test over users instead of splits: a user counts once, on the first split that judges them. It "
    "says whether other users of this kind would see the difference, and has far more pairs than there are splits.",
    "Hyper-parameters were chosen once, on the validation users of the split with seed 0, and hold for all splits, as"
    " the paper's, chosen on one split, do. Some of those validation users are judged on the other splits.",
]
