"""``b-sensitivity``: Recall@20 and NDCG@20 over b, where they peak, and whether that is where the paper says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from deql._system.tables import Cell, Grid, number, p_value
from deql.datasets.public import PRESETS
from deql.evaluation.significance import LEVEL
from deql.paper.document import Figure, Section
from deql.paper.hyperparameters import ORIGINS
from deql.paper.paper_datasets import PaperDataset
from deql.paper.published import METRICS, NAMES
from deql.paper.sensitivity_curves import (
    AFFORDABLE,
    ROW,
    FixedLambdaCurve,
    MetricCurve,
    SensitivityCurve,
    as_deql,
    at_fixed_l2,
    at_fixed_lambda,
)  # fmt: skip
from deql.paper.table_request import TableRequest
from deql.plotting import plots
from deql.plotting.plots import Labels
from deql.report import page
from deql.tuning.winner import CURVE

__all__ = ["b_sensitivity", "verdict"]

SHOWN = 2.0
"""Where the paper's figure ends; ours goes on only where something of interest lies beyond."""

NEAR = 0.9
"""A peak from here on is near b = a."""

Claim = Literal["below", "near", "above"]

_CLAIMS: dict[str, Claim] = {
    "ml20m": "below", "games": "below", "netflix": "below", "msd": "below", "amazon-book": "near", "yelp2018": "above",
}  # fmt: skip
_WHERE = {"below": "at some b > 0, before b exceeds a", "near": "near b = a or beyond it", "above": "at b > a"}


def b_sensitivity(request: TableRequest) -> tuple[str, list[Section]]:
    """The paper's figure of both metrics over b/a."""
    numbers: list[Grid] = []
    summary, sections = request.by_dataset(lambda dataset: _of_dataset(request, dataset, numbers))
    behind = [Section("The numbers behind the figures", grids=numbers)] if numbers else []
    return summary, [*sections, _READING, *behind]


def _of_dataset(request: TableRequest, dataset: PaperDataset, numbers: list[Grid]) -> tuple[str, Section]:
    """One data set; tables of all its values go to ``numbers``."""
    choices = [one for one in request.choices(dataset) if one.row == ROW and one.origin in ("found", "published")]
    choices = [one for place, one in enumerate(choices)
               if one.parameters not in [other.parameters for other in choices[:place]]]  # fmt: skip
    if not choices:
        return request.no_choices(dataset, ROW)
    heading, train = request.heading(dataset), dataset.first.train
    bs = sorted({*CURVE, *(as_deql(choice).b for choice in choices)})
    curves = [at_fixed_l2(request.log, dataset, choice, bs) for choice in choices]
    first = curves[0]
    evaluated = "1 user is evaluated" if first.users == 1 else f"{first.users:,} users are evaluated"
    words = [
        f"{ROW} with all but b fixed: {'; '.join(f'{one.fixed} ({ORIGINS[one.choice.origin]})' for one in curves)}. "
        f"{train.n_items / train.n_users:.2f} items per user in the training part; {evaluated}."
    ]
    numbers.append(_curve_grid(curves, heading))
    figures = [_figure(dataset, heading, curves, metric) for metric in METRICS]
    remarks = [sentence for one in curves for sentence in _tell(one, len(curves) > 1)]
    if len({tuple("" if line.flat else _side(line.peak_b) for line in one.lines) for one in curves}) > 1:
        remarks.append("The data are the same in all curves, so where one peaks depends on l2 and dropout, too.")
    dropped = as_deql(first.choice).dropout > 0
    fixed = at_fixed_lambda(request.log, dataset, first.choice) if dropped else None
    if fixed is not None:
        numbers.append(_fixed_grid(fixed, heading))
        figures += [_fixed_figure(dataset, heading, fixed, first.chosen, metric) for metric in METRICS]
        remarks.append(_tell_fixed(fixed, first))
    elif dropped:
        remarks.append(
            f"The curve at a fixed λ, as the paper draws it, takes an inverse for each b: with {train.n_items:,} items "
            f"(more than {AFFORDABLE:,}) it is left out here; on a GPU, --engine torch makes it."
        )
    else:
        remarks.append("Nothing is dropped here, so every b above 0 gives one model.")
    held, lines = ("l2", first.lines) if fixed is None else ("λ", fixed.lines)
    agrees, compared = _compare(dataset, lines, held)
    key = [f"{ORIGINS[one.choice.origin]}: {one.fixed}" for one in curves] if len(curves) > 1 else []
    peaks = ", ".join(
        f"{NAMES[line.metric]} {_peaks(line)}" + (
            "" if line.flat else f", {_side(b)} ({line.gain(b):+.4f} over b = 0)" if (b := line.peak_b)
            else ", which is EDLAE"
        )
        for line in lines
    )  # fmt: skip
    return f"{heading}: at a fixed {held}, {peaks}; {agrees}.", Section(
        heading, words, [_peak_grid(one) for one in curves], key, figures, [*remarks, compared]
    )


