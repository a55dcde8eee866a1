"""``deql.compare``: several models on several splits, and which of their differences are more than chance."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import permutations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from deql._system.checks import check_whole
from deql._system.formatting import as_json
from deql._system.frames import make_frame
from deql.data import as_interactions
from deql.errors import ParameterError
from deql.evaluation.evaluation_result import Evaluation
from deql.evaluation.evaluator import check_metrics
from deql.evaluation.model_groups import LogCallback, fit_and_evaluate, name_models, parameters
from deql.evaluation.notebook import comparison_html, comparison_repr
from deql.evaluation.panels import difference_panel, value_panel
from deql.evaluation.result_tables import comparison_latex, comparison_markdown, comparison_text
from deql.evaluation.significance import holm, paired_t, standard_error, wilcoxon
from deql.metrics import as_names, lower_is_better
from deql.models.base import Recommender
from deql.plotting.figures import figure
from deql.split import TIMED, Split, make_splits
from deql.split.parts import SplitOrInteractions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["LEVEL", "Comparison", "PairedTest", "compare", "is_tied"]

LEVEL = 0.05
Over = Literal["splits", "users"]
Pair = tuple[int, int]


def is_tied(difference: float, error: float) -> bool:
    """Whether a mean difference is below one standard error, or too small to be seen in four digits.

    Examples
    --------
    >>> is_tied(0.0004, 0.0005), is_tied(0.0006, 0.0005), is_tied(0.00004, 0.00001), is_tied(0.01, float("nan"))
    (True, False, True, False)
    """
    # Where a single user differs, the two are equal but for rounding, which must not decide.
    return abs(difference) < error * (1 - 1e-9) or f"{abs(difference):.4f}" == "0.0000"


@dataclass(frozen=True)
class PairedTest:
    """One null hypothesis, "``better`` is no better than ``other``", and what speaks against it.

    Attributes
    ----------
    metric, better, other : str
    over : {"splits", "users"}
        What the pairs are.
    pairs : int
    difference : float
        Mean over the pairs of ``better`` − ``other``; negative is good where lower values are.
    error : float
        Standard error of that mean; NaN for fewer than two pairs.
    t, wilcoxon : float
        One-sided p-values; NaN where the test cannot be made.
    t_holm, wilcoxon_holm : float
        The same, corrected for all comparisons that were made with it.
    against : {"baseline", "best"}
        The question it belongs to: is this model better than the baseline, or is the best one better
        than this?
    """

    metric: str
    better: str
    other: str
    over: Over
    pairs: int
    difference: float
    error: float
    t: float
    t_holm: float
    wilcoxon: float
    wilcoxon_holm: float
    against: Literal["baseline", "best"]

    @property
    def tied(self) -> bool:
        """Whether the difference is below one standard error, or too small to be seen in four digits."""
        return is_tied(self.difference, self.error)

    @property
    def significant(self) -> bool:
        """Whether the corrected t-test rejects the null hypothesis at 5 %, and there is a difference to be seen."""
        return self.t_holm < LEVEL and not self.tied

    def __repr__(self) -> str:
        difference = f"{self.difference:+.4f}" + " (tied)" * self.tied
        asked = f"{self.metric} of {self.better} over {self.other}: {difference}"
        return f"PairedTest({asked} on {self.pairs:,} {self.over}, p = {self.t:.2g}, {self.t_holm:.2g} after Holm)"


@dataclass(frozen=True, eq=False)
class Comparison:
    """What :func:`deql.compare` found; ``str()`` gives it as text.

    Attributes
    ----------
    models : dict of str to dict
        For each name the model's class and hyper-parameters.
    metrics : tuple of str
    values : dict of str to ndarray
        For each metric splits × models: the mean over users.
    per_user : dict of str to ndarray
        For each metric with values of users, users × models: each user's mean over the splits in which
        they were evaluated.
    baseline : str or None
    splits : list of dict
        Seed, sizes and what was dropped, for each split.
    protocol : str
    """

    models: dict[str, dict[str, Any]]
    metrics: tuple[str, ...]
    values: dict[str, NDArray[np.float64]]
    per_user: dict[str, NDArray[np.float64]]
    baseline: str | None
    splits: list[dict[str, Any]]
    protocol: str

    @property
    def names(self) -> list[str]:
        """The models in the order of columns."""
        return list(self.models)

    @property
    def over(self) -> Over:
        """What decides significance: splits where there are several, as in the paper, else users."""
        return "splits" if len(self.splits) > 1 else "users"

    @property
    def means(self) -> dict[str, dict[str, float]]:
        """Mean over splits, by model and metric."""
        return self._by_model({metric: values.mean(axis=0) for metric, values in self.values.items()})

    @property
    def deviations(self) -> dict[str, dict[str, float]]:
        """Sample standard deviation over splits, by model and metric; NaN for a single split."""
        several = len(self.splits) > 1
        return self._by_model({
            metric: values.std(axis=0, ddof=1) if several else np.full(values.shape[1], np.nan)
            for metric, values in self.values.items()
        })  # fmt: skip

    @property
    def standard_errors(self) -> dict[str, dict[str, float]]:
        """Standard deviation over users ÷ √users, by model and metric; NaN where users have no values."""
        none = np.full(len(self.models), np.nan)
        return self._by_model({
            metric: values.std(axis=0, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else none
            for metric, values in ((metric, self.per_user.get(metric, np.empty((0, 0)))) for metric in self.metrics)
        })  # fmt: skip

    def best(self, metric: str) -> str:
        """The model with the best mean."""
        means = self._oriented(metric, "splits").mean(axis=0)
        return self.names[int(means.argmax())]

    def p_values(self, metric: str, over: Over | None = None, test: str = "t") -> NDArray[np.float64]:
        """Raw one-sided p-values of "row is better than column"; NaN on the diagonal.

        Parameters
        ----------
        metric : str
        over : {"splits", "users"}, optional
            What the pairs are; splits if there are several.
        test : {"t", "wilcoxon"}, default "t"
        """
        values = self._oriented(metric, over or self.over)
        p_value = {"t": paired_t, "wilcoxon": wilcoxon}[test]
        table = np.full((len(self.models), len(self.models)), np.nan)
        for better, other in permutations(range(len(self.models)), 2):
            table[better, other] = p_value(values[:, better], values[:, other])
        return table

    def tests(self, metric: str, over: Over | None = None) -> list[PairedTest]:
        """Each model against the baseline, if there is one, and the best one against each.

        Tests against the baseline are corrected for their number. Which model is best was learned from
        the same values, so its tests are corrected for all ordered pairs of models: whichever had come
        out best, one of those would have been asked.

        Parameters
        ----------
        metric : str
        over : {"splits", "users"}, optional
            What the pairs are; splits if there are several.
        """
        over = over or self.over
        names, best = self.names, self.names.index(self.best(metric))
        raw = {test: self.p_values(metric, over, test) for test in ("t", "wilcoxon")}
        values = (self.values if over == "splits" else self.per_user).get(metric, self.values[metric][:0])
        means = values.mean(axis=0) if len(values) else np.full(len(names), np.nan)

        def error(better: int, other: int) -> float:
            return standard_error(values[:, better] - values[:, other])

        def corrected(asked: list[Pair], shown: list[Pair], against: Literal["baseline", "best"]) -> list[PairedTest]:
            places = tuple(np.array(asked).T)
            t, signed = (dict(zip(asked, holm(raw[test][places]), strict=True)) for test in ("t", "wilcoxon"))
            return [
                PairedTest(
                    metric, names[better], names[other], over, len(values), float(means[better] - means[other]),
                    error(better, other), float(raw["t"][better, other]), float(t[better, other]),
                    float(raw["wilcoxon"][better, other]), float(signed[better, other]), against,
                )
                for better, other in shown
            ]  # fmt: skip

        found, base = [], None
        if self.baseline is not None:
            base = names.index(self.baseline)
            challengers = [(model, base) for model in range(len(names)) if model != base]
            found = corrected(challengers, challengers, "baseline")
        others = [(best, model) for model in range(len(names)) if model not in (best, base)]
        return found + corrected(list(permutations(range(len(names)), 2)), others, "best")

    def significant(self, metric: str) -> set[str]:
        """Models to mark: better than the baseline, or, without one, worse than the best."""
        marked = "best" if self.baseline is None else "baseline"
        return {
            test.other if marked == "best" else test.better
            for test in self.tests(metric)
            if test.against == marked and test.significant
        }

    def to_dict(self) -> dict[str, Any]:
        """Everything but the users' values, in plain Python; None for what cannot be said."""
        both: tuple[Over, ...] = ("splits", "users")
        plain = {
            "models": self.models, "metrics": list(self.metrics), "baseline": self.baseline,
            "protocol": self.protocol, "splits": self.splits,
            "best": {metric: self.best(metric) for metric in self.metrics},
            "means": self.means, "deviations": self.deviations, "standard_errors": self.standard_errors,
            "values": {metric: dict(zip(self.names, values.T.tolist(), strict=True))
                       for metric, values in self.values.items()},
            "tests": [asdict(test) | {"tied": test.tied}
                      for metric in self.metrics for over in both for test in self.tests(metric, over)],
        }  # fmt: skip
        return dict(as_json(plain))

    def to_json(self) -> str:
        """:meth:`to_dict` as text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=1)

    def to_frame(self, kind: str | None = None) -> Any:
        """A row for each model and metric: model, metric, mean, deviation, standard_error.

        ``kind`` is polars, pandas or pyarrow; polars if not given.
        """
        pairs = [(name, metric) for name in self.names for metric in self.metrics]
        values = {"mean": self.means, "deviation": self.deviations, "standard_error": self.standard_errors}
        columns: dict[str, list[Any]] = {
            "model": [name for name, _ in pairs],
            "metric": [metric for _, metric in pairs],
        }
        columns |= {column: [table[name][metric] for name, metric in pairs] for column, table in values.items()}
        return make_frame(columns, kind)

    def to_markdown(self) -> str:
        """Two tables in Markdown: the values, best ones bold, and the tests."""
        return comparison_markdown(self)

    def to_latex(self) -> str:
        """Two tables in LaTeX (package booktabs), as the paper's: mean ± sd, and p-values."""
        return comparison_latex(self)

    def __str__(self) -> str:
        return comparison_text(self)

    def plot(self) -> Figure:
        """Values of each model, and their differences, for each metric. Needs matplotlib (extra ``report``)."""
        panels = (make(self, metric) for metric in self.metrics for make in (value_panel, difference_panel))
        return figure([panel for panel, _ in panels])

    __repr__ = comparison_repr
    _repr_html_ = comparison_html

    def _oriented(self, metric: str, over: Over) -> NDArray[np.float64]:
        """Pairs × models, signed so that more is better; no rows where users have no values."""
        if metric not in self.values:
            raise ParameterError(
                f"{metric!r} was not measured: there are {', '.join(self.metrics)}", parameter="metric"
            )
        sources = {"splits": self.values, "users": self.per_user}
        if over not in sources:
            raise ParameterError(f"pairs are 'splits' or 'users', got {over!r}", parameter="over")
        values = sources[over].get(metric, np.empty((0, len(self.models))))
        return -values if lower_is_better(metric) else values

    def _by_model(self, columns: Mapping[str, NDArray[np.float64]]) -> dict[str, dict[str, float]]:
        return {
            name: {metric: float(row[place]) for metric, row in columns.items()}
            for place, name in enumerate(self.names)
        }


