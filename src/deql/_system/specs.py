"""Things as people type them: a name, then ``parameter=value`` with commas between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from deql.errors import ParameterError, did_you_mean

__all__ = ["Parameter", "parameter_names", "parse_parameters", "split_parts", "written"]

_SWITCHES = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class Parameter(NamedTuple):
    """What can be typed for one: its default, and its type as annotated."""

    default: Any
    kind: str


def split_parts(text: str) -> list[str]:
    """What stands between commas, without what is empty.

    Examples
    --------
    >>> split_parts("l2=80, zero_diagonal,")
    ['l2=80', 'zero_diagonal']
    """
    return [stripped for part in text.split(",") if (stripped := part.strip())]


def parameter_names(parts: Iterable[str]) -> list[str]:
    """The names before the equals signs.

    Examples
    --------
    >>> parameter_names(["l2 = 80", "zero_diagonal"])
    ['l2', 'zero_diagonal']
    """
    return [part.partition("=")[0].strip() for part in parts]


def parse_parameters(spec: str, owner: str, parts: Iterable[str], known: Mapping[str, Parameter]) -> dict[str, Any]:
    """Values by parameter; ParameterError for one that is unknown, given twice, or cannot be read.

    Parameters
    ----------
    spec : str
        All that was typed, which begins every message.
    owner : str
        What has the parameters.
    parts : iterable of str
        ``name=value``; a switch may stand alone.
    known : mapping of str to Parameter

    Examples
    --------
    >>> parse_parameters("lowpass:rank=64", "lowpass", ["rank=64"], {"rank": Parameter(512, "int")})
    {'rank': 64}
    """
    chosen: dict[str, Any] = {}
    for part in parts:
        name, given, value = (piece.strip() for piece in part.partition("="))
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise ParameterError(f"{spec}: {owner} has no parameter {name!r}{did_you_mean(name, known)}; {has}")
        if name in chosen:
            raise ParameterError(f"{spec}: {name} is given twice")
        chosen[name] = _value(spec, name, value if given else None, known[name])
    return chosen


def written(value: Any) -> str:
    """A value as it is typed, to the last digit.

    Examples
    --------
    >>> written(30.0), written(0.1 + 0.2), written("float64")
    ('30', '0.30000000000000004', 'float64')
    """
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def _value(spec: str, name: str, text: str | None, parameter: Parameter) -> Any:
    default, kind = parameter
    if isinstance(default, bool):
        if text is None or text.lower() in _SWITCHES:
            return text is None or _SWITCHES[text.lower()]
        raise ParameterError(f"{spec}: {name} must be true or false, got {text!r}")
    if not text:
        such_as = "" if default is None else f", such as {name}={default}"
        raise ParameterError(f"{spec}: {name} needs a value{such_as}")
    if "str" in kind:
        return text
    whole = "int" in kind
    try:
        return int(text) if whole else float(text)
    except ValueError:
        raise ParameterError(f"{spec}: {name} must be a {'whole ' * whole}number, got {text!r}") from None
