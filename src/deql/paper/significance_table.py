"""``significance``: the best models on five seeded splits, and whether their differences are more than chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql._system.tables import Cell, Grid, number, p_value
from deql.evaluation.model_groups import fit_and_evaluate
from deql.evaluation.panels import mean_interval
from deql.evaluation.significance import LEVEL
from deql.paper.document import Figure, Section
from deql.paper.hyperparameters import Choice
from deql.paper.measurement_log import MeasurementLog, hyper_parameters
from deql.paper.paper_datasets import PaperDataset, fingerprint
from deql.paper.published import METRICS, NAMES, WEIGHTED, reported
from deql.paper.split_tests import Pair, SplitTest, difference_sums, null, split_tests, values_on
from deql.paper.table_request import MetricRow, TableRequest, metric_grid
from deql.plotting import plots
from deql.plotting.plots import Labels
from deql.report import page
from deql.split import Split

__all__ = ["SEEDS", "significance"]

SEEDS = tuple(range(5))

EDLAE, ZERO, FREE = "EDLAE", "DEQL(L2+zero-diag)", "DEQL(L2)"
ABLATED = f"{FREE}, diagonal set to 0"
ROWS = (EDLAE, ZERO, FREE, ABLATED, WEIGHTED)

PAIRS: tuple[Pair, ...] = ((FREE, ZERO), (FREE, EDLAE), (FREE, ABLATED), (WEIGHTED, FREE), (WEIGHTED, EDLAE))
"""Null hypotheses “the first is no better than the second”: the paper's two, and those of rows it does not have."""


def significance(request: TableRequest) -> tuple[str, list[Section]]:
    """The tables of five splits and of their tests."""
    summary, sections = request.by_dataset(lambda dataset: _of_dataset(request, dataset))
    return summary, [*sections, *([Section("What five splits can show", _CAVEATS)] if summary else [])]


def _of_dataset(request: TableRequest, dataset: PaperDataset) -> tuple[str, Section]:
    known = {row: one for row in ROWS if (one := request.found(dataset, row)) is not None}
    if unknown := [row for row in (EDLAE, ZERO, FREE) if row not in known]:
        return request.no_choices(dataset, " and ".join(unknown))
    parameters = {name: value for name, value in known[FREE].parameters.items() if name != "b"}
    known[ABLATED] = replace(known[FREE], row=ZERO, parameters=parameters)
    comparison = _compare(request.log, dataset, {row: known[row] for row in ROWS if row in known})
    return comparison.summary(), comparison.section()


def _model_of(choices: Mapping[str, Choice]) -> dict[str, str]:
    """For each row the first that is the same model.

    With a zero diagonal b does not matter (eq. 17), and with b = 0 the diagonal is zero.
    """
    first: dict[tuple[float, ...], str] = {}
    rows = {}
    for row, choice in choices.items():
        known = hyper_parameters(choice.model())
        b = 0.0 if known.get("zero_diagonal", True) else known["b"]  # EDLAE has neither
        identity = (b, *(known[name] for name in ("l2", "dropout", "user_power", "popularity_power")))
        rows[row] = first.setdefault(identity, row)
    return rows


def _compare(log: MeasurementLog, dataset: PaperDataset, choices: Mapping[str, Choice]) -> _SplitComparison:
    """Measure each model on each split, in the order of the seeds, or find that in the journal; and test the pairs."""
    model_of = _model_of(choices)
    measured = {row: choices[row] for row in dict.fromkeys(model_of.values())}
    splits = []
    met = dataset.first.test.held_out.users[:0]
    arithmetic = log.machine.get("arithmetic")
    for seed in SEEDS:
        split = dataset.first if seed == 0 else dataset.split(seed)
        users = split.test.held_out.users
        new = users[~np.isin(users, met)]
        key = {"data": dataset.key, "split": fingerprint(split)} | {
            row: " ".join(f"{name}={float(value)}" for name, value in choice.parameters.items())
            for row, choice in measured.items()
        }
        key |= {"precision": arithmetic} if arithmetic else {}
        told = f"{dataset.label}, split {seed + 1} of {len(SEEDS)}"
        found = log.get_or_measure(f"split {seed}", key, partial(_evaluate, log, split, measured, new, told))["found"]
        splits.append(found | {"means": {row: found["means"][model] for row, model in model_of.items()}})
        met = np.concatenate([met, new])
    pairs = [pair for pair in PAIRS if choices.keys() >= {*pair}]
    return _SplitComparison(dataset, choices, model_of, splits, split_tests(splits, pairs, model_of))