def compare(
    models: Sequence[Recommender] | Mapping[str, Recommender],
    data: SplitOrInteractions,
    splits: int = 5,
    metrics: str | Sequence[str] = ("recall@20", "ndcg@20"),
    protocol: str = "strong",
    baseline: str | None = None,
    seed: int = 0,
    *,
    tell: LogCallback | None = None,
    **split_options: Any,
) -> Comparison:
    """Fit every model on several seeded splits and test which differences are more than chance.

    Parameters
    ----------
    models : list of models, or dict of name to model
        Not fitted, and left as they are. Those that share the inverse are fitted together.
    data : Interactions, sparse matrix, frame or Split
        A Split stands as it is, for instance a published one: users are then the pairs of every test.
    splits : int, default 5
        How many splits of the data, with seeds from ``seed`` on.
    metrics : str or sequence of str
    protocol : {"strong", "weak", "leave-last", "time", "k-fold"}, default "strong"
        How to split. Those by time are the same for every seed, so they are done once; of k-fold there are as many
        folds as splits, and every user is tested once.
    baseline : str, optional
        Name of the model that the others are to beat.
    seed : int, default 0
    tell : callable, optional
        The log callback: called with a line for every fit.
    **split_options
        For :func:`~deql.split_strong`, :func:`~deql.split_weak`, :func:`~deql.split_leave_last`,
        :func:`~deql.split_time` or :func:`~deql.k_fold`.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> import deql
    >>> data = deql.datasets.debian().take_users(slice(0, 800)).without_empty()
    >>> found = deql.compare([deql.Popularity(), deql.EASE(10.0)], data, splits=3, baseline="Popularity")
    >>> found.best("ndcg@20"), found.tests("ndcg@20")[0].significant
    ('EASE l2=10', True)
    """
    named = name_models(models)
    wanted = as_names(metrics)
    seed = check_whole("seed", seed, least=0)
    if baseline is not None and baseline not in named:
        raise ParameterError(
            f"the baseline {baseline!r} is not one of the models: {', '.join(named)}", parameter="baseline"
        )
    if len(named) < 2:
        raise ParameterError("a comparison needs at least two models", parameter="models")
    check_metrics(named.values(), wanted)
    check_whole("splits", splits)
    if tell is not None and not callable(tell):
        raise ParameterError(f"tell must be a function that takes a line, got {tell!r}", parameter="tell")
    if isinstance(data, Split):
        if split_options:
            raise ParameterError(f"a split is given, so {', '.join(split_options)} cannot be chosen")
        protocol, splits, made = data.protocol, 1, iter([data])
    else:
        splits = 1 if protocol in TIMED else splits
        made = make_splits(as_interactions(data, time=protocol in TIMED), splits, protocol, seed, split_options)
    results, about = [], []
    for number, split in enumerate(made, start=1):
        label = f"split {number} of {splits}: " if splits > 1 else ""
        on_fit = None if tell is None else partial(_tell_fit, tell, label)
        results.append(fit_and_evaluate(named, split.train, split.test, wanted, on_fit))
        about.append(_about(split, next(iter(results[-1].values()))))
    return Comparison(
        models={name: {"model": type(model).__name__, "parameters": parameters(model)}
                for name, model in named.items()},
        metrics=wanted,
        values={metric: np.array([[one.means[metric] for one in result.values()] for result in results])
                for metric in wanted},
        per_user=_pool_users(results, wanted),
        baseline=baseline, splits=about, protocol=protocol,
    )  # fmt: skip


def _tell_fit(tell: LogCallback, label: str, names: str) -> None:
    tell(f"{label}fitting {names}")


def _about(split: Split, evaluated: Evaluation) -> dict[str, Any]:
    """What a reader of the results needs to know of a split."""
    return {
        "seed": split.seed,
        "train": {
            "users": split.train.n_users, "items": split.train.n_items, "interactions": split.train.n_interactions
        },
        "judged": len(evaluated.users), "skipped": evaluated.skipped, "dropped": dict(split.dropped),
    }  # fmt: skip


def _pool_users(results: Sequence[Mapping[str, Evaluation]], metrics: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Users × models: each user's mean over the splits that evaluated them, so that every user counts once."""
    places: dict[Any, int] = {}
    first = [next(iter(result.values())) for result in results]
    rows = np.array([places.setdefault(user, len(places)) for one in first for user in one.users.tolist()])
    counts = np.bincount(rows)
    return {
        metric: np.stack([
            np.bincount(rows, np.concatenate([result[name].per_user[metric] for result in results])) / counts
            for name in results[0]
        ], axis=1)
        for metric in metrics
        if metric in first[0].per_user
    }  # fmt: skip