def verdict(line: MetricCurve, claim: Claim) -> tuple[bool | None, str]:
    """Whether a peak lies where it is said to, in a sentence; None where the users evaluated do not decide.

    They decide if every b on the other side of the claim is told from the peak: those outside it where the peak is
    where it should be, those inside where it is not.

    Examples
    --------
    >>> under_peak = [0.01, 0.02, 1, 0.01]
    >>> line = MetricCurve("ndcg@20", [0, 1, 2, 3], [0.1, 0.3, 0.4, 0.2], [1, 0.01, 0.01, 0.01], under_peak)
    >>> verdict(line, "above")[0], verdict(line, "below")[0]
    (True, False)
    >>> print(verdict(line, "above")[1])
    NDCG@20 peaks at b = 2, which agrees; b = 1, which would not, is hardest to tell from it, 0.1000 less (p = 0.0200).
    """
    name = NAMES[line.metric]
    if line.flat:
        return None, f"{name} {_peaks(line)}: that decides nothing."
    agrees = _as_claimed(line.peak_b, claim)
    rivals = [place for place, b in enumerate(line.b) if _as_claimed(b, claim) != agrees]
    p_values = [1.0 if math.isnan(p) else p for p in line.under_peak]
    hardest = max(rivals, key=lambda place: (p_values[place], line.means[place]))
    p, b = line.under_peak[hardest], line.b[hardest]
    rival = f"b = {b:g}, which would{' not' * agrees}, is"
    less = f"{_amount(gain)} less{_p(p)}" if (gain := line.gain(line.peak_b, b)) else ""
    if p < LEVEL:
        told = "agrees" if agrees else "does not agree"
        return agrees, f"{name} {_peaks(line)}, which {told}; {rival} hardest to tell from it, {less}."
    told = "would agree" if agrees else "would not agree"
    close = f"only {less}" if less else "as good"
    return None, f"{name} {_peaks(line)}, which {told}, but {rival} {close}: that decides nothing."


def _as_claimed(b: float, claim: Claim) -> bool:
    return {"below": 0 < b <= 1, "near": b >= NEAR, "above": b > 1}[claim]


def _peaks(line: MetricCurve) -> str:
    """Where a curve peaks; at its end that is no peak, and a flat one has none."""
    if line.flat:
        return "is the same at every b"
    if line.peak == len(line.b) - 1:
        return f"still rises at b = {line.b[-1]:g}, the largest tried"
    return f"peaks at b = {line.peak_b:g}"


def _p(value: float, more: str = "") -> str:
    """A p-value in brackets, and ``more`` of it; nothing where there is none."""
    if math.isnan(value):
        return ""
    return f" (p < {text[1:]}{more})" if (text := p_value(value)).startswith("<") else f" (p = {text}{more})"


def _amount(difference: float) -> str:
    """Four decimals of a difference above zero, and never those of none.

    Examples
    --------
    >>> _amount(0.01234), _amount(0.00001)
    ('0.0123', 'less than 0.0001')
    """
    return f"{difference:.4f}" if difference >= 0.0001 else "less than 0.0001"


def _side(b: float) -> str:
    return "below a" if b < 1 else "at a" if b == 1 else "above a"