def _evaluate(
    log: MeasurementLog, split: Split, choices: Mapping[str, Choice], new: NDArray[Any], told: str
) -> dict[str, Any]:
    """Means of each model, and sums of each pair's differences over the users ``new``.

    A user who is evaluated on several splits counts on the first.
    """
    models = {row: choice.model(**log.machine) for row, choice in choices.items()}
    results = fit_and_evaluate(
        models, split.train, split.test, METRICS, lambda names: log.tell(f"{told}: fitting {names}")
    )
    users = next(iter(results.values())).users
    counted = np.isin(users, new)
    sums = {
        null((better, other)): {
            metric: difference_sums((results[better].per_user[metric] - results[other].per_user[metric])[counted])
            for metric in METRICS
        }
        for better, other in permutations(choices, 2)
    }
    means = {row: result.means for row, result in results.items()}
    return {"means": means, "sums": sums, "users": len(users), "train": split.train.n_users}


@dataclass(frozen=True)
class _SplitComparison:
    """What was found on each split of a data set, and the tests; ``model_of`` is as :func:`_model_of` has it."""

    dataset: PaperDataset
    choices: Mapping[str, Choice]
    model_of: Mapping[str, str]
    splits: Sequence[Mapping[str, Any]]
    tests: Sequence[SplitTest]

    def section(self) -> Section:
        evaluated = [split["users"] for split in self.splits]
        users = (
            f"{min(evaluated):,}" if min(evaluated) == max(evaluated) else f"{min(evaluated):,} to {max(evaluated):,}"
        )
        are = "user is" if users == "1" else "users are"
        words = [f"Seeds {SEEDS[0]} to {SEEDS[-1]}; {users} {are} evaluated on each split."]
        colours = list(dict.fromkeys(self.model_of.values()))
        remarks = [*_identities(self.choices, self.model_of, self.tests), *self.dataset.caveat]
        return Section(self.dataset.label, words, self.grids(), colours, _figures(self), remarks)

    def grids(self) -> list[Grid]:
        """tb:3, mean ± standard deviation, the paper's beside ours; tb:4; and every value, for anyone to test again."""
        rows = []
        for row, choice in self.choices.items():
            several = [values_on(self.splits, row, metric) for metric in METRICS]
            means, deviations = zip(*((float(one.mean()), float(one.std(ddof=1))) for one in several), strict=True)
            rows.append(MetricRow(row, choice.words, means, [number(one) for one in deviations]))
        title = f"Mean ± standard deviation over {len(SEEDS)} splits"
        lines = [([row, NAMES[metric]], [Cell(number(value)) for value in values_on(self.splits, row, metric)])
                 for metric in METRICS for row in self.choices]  # fmt: skip
        return [
            metric_grid(title, rows, reported("splits", self.dataset.name)),
            _tests_grid(self.dataset, self.tests),
            Grid("On each split", ["model", "metric", *(f"seed {seed}" for seed in SEEDS)], lines),
        ]

    def summary(self) -> str:
        """How DEQL(L2) and EDLAE compare, and how often the paper's decision is met, in one or two sentences."""
        paper = {((FREE, row), metric): p for row, several in reported("tests", self.dataset.name).items()
                 for metric, p in zip(METRICS, several, strict=True)}  # fmt: skip
        parts = []
        for test in (test for test in self.tests if test.pair == (FREE, EDLAE)):
            beside = f"; paper: {p_value(paper[test.pair, test.metric])}" if paper else ""
            known = f"p = {p_value(test.p)}{beside}" if test.made else "the same values"
            difference = f"{test.differences.mean():+.4f}".replace("-", "−")
            parts.append(f"{difference} in {NAMES[test.metric]} ({known})")
        told = f"{self.dataset.label}: over {len(SEEDS)} splits {FREE} differs from EDLAE by {' and '.join(parts)}."
        if not paper:
            return told
        made = [test for test in self.tests if (test.pair, test.metric) in paper and test.made]
        met = sum((test.p < LEVEL) == (paper[test.pair, test.metric] < LEVEL) for test in made)
        if not made:
            return f"{told} None of the paper's {len(paper)} decisions could be tested here."
        if len(made) < len(paper):
            told += f" {len(made)} of the paper's {len(paper)} decisions could be tested here, and {met} of them"
        else:
            told += f" {met} of the paper's {len(paper)} decisions"
        one_model = self.model_of[ZERO] == EDLAE
        shared = f"; one test serves both null hypotheses, as {ZERO} is EDLAE here" * one_model
        return f"{told} come out the same{shared}."


