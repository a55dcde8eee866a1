"""What an evaluation found: means, every user's values, and how sure the means are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deql._system.checks import check_whole
from deql._system.frames import make_frame
from deql.errors import ParameterError
from deql.evaluation.notebook import evaluation_html, evaluation_repr
from deql.evaluation.panels import distribution_panel, history_panel
from deql.plotting.figures import figure
from deql.split import HeldOut
from deql.split.protocols import check_share

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Evaluation"]

_PLOTTED = 4
_DRAWS_AT_ONCE = 2**20


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Metric values.

    Attributes
    ----------
    means : dict of str to float
        Mean over users; for coverage and Gini, which are of all users together, the value.
    per_user : dict of str to ndarray
        One value for each user, in the order of ``users``; metrics of all users together have none.
    users : ndarray
        Ids of the users who have something held out.
    skipped : int
        How many users had nothing held out and are left out of every mean.

    Examples
    --------
    >>> found = Evaluation({"recall@5": 0.5}, {"recall@5": np.array([0.0, 0.5, 1.0])}, np.array([1, 2, 3]), 4)
    >>> print(found)
    metric        mean  standard error
    recall@5    0.5000          0.2887
    3 users; 4 more had nothing held out
    """

    means: dict[str, float]
    per_user: dict[str, NDArray[np.float64]]
    users: NDArray[Any]
    skipped: int = 0

    @property
    def standard_errors(self) -> dict[str, float]:
        """Standard deviation over users ÷ √users, of each metric that has values for users; NaN for one user."""
        return {
            metric: float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
            for metric, values in self.per_user.items()
        }

    def interval(self, metric: str, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> tuple[float, float]:
        """Bootstrap percentile interval of a mean: users are drawn again with replacement.

        Parameters
        ----------
        metric : str
            One of ``per_user``.
        level : float, default 0.95
            Share of the resampled means that lie inside.
        resamples : int, default 2000
            How often all users are drawn.
        seed : int, default 0
            The same seed draws the same users, whatever the metric, model and version of NumPy: only
            the generator's raw bits are used.

        Returns
        -------
        low, high : float

        Examples
        --------
        >>> found = Evaluation({"recall@5": 0.5}, {"recall@5": np.array([0.0, 0.5, 1.0])}, np.array([1, 2, 3]))
        >>> found.interval("recall@5", level=0.5, resamples=500)
        (0.3333333333333333, 0.6666666666666666)
        """
        if metric not in self.per_user:
            have = ", ".join(self.per_user) or "none"
            raise ParameterError(
                f"{metric!r} has no values for users to draw from; those that have: {have}", parameter="metric"
            )
        check_share("level", level)
        check_whole("resamples", resamples)
        check_whole("seed", seed, least=0)
        values = self.per_user[metric]
        bits = np.random.PCG64(seed)
        means = np.empty(resamples)
        at_once = max(1, _DRAWS_AT_ONCE // len(values))
        for first in range(0, resamples, at_once):
            several = min(at_once, resamples - first)
            # ⌊(32 random bits)·users / 2³²⌋ is a user.
            high = bits.random_raw(several * len(values)) >> np.uint64(32)
            drawn = (high * np.uint64(len(values))) >> np.uint64(32)
            means[first : first + several] = values[drawn.astype(np.intp)].reshape(several, -1).mean(axis=1)
        low, high_end = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
        return float(low), float(high_end)

    def to_frame(self, kind: str | None = None, *, per_user: bool = False) -> Any:
        """A row for each metric: metric, mean, standard_error; or one for each user, with a column for each metric.

        Parameters
        ----------
        kind : {"polars", "pandas", "pyarrow"}, optional
            Whose frame; polars' if not given.
        per_user : bool, default False
            Users' values instead of means; metrics of all users together have none.

        Examples
        --------
        >>> found = Evaluation({"recall@5": 0.5}, {"recall@5": np.array([0.0, 0.5, 1.0])}, np.array([1, 2, 3]))
        >>> found.to_frame(per_user=True).rows()
        [(1, 0.0), (2, 0.5), (3, 1.0)]
        """
        if per_user:
            return make_frame({"user": self.users, **self.per_user}, kind)
        errors = self.standard_errors
        columns = {"mean": list(self.means.values()), "standard_error": [errors.get(one) for one in self.means]}
        return make_frame({"metric": list(self.means), **columns}, kind)

    def plot(self, held_out: HeldOut | None = None) -> Figure:
        """How the metrics are spread over users; with ``held_out`` also by the length of their histories.

        Parameters
        ----------
        held_out : HeldOut, optional
            What the model was evaluated on, such as ``split.test``.

        Returns
        -------
        matplotlib.figure.Figure
            Of the first four metrics that have values for users. Needs matplotlib (extra ``report``).

        Examples
        --------
        >>> found = Evaluation({"recall@5": 0.5}, {"recall@5": np.array([0.0, 0.5, 1.0])}, np.array([1, 2, 3]))
        >>> len(found.plot().axes)
        1
        """
        if not self.per_user:
            raise ParameterError(f"{', '.join(self.means)} are of all users together: there is nothing to spread")
        panels = []
        for metric in list(self.per_user)[:_PLOTTED]:
            panels.append(distribution_panel(self, metric))
            if held_out is not None:
                panels.append(history_panel({"": self}, metric, held_out)[0])
        return figure(panels)

    __repr__ = evaluation_repr
    _repr_html_ = evaluation_html

    def __str__(self) -> str:
        errors = self.standard_errors
        wide = max(len("metric"), *map(len, self.means))
        lines = [f"{'metric':<{wide}}  {'mean':>8}  standard error"]
        for metric, mean in self.means.items():
            error = f"{errors[metric]:14.4f}" if metric in errors else ""
            lines.append(f"{metric:<{wide}}  {mean:8.4f}  {error}".rstrip())
        more = f"; {self.skipped:,} more had nothing held out" if self.skipped else ""
        return "\n".join([*lines, f"{len(self.users):,} user{'s' if len(self.users) != 1 else ''}{more}"])
