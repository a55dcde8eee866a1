"""What a model is pulled towards, as asked for on the command line, and what came of it in words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import typer

from deql._system.tables import counted
from deql.cli.output import option_name
from deql.data.partitions import TrainingData
from deql.errors import ParameterError
from deql.models import load
from deql.models.fitted_prior import FittedPrior
from deql.models.sparse_prior import SparsePrior
from deql.priors.feature_basis import RANK as MOST_FEATURES
from deql.priors.low_pass import RANK as DEFAULT_RANK
from deql.priors.specs import features_of, parse_prior, prior_file, prior_kind

__all__ = [
    "PriorOptions", "fitted_facts", "fitted_words", "planned_columns", "planned_words", "typed_files", "typed_prior",
]  # fmt: skip


@dataclass(frozen=True)
class PriorOptions:
    """A prior and how much of the ridge is its, as asked for on the command line."""

    section: ClassVar[str] = "What the ridge pulls towards"

    prior: Annotated[
        str | None,
        typer.Option(
            help="lowpass:rank=512, features:items.parquet,l2=10, model:last-month.deql, or none.", metavar="PRIOR"
        ),
    ] = None
    prior_weight: Annotated[float | None, typer.Option(help="Share of the ridge that pulls towards the prior (1).")] = (
        None
    )
    item_features: Annotated[
        Path | None,
        typer.Option(help="Table of items' features, also of new ones: --prior features:FILE.", metavar="FILE"),
    ] = None

    def chosen(self, searched: bool = False) -> dict[str, Any]:
        """The parameters of a model that were typed; where a search is to follow, its axes."""
        chosen = typed_prior(self.prior, self.item_features, searched)
        return chosen | ({} if self.prior_weight is None else {"prior_weight": self.prior_weight})

    def option(self, parameter: str) -> str:
        """The option that a parameter was typed as."""
        return option_name("item_features" if parameter == "prior" and self.item_features is not None else parameter)

    def files(self) -> list[Path]:
        """What the prior is read from."""
        return typed_files(self.prior, self.item_features)


def typed_prior(prior: str | None, item_features: Path | None, searched: bool) -> dict[str, Any]:
    """``prior`` as it was typed, or nothing; a low pass of which nothing is said is left to a search that follows."""
    if prior is not None and item_features is not None:
        raise ParameterError(
            "--item-features is a prior of its own: leave out --prior, or say "
            f"--prior features:{item_features} with what else is to be chosen after it: ,l2=10"
        )
    if item_features is not None:
        return {"prior": features_of(str(item_features))}
    if prior is None:
        return {}
    return {"prior": "lowpass" if searched and prior.strip().lower() == "lowpass" else parse_prior(prior, load)}


def typed_files(prior: str | None, item_features: Path | None) -> list[Path]:
    """What a prior that was typed is read from."""
    file = item_features or (prior_file(prior) if prior else None)
    return [] if file is None else [Path(file)]


_WORDS = {"lowpass": "a low pass", "features": "items' features", "model": "another model", "matrix": "a matrix"}


def fitted_words(model: Any) -> str | None:
    """What a fitted model's prior is, in a sentence; None if it has none."""
    if (fitted := getattr(model, "prior_", None)) is None:
        return None
    n, rank = len(model.items_), _rank(fitted)
    size = "" if rank is None else f"rank {rank:,} and "
    if isinstance(fitted, FittedPrior) and fitted.right is None:
        size = f"{n:,} × {n:,} weights and "
    return f"the prior, {_WORDS[prior_kind(model.prior)]}, has {size}the weight {model.prior_weight:g}"


def fitted_facts(model: Any, data: TrainingData) -> dict[str, Any]:
    """The same for machines: rank, items that only the prior knows and, of features, items without any."""
    if (fitted := getattr(model, "prior_", None)) is None:
        return {}
    facts: dict[str, Any] = {"rank": _rank(fitted), "further_items": len(model.items_) - data.n_items}
    if fitted.features is not None:
        filled = np.diff(fitted.features.features.indptr)[: data.n_items]
        facts["items_without_features"] = int((filled == 0).sum())
    return {"prior": facts}


def _rank(fitted: FittedPrior | SparsePrior) -> int | None:
    """The rank of W₀, whose factors are twice as wide where there are cold items; None where they were not kept."""
    if fitted.features is not None:
        return int(fitted.features.basis.shape[1])
    return int(fitted.left.shape[1]) if isinstance(fitted, FittedPrior) else None


def planned_rank(model: Any, data: TrainingData) -> int:
    """The rank of a model's prior, at most; 0 if it has none."""
    if (prior := getattr(model, "prior", None)) is None:
        return 0
    factor = getattr(getattr(prior, "other", None), "left_", None)
    if factor is not None:
        return int(factor.shape[1])
    ranks = {"lowpass": getattr(prior, "rank", None) or DEFAULT_RANK, "features": MOST_FEATURES}
    return min(data.n_items, ranks.get(prior_kind(prior), data.n_items))


def planned_columns(model: Any, data: TrainingData, catalogue: TrainingData) -> int:
    """Columns of the factors that a fit will have: the rank, and that again if some items of the catalogue are cold."""
    return planned_rank(model, catalogue) * (2 if catalogue.n_items > data.n_items else 1)


def planned_words(model: Any, data: TrainingData, catalogue: TrainingData) -> str | None:
    """What a prior will add to a fit, in a sentence; None if there is none."""
    rank, n = planned_rank(model, catalogue), catalogue.n_items
    if not rank:
        return None
    kind, further = prior_kind(model.prior), n - data.n_items
    most = "at most " if kind == "features" else ""
    new = f"; {counted(further, 'item', 'items')} that nobody has will be among the others" if further else ""
    what = f"The prior, {_WORDS[kind]} of {most}rank {rank:,}"
    return f"{what}, is in that but for its time: one product with the inverse{new}."
