"""Models as people type them: ``ease:l2=80``, ``popularity``, the path of a model file, or ``mine=`` before any.

A prior is typed beside a model's own parameters, and its parameters with ``prior_`` before them:
``deql:l2=80,prior=lowpass,prior_rank=512,prior_weight=2``. :func:`deql.evaluation.model_groups.model_spec` writes
what is read here.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from deql import models
from deql._system.specs import Parameter, parameter_names, parse_parameters, split_parts
from deql.cli.output import did_you_mean
from deql.errors import ParameterError
from deql.evaluation.model_groups import describe, spec_fields, unique_names
from deql.io.model_file import is_model_folder
from deql.models import Recommender, load
from deql.priors import Prior
from deql.priors.specs import parse_prior, prior_file, prior_parameters

__all__ = ["MODEL_KINDS", "is_model_file", "parse_spec", "parse_specs", "spec_files", "split_name", "typed_parameters"]

MODEL_KINDS = {name.lower(): name for name in models.MODEL_NAMES if name != "CustomLinear"}
"""Names on the command line and the models behind them, but those whose weights are handed over in Python."""


def is_model_file(text: str) -> bool:
    """Whether the text names a file rather than a kind of model.

    Examples
    --------
    >>> is_model_file("books.deql"), is_model_file("deql:b=2"), is_model_file("deql:prior=model:books.deql")
    (True, False, False)
    """
    is_kind = text.partition(":")[0].lower() in MODEL_KINDS
    return not is_kind and (text.endswith(".deql") or Path(text).is_file() or is_model_folder(Path(text)))


def split_name(text: str) -> tuple[str | None, str]:
    """The name that stands before a model, if one does, and the model.

    Examples
    --------
    >>> split_name("mine=shop.deql"), split_name("mine=deql:l2=80"), split_name("deql:l2=80")
    (('mine', 'shop.deql'), ('mine', 'deql:l2=80'), (None, 'deql:l2=80'))
    """
    name, given, model = text.partition("=")
    if not given or ":" in name or set(name) & set("/\\") or Path(text).is_file() or is_model_folder(Path(text)):
        return None, text
    if not name.strip() or not model.strip():
        raise ParameterError(f"{text}: a name goes before a model, such as mine=shop.deql or mine=ease:l2=80")
    return name.strip(), model.strip()


def parse_spec(text: str, files: bool = True) -> Recommender:
    """A model, not fitted, from its name and parameters.

    Parameters
    ----------
    text : str
        ``name`` or ``name:parameter=value,parameter=value``; a switch may stand alone.
    files : bool, default True
        Whether a model file could stand here, too.

    Examples
    --------
    >>> model = parse_spec("deql:l2=80,zero_diagonal")
    >>> type(model).__name__, model.l2, model.zero_diagonal
    ('DEQL', 80.0, True)
    """
    name, _, rest = text.partition(":")
    if name.strip().lower() not in MODEL_KINDS:
        raise ParameterError(
            f"there is no model {name!r}{did_you_mean(name.lower(), MODEL_KINDS)}: say {', '.join(MODEL_KINDS)}"
            + (", or a model file" if files else "")
        )
    kind: Any = getattr(models, MODEL_KINDS[name.strip().lower()])
    known = {field.name: Parameter(field.default, str(field.type)) for field in spec_fields(kind)}
    if "engine" in known:  # whose parameters that are not of the machine are named beside it
        known |= {"arithmetic": Parameter(None, "str"), "k": Parameter(None, "int")}
    parts = split_parts(rest)
    if "arithmetic" in known:  # as it was called in version 0.1
        parts = [part.replace("precision", "arithmetic", 1) if part.startswith("precision") else part for part in parts]
    prior = None
    if "prior" in known:
        prior, parts = _take_prior(text, parts, set(known))
        known |= {name: Parameter(None, "str") for name in ({} if prior is None else prior_parameters(prior))}
    chosen = parse_parameters(text, name, parts, known)
    try:
        model: Recommender = kind(**kind._from_config(chosen), **({} if prior is None else {"prior": prior}))
        model._check_parameters()
    except ParameterError as error:
        raise ParameterError(f"{text}: ", *error.args, parameter=error.parameter) from None
    return model


def spec_files(texts: Iterable[str]) -> list[Path]:
    """Files that models are read from, or their priors."""
    files = []
    for text in (split_name(text)[1] for text in texts):
        given = (part.partition("=") for part in split_parts(text.partition(":")[2]))
        named = [text] if is_model_file(text) else [prior_file(value) for name, _, value in given if name == "prior"]
        files += [Path(file) for file in named if file is not None]
    return files


def _take_prior(text: str, parts: list[str], known: set[str]) -> tuple[Prior | None, list[str]]:
    """The prior of a specification, and the parts that are not of it."""
    named = list(zip(parameter_names(parts), parts, strict=True))
    given = [part.partition("=")[2].strip() for name, part in named if name == "prior"]
    own = [part for name, part in named if name.startswith("prior_") and name not in known]
    needing = [name for name, _ in named if name.startswith("prior_")]
    if len(given) > 1:
        raise ParameterError(f"{text}: prior is given twice")
    if not given and needing:
        raise ParameterError(f"{text}: {needing[0]} needs a prior, such as prior=lowpass")
    if given and not given[0]:
        raise ParameterError(f"{text}: prior needs a value, such as prior=lowpass")
    if not given:
        return None, parts
    words = given[0]
    for part in own:
        words += ("," if ":" in words else ":") + part.removeprefix("prior_")
    rest = [part for name, part in named if name != "prior" and part not in own]
    try:
        return parse_prior(words, load), rest
    except ParameterError as error:
        raise ParameterError(f"{text}: ", *error.args, parameter=error.parameter) from None


def parse_specs(texts: list[str]) -> tuple[dict[str, Recommender], set[str]]:
    """Models by name, in the order typed, and the names of those that came fitted from a file."""
    given = [split_name(text) for text in texts]
    chosen = [name for name, _ in given if name is not None]
    for name in chosen:
        if chosen.count(name) > 1:
            raise ParameterError(f"the name {name} is given twice: each model needs one of its own")
    files = [is_model_file(text) for _, text in given]
    models = [load(text) if file else parse_spec(text) for (_, text), file in zip(given, files, strict=True)]
    words = [
        name or (Path(text).name if file else describe(model, shown=typed_parameters(text)))
        for (name, text), file, model in zip(given, files, models, strict=True)
    ]
    names = unique_names(words)
    return dict(zip(names, models, strict=True)), {name for name, file in zip(names, files, strict=True) if file}


def typed_parameters(text: str) -> set[str]:
    """The parameters that a specification names: people look for what they typed, defaults or not.

    Examples
    --------
    >>> sorted(typed_parameters("deql:l2=80,zero_diagonal"))
    ['l2', 'zero_diagonal']
    """
    return set(parameter_names(split_parts(text.partition(":")[2])))
