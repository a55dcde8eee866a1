"""Models evaluated side by side: their names, and one fit for each group that can share it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from deql._system.describe import own_first
from deql._system.specs import written
from deql.data import Interactions
from deql.errors import DeqlError, ParameterError
from deql.evaluation.evaluation_result import Evaluation
from deql.evaluation.evaluator import check_metrics, evaluate
from deql.linalg.engines.engine import Engine
from deql.linalg.planner.choose import as_engine
from deql.models.base import NOT_SERIALISED, Recommender
from deql.priors.specs import prior_parameters
from deql.split import HeldOut

__all__ = [
    "LogCallback", "describe", "fit_and_evaluate", "model_spec", "name_models", "parameters", "sharing", "spec_fields",
    "unique_names",
]  # fmt: skip

LogCallback = Callable[[str], None]
"""The log callback that functions take as ``tell``: called with a line about what they are doing."""


def parameters(model: Recommender) -> dict[str, Any]:
    """Hyper-parameters as plain values, the model's own before those that all share.

    Examples
    --------
    >>> import deql
    >>> parameters(deql.EASE(80.0))  # doctest: +NORMALIZE_WHITESPACE
    {'l2': 80.0, 'user_power': 0.0, 'popularity_power': 0.0, 'engine': 'auto', 'dtype': 'float32'}
    """
    values = {field.name: getattr(model, field.name) for field in spec_fields(model)}
    if values.get("half_life", ...) is None:  # nothing fades
        del values["half_life"]
    if "prior" in values:  # whose parameters come in its place, and which has none if it is none
        prior, weight = values.pop("prior"), values.pop("prior_weight")
        values |= {} if prior is None else prior_parameters(prior) | {"prior_weight": weight}
    if isinstance(values.get("engine"), Engine):
        values |= values["engine"].config
    return {name: value.item() if hasattr(value, "item") else value for name, value in values.items()}


def describe(model: Recommender, shown: Collection[str] = ()) -> str:
    """A model in words: its class and the hyper-parameters that were changed, or are to be shown anyway.

    Examples
    --------
    >>> import deql
    >>> describe(deql.DEQL(l2=80.0, b=2.0, zero_diagonal=True))
    'DEQL l2=80 b=2 zero_diagonal'
    """
    words = [model._display_name]
    defaults = {field.name: field.default for field in spec_fields(model)} | _prior_defaults(model)
    for name, value in parameters(model).items():
        if name == "prior":  # of a file the name will do
            kind, _, file = value.partition(":")
            value = f"{kind}:{PurePath(file).name}" if file else kind
        if value != defaults.get(name) or name in shown:
            number = isinstance(value, int | float) and not isinstance(value, bool)
            words.append(name if value is True else f"{name}={value:.6g}" if number else f"{name}={value}")
    return " ".join(words)


def model_spec(model: Recommender) -> str:
    """A model as it is typed on the command line, to the last digit, so that it reads back the same.

    Its own parameters and those of its prior are all there, those that all models share where they were changed;
    where it is fitted (the engine) is not, unless that makes it another model.

    Examples
    --------
    >>> import deql
    >>> model_spec(deql.DEQL(l2=30.0, dropout=0.1 + 0.2, popularity_power=0.1))
    'deql:l2=30,dropout=0.30000000000000004,b=0.5,popularity_power=0.1'
    >>> model_spec(deql.EASE(l2=30.0, engine=deql.engines.Neighbours(k=200)))
    'ease:l2=30,engine=neighbours,k=200'
    """
    exact = as_engine(getattr(model, "engine", "auto")).exact
    defaults = {field.name: field.default for field in spec_fields(model) if field.kw_only or field.type == "bool"}
    words = []
    for name, value in parameters(model).items():
        of_prior = name.startswith("prior")
        of_place = name == "arithmetic" or (name == "engine" and exact)
        if of_place or value is None or (value == defaults.get(name) and not of_prior):
            continue
        words.append(name if value is True else f"{name}={written(value)}")
    return type(model).__name__.lower() + (f":{','.join(words)}" if words else "")


def unique_names(names: Sequence[str]) -> list[str]:
    """Names with a number after each that was there before.

    Examples
    --------
    >>> unique_names(["tea", "tea", "jam"])
    ['tea', 'tea (2)', 'jam']
    """
    taken: list[str] = []
    for name in names:
        count = 1
        while (one := name if count == 1 else f"{name} ({count})") in taken:
            count += 1
        taken.append(one)
    return taken


def name_models(models: Recommender | Sequence[Recommender] | Mapping[str, Recommender]) -> dict[str, Recommender]:
    """Models by name: as given, or in words, numbered where two read alike.

    Examples
    --------
    >>> import deql
    >>> list(name_models([deql.EASE(80.0), deql.EASE(80.0), deql.Popularity()]))
    ['EASE l2=80', 'EASE l2=80 (2)', 'Popularity']
    """
    if isinstance(models, Recommender):
        models = [models]
    elif not isinstance(models, Iterable):
        raise ParameterError(f"models must be a list or a dict of models, got {models!r}", parameter="models")
    elif not isinstance(models, Mapping):
        models = list(models)
    if isinstance(models, Mapping):
        named = {str(name): model for name, model in models.items()}
    else:
        words = [describe(model) if isinstance(model, Recommender) else repr(model) for model in models]
        named = dict(zip(unique_names(words), models, strict=True))
    if not named:
        raise ParameterError("name at least one model", parameter="models")
    for name, model in named.items():
        if not isinstance(model, Recommender):
            raise ParameterError(f"{name} must be a model such as deql.EASE(l2=80), got {model!r}", parameter="models")
        model._check_parameters()
    return named


def fit_and_evaluate(
    models: Mapping[str, Recommender],
    train: Interactions,
    target: HeldOut,
    metrics: Sequence[str],
    tell: LogCallback | None = None,
) -> dict[str, Evaluation]:
    """Fit copies of the models and evaluate them: one inverse and one pass for all that share P.

    The inverses are made and let go one after the other, so that memory is that of one; so are, for models that share
    P, the products of P with their priors.

    Parameters
    ----------
    models : dict of str to model
        Left as they are; copies are fitted.
    train : Interactions
    target : HeldOut
    metrics : sequence of str
    tell : callable, optional
        The log callback: called with the names of the models that are being fitted.

    Returns
    -------
    dict of str to Evaluation
        In the order of ``models``.

    Examples
    --------
    >>> import deql
    >>> data = deql.datasets.debian().take_users(slice(0, 800)).without_empty()
    >>> split = deql.split_strong(data)
    >>> models = {"kept": deql.DEQL(b=1.0), "dropped": deql.DEQL(b=0.0)}
    >>> list(fit_and_evaluate(models, split.train, split.test, ["recall@20"]))
    ['kept', 'dropped']
    """
    check_metrics(models.values(), metrics)
    found: dict[str, Evaluation] = {}
    for names in sharing(models):
        if tell is not None:
            tell(", ".join(names))
        for fitted in _fit_together([models[name] for name in names], names, train):
            found |= evaluate(fitted, target, metrics)
    return {name: found[name] for name in models}


def sharing(models: Mapping[str, Recommender]) -> Iterator[list[str]]:
    """Names of models that share one fit: all that A = S + diagonal and its inverse depend on is the same.

    Examples
    --------
    >>> import deql
    >>> list(sharing({"EASE": deql.EASE(80.0), "DLAE": deql.DLAE(80.0), "LAE": deql.LAE(80.0)}))
    [['EASE', 'LAE'], ['DLAE']]
    """
    groups: dict[Any, list[str]] = {}
    for name, model in models.items():
        groups.setdefault(name if model._fit_key is None else model._fit_key, []).append(name)
    yield from groups.values()


def _fit_together(
    models: Sequence[Recommender], names: Sequence[str], train: Interactions
) -> Iterator[dict[str, Recommender]]:
    """Copies of the models, fitted: those of each prior together, one prior after the other."""
    copies: dict[Any, dict[str, Any]] = {}
    # Those without a prior come first: their P has the items of the data, and serves every prior.
    for name, model in sorted(zip(names, models, strict=True), key=lambda pair: pair[1]._prior_key is not None):
        copy = type(model)(**model.get_params())
        if isinstance(engine := getattr(copy, "engine", None), Engine):
            copy.set_params(engine=engine.without_folder())  # which is for one fit, and several are made here
        copies.setdefault(model._prior_key, {})[name] = copy
    before = None
    for several in copies.values():
        first, *others = several.values()
        try:
            first.fit(train) if before is None else first.fit_beside(train, before)
        except DeqlError as error:
            error.args = (f"{', '.join(several)}: ", *error.args)
            raise
        for other in others:
            other.share_fit(first, first.prior_)
        yield several
        before = first if before is None else before


def spec_fields(model: Recommender | type[Recommender]) -> list[dataclasses.Field[Any]]:
    """The fields that describe a model or a kind of models, its own before those that all share."""
    return [field for field in own_first(model) if field.name not in NOT_SERIALISED]


def _prior_defaults(model: Recommender) -> dict[str, Any]:
    """What the parameters of a model's prior are unless they were changed, by their names beside the model's."""
    prior = getattr(model, "prior", None)
    fields = dataclasses.fields(prior) if dataclasses.is_dataclass(prior) else ()
    return {f"prior_{field.name}": field.default for field in fields}
