"""Models as people type them: ``ease:l2=80``, ``popularity``, the path of a model file, or ``mine=`` before any."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from deql import models
from deql.cli.output import did_you_mean
from deql.errors import ParameterError
from deql.evaluation.model_groups import describe, parameters, unique_names
from deql.models import Recommender, load

__all__ = ["MODEL_KINDS", "is_model_file", "parse_spec", "parse_specs", "split_name", "typed_parameters"]

MODEL_KINDS = {name.lower(): name for name in models.MODEL_NAMES if name != "CustomLinear"}
"""Names on the command line and the models behind them, but those whose weights are handed over in Python."""

_SWITCHES = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def is_model_file(text: str) -> bool:
    """Whether the text names a file rather than a kind of model.

    Examples
    --------
    >>> is_model_file("books.deql"), is_model_file("deql:b=2")
    (True, False)
    """
    return text.endswith(".deql") or (text.partition(":")[0].lower() not in MODEL_KINDS and Path(text).is_file())


def split_name(text: str) -> tuple[str | None, str]:
    """The name that stands before a model, if one does, and the model.

    Examples
    --------
    >>> split_name("mine=shop.deql"), split_name("mine=deql:l2=80"), split_name("deql:l2=80")
    (('mine', 'shop.deql'), ('mine', 'deql:l2=80'), (None, 'deql:l2=80'))
    """
    name, given, model = text.partition("=")
    if not given or ":" in name or set(name) & set("/\\") or Path(text).is_file():
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
    fields = parameters(kind())
    if "engine" in fields:  # whose only parameter that is not of the machine is named beside it
        fields |= {"arithmetic": None}
    types = {field.name: str(field.type) for field in dataclasses.fields(kind)} | {"arithmetic": "str"}
    chosen: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in rest.split(","))):
        parameter, given, value = (piece.strip() for piece in part.partition("="))
        if parameter == "precision" and "arithmetic" in fields:  # as it was called in version 0.1
            parameter = "arithmetic"
        if parameter not in fields:
            has = f"it has {', '.join(fields)}" if fields else "it has none"
            raise ParameterError(
                f"{text}: {name} has no parameter {parameter!r}{did_you_mean(parameter, fields)}; {has}"
            )
        if parameter in chosen:
            raise ParameterError(f"{text}: {parameter} is given twice")
        chosen[parameter] = _value(text, parameter, value if given else None, fields[parameter], types[parameter])
    try:
        model: Recommender = kind(**kind._from_config(chosen))
        model._check_parameters()
    except ParameterError as error:
        raise ParameterError(f"{text}: ", *error.args, parameter=error.parameter) from None
    return model


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
    return {name for part in text.partition(":")[2].split(",") if (name := part.partition("=")[0].strip())}


def _value(spec: str, parameter: str, text: str | None, default: Any, kind: str) -> Any:
    if isinstance(default, bool):
        if text is None or text.lower() in _SWITCHES:
            return text is None or _SWITCHES[text.lower()]
        raise ParameterError(f"{spec}: {parameter} must be true or false, got {text!r}")
    if not text:
        such_as = "" if default is None else f", such as {parameter}={default}"
        raise ParameterError(f"{spec}: {parameter} needs a value{such_as}")
    if "str" in kind:
        return text
    whole = "int" in kind
    try:
        return int(text) if whole else float(text)
    except ValueError:
        raise ParameterError(f"{spec}: {parameter} must be a {'whole ' * whole}number, got {text!r}") from None
