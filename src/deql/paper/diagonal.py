"""``diagonal``: how the learned diagonal of W is distributed, and how it goes with popularity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql._system.tables import Cell, Grid
from deql.paper.curves import ROW, as_deql
from deql.paper.document import Figure, Section
from deql.paper.hyperparameters import ORIGINS, Choice
from deql.paper.paper_datasets import Bench
from deql.paper.registry import Order
from deql.paper.runs import Run
from deql.report import plots
from deql.report.plots import Labels

__all__ = ["by_popularity", "diagonal", "distribution"]

MODES = (0.01, 0.10)
"""Between these, the paper says, are the modes of its histograms in general."""

LARGER = ("yelp2018", "amazon-book")
"""Where the paper finds larger values than elsewhere."""

BELOW = (0.01, 0.05, 0.1)
QUANTILES = {"1 %": 0.01, "10 %": 0.1, "median": 0.5, "90 %": 0.9, "99 %": 0.99, "largest": 1.0}
_BINS = 40
_FEW = 10

Facts = dict[str, Any]


def distribution(values: NDArray[np.float64]) -> Facts:
    """Quantiles, shares, and a histogram of a diagonal, as plain values.

    Bins are 0.01, 0.02 or 0.05 wide, or a power of ten of that, 40 to 100 of them up to the 99 % quantile; what lies
    beyond twice that quantile is counted as ``beyond``. The mode is the middle of the fullest bin.

    Examples
    --------
    >>> found = distribution(np.array([0.005, 0.0405, 0.0415, 0.09]))
    >>> found["width"], found["mode"], found["below"]
    (0.002, 0.041, [0.25, 0.75, 1.0])
    """
    high = float(np.quantile(values, QUANTILES["99 %"])) or 1.0
    decade = 10.0 ** math.floor(math.log10(high / _BINS))
    width = max(float(f"{digit * decade:.3g}") for digit in (1, 2, 5) if digit * decade <= high / _BINS * (1 + 1e-9))
    bins = max(1, math.ceil(min(float(values.max()), 2 * high) / width + 1e-9))
    counts = np.histogram(values, bins, (0.0, bins * width))[0]
    return {
        "items": len(values), "mean": float(values.mean()),
        "quantiles": [float(np.quantile(values, share)) for share in QUANTILES.values()],
        "below": [float((values < bound).mean()) for bound in BELOW],
        "width": width, "counts": counts.tolist(), "beyond": int(len(values) - counts.sum()),
        "mode": round((int(counts.argmax()) + 0.5) * width, 9),
    }  # fmt: skip


def by_popularity(
    values: NDArray[np.float64], ratios: NDArray[np.float64], counts: NDArray[np.int64]
) -> list[dict[str, float]]:
    """A row for the items with 1, 2–3, 4–7, 8–15, … users: how many, and means and quantiles of the diagonal.

    Fewer than ten items are put to their neighbours. ``ratios`` are the items' gains relative to those at b = 0.

    Examples
    --------
    >>> counts = np.arange(1, 30)
    >>> rows = by_popularity(counts / 100, 1 - counts / 200, counts)
    >>> [(row["low"], row["high"], row["items"], round(row["mean"], 3)) for row in rows]
    [(1, 15, 15, 0.08), (16, 29, 14, 0.225)]
    """
    octaves = np.frexp(np.maximum(counts, 1))[1]
    sizes = np.bincount(octaves)
    starts: list[int] = []
    for octave in np.flatnonzero(sizes).tolist():
        if not starts or sizes[starts[-1] : octave].sum() >= _FEW:
            starts.append(octave)
    if len(starts) > 1 and sizes[starts[-1] :].sum() < _FEW:
        starts.pop()
    groups = np.searchsorted(starts, octaves, side="right")
    rows = []
    for group in range(1, len(starts) + 1):
        inside = groups == group
        sample = values[inside]
        rows.append({
            "low": int(counts[inside].min()), "high": int(counts[inside].max()), "items": int(inside.sum()),
            "users": float(counts[inside].mean()), "mean": float(sample.mean()),
            "low_tenth": float(np.quantile(sample, 0.1)), "high_tenth": float(np.quantile(sample, 0.9)),
            "ratio": float(ratios[inside].mean()),
        })  # fmt: skip
    return rows


def _measure(run: Run, bench: Bench, choice: Choice) -> Facts:
    """Fit the choice and look at its diagonal, or remember that."""
    model = choice.model(**{name: value for name, value in run.machine.items() if name != "folder"})

    def work() -> Facts:
        train = bench.first.train
        run.say(f"{bench.label}: fitting {ROW} {choice.words}, {train.n_items:,} items")
        fitted = model.fit(train)
        # Never negative, but for rounding where it is zero.
        values = fitted.diagonal().clip(0.0)
        ratios = fitted.gain_ / fitted.with_rule(b=0.0).gain_
        return distribution(values) | {"groups": by_popularity(values, ratios, fitted.item_counts_)}

    found: Facts = run.remember("diagonal", run.key(bench, model), work)["found"]
    return found


def diagonal(order: Order) -> tuple[str, list[Section]]:
    """The paper's figure of the learned diagonals of DEQL(L2)."""
    sections = []
    found: dict[str, tuple[Bench, Facts]] = {}
    zero = []
    for bench in order.benches:
        heading = order.heading(bench)
        choice = order.found(bench, ROW)
        if choice is None:
            sections.append(order.unchosen(bench, ROW))
            continue
        if as_deql(choice).b == 0:
            zero.append(heading)
            words = f"{ROW} with {choice.words}, {ORIGINS[choice.origin]}. With b = 0 the diagonal is zero."
            sections.append(Section(heading, [words]))
            continue
        facts = _measure(order.run, bench, choice)
        found[heading] = bench, facts
        sections.append(_section(bench, choice, facts, heading))
    none = [f"With b = 0 the diagonal is zero on {' and '.join(zero)}."] if zero else []
    return " ".join([*filter(None, [_lead(found)]), *none]), [*sections, _reading()]


