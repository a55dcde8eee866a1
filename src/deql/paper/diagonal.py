"""``diagonal``: how the learned diagonal of W is distributed, and how it goes with popularity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql._system.tables import Grid
from deql.paper.document import Figure, Section
from deql.paper.hyperparameters import ORIGINS, Choice
from deql.paper.measurement_log import MeasurementLog
from deql.paper.paper_datasets import PaperDataset
from deql.paper.sensitivity_curves import ROW, as_deql
from deql.paper.table_request import TableRequest
from deql.plotting import plots
from deql.plotting.plots import Labels
from deql.report import page

__all__ = ["by_popularity", "diagonal", "distribution"]

MODES = (0.01, 0.10)
"""Between these, the paper says, are the modes of its histograms in general."""

LARGER = ("yelp2018", "amazon-book")
"""Where the paper finds larger values than elsewhere."""

BELOW = (0.01, 0.05, 0.1)
QUANTILES = {"1 %": 0.01, "10 %": 0.1, "median": 0.5, "90 %": 0.9, "99 %": 0.99, "largest": 1.0}
TENTHS = ("low_tenth", "high_tenth")
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


def diagonal(request: TableRequest) -> tuple[str, list[Section]]:
    """The paper's figure of the learned diagonals of DEQL(L2)."""
    found: dict[str, tuple[PaperDataset, Facts]] = {}
    zero: list[str] = []

    def of_dataset(dataset: PaperDataset) -> tuple[str, Section]:
        heading, choice = request.heading(dataset), request.found(dataset, ROW)
        if choice is None:
            return request.no_choices(dataset, ROW)
        words = f"{ROW} with {choice.words}, {ORIGINS[choice.origin]}"
        if as_deql(choice).b == 0:
            zero.append(heading)
            return "", Section(heading, [f"{words}. With b = 0 the diagonal is zero."])
        facts = _measure(request.log, dataset, choice)
        found[heading] = dataset, facts
        return "", _section(dataset, f"{words}; {facts['items']:,} items.", facts, heading)

    _, sections = request.by_dataset(of_dataset)
    none = [f"With b = 0 the diagonal is zero on {' and '.join(zero)}."] if zero else []
    return " ".join([*filter(None, [_summary(found)]), *none]), [*sections, _READING]


def _measure(log: MeasurementLog, dataset: PaperDataset, choice: Choice) -> Facts:
    """Fit the choice and look at its diagonal, or find that in the journal."""
    model = choice.linear(**{name: value for name, value in log.machine.items() if name != "folder"})

    def measure() -> Facts:
        train = dataset.first.train
        log.tell(f"{dataset.label}: fitting {ROW} {choice.words}, {train.n_items:,} items")
        fitted = model.fit(train)
        # Never negative, but for rounding where it is zero.
        values = fitted.diagonal().clip(0.0)
        ratios = fitted.gain_ / fitted.with_rule(b=0.0).gain_
        return distribution(values) | {"groups": by_popularity(values, ratios, fitted.item_counts_)}

    found: Facts = log.get_or_measure("diagonal", log.key(dataset, model), measure)["found"]
    return found


def _mode(facts: Facts) -> float | None:
    """The middle of the fullest bin; where no bin has two items, none is fuller than another."""
    return float(facts["mode"]) if max(facts["counts"]) > 1 else None


def _median(facts: Facts) -> float:
    return float(facts["quantiles"][list(QUANTILES).index("median")])


def _summary(found: dict[str, tuple[PaperDataset, Facts]]) -> str:
    """Medians and modes of all, and whether they are larger where the paper finds them larger."""
    if not found:
        return ""
    told = "; ".join(
        f"{heading} {_median(facts):.3f}"
        + (f" (mode {mode:.3g}, {_against_paper(mode)})" if (mode := _mode(facts)) is not None else "")
        for heading, (_, facts) in found.items()
    )
    text = f"Median of the learned diagonal: {told}."
    large, others = ([_median(facts) for dataset, facts in found.values() if (dataset.name in LARGER) == which]
                     for which in (True, False))  # fmt: skip
    if large and others:
        holds = "and so it is here" if min(large) > max(others) else "which does not hold for the medians here"
        text += f" The paper finds larger values on Yelp2018 and Amazon-Book than elsewhere, {holds}."
    return text


def _against_paper(mode: float) -> str:
    low, high = MODES
    where = "above" if mode > high else "below" if mode < low else "within"
    return f"{where} {low:.2f} to {high:.2f}, where the paper's generally are"


def _section(dataset: PaperDataset, words: str, facts: Facts, heading: str) -> Section:
    figures = [_histogram(dataset, facts, heading), _popularity(dataset, facts, heading)]
    groups = [
        [_users(group), f"{group['items']:,}", *(f"{group[name]:.3f}" for name in ("mean", *TENTHS, "ratio"))]
        for group in facts["groups"]
    ]
    header = ["items with", "items", "mean", "10 %", "90 %", "gain ÷ gain at b = 0"]
    grids = [_grid(facts), page.plain_grid("The diagonal by popularity", header, groups)]
    return Section(heading, [words], grids, figures=figures, remarks=_remarks(facts))


def _grid(facts: Facts) -> Grid:
    header = ["", "mode", "mean", *(f"below {bound:g}" for bound in BELOW), *QUANTILES]
    mode = _mode(facts)
    here = [
        "–" if mode is None else f"{mode:.3g}", f"{facts['mean']:.3f}",
        *(f"{100 * share:.1f} %" for share in facts["below"]), *(f"{value:.3f}" for value in facts["quantiles"]),
    ]  # fmt: skip
    paper = ["generally {:.2f} to {:.2f}".format(*MODES), *("–" for _ in header[2:])]
    return page.plain_grid("The diagonal of W", header, [["paper", *paper], ["here", *here]])


def _users(group: dict[str, float]) -> str:
    low, high = group["low"], group["high"]
    return f"{low:,} user{'s' * (low != 1)}" if low == high else f"{low:,}–{high:,} users"


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


def _histogram(dataset: PaperDataset, facts: Facts, heading: str) -> Figure:
    edges = [place * facts["width"] for place in range(len(facts["counts"]) + 1)]
    labels = Labels(f"{dataset.key}-diagonal", f"The diagonal of W on {heading}", "W_ii", "items")
    svg = plots.histogram(labels, edges, facts["counts"], MODES)
    beyond = f" {facts['beyond']:,} items lie beyond the right edge." if facts["beyond"] else ""
    return Figure(
        svg, f"The learned diagonal on {heading}. Shaded: where, as the paper says, its modes generally are.{beyond}"
    )


def _popularity(dataset: PaperDataset, facts: Facts, heading: str) -> Figure:
    columns = [[group[name] for group in facts["groups"]] for name in ("users", "mean", *TENTHS)]
    title = f"The diagonal of W by popularity on {heading}"
    svg = plots.band(Labels(f"{dataset.key}-popularity", title, "users of an item", "W_ii"), *columns)
    return Figure(svg, f"The learned diagonal by popularity on {heading}: mean of each group, and the middle 80 %.")


_READING = Section("How to read it", [
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
