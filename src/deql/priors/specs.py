"""Priors as people type them: ``lowpass:rank=512``, ``features:items.parquet,l2=100``, ``model:last-month.deql``."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from typing import Any

from deql._system.specs import Parameter, parameter_names, parse_parameters, split_parts, written
from deql.errors import DataError, ParameterError, Setting, did_you_mean
from deql.priors.item_features import ItemFeatures
from deql.priors.low_pass import LowPass
from deql.priors.of_model import Model
from deql.priors.prior import Prior
from deql.priors.saved import SavedPrior

__all__ = ["PRIOR_KINDS", "features_of", "parse_prior", "prior_file", "prior_kind", "prior_parameters", "prior_spec"]

PRIOR_KINDS: dict[str, type[Prior]] = {"lowpass": LowPass, "features": ItemFeatures, "model": Model}
"""Names as they are typed, and the priors behind them."""

_EXAMPLES = {"features": "features:items.parquet", "model": "model:last-month.deql"}
"""Those whose first part is a file."""

_TYPED = {"int", "float", "str", "bool", "None"}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ModelOfFile(Model):
    """A model as a prior, with the file that it is from, by which it is told from others."""

    file: str


def parse_prior(text: str, load: Callable[[str], Any] | None = None) -> Prior | None:
    """A prior from its name and parameters; None for ``none``.

    Parameters
    ----------
    text : str
        ``name`` or ``name:parameter=value,parameter=value``; after ``features`` and ``model`` a file comes first.
    load : callable, optional
        Reads the model file of ``model``: models are built on priors, so these cannot read any themselves.

    Examples
    --------
    >>> parse_prior("lowpass:rank=64")
    LowPass(rank=64, power_in=0.0, power_out=0.6)
    >>> parse_prior("none") is None
    True
    """
    kind, _, rest = text.partition(":")
    kind = kind.strip().lower()
    if kind == "none":
        if rest.strip():
            raise ParameterError(f"{text}: none has no parameters", parameter="prior")
        return None
    if kind not in PRIOR_KINDS:
        raise ParameterError(
            f"there is no prior {kind!r}{did_you_mean(kind, [*PRIOR_KINDS, 'none'])}: "
            f"say lowpass, {', '.join(_EXAMPLES.values())} or none",
            parameter="prior",
        )
    parts, file = split_parts(rest), prior_file(text)
    if kind in _EXAMPLES and file is None:
        raise ParameterError(f"{text}: {kind} needs a file first, such as {_EXAMPLES[kind]}", parameter="prior")
    known = _parameters(PRIOR_KINDS[kind])
    chosen = parse_parameters(text, f"the prior {kind}", parts[file is not None :], known)
    try:
        if kind == "features":
            return features_of(str(file), **chosen)
        if kind == "model":
            return ModelOfFile(file if load is None else load(str(file)), str(file))
        return LowPass(**chosen)
    except ParameterError as error:
        raise ParameterError(f"{text}: ", *error.args, parameter="prior") from None


def features_of(file: str, **chosen: Any) -> ItemFeatures:
    """The prior of a table of features, which is read at once: what is wrong with it is said before any other work."""
    prior = ItemFeatures(file, **chosen)
    try:
        prior.column_kinds  # noqa: B018  read, and told
    except DataError as error:
        # The column is typed with the prior, as a table of interactions has one, too.
        raise DataError(
            *(f"features:{file},item=…" if isinstance(part, Setting) else part for part in error.args)
        ) from None
    return prior


def prior_file(text: str) -> str | None:
    """The file that a prior is read from, if it has one.

    Examples
    --------
    >>> prior_file("features:items.parquet,l2=100"), prior_file("lowpass:rank=64"), prior_file("features:l2=100")
    ('items.parquet', None, None)
    """
    kind, _, rest = text.partition(":")
    parts, kind = split_parts(rest), kind.strip().lower()
    if kind not in _EXAMPLES or not parts or parameter_names(parts)[0] in _parameters(PRIOR_KINDS[kind]):
        return None
    return parts[0]


def prior_kind(prior: Any) -> str:
    """What a prior is called where it is typed: ``lowpass``; ``matrix`` for weights that only Python can hand over.

    Examples
    --------
    >>> prior_kind(parse_prior("lowpass"))
    'lowpass'
    """
    return str(prior.config["prior"]) if isinstance(prior, Prior) else "matrix"


def prior_parameters(prior: Any) -> dict[str, Any]:
    """A prior's parameters by the names they have beside a model's: ``prior``, ``prior_rank`` …

    Examples
    --------
    >>> prior_parameters(parse_prior("lowpass:rank=64"))
    {'prior': 'lowpass', 'prior_rank': 64, 'prior_power_in': 0.0, 'prior_power_out': 0.6}
    """
    kind = prior_kind(prior)
    known = _parameters(PRIOR_KINDS[kind]) if kind in PRIOR_KINDS else {}
    saved = prior.parameters if isinstance(prior, SavedPrior) else {}
    values = {name: saved.get(name, getattr(prior, name, parameter.default)) for name, parameter in known.items()}
    file = getattr(prior, "file", getattr(prior, "table", None))
    words = f"{kind}:{os.fspath(file)}" if isinstance(file, str | os.PathLike) else kind
    return {"prior": words} | {f"prior_{name}": value for name, value in values.items() if value is not None}


def prior_spec(prior: Prior | None) -> str:
    """A prior as :func:`parse_prior` reads it.

    Examples
    --------
    >>> prior_spec(parse_prior("lowpass:rank=64,power_in=0.3")), prior_spec(None)
    ('lowpass:rank=64,power_in=0.3,power_out=0.6', 'none')
    """
    if prior is None:
        return "none"
    values = prior_parameters(prior)
    kind: str = values.pop("prior")
    parts = [f"{name.removeprefix('prior_')}={written(value)}" for name, value in values.items()]
    return kind + "".join(f"{',' if place or ':' in kind else ':'}{part}" for place, part in enumerate(parts))


def _parameters(kind: Any) -> dict[str, Parameter]:
    """What can be typed of a prior: its fields that are numbers, words or switches."""
    return {
        field.name: Parameter(field.default, str(field.type))
        for field in dataclasses.fields(kind)
        if set(re.findall(r"\w+", str(field.type))) <= _TYPED
    }