def _mode(facts: Facts) -> float | None:
    """The middle of the fullest bin; where no bin has two items, none is fuller than another."""
    return float(facts["mode"]) if max(facts["counts"]) > 1 else None


def _median(facts: Facts) -> float:
    return float(facts["quantiles"][list(QUANTILES).index("median")])


def _lead(found: dict[str, tuple[Bench, Facts]]) -> str:
    """Medians and modes of all, and whether they are larger where the paper finds them larger."""
    if not found:
        return ""
    told = "; ".join(
        f"{heading} {_median(facts):.3f}"
        + (f" (mode {mode:.3g}, {_against_paper(mode)})" if (mode := _mode(facts)) is not None else "")
        for heading, (_, facts) in found.items()
    )
    text = f"Median of the learned diagonal: {told}."
    large = [_median(facts) for bench, facts in found.values() if bench.name in LARGER]
    others = [_median(facts) for bench, facts in found.values() if bench.name not in LARGER]
    if large and others:
        holds = "and so it is here" if min(large) > max(others) else "which does not hold for the medians here"
        text += f" The paper finds larger values on Yelp2018 and Amazon-Book than elsewhere, {holds}."
    return text


def _against_paper(mode: float) -> str:
    low, high = MODES
    where = "above" if mode > high else "below" if mode < low else "within"
    return f"{where} {low:.2f} to {high:.2f}, where the paper's generally are"


def _section(bench: Bench, choice: Choice, facts: Facts, heading: str) -> Section:
    words = [f"{ROW} with {choice.words}, {ORIGINS[choice.origin]}; {facts['items']:,} items."]
    figures = [_histogram(bench, facts, heading), _popularity(bench, facts, heading)]
    return Section(heading, words, [_grid(facts), _group_grid(facts)], figures=figures, remarks=_remarks(facts))


def _grid(facts: Facts) -> Grid:
    header = ["", "mode", "mean", *(f"below {bound:g}" for bound in BELOW), *QUANTILES]
    unknown = [Cell("–") for _ in header[2:]]
    mode = _mode(facts)
    here = [
        Cell("–" if mode is None else f"{mode:.3g}"), Cell(f"{facts['mean']:.3f}"),
        *(Cell(f"{100 * share:.1f} %") for share in facts["below"]),
        *(Cell(f"{value:.3f}") for value in facts["quantiles"]),
    ]  # fmt: skip
    paper = [Cell("generally {:.2f} to {:.2f}".format(*MODES)), *unknown]
    return Grid("The diagonal of W", header, [(["paper"], paper), (["here"], here)])