def _compare(dataset: PaperDataset, lines: Sequence[MetricCurve], held: str) -> tuple[str, str]:
    """Whether the peaks lie where the paper says: in a few words, and in sentences."""
    train = dataset.first.train
    ratio, yelp = train.n_items / train.n_users, PRESETS["yelp2018"].paper.item_user_ratio
    claim = _CLAIMS.get(dataset.name)
    if claim is None:
        claim = "near" if ratio > 1 else "below"
        of = f"of data with so {'many' if ratio > 1 else 'few'} items per user ({ratio:.2f}; Yelp2018 has {yelp:.2f})"
        says = (
            f"The paper does not say where the curve of {dataset.label} peaks. It puts a peak near b = a or beyond it "
            f"down to many items per user; with {ratio:.2f} of them ({yelp:.2f} on Yelp2018) the curve should peak "
            f"{_WHERE[claim]}."
        )
    else:
        of = f"of {dataset.label}"
        says = f"The paper says that the curve of {dataset.label} peaks {_WHERE[claim]}."
    told = {line.metric: verdict(line, claim) for line in lines}
    agree = {metric: one for metric, (one, _) in told.items()}
    on = "as the paper's curve is" if held == "λ" else "which the paper's curve is not"
    sentences = [says, f"At a fixed {held}, {on}:", *(sentence for _, sentence in told.values())]
    if dataset.name not in _CLAIMS and ratio > yelp and set(agree.values()) == {False}:
        sentences.append("So more items per user than Yelp2018 has do not put the peak there by themselves.")
    return _agreement(agree, of), " ".join(sentences)


def _agreement(agree: Mapping[str, bool | None], of: str) -> str:
    """In a few words, whether the metrics agree with what the paper says ``of`` some data."""
    yes, no, open_ = ([NAMES[metric] for metric, one in agree.items() if one is which] for which in (True, False, None))
    if not yes and not no:
        return f"the users evaluated do not decide whether that is what the paper says {of}"
    if yes and no:
        return f"that is what the paper says {of} by {yes[0]}, and not by {no[0]}"
    undecided = f" by {(yes or no)[0]}, and undecided by {open_[0]}" if open_ else ""
    return f"that is {'' if yes else 'not '}what the paper says {of}{undecided}"


def _tell(curve: SensitivityCurve, several: bool) -> list[str]:
    """Where the curves of a choice peak, and what that is worth."""
    of = f" ({ORIGINS[curve.choice.origin]})" if several else ""
    chosen = curve.chosen if curve.choice.origin == "found" else None
    return [_tell_line(line, of, chosen) for line in curve.lines]


def _tell_line(line: MetricCurve, of: str, chosen: float | None) -> str:
    peak, name, top = line.peak_b, NAMES[line.metric], number(line.means[line.peak])
    if line.flat:
        return f"{name}{of} {_peaks(line)}, {top}."
    if peak == 0:
        text = f"{name}{of} peaks at b = 0, which is EDLAE, with {top}: no larger b that was tried is better."
    else:
        text = (
            f"{name}{of} {_peaks(line)}, {_side(peak)}, with {top}: {line.gain(peak):+.4f} over b = 0"
            f"{_p(line.over_zero[line.peak], ', read off the peak')}"
        )
        if peak != 1:
            text += f", and {line.gain(peak, 1.0):+.4f} over b = a{_p(line.under_peak[line.b.index(1.0)])}"
        text += "."
    low, high = line.as_good
    text += f" b from {low:g} to {high:g} cannot be told from the peak." if low < high else ""
    return text if chosen is None else f"{text} {_tell_chosen(line, chosen)}"


def _tell_chosen(line: MetricCurve, chosen: float) -> str:
    """What the b is worth that validation data chose: unlike the peak, it was not picked on these users."""
    place, gain = line.b.index(chosen), line.gain(chosen)
    told = []
    if chosen > 0 and line.peak > 0:
        p = line.over_zero[place]
        chance = "more than chance" if p < LEVEL else "which may be chance" if gain > 0 else "no gain"
        told.append(f"has {f'{gain:+.4f}'.replace('-', '−')} over b = 0, {chance}{_p(p)}")
    below = line.gain(line.peak_b, chosen)
    if below:
        told.append(f"is {_amount(below)} below the peak{_p(line.under_peak[place])}")
    elif place != line.peak:
        told.append("is as good as the peak")
    return f"b = {chosen:g}, which validation data chose, {', and '.join(told) or 'is that'}."


def _tell_fixed(fixed: FixedLambdaCurve, curve: SensitivityCurve) -> str:
    peaks = "; ".join(
        f"{NAMES[line.metric]} then {_peaks(line)} with {number(line.means[line.peak])} (at a fixed l2: "
        f"{'any b' if other.flat else f'b = {other.peak_b:g}'}, {number(other.means[other.peak])})"
        for line, other in zip(fixed.lines, curve.lines, strict=True)
    )  # fmt: skip
    return (
        f"At a fixed λ of {fixed.lam:.3g}, as the paper draws it, b moves l2 from {fixed.l2[0]:.3g} at b = 0 to "
        f"{fixed.l2[-1]:.3g} at b = {fixed.b[-1]:g}. {peaks}."
    )


