"""What a search may cost, and what its steps do: in inverses, which are the same everywhere, and in seconds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from deql._system.threads import thread_count
from deql.errors import ParameterError
from deql.linalg.planner import plan
from deql.tuning.tuning_data import TuningData

__all__ = ["Budget", "inverses_of_basis", "inverses_of_prior", "inverses_of_screening", "predict_seconds"]

_UNITS = {"s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}

_FLOPS = 8.6e10
"""In a second of one thread: n³ of them are an inverse."""

_ENTRY_SECONDS, _RULE_SECONDS = 1.1e-9, 2.4e-10
"""One thread's, for each item: to add the row of one seen interaction, and to rank one user's items by one rule."""

_BASIS_PASSES = 8
"""Products of n × n by n × rank that eigenvectors take about as long as."""

_OVERHEAD_SECONDS = 0.15
"""Of any trial, however small."""

_SMALL = 2048
"""Up to so many items an inverse takes less time than finding out how fast the machine is."""


@dataclass(frozen=True)
class Budget:
    """How much a search may cost, everything counted: inverses of full size, or seconds; None is no limit."""

    inverses: int | None = None
    seconds: float | None = None

    @property
    def limited(self) -> bool:
        """Whether there is a limit at all."""
        return self.inverses is not None or self.seconds is not None

    def without_share(self, inverses: int, share: float) -> Budget:
        """What is left where so many inverses, but at most a share of them, or a share of the time is kept back.

        Examples
        --------
        >>> Budget(inverses=20).without_share(2, 0.3), Budget(inverses=3).without_share(2, 0.3)
        (Budget(inverses=18, seconds=None), Budget(inverses=3, seconds=None))
        """
        if self.inverses is not None:
            return Budget(inverses=self.inverses - min(inverses, int(share * self.inverses)))
        return self if self.seconds is None else Budget(seconds=(1 - share) * self.seconds)

    @classmethod
    def parse(cls, budget: Any) -> Budget:
        """A number of inverses, or a time such as "20min".

        Examples
        --------
        >>> Budget.parse(20), Budget.parse("1.5h")
        (Budget(inverses=20, seconds=None), Budget(inverses=None, seconds=5400.0))
        """
        if budget is None:
            return cls()
        text = str(budget).strip().lower()
        if re.fullmatch("[1-9][0-9]*", text) and not isinstance(budget, bool):
            return cls(inverses=int(text))
        found = re.fullmatch(rf"([0-9]*\.?[0-9]+) *({'|'.join(_UNITS)})", text)
        if not found or not float(found[1]):
            raise ParameterError(
                f"a budget is a number of inverses from 1 up or a time such as 90s, 20min or 2h, got {budget!r}",
                parameter="budget",
            )
        return cls(seconds=float(found[1]) * _UNITS[found[2]])


def inverses_of_screening(sample: TuningData, data: TuningData, rules: int) -> float:
    """What screening a point costs in inverses: its share of the work of a trial on all items, evaluation included.

    It follows from sizes alone, so that a search that is resumed, here or elsewhere, counts as it did before.
    """
    small, full = (
        one.train.n_items**3 / _FLOPS + _evaluation_seconds(one, rules) + _OVERHEAD_SECONDS for one in (sample, data)
    )
    return min(1.0, small / full)


def inverses_of_prior(data: TuningData, rules: int, rank: int | None) -> float:
    """What a variant of a prior costs in inverses on one that is there: a product with P, and a pass over the users.

    It follows from sizes alone, as that of screening does. A prior of one's own counts as one of full rank.
    """
    n = data.train.n_items
    product = 2 * n**2 * (n if rank is None else rank) / _FLOPS
    evaluation = _evaluation_seconds(data, rules)
    return min(1.0, (product + evaluation) / (n**3 / _FLOPS + evaluation + _OVERHEAD_SECONDS))


def inverses_of_basis(data: TuningData, rules: int, rank: int) -> float:
    """What the eigenvectors of a low pass cost in inverses, likewise."""
    n = data.train.n_items
    made = _BASIS_PASSES * rank * n**2 / _FLOPS
    return min(1.0, made / (n**3 / _FLOPS + _evaluation_seconds(data, rules) + _OVERHEAD_SECONDS))


def predict_seconds(data: TuningData, rules: int, dtype: str) -> float:
    """Seconds of a trial on this machine: the fit by the planner, which takes about a second, and the evaluation."""
    n = data.train.n_items
    seconds = plan(data.train, dtype=dtype).seconds if n > _SMALL else None
    inverse = n**3 / _FLOPS if seconds is None else seconds
    return _OVERHEAD_SECONDS + inverse + _evaluation_seconds(data, rules) / thread_count()


def _evaluation_seconds(data: TuningData, rules: int) -> float:
    """One thread's, for a pass over the validation users."""
    seen = data.validation.seen
    return data.train.n_items * (seen.n_interactions * _ENTRY_SECONDS + seen.n_users * rules * _RULE_SECONDS)