def _users(group: dict[str, float]) -> str:
    low, high = group["low"], group["high"]
    return f"{low:,} user{'s' * (low != 1)}" if low == high else f"{low:,}–{high:,} users"


def _group_grid(facts: Facts) -> Grid:
    rows = [
        ([_users(group)], [
            Cell(f"{group['items']:,}"), Cell(f"{group['mean']:.3f}"), Cell(f"{group['low_tenth']:.3f}"),
            Cell(f"{group['high_tenth']:.3f}"), Cell(f"{group['ratio']:.3f}"),
        ])
        for group in facts["groups"]
    ]  # fmt: skip
    header = ["items with", "items", "mean", "10 %", "90 %", "gain ÷ gain at b = 0"]
    return Grid("The diagonal by popularity", header, rows)


def _remarks(facts: Facts) -> list[str]:
    mode, small = _mode(facts), 100 * facts["below"][BELOW.index(0.1)]
    groups: Sequence[dict[str, float]] = facts["groups"]
    first, last = groups[0], groups[-1]
    top = max(groups, key=lambda group: group["mean"])
    held_back = min(groups, key=lambda group: group["ratio"])
    fullest = (
        f"No bin of width {facts['width']:g} has two items, so there is no mode"
        if mode is None
        else f"The fullest bin, of width {facts['width']:g}, is around {mode:.3g}, {_against_paper(mode)}"
    )
    return [
        f"{fullest}; {small:.1f} % of the items are below 0.1.",
        f"By popularity the diagonal is on average {first['mean']:.3f} for items with {_users(first)}, "
        f"{last['mean']:.3f} for those with {_users(last)}, and largest, {top['mean']:.3f}, for those with "
        f"{_users(top)}.",
        f"Against b = 0 at the same l2, unseen items with {_users(held_back)} are held back most: to "
        f"{held_back['ratio']:.3f} of their scores on average.",
    ]


def _reading() -> Section:
    return Section("How to read it", [
        "The paper shows histograms without numbers, and says of them that most values are close to zero, with modes "
        "generally between 0.01 and 0.10, and larger values on Yelp2018 and Amazon-Book.",
        "W_ii = β·u/(β·D·p/κ + (1−p)·(l2 + β²·u)) with κ = p + (1−p)·b² and β = b²/κ, where D is the number of users "
        "of item i and u the part of it that the other items cannot tell. So while the ridge outweighs an item's "
        "users, W_ii is about β·u/((1−p)·l2) and grows with them; for an item with many users it depends on the share "
        "u/D alone. It grows with b, too.",
        "The diagonal does not rank unseen items: it scores only what a user has already. What b > 0 changes for them "
        "is the gain: against b = 0 (EDLAE) at the same l2, the scores of an unseen item are multiplied by "
        "1 − (1−p)·β·W_ii. So items with a large diagonal are held back.",
    ])  # fmt: skip


def _histogram(bench: Bench, facts: Facts, heading: str) -> Figure:
    edges = [place * facts["width"] for place in range(len(facts["counts"]) + 1)]
    labels = Labels(f"{bench.key}-diagonal", f"The diagonal of W on {heading}", "W_ii", "items")
    svg = plots.histogram(labels, edges, facts["counts"], MODES)
    beyond = f" {facts['beyond']:,} items lie beyond the right edge." if facts["beyond"] else ""
    return Figure(
        svg, f"The learned diagonal on {heading}. Shaded: where, as the paper says, its modes generally are.{beyond}"
    )


def _popularity(bench: Bench, facts: Facts, heading: str) -> Figure:
    users, mean, low, high = (
        [group[name] for group in facts["groups"]] for name in ("users", "mean", "low_tenth", "high_tenth")
    )
    title = f"The diagonal of W by popularity on {heading}"
    svg = plots.band(Labels(f"{bench.key}-popularity", title, "users of an item", "W_ii"), users, mean, low, high)
    return Figure(svg, f"The learned diagonal by popularity on {heading}: mean of each group, and the middle 80 %.")