def _peak_grid(curve: SensitivityCurve) -> Grid:
    rows = []
    for line in curve.lines:
        peak = [] if line.flat else [("peak", line.peak_b)]
        for name, b in (*peak, (ORIGINS[curve.choice.origin], curve.chosen)):
            place = line.b.index(b)
            texts = [f"{b:g}", number(line.means[place]), f"{line.gain(b):+.4f}", p_value(line.over_zero[place]),
                     f"{line.gain(b, 1.0):+.4f}"]  # fmt: skip
            rows.append(([NAMES[line.metric], name], [Cell(text) for text in texts]))
    header = ["metric", "which b", "b", "value", "over b = 0", "p", "over b = a"]
    return Grid(f"Peaks at {curve.fixed}, {ORIGINS[curve.choice.origin]}", header, rows)


def _curve_grid(curves: Sequence[SensitivityCurve], heading: str) -> Grid:
    curves = list({one.fixed: one for one in curves}.values())  # with only another b chosen it is the same curve
    at = [f" at {one.fixed}" * (len(curves) > 1) for one in curves]
    header = [NAMES[line.metric] + fixed for one, fixed in zip(curves, at, strict=True) for line in one.lines]
    lines = [line for one in curves for line in one.lines]
    rows = [([f"{b:g}"], _values_at(place, lines)) for place, b in enumerate(lines[0].b)]
    return Grid(f"{heading}: all values of b", ["b", *header], rows)


def _fixed_grid(fixed: FixedLambdaCurve, heading: str) -> Grid:
    rows = [([f"{b:g}"], [Cell(f"{l2:.4g}"), *_values_at(place, fixed.lines)])
            for place, (b, l2) in enumerate(zip(fixed.b, fixed.l2, strict=True))]  # fmt: skip
    return Grid(f"{heading}: at a fixed λ of {fixed.lam:.4g}", ["b", "l2", *NAMES.values()], rows)


def _values_at(place: int, lines: Sequence[MetricCurve]) -> list[Cell]:
    return [Cell(number(line.means[place]), best=place == line.peak) for line in lines]


def _figure(dataset: PaperDataset, heading: str, curves: Sequence[SensitivityCurve], metric: str) -> Figure:
    lines = [one.lines[METRICS.index(metric)] for one in curves]
    chosen = [one.chosen for one in curves]
    beyond = max(*chosen, *(line.peak_b for line in lines)) > SHOWN
    shown = [b for b in lines[0].b if beyond or b <= SHOWN]
    title = f"{NAMES[metric]} by b on {heading}"
    labels = Labels(f"{dataset.key}-b-{page.anchor(metric)}", title, "b", NAMES[metric])
    svg = plots.peaks(labels, shown, [line.means[: len(shown)] for line in lines], chosen)
    told = f"{NAMES[metric]} on the test part of {heading} by b, at a fixed l2. Star: the peak; ring: the chosen b."
    return Figure(svg, told)


def _fixed_figure(dataset: PaperDataset, heading: str, fixed: FixedLambdaCurve, chosen: float, metric: str) -> Figure:
    title = f"{NAMES[metric]} by b at a fixed λ on {heading}"
    labels = Labels(f"{dataset.key}-lambda-{page.anchor(metric)}", title, "b", NAMES[metric])
    svg = plots.peaks(labels, fixed.b, [fixed.lines[METRICS.index(metric)].means], [chosen])
    told = f"{NAMES[metric]} on the test part of {heading} by b, at a fixed λ as in the paper: each b has another l2."
    return Figure(svg, told)


_READING = Section("How to read it", [
    "b = 0 is EDLAE and b = a is DLAE (a = 1 throughout). Each curve holds dropout p and l2, the ridge as the Gram "
    "matrix sees it, so all of its models share one inverse and only b differs. The paper holds λ instead, and then b "
    "moves the ridge too: l2 = λ/((1−p)²·κ) with κ = p + (1−p)·b². What it says of a peak is checked on a curve at a "
    "fixed λ where there is one.",
    "A peak is where the paper says, or is not, only if a test over users tells it from every b of the other side; "
    "else nothing is decided.",
    "p-values are of one-sided paired t-tests over the users evaluated. A peak is read off the test part, so its "
    "p-values are optimistic; that of the b that validation data chose is not.",
])  # fmt: skip
