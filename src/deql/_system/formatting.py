"""Bytes and seconds as people write and read them, and values as JSON can hold them."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from deql.errors import ParameterError

__all__ = ["as_json", "parse_bytes", "parse_json", "show_bytes", "show_duration", "show_seconds", "three_digits"]

_FACTORS = {"": 1} | {unit: 1000**power for power, unit in enumerate(("kb", "mb", "gb", "tb"), 1)}
_FACTORS |= {f"{letter}{rest}": 1024**power for power, letter in enumerate("kmgt", 1) for rest in ("", "i", "ib")}
_FACTORS["b"] = 1


def parse_bytes(amount: Any, name: str = "memory") -> int:
    """A number of bytes from ``4_000_000_000``, ``"4GiB"``, ``"512 MiB"``, ``"1.5 GB"`` or ``"4G"``.

    GiB, Gi and G are 2³⁰ bytes, GB is 10⁹. ``name`` is what an error calls it.

    Examples
    --------
    >>> parse_bytes("512MiB"), parse_bytes("1.5 GB"), parse_bytes(2**20)
    (536870912, 1500000000, 1048576)
    """
    text = str(amount).strip()
    found = re.fullmatch(r"([0-9]{1,18}(?:_[0-9]{3})*(?:\.[0-9]{0,18})?)\s*([a-z]*)", text, re.IGNORECASE)
    factor = _FACTORS.get(found[2].lower()) if found else None
    if isinstance(amount, bool) or found is None or factor is None or not (size := int(float(found[1]) * factor)):
        raise ParameterError(
            f"{name} must be a number of bytes such as '4GiB', '512MiB' or 4_000_000_000, got {amount!r}",
            parameter=name,
        )
    return size


def show_bytes(size: float) -> str:
    """Bytes in the unit that suits them.

    Examples
    --------
    >>> show_bytes(3.4 * 2**30), show_bytes(5e8), show_bytes(85 * 2**30), show_bytes(2e4)
    ('3.4 GiB', '477 MiB', '85 GiB', '20 KiB')
    """
    power = next(power for power in (1, 2, 3, 4) if size < 1024 ** (power + 1) or power == 4)
    value = size / 1024**power
    return f"{value:.{1 if power > 2 and value < 10 else 0}f} {'KMGT'[power - 1]}iB"


def show_seconds(seconds: float) -> str:
    """A time that was estimated, no more exactly than that.

    Examples
    --------
    >>> show_seconds(0.2), show_seconds(42.3), show_seconds(310), show_seconds(9000)
    ('under 1 s', 'about 42 s', 'about 5 min', 'about 2.5 h')
    """
    if seconds < 1:
        return "under 1 s"
    if seconds < 90:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"


def three_digits(value: float | None) -> str:
    """Three digits, which is more than repeats of a measurement agree in.

    Examples
    --------
    >>> three_digits(6100.4), three_digits(37.25), three_digits(0.5), three_digits(None)
    ('6,100', '37.2', '0.500', '–')
    """
    if value is None:
        return "–"
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3}f}"


def show_duration(seconds: float) -> str:
    """Seconds, minutes or hours.

    Examples
    --------
    >>> show_duration(99.7), show_duration(6100), show_duration(30_000)
    ('99.7 s', '102 minutes', '8.33 hours')
    """
    for unit, size in (("s", 1), ("minutes", 60)):
        if seconds < 120 * size:
            return f"{three_digits(seconds / size)} {unit}"
    return f"{three_digits(seconds / 3600)} hours"


def parse_json(text: str | bytes, **options: Any) -> Any:
    """What JSON says; ValueError for all that is wrong with it.

    Parameters
    ----------
    text : str or bytes
    **options
        Of :func:`json.loads`.

    Examples
    --------
    >>> parse_json('{"item": "tea"}')
    {'item': 'tea'}
    >>> parse_json("[" * 100_000)
    Traceback (most recent call last):
    ...
    ValueError: it is nested too deeply
    """
    try:
        return json.loads(text, **options)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        if "integer string conversion" in str(error):  # whose own words are for programmers
            raise ValueError("it has a number of too many digits") from None
        raise


def as_json(value: Any) -> Any:
    """Arrays and tuples as lists, keys as text; NaN becomes None and infinity text, which JSON has no numbers for.

    Examples
    --------
    >>> as_json({"scores": (1.5, float("nan"), float("inf"))})
    {'scores': [1.5, None, 'inf']}
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): as_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value
