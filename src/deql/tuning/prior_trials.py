"""Trials with a prior: a point with one variant of the prior, and all rules that share its factors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from deql.errors import JournalError
from deql.evaluation import Evaluation, evaluate
from deql.priors.prior import Prior
from deql.tuning.budget import inverses_of_basis, inverses_of_prior
from deql.tuning.prior_factors import PriorFactors
from deql.tuning.prior_space import Variant, VariantGrid
from deql.tuning.space import Point, RuleParameters, Space, format_parameters
from deql.tuning.trial import Trial, is_whole, read_trial, tie, total_seconds
from deql.tuning.trials import TrialStore

__all__ = ["PriorKey", "PriorTrials"]


class PriorKey(NamedTuple):
    """What was measured at once: a point, a variant, and what its rules have in common."""

    point: Point
    variant: Variant
    fixed: tuple[tuple[str, float], ...]


class PriorRule(NamedTuple):
    """One model of such a trial."""

    key: PriorKey
    place: int
    rule: RuleParameters


@dataclass(eq=False)
class PriorTrials:
    """Runs trials with a prior, each of them once: what the journal has is remembered.

    Attributes
    ----------
    store : TrialStore
        The trials without a prior, on the same data, in the same journal and budget.
    space : Space
    grid : VariantGrid
    factors : PriorFactors
    trials : dict of PriorKey to Trial
    """

    store: TrialStore
    space: Space
    grid: VariantGrid
    factors: PriorFactors

    def __post_init__(self) -> None:
        self.trials: dict[PriorKey, Trial] = {}
        for record in self.store.journal.records:
            if record["step"] == "prior":
                trial = read_trial(record)
                key = _key(record)
                rules = [] if key is None else self.space.prior_rules(dict(key.fixed))
                whole = trial is not None and (trial.failure or is_whole(trial, self.store.metrics, len(rules)))
                if trial is None or key is None or not whole:
                    raise JournalError(f"{self.store.journal.path} is damaged: delete it to begin again")
                self.trials[key] = trial

    @cached_property
    def adds_items(self) -> bool:
        """Whether the prior has items that nobody has, which only a model with it can recommend."""
        prior, final = self.space.prior, self.store.full.data.final
        return isinstance(prior, Prior) and prior.with_items(final).n_items > final.n_items

    @property
    def seconds(self) -> float:
        """What all of them took."""
        return total_seconds(self.trials)

    @property
    def inverses(self) -> float:
        """What all of them cost: an inverse for each point but the first, which may be there already, and a share for
        each product and pass over the users."""
        if not self.trials:
            return 0.0
        points = list(dict.fromkeys(key.point for key in self.trials))
        there = bool(self.store.trials) and points[0] == next(reversed(self.store.trials))
        return len(points) - there + self.pass_cost * len(self.trials) + self.basis_cost

    @property
    def pass_cost(self) -> float:
        """Of one variant on an inverse that is there, in inverses."""
        return inverses_of_prior(self.store.full.data, self._rules, self.grid.ranks[-1])

    @property
    def _rules(self) -> int:
        """Of a pass over the users, as a rule."""
        return len(self.space.prior_rules({})) // max(1, len(self.space.b) + len(self.space.xi))

    @property
    def basis_cost(self) -> float:
        """Of the eigenvectors, in inverses."""
        rank = self.grid.ranks[-1]
        return 0.0 if rank is None else inverses_of_basis(self.store.full.data, self._rules, rank)

    def may_measure(self, point: Point) -> bool:
        """Whether a variant at the point can be afforded, and the end after it."""
        last = next(reversed(self.trials)).point if self.trials else next(reversed(self.store.trials), None)
        return self.store.has_room(self.pass_cost + (point != last) + (0.0 if self.trials else self.basis_cost))

    def measure(self, point: Point, variant: Variant, fixed: Mapping[str, float]) -> float:
        """What the best rule with the variant is worth at the point, larger is better."""
        key = PriorKey(point, variant, tuple(sorted(fixed.items())))
        if key not in self.trials:
            rules = self.space.prior_rules(fixed)
            trial, _ = self.store.run(point, lambda: self.evaluate(point, variant, rules), full=False)
            self.trials[key] = trial
            self.store.append("prior", trial, {**_plain(variant), "fixed": dict(fixed)})
            if self.store.tell is not None:
                self.store.tell(self._line(key, trial, rules))
        return self.store.worth(self.trials[key])

    def evaluate(self, point: Point, variant: Variant, rules: list[RuleParameters]) -> list[Evaluation]:
        """Each rule with the variant at the point, in one pass over the validation users."""
        fitted = self.store.full.fit(point)
        models = [self.factors.model(fitted, variant, rule) for rule in rules]
        return evaluate(models, self.store.full.data.validation, self.store.metrics)

    def best(self) -> PriorRule | None:
        """The best model measured; None if there is none. Of equal ones the first."""
        found = [(self.store.worth(trial), key) for key, trial in self.trials.items() if trial.failure is None]
        if not found:
            return None
        key = max(found, key=lambda one: one[0])[1]
        place = self.store.best_rule(self.trials[key])
        return PriorRule(key, place, self.space.prior_rules(dict(key.fixed))[place])

    def least_gain(self, key: PriorKey) -> float:
        """What another trial must be better by to count as better."""
        return tie(self.trials[key].error)

    def rows(self) -> list[dict[str, Any]]:
        """A row of the leaderboard for each model measured; what was measured twice once."""
        found: dict[tuple[Any, ...], dict[str, Any]] = {}
        for key, trial in self.trials.items():
            rules = self.space.prior_rules(dict(key.fixed))
            for place, rule in enumerate(rules if trial.failure is None else []):
                row = key.point.row() | {"b": None, "xi": None} | rule
                parameters = row | {"prior_rank": key.variant.rank, "prior_power_in": key.variant.power_in}
                parameters.setdefault("prior_power_out", None)
                values = {metric: several[place] for metric, several in trial.values.items()}
                found.setdefault(tuple(sorted(parameters.items(), key=lambda one: one[0])), parameters | values)
        return list(found.values())

    def _line(self, key: PriorKey, trial: Trial, rules: list[RuleParameters]) -> str:
        named = {name: value for name, value in _plain(key.variant).items() if value is not None}
        where = f"with a prior: {format_parameters(key.point.named() | named)}"
        if trial.failure is not None:
            return f"{where}: no model, {trial.failure}"
        metric, place = self.store.metrics[0], self.store.best_rule(trial)
        return f"{where}: {metric} {trial.values[metric][place]:.4f} at {format_parameters(rules[place])}"


def _plain(variant: Variant) -> dict[str, Any]:
    return {"prior_rank": variant.rank, "prior_power_in": variant.power_in}


def _key(record: dict[str, Any]) -> PriorKey | None:
    """What a line of the journal is about; None if it makes no sense."""
    try:
        rank, power = record["prior_rank"], record["prior_power_in"]
        variant = Variant(None if rank is None else int(rank), None if power is None else float(power))
        fixed = tuple(sorted((str(name), float(value)) for name, value in record["fixed"].items()))
        return PriorKey(Point.of(record), variant, fixed)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None
