"""How classes describe themselves: in their ``repr``, and in the ``help()`` of subclasses that share parameters."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

__all__ = ["own_first", "short_repr", "with_inherited_sections"]

_SECTIONS = ("Parameters", "Attributes")


def own_first(kind: Any) -> list[dataclasses.Field[Any]]:
    """The fields of a dataclass: what makes it what it is, then its other options, then those it shares with others.

    Examples
    --------
    >>> @dataclasses.dataclass
    ... class Base:
    ...     dtype: str = dataclasses.field(default="float32", kw_only=True)
    >>> @dataclasses.dataclass
    ... class Model(Base):
    ...     tolerance: float = dataclasses.field(default=1e-8, kw_only=True)
    ...     l2: float = 60.0
    >>> [field.name for field in own_first(Model)]
    ['l2', 'tolerance', 'dtype']
    """
    own = inspect.get_annotations(kind if isinstance(kind, type) else type(kind))
    return sorted(dataclasses.fields(kind), key=lambda field: (bool(field.kw_only), field.name not in own))


def short_repr(thing: Any) -> str:
    """A dataclass by its own numbers, and by whatever else differs from its defaults.

    Examples
    --------
    >>> @dataclasses.dataclass(repr=False)
    ... class Model:
    ...     user_power: float = dataclasses.field(default=0.0, kw_only=True)
    ...     l2: float = 60.0
    ...     zero_diagonal: bool = False
    ...     __repr__ = short_repr
    >>> Model(), Model(user_power=0.5), Model(zero_diagonal=True)
    (Model(l2=60.0), Model(l2=60.0, user_power=0.5), Model(l2=60.0, zero_diagonal=True))
    """
    if not dataclasses.is_dataclass(thing):
        return f"{type(thing).__name__}()"
    values = [(field, getattr(thing, field.name)) for field in own_first(thing) if field.repr]
    shown = [
        f"{field.name}={value!r}"
        for field, value in values
        if repr(value) != repr(field.default) or (not field.kw_only and type(value) in (int, float))
    ]
    return f"{type(thing).__name__}({', '.join(shown)})"


def with_inherited_sections(kind: type) -> str | None:
    """A class's docstring with those parameters and attributes that only the docstrings of its bases describe.

    Parameters
    ----------
    kind : type
        Its docstring follows numpydoc. Names that it describes itself are not taken from its bases.

    Examples
    --------
    >>> class Base:
    ...     '''A base.
    ...
    ...     Parameters
    ...     ----------
    ...     dtype : str
    ...         Of the numbers.
    ...     '''
    >>> class Child(Base):
    ...     '''A child.
    ...
    ...     Parameters
    ...     ----------
    ...     l2 : float
    ...         Ridge.
    ...     '''
    >>> print(with_inherited_sections(Child))
    A child.
    <BLANKLINE>
    Parameters
    ----------
    l2 : float
        Ridge.
    dtype : str
        Of the numbers.
    """
    if not (own := kind.__dict__.get("__doc__")):
        return None
    before, sections = _split(inspect.cleandoc(own))
    for base in kind.__mro__[1:]:
        _, theirs = _split(inspect.cleandoc(base.__dict__.get("__doc__") or ""))
        for title in _SECTIONS:
            entries, more = _entries(sections.get(title, "")), _entries(theirs.get(title, ""))
            described = {name for entry in entries for name in _names(entry)}
            added = [entry for entry in more if not described & set(_names(entry))]
            if added:
                sections[title] = "\n".join([*entries, *added])
    order = [*(title for title in _SECTIONS if title in sections), *(one for one in sections if one not in _SECTIONS)]
    parts = [f"{title}\n{'-' * len(title)}\n{sections[title]}" for title in order]
    return "\n\n".join([before, *parts])


def _split(doc: str) -> tuple[str, dict[str, str]]:
    """What stands before the first section, and each section's text by its title."""
    before, *rest = re.split(r"^([A-Z][\w ]*)\n-{3,}\n", doc, flags=re.MULTILINE)
    return before.strip(), {title: text.strip("\n") for title, text in zip(rest[::2], rest[1::2], strict=True)}


def _entries(text: str) -> list[str]:
    """A section's entries: a line that is not indented, and those that are."""
    return [entry.rstrip() for entry in re.split(r"^(?=\S)", text, flags=re.MULTILINE) if entry.strip()]


def _names(entry: str) -> list[str]:
    return [name.strip() for name in entry.partition("\n")[0].partition(":")[0].split(",")]
