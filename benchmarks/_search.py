"""A staged search on validation data: from neighbour to neighbour as long as one is better, what is cheap first.

1. without a prior: l2, dropout and user_power, each point with every b and popularity_power;
2. on the best inverse: the low pass and its weight, with b and popularity_power: no further inverse;
3. with that prior: l2, dropout and user_power again, each point with the steps of 2.

Every model that was tried is a line of the journal, and the same command goes on after its last line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace

from _closed_form import ClosedForm, Setting
from _journal import Journal

__all__ = ["RANKS", "Search"]

RANKS = (128, 256, 512, 1024)
INVERSES: dict[str, tuple[float, ...]] = {
    "ridge": (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0),
    "dropout": (0.5, 0.6, 0.7, 0.8, 0.9, 0.95),
    "user_power": (0.0, 0.25, 0.4, 0.5, 0.6, 0.75, 1.0),
}
RULES: dict[str, tuple[float, ...]] = {
    "b": (0.0, 0.25, 0.5, 1.0, 2.0),
    "popularity_power": (-0.1, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5),
}
PRIORS: dict[str, tuple[float, ...]] = {
    "prior_weight": (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0),
    "power_in": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
    "power_out": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
    "rank": RANKS,
}
START, FIRST_WEIGHT = Setting(), 0.5


class Search:
    """The walk over settings, by what they are worth on validation data."""

    def __init__(self, models: ClosedForm, journal: Journal) -> None:
        self._models, self._journal = models, journal

    def worth(self, setting: Setting) -> float:
        """NDCG@20 of a model."""
        facts = asdict(setting) | {"l2": self._models.l2(setting)}
        return self._journal.evaluate(str(setting), lambda: self._models.evaluate(setting), **facts).ndcg

    def run(self) -> Iterator[tuple[str, Setting]]:
        """The best model of each stage."""
        plain = self._walk(START, INVERSES, lambda point: self._walk(point, RULES, None))
        yield "without a prior", plain
        started = self._free(replace(plain, prior_weight=FIRST_WEIGHT))
        yield "with a low pass, same inverse", started
        yield "with a low pass", self._walk(started, INVERSES, self._free)

    def _free(self, point: Setting) -> Setting:
        """The best prior and rule on one inverse."""
        return self._walk(point, PRIORS | RULES, None)

    def _walk(
        self, start: Setting, axes: Mapping[str, tuple[float, ...]], inner: Callable[[Setting], Setting] | None
    ) -> Setting:
        """Steps along one axis at a time until none is better; ``inner`` makes the best of a point."""
        best = inner(start) if inner else start
        seen = {_place(start, axes)}
        while True:
            before = best
            for near in list(_neighbours(best, axes)):
                if inner is None or _place(near, axes) not in seen:
                    seen.add(_place(near, axes))
                    best = max(best, inner(near) if inner else near, key=self.worth)
            if best == before:
                return best


def _place(setting: Setting, axes: Iterable[str]) -> tuple[float, ...]:
    return tuple(getattr(setting, name) for name in axes)


def _neighbours(setting: Setting, axes: Mapping[str, tuple[float, ...]]) -> Iterator[Setting]:
    for name, values in axes.items():
        place = values.index(getattr(setting, name))
        for step in (1, -1):
            if 0 <= place + step < len(values):
                yield replace(setting, **{name: values[place + step]})