def _tests_grid(dataset: PaperDataset, tests: Sequence[SplitTest]) -> Grid:
    """tb:4, with what can be said beyond it: corrected for many tests and for splits that overlap, and over users."""
    paper = reported("tests", dataset.name)
    rows = []
    for test in sorted(tests, key=lambda test: PAIRS.index(test.pair)):
        texts = [f"{test.differences.mean():+.4f}"]
        if paper:
            told = paper.get(test.pair[1]) if test.pair[0] == FREE else None
            texts.append(_decided(math.nan if told is None else told[METRICS.index(test.metric)]))
        texts += [_decided(test.p), *map(p_value, (test.holm, test.overlap, test.users))]
        rows.append(([null(test.pair), NAMES[test.metric]], [Cell(text) for text in texts]))
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


def _identities(choices: Mapping[str, Choice], model_of: Mapping[str, str], tests: Sequence[SplitTest]) -> list[str]:
    """Rows that are a model of another name, tests that could not be made, and what the row of our own is for."""
    remarks = []
    if model_of[ZERO] == EDLAE:
        remarks.append(
            f"{ZERO} is EDLAE here: with one l2 and one dropout the two are the same matrix whatever b is (eq. 17), "
            "and the paper's differ because its λ makes another l2 of it. The same model, the same test: one serves "
            "both of the paper's null hypotheses."
        )
    remarks += [f"{row} is the same model as {model} here." for row, model in model_of.items()
                if row != model and (row, model) != (ZERO, EDLAE)]  # fmt: skip
    for row, b, name in ((FREE, 1, "DLAE"), (WEIGHTED, 0, "EDLAE with weights")):
        if row in choices and hyper_parameters(choices[row].model())["b"] == b:
            remarks.append(f"{row} has b = {b} here, which makes it {name}.")
    remarks.append(
        f"“{ABLATED}” has the l2 and dropout that were chosen for {FREE}, not for a zero diagonal: it shows what the "
        "diagonal alone does. The paper has no such row, and its test is none of the paper's."
    )
    untested: dict[str, list[str]] = {}
    for test in (test for test in tests if not test.made):
        untested.setdefault(null(test.pair), []).append(NAMES[test.metric])
    for hypothesis, metrics in untested.items():
        by = f" by {metrics[0]}" if len(metrics) < len(METRICS) else ""
        remarks.append(f"{hypothesis} cannot be tested{by}: the two have the same values on every split.")
    return remarks


def _figures(comparison: _SplitComparison) -> list[Figure]:
    """Values of the models and differences of the pairs, each once though it may have several names."""
    drawn = []
    model_of, label = comparison.model_of, comparison.dataset.label
    models = list(dict.fromkeys(model_of.values()))
    for metric in METRICS:
        name, shown = f"{comparison.dataset.key}-{page.anchor(metric)}", NAMES[metric]
        values = {row: values_on(comparison.splits, row, metric) for row in models}
        svg = plots.splits(Labels(f"{name}-values", f"{shown} on each split of {label}", shown), values)
        drawn.append(Figure(svg, f"{shown} on each of {len(SEEDS)} splits of {label}; the stroke is the mean."))
        made = {
            " − ".join(model_of[row] for row in test.pair):
                (models.index(model_of[test.pair[1]]), test.differences, mean_interval(test.differences))
            for test in comparison.tests if test.metric == metric and test.made
        }  # fmt: skip
        if made:
            title = f"Differences of {shown} on each split of {label}"
            svg = plots.differences(Labels(f"{name}-differences", title, f"difference of {shown}"), made)
            drawn.append(Figure(svg, f"{title}, with the mean and its 95 % interval (Student's t)."))
    return drawn


_CAVEATS = [
    "Five splits leave a t-test four degrees of freedom. A difference is told from chance only where its mean is "
    "about as large as its standard deviation over splits (0.95 of it, t > 2.13), and that deviation is itself hardly"
    " known: the true one may be 0.6 to 2.9 times as large. Acc means that the splits do not show a difference, not "
    "that there is none.",
    "The splits are drawn from the same users: two of them share most of their training users, and users who are "
    "evaluated on one are learned from on others. The t-test takes the differences to be independent, which they are "
    "not, so its p-values are too low. For “p overlap” the variance of the mean difference is not s²/n but s²·(1/n + "
    "evaluated users ÷ training users), Nadeau and Bengio's correction for such splits. “p Holm” is the plain p-value, "
    "corrected for all tests by the same metric on the same data.",
    "“p users” is a t-test over users instead of splits: a user counts once, on the first split that evaluates them. "
    "It says whether other users of this kind would see the difference, and has far more pairs than there are splits.",
    "Hyper-parameters were chosen once, on the validation users of the split with seed 0, and hold for all splits, as"
    " the paper's, chosen on one split, do. Some of those validation users are evaluated on the other splits.",
]
